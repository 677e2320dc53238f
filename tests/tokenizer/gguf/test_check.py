"""What is wrong with GGUF files whose structure is whole."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.tokenizer.form import BYTE_LEVEL, lost
from harness.tokenizer.gguf import GgufFile, GgufFinding, check
from tests.tokenizer.gguf.writing import File, Tensor, bpe, spm

GGML = "tokenizer.ggml."
Change = Callable[[File], object]


def found(made: File, path: Path) -> list[GgufFinding]:
    path.write_bytes(made.bytes())
    with GgufFile(path) as file:
        return check(file)


def put(key: str, kind: str, content: Any) -> Change:
    return lambda file: file.keys.__setitem__(key, (kind, content))


def drop(key: str) -> Change:
    return lambda file: file.keys.pop(key)


def element(key: str, at: int, content: Any) -> Change:
    return lambda file: file.keys[key][1].__setitem__(at, content)


def append(key: str, content: Any) -> Change:
    return lambda file: file.keys[key][1].append(content)


def rows(count: int) -> Change:
    def change(file: File) -> None:
        file.tensors[0] = Tensor("token_embd.weight", (8, count), 0, 8 * count * 4)

    return change


def tensor(*more: Tensor) -> Change:
    return lambda file: file.tensors.extend(more)


def index(token: str) -> int:
    position: int = bpe().keys[GGML + "tokens"][1].index(token)
    return position


def byte(*numbers: int) -> Change:
    """Leave the tokens of these bytes out."""

    def change(file: File) -> None:
        for letter, number in BYTE_LEVEL.items():
            if number in numbers:
                file.keys[GGML + "tokens"][1][index(letter)] = f"<unused {number}>"

    return change


def blocks(*numbers: int, count: int) -> Change:
    """Give a model of so many blocks two tensors in each of these."""

    def change(file: File) -> None:
        put("llama.block_count", "uint32", count)(file)
        del file.tensors[1:]
        for number in numbers:
            file.tensors += [
                Tensor(f"blk.{number}.{name}.weight", (8,), 0, 32)
                for name in ("attn_norm", "ffn_norm")
            ]

    return change


BPE: dict[str, tuple[Change, str, str]] = {
    "no architecture": (drop("general.architecture"), "error", "architecture"),
    "an architecture that is a number": (
        put("general.architecture", "uint32", 7),
        "error",
        "key-type",
    ),
    "an unknown architecture": (
        put("general.architecture", "string", "lama"),
        "warning",
        "architecture",
    ),
    "a name that is not text": (put("general.name", "string", b"\xff\xff"), "error", "encoding"),
    "a key with a space": (put("general. name", "string", "x"), "warning", "key-name"),
    "more blocks announced than there are": (
        put("llama.block_count", "uint32", 2),
        "error",
        "blocks",
    ),
    "blocks and no tensor": (lambda file: file.tensors.clear(), "error", "blocks"),
    "neither blocks nor a tensor": (
        lambda file: (file.tensors.clear(), drop("llama.block_count")(file)),
        "warning",
        "blocks",
    ),
    "blocks that nobody counts": (drop("llama.block_count"), "error", "blocks"),
    "blocks and an embedding alone": (lambda file: file.tensors.pop(), "error", "blocks"),
    "a block missing in the middle": (blocks(0, 2, count=3), "error", "blocks"),
    "the first block missing": (blocks(1, 2, count=3), "error", "blocks"),
    "a tensor missing in a block": (
        lambda file: (blocks(0, 1, 2, count=3)(file), file.tensors.pop()),
        "warning",
        "blocks",
    ),
    "a part of a model": (put("split.count", "uint16", 2), "note", "split"),
    "a part of a model without a tensor": (
        lambda file: (put("split.count", "uint16", 2)(file), file.tensors.clear()),
        "note",
        "split",
    ),
    "one part that is all, without a tensor": (
        lambda file: (put("split.count", "uint16", 1)(file), file.tensors.clear()),
        "error",
        "blocks",
    ),
    "no block": (
        lambda file: (put("llama.block_count", "uint32", 0)(file), file.tensors.pop()),
        "error",
        "blocks",
    ),
    "no block and no tensor": (
        lambda file: (put("llama.block_count", "uint32", 0)(file), file.tensors.clear()),
        "error",
        "blocks",
    ),
    "blocks of a vision tower": (
        lambda file: file.tensors.__setitem__(1, Tensor("v.blk.0.attn_norm.weight", (8,), 0, 32)),
        "error",
        "blocks",
    ),
    "tokens without an embedding": (lambda file: file.tensors.pop(0), "error", "embedding"),
    "a part beyond the last": (
        lambda file: (put("split.count", "uint16", 2)(file), put("split.no", "uint16", 7)(file)),
        "error",
        "split",
    ),
    "one part with tensors missing": (put("split.tensors.count", "int32", 99), "error", "split"),
    "a million blocks": (put("llama.block_count", "uint32", 1_000_000), "error", "blocks"),
    "blocks as a text": (put("llama.block_count", "string", "1"), "error", "key-type"),
    "a block too many": (tensor(Tensor("blk.1.attn_norm.weight", (8,), 0, 32)), "error", "blocks"),
    "no heads": (put("llama.attention.head_count", "uint32", 0), "error", "heads"),
    "KV heads that do not divide": (
        put("llama.attention.head_count_kv", "uint32", 3),
        "error",
        "heads",
    ),
    "heads that do not divide": (put("llama.attention.head_count", "uint32", 6), "error", "heads"),
    "another width": (put("llama.embedding_length", "uint32", 16), "error", "embedding"),
    "an unknown tokenizer": (put(GGML + "model", "string", "gpt9"), "error", "tokenizer-model"),
    "no tokenizer": (drop(GGML + "model"), "warning", "no-tokenizer"),
    "no tokens": (put(GGML + "tokens", "[string]", []), "error", "no-tokens"),
    "tokens that are numbers": (put(GGML + "tokens", "[uint32]", [1, 2]), "error", "key-type"),
    "a type too few": (
        lambda file: file.keys[GGML + "token_type"][1].pop(),
        "error",
        "array-length",
    ),
    "a type that does not exist": (element(GGML + "token_type", 0, 9), "error", "token-type"),
    "no types": (drop(GGML + "token_type"), "warning", "no-token-types"),
    "two ids with one text": (
        element(GGML + "tokens", index("o"), "A"),
        "error",
        "duplicate-token",
    ),
    "a token without text": (append(GGML + "tokens", ""), "warning", "empty-token"),
    "a token that is not UTF-8": (
        element(GGML + "tokens", index("ll"), b"\xff"),
        "error",
        "encoding",
    ),
    "a byte without a token": (element(GGML + "tokens", index("o"), "oo"), "error", "missing-byte"),
    "a byte of no assigned character without a token": (byte(0xF1), "warning", "missing-byte"),
    "a control character without a token": (byte(0x01), "warning", "missing-byte"),
    "invisible tags without a token": (byte(0xF3), "warning", "missing-byte"),
    "bytes of no UTF-8 without a token": (byte(0xC0, 0xC1, 0xFF), "note", "missing-byte"),
    "a newline without a token": (byte(0x0A), "error", "missing-byte"),
    "a lead byte without a token": (byte(0xF1, 0xC3), "error", "missing-byte"),
    "a continuation byte without a token": (byte(0x80), "error", "missing-byte"),
    "a letter typed UNUSED": (element(GGML + "token_type", index("a"), 5), "error", "byte-token"),
    "a letter typed BYTE": (element(GGML + "token_type", index("a"), 6), "error", "byte-token"),
    "a letter typed UNKNOWN": (element(GGML + "token_type", index("a"), 2), "error", "byte-token"),
    "a letter typed CONTROL": (
        element(GGML + "token_type", index("a"), 3),
        "warning",
        "byte-token",
    ),
    "more tokens than rows": (rows(100), "error", "more-tokens-than-rows"),
    "padding": (rows(300), "note", "padding"),
    "no pre-tokenizer": (drop(GGML + "pre"), "error", "pre-tokenizer"),
    "an unknown pre-tokenizer": (
        put(GGML + "pre", "string", "llama-bpe2"),
        "error",
        "pre-tokenizer",
    ),
    "the default pre-tokenizer": (
        put(GGML + "pre", "string", "default"),
        "warning",
        "pre-tokenizer",
    ),
    "no merges": (drop(GGML + "merges"), "error", "no-merges"),
    "a merge of one piece": (append(GGML + "merges", "hell"), "error", "merge"),
    "a merge of three pieces": (append(GGML + "merges", "h e l"), "error", "merge"),
    "a merge of nothing": (append(GGML + "merges", " "), "error", "merge"),
    "a merge whose piece is not a token": (append(GGML + "merges", "zz o"), "error", "merge"),
    "a merge whose result is not a token": (append(GGML + "merges", "o o"), "error", "merge"),
    "a merge twice": (append(GGML + "merges", "h e"), "warning", "duplicate-merge"),
    "a BOS id out of range": (put(GGML + "bos_token_id", "uint32", 10**6), "error", "token-id"),
    "a BOS id of 2^32-1": (put(GGML + "bos_token_id", "uint32", 2**32 - 1), "error", "token-id"),
    "a negative BOS id": (put(GGML + "bos_token_id", "int32", -1), "error", "token-id"),
    "a BOS id as a text": (put(GGML + "bos_token_id", "string", "1"), "error", "key-type"),
    "BOS typed NORMAL": (
        element(GGML + "token_type", index("<|begin|>"), 1),
        "warning",
        "control-token",
    ),
    "a marker typed USER_DEFINED": (
        element(GGML + "token_type", index("<|end|>"), 4),
        "warning",
        "control-token",
    ),
    "add_bos without an id": (drop(GGML + "bos_token_id"), "error", "token-id"),
    "add_eos without an id": (
        lambda file: (
            drop(GGML + "eos_token_id")(file),
            put(GGML + "add_eos_token", "bool", True)(file),
        ),
        "error",
        "token-id",
    ),
    "no EOS": (drop(GGML + "eos_token_id"), "warning", "token-id"),
    "a flag that is a number": (put(GGML + "add_bos_token", "uint8", 1), "error", "key-type"),
    "BOS twice": (
        put("tokenizer.chat_template", "string", "{{ bos_token }}{{ messages }}"),
        "warning",
        "bos-twice",
    ),
    "BOS twice, written out": (
        put("tokenizer.chat_template", "string", "<|begin|>x"),
        "warning",
        "bos-twice",
    ),
    "a template that does not parse": (
        put("tokenizer.chat_template", "string", "{% for %}"),
        "error",
        "chat-template",
    ),
    "a template that is not closed": (
        put("tokenizer.chat_template", "string", "{% if a %}"),
        "error",
        "chat-template",
    ),
    "a template with an unknown filter": (
        put("tokenizer.chat_template", "string", "{{ a|eval }}"),
        "error",
        "chat-template",
    ),
    "a template nested too deeply": (
        put("tokenizer.chat_template", "string", "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}"),
        "error",
        "chat-template",
    ),
    "a template of its own name": (
        put("tokenizer.chat_template.rag", "string", "{% x %}"),
        "error",
        "chat-template",
    ),
    "a tensor of an unknown type": (tensor(Tensor("x", (8,), 4711, 32)), "error", "tensor-type"),
    "a tensor inside another": (
        tensor(Tensor("x", (8,), 0, 32, offset=0)),
        "error",
        "tensor-overlap",
    ),
    "quantized without a version": (
        tensor(Tensor("x", (32,), 2, 18)),
        "warning",
        "quantization-version",
    ),
}
SPM: dict[str, tuple[Change, str, str]] = {
    "no scores": (drop(GGML + "scores"), "error", "no-scores"),
    "scores as whole numbers": (put(GGML + "scores", "[uint8]", [0] * 261), "error", "key-type"),
    "a score that is NaN": (element(GGML + "scores", 5, math.nan), "error", "score"),
    "a score too few": (lambda file: file.keys[GGML + "scores"][1].pop(), "error", "array-length"),
    "a byte token missing": (element(GGML + "tokens", 13, "<0xZZ>"), "error", "missing-byte"),
    "byte tokens in small letters": (
        element(GGML + "tokens", 3 + 0x0A, "<0x0a>"),
        "error",
        "missing-byte",
    ),
    "a lead byte without a byte token": (
        element(GGML + "tokens", 3 + 0xC3, "<0xZZ>"),
        "error",
        "missing-byte",
    ),
    "a piece typed BYTE": (element(GGML + "token_type", -1, 6), "error", "byte-token"),
    "a byte token typed CONTROL": (element(GGML + "token_type", 13, 3), "error", "byte-token"),
    "bytes of Gemma 4 missing": (
        lambda file: (
            put(GGML + "model", "string", "gemma4")(file),
            element(GGML + "tokens", 3 + 0xC3, "<0xZZ>")(file),
        ),
        "error",
        "missing-byte",
    ),
    "a byte token typed NORMAL": (element(GGML + "token_type", 13, 1), "error", "byte-token"),
}
CASES = [(bpe, name, *case) for name, case in BPE.items()] + [
    (spm, name, *case) for name, case in SPM.items()
]


CHAT = (
    "{% for m in messages %}{% if not loop.first %}{% break %}{% endif %}{{ m | tojson }}{%"
    " endfor %}"
)


@pytest.mark.parametrize("made", [bpe, spm])
def test_nothing_is_wrong_with_a_good_file(made: Callable[[], File], tmp_path: Path) -> None:
    """A whole model with a whole tokenizer has no finding at all."""
    file = made()
    put("tokenizer.chat_template", "string", CHAT)(file)
    assert found(file, tmp_path / "model.gguf") == []


@pytest.mark.parametrize(
    ("made", "name", "change", "severity", "code"), CASES, ids=[case[1] for case in CASES]
)
def test_each_fault_is_named(
    made: Callable[[], File], name: str, change: Change, severity: str, code: str, tmp_path: Path
) -> None:
    """Each fault is found by its code and severity, with a key or tensor and what to do."""
    file = made()
    change(file)
    findings = found(file, tmp_path / "model.gguf")
    named = [one for one in findings if (one.severity, one.code) == (severity, code)]
    assert named, findings
    assert all(one.message and one.where and (one.remedy or severity == "note") for one in named)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ((0xF1,), "code points U+40000 to U+7FFFF cannot be encoded; none of these is a letter"),
        (
            (0xF1, 0xF2),
            "code points U+40000 to U+BFFFF cannot be encoded; none of these is a letter",
        ),
        (
            (0xF4, 0xF5),
            "code points U+100000 to U+10FFFF cannot be encoded; none of these is a letter",
        ),
        ((0xC0, 0xC1, *range(0xF5, 0x100)), "they occur in no UTF-8 text, so nothing is lost"),
        ((0x61,), "code point U+0061 cannot be encoded, among them U+0061 (a)"),
        ((0xC3,), "code points U+00C0 to U+00FF cannot be encoded, among them U+00C0 (À)"),
    ],
)
def test_what_is_lost_is_worked_out(missing: tuple[int, ...], words: str) -> None:
    """A missing byte is told by the code points that need it, and by the characters among them."""
    found = lost(missing)
    assert found.words.startswith(words)
    for first, last in found.ranges:
        assert all(set(chr(number).encode()) & set(missing) for number in (first, last))


def test_a_byte_that_every_character_can_do_without_is_not_missed(tmp_path: Path) -> None:
    """A SentencePiece character with a token of its own needs no bytes.

    A byte-level one always does.
    """
    made = spm()
    element(GGML + "tokens", 3 + 0x61, "a")(made)
    element(GGML + "token_type", 3 + 0x61, 1)(made)
    (one,) = found(made, tmp_path / "model.gguf")
    assert (one.severity, one.code) == ("note", "missing-byte")
    assert "byte 0x61; every character that needs them has its own token" in one.message


def test_a_tokenizer_without_a_rare_byte_is_usable(tmp_path: Path) -> None:
    """A byte-level vocabulary without byte 0xF1 is offered, with a warning that says what is
    lost.
    """
    from harness.tokenizer.discovery import resolve

    made = bpe()
    byte(0xF1)(made)
    (tmp_path / "model.gguf").write_bytes(made.bytes())
    found = resolve(tmp_path / "model.gguf", caches=[])
    assert found.chosen is not None
    assert found.chosen.standing == "usable"
    assert "warning" in found.chosen.reasons[1]
    assert "U+40000 to U+7FFFF cannot be encoded" in found.chosen.reasons[1]


def test_a_template_is_not_run(tmp_path: Path) -> None:
    """A template that would compute for ever, or allocate without end, compiles and is not worked
    out.
    """
    made = bpe()
    put(
        "tokenizer.chat_template",
        "string",
        "{{ 9 ** 9 ** 9 }}{{ 'a' * 10 ** 12 }}{% generation %}x{% endgeneration %}",
    )(made)
    assert found(made, tmp_path / "model.gguf") == []


def test_what_is_in_a_file_cannot_act_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names and texts of a file are shown with their control characters written out."""
    made = bpe()
    put("general.name", "string", "\x1b[31mred\x1b[0m\u202e")(made)
    put("a\x1b[2J", "string", "x")(made)
    path = tmp_path / "model.gguf"
    path.write_bytes(made.bytes())
    assert main(["tokenizer", "gguf", "inspect", str(path)]) == 0
    assert main(["tokenizer", "gguf", "check", str(path)]) == 0
    printed = capsys.readouterr()
    assert all(one == "\n" or one.isprintable() for one in printed.out + printed.err)
    assert "\\x1b[31m" in printed.out


