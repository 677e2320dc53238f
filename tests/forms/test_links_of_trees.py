"""A tree's files by the paths that lead through its links."""

from __future__ import annotations

import pytest

from harness.forms.git import through_links

FILES = {"a/b/one.py": 1, "a/b/deep/two.py": 2, "a/bc.py": 3, "top.py": 4}


@pytest.mark.parametrize(
    ("links", "more"),
    [
        ({"lib/_b": "../a/b"}, {"lib/_b/one.py": 1, "lib/_b/deep/two.py": 2}),
        ({"lib/x.py": "../top.py"}, {"lib/x.py": 4}),
        ({"lib/out": "../../a/b"}, {}),
        ({"lib/out": "/a/b"}, {}),
        ({"all": "."}, {}),
        ({"a/b/up": ".."}, {"a/b/up/b/one.py": 1, "a/b/up/b/deep/two.py": 2, "a/b/up/bc.py": 3}),
        ({"top.py": "a/bc.py"}, {}),
        ({"one": "two", "two": "a/b"}, {"two/one.py": 1, "two/deep/two.py": 2}),
    ],
)
def test_files_through_links(links: dict[str, str], more: dict[str, int]) -> None:
    """A link adds the files below what it leads to, and replaces none; one that leads out, to
    the top or to another link adds nothing.
    """
    assert through_links(FILES, links) == {**FILES, **more}


def test_many_links_to_many_files_end() -> None:
    """A tree of a thousand links to a thousand files adds a bounded number of paths."""
    files = {f"a/{number}.py": number for number in range(1000)}
    links = {f"b/{number}": "../a" for number in range(1000)}
    assert len(through_links(files, links)) == 101_000
