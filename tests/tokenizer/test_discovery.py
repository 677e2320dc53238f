"""Which tokenizer belongs to a model: chosen for what it holds, and every other one told why
not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli import main
from harness.tokenizer.discovery import Resolution, places, resolve
from tests.tokenizer.formats.conversion import change, llama_3, of_serialised, rows
from tests.tokenizer.gguf.writing import File
from tests.tokenizer.making import Raw, write_folder


def model(folder: Path, mutate: Callable[[File], object] | None = None) -> Path:
    """A GGUF file of the small Llama 3."""
    file = of_serialised(llama_3())
    if mutate is not None:
        mutate(file)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.gguf").write_bytes(file.bytes())
    return folder / "model.gguf"


def other() -> Raw:
    """As many ids, one of which is another token."""
    content = llama_3()
    vocabulary = content["model"]["vocab"]
    token = list(vocabulary)[-1]
    vocabulary["zzz"] = vocabulary.pop(token)
    left_out = [one for one in content["model"]["merges"] if token in ("".join(one), *one)]
    for one in left_out:
        content["model"]["merges"].remove(one)
    return content


def standings(found: Resolution) -> list[tuple[str, str]]:
    return [(one.origin, one.standing) for one in found.candidates]


def snapshot(root: Path, content: Raw, *, hub: bool) -> Path:
    """A snapshot in a cache of either layout."""
    inner = "models--a--b/snapshots/0123" if hub else "a--b-0123/4567/files"
    return write_folder(root / inner, content=content)


def test_places_are_asked_in_the_order_of_trust(tmp_path: Path) -> None:
    """Inside, beside, above, our cache and the hub's; what is named is the only one.

    A file is asked once.
    """
    file = model(tmp_path / "models")
    write_folder(tmp_path / "models", content=llama_3())
    (tmp_path / "models/tokenizer.model").write_bytes(b"x")
    (tmp_path / "models/model.tokenizer.json").write_text("{}")
    write_folder(tmp_path, content=llama_3())
    ours, hubs = (
        snapshot(tmp_path / "ours", llama_3(), hub=False),
        snapshot(tmp_path / "hub", llama_3(), hub=True),
    )
    found = places(file, caches=[tmp_path / "ours", tmp_path / "hub", tmp_path / "ours"])
    assert [(one.origin, one.path) for one in found] == [
        ("inside", file),
        ("beside", tmp_path / "models/model.tokenizer.json"),
        ("beside", tmp_path / "models"),
        ("beside", tmp_path / "models/tokenizer.model"),
        ("above", tmp_path),
        ("cache", ours),
        ("hub's cache", hubs),
    ]
    assert [one.path for one in places(file, named=hubs)] == [hubs]


def test_a_link_out_of_a_cache_is_not_followed(tmp_path: Path) -> None:
    """A snapshot whose file leads out of the cache is told, and not read; a loop of links ends."""
    place = tmp_path / "hub/models--a--b/snapshots/0123"
    place.mkdir(parents=True)
    (place / "tokenizer.json").symlink_to("/etc/passwd")
    loop = tmp_path / "hub/models--a--b/snapshots/loop"
    loop.symlink_to("loop")
    found = [
        one
        for one in places(model(tmp_path), caches=[tmp_path / "hub"])
        if one.origin == "hub's cache"
    ]
    assert [one.complaint for one in found] == [
        "is a link to a path outside the cache, /etc/passwd"
    ]


def test_parts_of_a_tokenizer_are_told_and_not_guessed(tmp_path: Path) -> None:
    """A vocab.json alone is named with the reason for which it is not used."""
    (tmp_path / "vocab.json").write_text("{}")
    found = [one for one in places(model(tmp_path), caches=[]) if one.origin == "beside"]
    assert [one.path.name for one in found] == ["vocab.json"]
    assert "is only a part of a tokenizer" in found[0].complaint


@pytest.mark.whole
def test_the_one_with_the_same_content_is_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the one beside the model, which has as many ids, but the one in the cache, which has the
    same.
    """
    file = model(tmp_path / "models")
    write_folder(tmp_path / "models", content=other())
    snapshot(tmp_path / "hub", llama_3(), hub=True)
    found = resolve(file, caches=[tmp_path / "hub"], strict=True)
    assert standings(found) == [
        ("inside", "usable"),
        ("beside", "differs"),
        ("hub's cache", "same"),
    ]
    assert found.proven
    assert found.chosen is not None
    assert found.chosen.fingerprint == found.fingerprint
    assert '"zzz" in the second' in found.candidates[1].reasons[0]
    command = [
        "tokenizer",
        "resolve",
        str(file),
        "--cache",
        str(tmp_path / "hub"),
        "--explain",
        "--strict",
    ]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "(hub's cache): proven: all 343 ids" in said
    assert f"2. beside: {tmp_path / 'models'}: differs" in said


