"""One change to a GGUF file at a time: found against the tokenizer.json that it was made from, and
named.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.tokenizer.child import read_form
from harness.tokenizer.comparison import compare
from harness.tokenizer.formats import Form
from harness.tokenizer.gguf import GgufFile, check
from tests.tokenizer.formats.conversion import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    change,
    llama_3,
    of_serialised,
    rows,
)
from tests.tokenizer.gguf.writing import File
from tests.tokenizer.making import CONFIG

Mutation = Callable[[File], None]
BEGIN, END = 340, 341


def put(key: str, kind: str, value: object) -> Mutation:
    return lambda file: file.keys.__setitem__(f"tokenizer.ggml.{key}", (kind, value))


def lose(key: str) -> Mutation:
    return lambda file: file.keys.__delitem__(f"tokenizer.ggml.{key}")


def element(key: str, at: int, value: object) -> Mutation:
    return lambda file: change(file, key, at, value)


def swap(key: str, one: int, other: int) -> Mutation:
    def mutate(file: File) -> None:
        held = file.keys[f"tokenizer.ggml.{key}"][1]
        first, second = held[one], held[other]
        change(file, key, one, second)
        change(file, key, other, first)

    return mutate


def without(key: str, begin: int, end: int | None) -> Mutation:
    def mutate(file: File) -> None:
        kind, held = file.keys[f"tokenizer.ggml.{key}"]
        file.keys[f"tokenizer.ggml.{key}"] = (
            kind,
            [*held[:begin], *(held[end:] if end is not None else [])],
        )

    return mutate


def padded(file: File) -> None:
    """More ids than the tokenizer has, as a converter fills them up to the rows of the model."""
    count = len(file.keys["tokenizer.ggml.tokens"][1])
    for key, made in (
        ("tokens", [f"[PAD{count + one}]" for one in range(21)]),
        ("token_type", [UNUSED] * 21),
    ):
        kind, held = file.keys[f"tokenizer.ggml.{key}"]
        file.keys[f"tokenizer.ggml.{key}"] = (kind, [*held, *made])
    file.tensors[0] = rows(count + 21)


def longer(file: File) -> None:
    """A token that the original does not have."""
    for key, value in (("tokens", "<|new|>"), ("token_type", CONTROL)):
        kind, held = file.keys[f"tokenizer.ggml.{key}"]
        file.keys[f"tokenizer.ggml.{key}"] = (kind, [*held, value])


# Each row of the matrix of faults that neither a size nor a check string sees.
FOUND: dict[str, tuple[Mutation, str, str]] = {
    "pre is gpt-2": (
        put("pre", "string", "gpt-2"),
        "pre-tokenizer",
        "gpt-2 in the first, llama-3 in the second",
    ),
    "pre is missing": (lose("pre"), "pre-tokenizer", "no pre-tokenizer is named in the first"),
    "pre is qwen2": (
        put("pre", "string", "qwen2"),
        "pre-tokenizer",
        "qwen2 in the first, llama-3 in the second",
    ),
    "pre ignores no merges": (
        put("pre", "string", "dbrx"),
        "options",
        "ignore_merges: None in the first, True",
    ),
    "two common ids swapped": (swap("tokens", 64, 65), "tokens", "id 64 is "),
    "two rare ids swapped": (swap("tokens", 330, 331), "tokens", "(and 1 more id)"),
    "one rare token's text": (
        element("tokens", 333, "zzz"),
        "tokens",
        'id 333 is "zzz" in the first',
    ),
    "one rare merge dropped": (without("merges", 70, 71), "merges", "rank 70 is "),
    "two merges swapped": (
        swap("merges", 40, 60),
        "merges",
        "the same merges in a different order",
    ),
    "the last merges cut": (
        without("merges", 50, None),
        "merges",
        "50 and 84 merges; rank 50 is none in the first",
    ),
    "BOS typed NORMAL": (
        element("token_type", BEGIN, NORMAL),
        "token types",
        'id 340, "<|begin|>", is NORMAL',
    ),
    "special typed USER_DEFINED": (
        element("token_type", END, USER_DEFINED),
        "token types",
        "is USER_DEFINED",
    ),
    "text typed CONTROL": (
        element("token_type", 90, CONTROL),
        "token types",
        "text can contain it in only one of the two",
    ),
    "add_bos is false": (
        put("add_bos_token", "bool", False),
        "around",
        '"before":[]} in the first',
    ),
    "add_eos is true": (put("add_eos_token", "bool", True), "around", '"after":[341]'),
    "eos id wrong": (
        put("eos_token_id", "uint32", 5),
        "eos",
        'in the first, 341 "<|end|>" in the second',
    ),
    "bos id wrong": (
        put("bos_token_id", "uint32", 5),
        "bos",
        'in the first, 340 "<|begin|>" in the second',
    ),
    "a token more": (
        longer,
        "tokens",
        'id 343 is "<|new|>"',
    ),
    "another algorithm": (
        put("model", "string", "bert"),
        "model",
        "the first is WordPiece and the second is BPE",
    ),
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Form:
    """What the files were made from, with the names of its special tokens."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "tokenizer.json").write_text(json.dumps(llama_3()))
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG | {"extra_special_tokens": []}))
    return read_form(folder)