def test_exit_codes_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code says which class it is, of several files the highest, and each line of JSON is
    one file.
    """
    good, warned, wrong, damaged = (
        tmp_path / name for name in ("good", "warned", "wrong", "damaged")
    )
    good.write_bytes(bpe().bytes())
    made = bpe()
    drop(GGML + "eos_token_id")(made)
    warned.write_bytes(made.bytes())
    made = bpe()
    drop(GGML + "merges")(made)
    wrong.write_bytes(made.bytes())
    damaged.write_bytes(bpe().bytes()[:-1])

    def code(*words: object) -> int:
        return main(["tokenizer", "gguf", *map(str, words)])

    assert code("check", good) == 0
    assert code("check", warned) == 0
    assert code("check", "--strict", warned) == 4
    assert code("check", wrong) == 1
    assert code("check", tmp_path / "nobody") == 3
    assert code("check", damaged) == 5
    assert code("check", tmp_path) == 64
    if os.getuid():
        wrong.chmod(0)
        assert code("check", wrong) == 15
        wrong.chmod(0o600)
    capsys.readouterr()
    assert code("check", "--json", good, wrong, damaged) == 5
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["file"] for row in rows] == [str(good), str(wrong), str(damaged)]
    assert rows[0]["findings"] == []
    assert rows[1]["findings"][0]["code"] == "no-merges"
    assert rows[2]["refused"]["code"] == "truncated"
    assert code("inspect", "--json", "--keys", "tokenizer.ggml.t*", "--arrays", 2, good) == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown["keys"]) == {GGML + "tokens", GGML + "token_type"}
    assert len(shown["keys"][GGML + "tokens"]["first"]) == 2
    assert len(shown["tensors"]) == 2
