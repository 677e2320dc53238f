"""Names, sizes and addresses that others chose."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tokenizer.loading import SourceLimits, SourceRefused
from harness.tokenizer.loading.source import (
    HubRepository,
    check_limits,
    checked_endpoint,
    checked_name,
    checked_revision,
    is_tokenizer_file,
    parse,
)

PIECES = st.sampled_from(
    ["..", ".", "", "a", "tokenizer.json", "\\", "\0", "C:", "~", "é", "\ud800", "x" * 300, "\n"]
)


@given(st.one_of(st.text(), st.lists(PIECES, min_size=1, max_size=5).map("/".join)))
def test_an_accepted_name_stays_inside_its_folder(name: str) -> None:
    """Whatever a listing calls a file, it is refused or lands below the snapshot's folder."""
    try:
        checked_name(name)
    except SourceRefused:
        return
    folder = Path("/cache/snapshot")
    landed = (folder / name).resolve()
    assert landed.is_relative_to(folder)
    assert landed != folder
    assert landed.as_posix() == f"{folder}/{name}"


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../b",
        "/etc/passwd",
        "a\\b",
        "a\0b",
        "a//b",
        "",
        ".",
        "a/",
        "~/x",
        "C:x",
        "a\nb",
        "x" * 256,
    ],
)
def test_names_that_leave_are_refused(name: str) -> None:
    """Every way to leave the folder, or to confuse another system, is refused by name."""
    with pytest.raises(SourceRefused):
        checked_name(name)


@pytest.mark.parametrize(
    "revision", ["../main", "a/../b", "", "a//b", "/x", "a\0", "a..b", "-x", "x" * 300, "a b"]
)
def test_a_revision_that_is_none_is_refused(revision: str) -> None:
    """A revision cannot lead out of its place, in the address or in the cache."""
    with pytest.raises(SourceRefused):
        checked_revision(revision)


@pytest.mark.parametrize("revision", ["main", "refs/pr/12", "v1.0", "a" * 40, "release/2026-01"])
def test_real_revisions_pass(revision: str) -> None:
    """Branches, tags, pull requests and commits are accepted as they are."""
    assert checked_revision(revision) == revision


def test_a_name_that_is_also_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder named like the repository does not silently replace it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    with pytest.raises(SourceRefused, match=r"\./org/name"):
        parse("org/name", endpoint=None)
    assert parse("./org/name", endpoint=None) == Path("org/name")
    assert parse("org/other", endpoint="http://hub") == HubRepository(
        endpoint="http://hub", name="org/other"
    )


@pytest.mark.parametrize(
    "source", ["", "a/b/c", "../x", "org/..", "org/name\n", "org\\name", "http://x/y", "a--b/c"]
)
def test_text_that_names_nothing_is_refused(source: str) -> None:
    """Text that is neither a repository's name nor a folder is refused before anything is asked or
    written.
    """
    with pytest.raises(SourceRefused):
        parse(source, endpoint="http://hub")


@pytest.mark.parametrize(
    "endpoint", ["ftp://x", "hub", "http://", "http://user@x", "http://x?y", "file:///etc"]
)
def test_an_address_that_is_no_hub_is_refused(endpoint: str) -> None:
    """Only http and https addresses without user, query or fragment are asked."""
    with pytest.raises(SourceRefused):
        checked_endpoint(endpoint)


def test_limits_name_what_is_too_much() -> None:
    """A file, a sum and a number beyond the limits are refused, each with the option that raises
    it.
    """
    limits = SourceLimits(file_bytes=10, total_bytes=15, files=2)
    with pytest.raises(SourceRefused, match=r"big\.json has 11 bytes.*file_bytes"):
        check_limits([("big.json", 11)], limits=limits)
    with pytest.raises(SourceRefused, match="total_bytes"):
        check_limits([("a", 8), ("b", 8)], limits=limits)
    with pytest.raises(SourceRefused, match=r"files=\.\.\."):
        check_limits([("a", 1), ("b", 1), ("c", 1)], limits=limits)
    with pytest.raises(SourceRefused, match="no tokenizer files"):
        check_limits([], limits=limits)


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        ("tokenizer.json", True),
        ("tokenizer.model", True),
        ("tokenizer.model.v3", True),
        ("tekken.json", True),
        ("vocab.txt", True),
        ("merges.txt", True),
        ("qwen.tiktoken", True),
        ("source.spm", True),
        ("additional_chat_templates/rag.jinja", True),
        ("tokenization_kimi.py", True),
        ("code/deep/helper.py", True),
        ("model.safetensors", False),
        ("model.safetensors.index.json", False),
        ("onnx/config.json", False),
        ("README.md", False),
        (".gitattributes", False),
    ],
)
def test_which_files_belong_to_a_tokenizer(name: str, belongs: bool) -> None:
    """Everything a tokenizer class of transformers opens is fetched, and no weights are."""
    assert is_tokenizer_file(name) is belongs


@pytest.mark.slow
def test_every_vocabulary_file_of_transformers_belongs() -> None:
    """Each file name that the installed transformers asks for, in any tokenizer class, counts as a
    tokenizer file.
    """
    import ast
    import importlib.util

    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    names: set[str] = set()
    for path in Path(spec.origin).parent.glob("models/*/tokenization_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "VOCAB_FILES_NAMES"
                for target in node.targets
            ):
                assert isinstance(node.value, ast.Dict)
                names |= {
                    value.value for value in node.value.values if isinstance(value, ast.Constant)
                }
    assert len(names) > 10
    assert [name for name in sorted(map(str, names)) if not is_tokenizer_file(name)] == []