def made(mutate: Mutation | None, folder: Path) -> Form:
    file = of_serialised(llama_3())
    if mutate is not None:
        mutate(file)
    (folder / "model.gguf").write_bytes(file.bytes())
    return read_form(folder / "model.gguf")


@pytest.mark.parametrize("name", FOUND)
def test_a_mutation_is_found_and_named(name: str, original: Form, tmp_path: Path) -> None:
    """Every fault is a difference of the part that it is in, with the place at which it is."""
    mutate, part, said = FOUND[name]
    found = {
        one.part: one.words
        for one in compare(made(mutate, tmp_path), original)
        if one.sort == "difference"
    }
    assert part in found, found
    assert said in found[part]


def test_a_faithful_conversion_is_the_same(original: Form, tmp_path: Path) -> None:
    """Without a change nothing differs, nothing is undecided, and the fingerprints are equal."""
    form = made(None, tmp_path)
    assert [one for one in compare(form, original) if one.sort != "remark"] == []
    assert form.fingerprint == original.fingerprint


@pytest.mark.parametrize("name", FOUND)
def test_the_fingerprint_sees_what_decides_ids(name: str, original: Form, tmp_path: Path) -> None:
    """It changes with every fault that changes the ids of a text.

    Names and what is put around one stand beside it.
    """
    mutate, part, _ = FOUND[name]
    assert (made(mutate, tmp_path).fingerprint == original.fingerprint) == (
        part in {"around", "eos", "bos"}
    )


def test_padding_is_allowed(original: Form, tmp_path: Path) -> None:
    """Unused ids at the end change nothing and are said.

    So are rows of the model that no id has.
    """
    form = made(padded, tmp_path)
    assert form.fingerprint == original.fingerprint
    assert [one.words for one in compare(form, original) if one.part == "padding"] == [
        "padding: 21 unused ids at the end of the first, 0 at the end of the second"
    ]
    file = of_serialised(llama_3())
    file.tensors[0] = rows(400)
    (tmp_path / "rows.gguf").write_bytes(file.bytes())
    with GgufFile(tmp_path / "rows.gguf") as opened:
        assert [
            one.code for one in check(opened) if one.code in {"padding", "more-tokens-than-rows"}
        ] == ["padding"]


def test_an_unknown_pre_tokenizer_is_not_guessed(original: Form, tmp_path: Path) -> None:
    """A name that is not known here is undecided, and never equal."""
    form = made(put("pre", "string", "llama-bpe-2"), tmp_path)
    rows_ = [one for one in compare(form, original) if one.sort == "undecided"]
    assert [one.part for one in rows_] == ["pre-tokenizer", "options"]
    assert "not known here" in rows_[0].words
    assert [one.part for one in compare(form, original) if one.sort == "difference"] == []
    assert form.fingerprint != original.fingerprint
