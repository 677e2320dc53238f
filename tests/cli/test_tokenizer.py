"""`rankproof tokenizer identity` and `rankproof tokenizer diff`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.tokenizer import Identity, identify_folder
from tests.tokenizer.making import CONFIG, TEMPLATE, raw, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository of tokenizer files."""
    return write_folder(tmp_path / "a", content=raw("byte_level"), config=CONFIG, template=TEMPLATE)


def test_identity_prints_both_digests_and_every_part(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The identity of a folder is printed for people, exit code 0."""
    assert main(["tokenizer", "identity", str(folder)]) == 0
    said = capsys.readouterr().out
    found = identify_folder(folder)
    assert said.startswith(f"semantic  {found.semantic}\nfull      {found.full}\n")
    assert all(f"\n{part} " in said for part in found.parts)


def test_identity_as_json_can_be_read_back(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json, one line that is the identity."""
    assert main(["tokenizer", "identity", "--json", str(folder / "tokenizer.json")]) == 0
    assert Identity.from_json(capsys.readouterr().out) == identify_folder(folder / "tokenizer.json")


def test_what_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing path ends with 3 and a damaged file with 5, the path and the reason."""
    (tmp_path / "tokenizer.json").write_text("{")
    for arguments, code in (
        (["identity", str(tmp_path)], 5),
        (["identity", str(tmp_path / "no")], 3),
        (["diff", str(tmp_path), str(tmp_path)], 5),
    ):
        assert main(["tokenizer", *arguments]) == code
        assert f"rankproof tokenizer {arguments[0]}: {tmp_path}" in capsys.readouterr().err


def test_diff_exits_0_for_the_same(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two folders that hold the same tokenizer are the same."""
    other = write_folder(
        tmp_path / "b", content=raw("byte_level"), config=CONFIG, template=TEMPLATE
    )
    assert main(["tokenizer", "diff", str(folder), str(other)]) == 0
    assert capsys.readouterr().out == "the same\n"


def test_diff_exits_1_with_a_text_that_shows_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A difference is printed in words, with a text and both ids; a star marks what is semantic."""
    other = write_folder(
        tmp_path / "b",
        content=raw("byte_level") | {"pre_tokenizer": None},
        config=CONFIG,
        template=TEMPLATE,
    )
    assert main(["tokenizer", "diff", str(folder), str(other)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("* pre_tokenizer: ")
    assert "\n      A  [" in said
    assert main(["tokenizer", "diff", "--json", str(folder), str(other)]) == 1
    assert json.loads(capsys.readouterr().out)[0]["part"] == "pre_tokenizer"


def test_diff_semantic_passes_over_the_rest(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A decoder that differs is a difference, and with --semantic none."""
    other = write_folder(
        tmp_path / "b",
        content=raw("byte_level") | {"decoder": None},
        config=CONFIG,
        template=TEMPLATE,
    )
    assert main(["tokenizer", "diff", str(folder), str(other)]) == 1
    assert capsys.readouterr().out.startswith("  decoder: ")
    assert main(["tokenizer", "diff", "--semantic", str(folder), str(other)]) == 0


def test_diff_refuses_what_means_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder and a lone tokenizer.json are not compared: exit 2, nothing was decided."""
    assert main(["tokenizer", "diff", str(folder), str(folder / "tokenizer.json")]) == 2
    assert "the other is only an encoder" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["what"], ["identity"], ["diff", "a"]])
def test_bad_usage_exits_64(arguments: list[str]) -> None:
    """A missing or unknown command or argument is a usage error."""
    with pytest.raises(SystemExit) as caught:
        main(["tokenizer", *arguments])
    assert caught.value.code == 64
