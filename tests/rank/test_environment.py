"""What a rank tells of what it runs in."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from harness.rank import environment as told


def test_variables_are_told_without_paths_and_without_what_each_rank_has_of_its_own() -> None:
    """A value with a path becomes a digest that still tells two apart.

    A rank's number is not compared.
    """
    given = {
        "OMP_NUM_THREADS": "1",
        "PATH": "/home/somebody/bin",
        "RANK": "3",
        "MLX_RANK": "3",
        "LOCAL_RANK": "3",
    }
    found = told.variables(given)
    assert found.keys() == {"OMP_NUM_THREADS", "PATH"}
    assert found["OMP_NUM_THREADS"] == "1"
    assert "somebody" not in found["PATH"]
    assert told.variables({"PATH": "/home/another/bin"})["PATH"] != found["PATH"]


def test_a_large_library_is_told_apart_by_its_ends_and_its_size(tmp_path: Path) -> None:
    """A change at the beginning, at the end or of the size shows.

    Of a small file every byte counts.
    """
    file, size = tmp_path / "lib.so", 3 * told.SAMPLE
    seen = set()
    for place in (None, 0, size - 1):
        content = bytearray(size)
        if place is not None:
            content[place] = 1
        file.write_bytes(content)
        seen.add(told._sampled(file, size))
    file.write_bytes(bytes(size + 1))
    seen.add(told._sampled(file, size + 1))
    small = bytearray(1000)
    for place in (1, 500, 999):
        small[place] += 1
        file.write_bytes(small)
        seen.add(told._sampled(file, 1000))
    assert len(seen) == 7


def test_what_is_mapped_here_is_told() -> None:
    """On Linux the C library is among the libraries, with a digest, and a second look is as the
    first.
    """
    found = told.libraries()
    if sys.platform.startswith("linux"):
        assert any(name.startswith("libc.") for name in found)
    assert all(found.values())
    assert told.libraries() == found


def test_the_offset_is_that_of_the_two_clocks() -> None:
    """The wall clock is so far ahead of the monotonic one, as a look at both says too."""
    assert abs(told.clock_offset() - (time.time_ns() - time.monotonic_ns())) < 50_000_000


def test_packages_are_told_by_version_and_others_by_their_files() -> None:
    """An installed distribution is told by its version.

    What none brought by a digest that a changed file changes.
    """
    other = {
        "package": "mine",
        "distribution": None,
        "version": None,
        "files": {"mine.py": "a" * 64},
    }
    one = told.versions({"installed": {"torch": "torch 2.8.0, numpy 2.1"}, "others": [other]})
    assert (one["torch"], one["numpy"]) == ("2.8.0", "2.1")
    changed = {**other, "files": {"mine.py": "b" * 64}}
    assert (
        told.versions({"installed": {}, "others": [changed]})["mine (files)"] != one["mine (files)"]
    )