@pytest.mark.whole
def test_nothing_proven_is_refused_under_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tokenizer inside is taken where nothing is wrong with it, and not under strict: exit code
    4.
    """
    file, nowhere = model(tmp_path), str(tmp_path / "nowhere")
    command = ["tokenizer", "resolve", str(file), "--cache", nowhere]
    assert main(command) == 0
    assert "(inside): 343 ids" in capsys.readouterr().out
    assert main([*command, "--strict"]) == 4
    assert main([*command, "--json"]) == 0
    assert not json.loads(capsys.readouterr().out.splitlines()[-1])["proven"]
    (tmp_path / "cut.gguf").write_bytes(file.read_bytes()[:200])
    assert main(["tokenizer", "resolve", str(tmp_path / "cut.gguf")]) == 5
    assert main(["tokenizer", "resolve", str(tmp_path / "no.gguf")]) == 3


@pytest.mark.whole
@pytest.mark.parametrize(
    ("mutate", "inside", "standing", "code"),
    [
        (lambda file: change(file, "tokens", 5, "zz"), "refused", "differs", 1),
        (lambda file: file.keys.pop("tokenizer.ggml.pre"), "refused", "differs", 1),
        (
            lambda file: file.keys.__setitem__("tokenizer.ggml.pre", ("string", "new-bpe")),
            "refused",
            "undecided",
            2,
        ),
        (
            lambda file: file.keys.__setitem__("tokenizer.ggml.model", ("string", "none")),
            "refused",
            "undecided",
            2,
        ),
        (lambda file: file.tensors.__setitem__(0, rows(300)), "refused", "differs", 1),
    ],
)
def test_a_named_one_is_held_against_the_model(
    mutate: Callable[[File], object], inside: str, standing: str, code: int, tmp_path: Path
) -> None:
    """What differs is 1, what cannot be decided is 2, and a size that fits proves nothing."""
    file = model(tmp_path, mutate)
    named = write_folder(tmp_path / "named", content=llama_3()) / "tokenizer.json"
    assert standings(resolve(file, tokenizer=named)) == [("named", standing)]
    assert standings(resolve(file, caches=[]))[0] == ("inside", inside)
    assert main(["tokenizer", "resolve", str(file), "--tokenizer", str(named)]) == code


@pytest.mark.whole
def test_a_hint_is_said_and_proves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the model says of its origin is printed, and so is what its architecture and size make
    likely.
    """

    def mutate(file: File) -> None:
        file.keys["general.base_model.0.repo_url"] = ("string", "https://example.org/a/b")
        file.keys["tokenizer.ggml.model"] = ("string", "none")
        file.tensors[0] = rows(32_000)

    file = model(tmp_path, mutate)
    assert main(["tokenizer", "resolve", str(file), "--cache", str(tmp_path / "nowhere")]) == 3
    said = capsys.readouterr().out
    assert 'general.base_model.0.repo_url is "https://example.org/a/b"; look there' in said
    assert "(a hint, not proof)" in said
