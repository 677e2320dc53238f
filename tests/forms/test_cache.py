"""Where caches lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.forms.variables import cache_folder


def test_a_cache_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of our own comes first, then XDG_CACHE_HOME where it is absolute, then
    ~/.cache.
    """
    monkeypatch.setenv("HOME", "/home/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder("x") == Path("/home/a/.cache/rankproof/x")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder("x", variable="OURS") == Path("/caches/rankproof/x")
    monkeypatch.setenv("OURS", "~/here")
    assert cache_folder("x", variable="OURS") == Path("/home/a/here")
