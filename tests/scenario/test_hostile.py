"""Hostile files: refused within a second, without much memory."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.forms.source import SIZE_LIMIT
from harness.scenario import ScenarioError, load_scenario

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@contextmanager
def cheap() -> Iterator[None]:
    """Fail where the block takes a second of processor time or 50 MB more memory than the process
    had.
    """
    memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    assert time.process_time() - start < 1.0
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    assert grown < (50_000 if os.uname().sysname == "Linux" else 50_000_000)


def refusal(path: Path) -> str:
    """Load a file that must be refused, cheaply, and return all that is said about it."""
    with cheap(), pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(BOMB.encode(), "anchor", id="aliases that would expand to a billion"),
        pytest.param(b"a: &a [*a, *a]\n", "alias", id="an alias inside its own anchor"),
        pytest.param(b"\0" * 200_000, "NUL (200000 times)", id="NULs"),
        pytest.param(b"[" * 100_000, "nested deeper", id="nested lists"),
        pytest.param(b"{" * 100_000, "nested deeper", id="nested mappings"),
        pytest.param(b"- " * 100_000, "nested deeper", id="nested block lists"),
        pytest.param(b"? " * 100_000, "nested deeper", id="nested keys"),
        pytest.param(b"[\n" * 100_000, "nested deeper", id="nested lists on lines"),
        pytest.param(b"{a: " * 60_000, "nested deeper", id="nested mappings with keys"),
        pytest.param(b"- a\n" * 65_000, "more than 10000", id="a long list"),
        pytest.param(b"[" + b"a," * 130_000, "more than 10000", id="a long flow list"),
        pytest.param(b"a: b\n" * 52_000, "more problems follow", id="one key over and over"),
        pytest.param(b"*a : b\n" * 30_000, "more problems follow", id="aliases as keys"),
        pytest.param(b"a" * SIZE_LIMIT, "must be a mapping", id="one long word"),
        pytest.param(b"x\n" * 130_000, "must be a mapping", id="one long text over lines"),
        pytest.param(b'"' + b"\\n" * 130_000, "not valid YAML", id="an endless quoted text"),
        pytest.param(b"%a b\n" * 50_000, "not valid YAML", id="directives"),
        pytest.param(b"!" * 200_000, "tag", id="a long tag"),
        pytest.param(
            b"a: " + b"9" * 250_000, "quote it", id="a number of a quarter million digits"
        ),
        pytest.param(b"#\n" * 130_000, "must be a mapping", id="comments"),
        pytest.param("schema: 1\n".encode("utf-16"), "UTF-16", id="UTF-16 with a mark"),
        pytest.param("schema: 1\n".encode("utf-16-le"), "UTF-16", id="UTF-16 without a mark"),
        pytest.param("schema: 1\n".encode("utf-32"), "UTF-16 or UTF-32", id="UTF-32"),
        pytest.param("schema: 1\n".encode("utf-8-sig"), "byte order mark", id="a byte order mark"),
        pytest.param("titel: Größe\n".encode("latin-1"), ":1:10: is not UTF-8", id="Latin-1"),
        pytest.param(b"a: \xed\xa0\x80\n", ":1:4: is not UTF-8", id="a surrogate in UTF-8"),
        pytest.param(b"\x7fELF\x02\x01\x01" + b"\0" * 100, "NUL", id="a program"),
    ],
)
def test_hostile_text_is_refused_within_a_second(data: bytes, words: str, tmp_path: Path) -> None:
    """Whatever a file holds, it is refused quickly and says why."""
    path = tmp_path / "scenario.yaml"
    path.write_bytes(data)
    assert words in refusal(path)


@pytest.mark.parametrize("fill", [b"", b"a: b\n"])
def test_a_file_of_100_megabytes_is_not_read(fill: bytes, tmp_path: Path) -> None:
    """The size is asked before anything is read."""
    path = tmp_path / "scenario.yaml"
    with path.open("wb") as stream:
        stream.write(fill)
        stream.truncate(100_000_000)
    assert "too large" in refusal(path)


def test_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    """A named pipe that nobody writes to blocks nothing."""
    path = tmp_path / "scenario.yaml"
    os.mkfifo(path)
    assert "not a regular file" in refusal(path)


def test_a_device_is_refused() -> None:
    """A device that never ends is not read."""
    assert "not a regular file" in refusal(Path("/dev/zero"))


def test_a_link_to_a_fifo_is_refused(tmp_path: Path) -> None:
    """What counts is the file that is opened, not the name."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "scenario.yaml").symlink_to("pipe")
    assert "not a regular file" in refusal(tmp_path / "scenario.yaml")


def test_a_file_that_grows_while_it_is_read_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading stops one byte after the limit, whatever the size was before."""
    path = tmp_path / "scenario.yaml"
    path.write_bytes(b"#" * (SIZE_LIMIT * 3))
    small = tmp_path / "small"
    small.write_bytes(b"")
    status = small.stat()
    monkeypatch.setattr("harness.forms.source.os.fstat", lambda _descriptor: status)
    assert "too large" in refusal(path)


@pytest.mark.parametrize("name", ["missing.yaml", "a\0b", "x" * 5000])
def test_a_file_that_cannot_be_opened_is_one_problem(name: str, tmp_path: Path) -> None:
    """A missing or impossible name is an error like any other."""
    assert "cannot be read" in refusal(tmp_path / name)
