"""A Nix store for one test, or a skip where this machine has no Nix."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nix.store import NoNix, Store, scratch_store


@pytest.fixture
def store() -> Iterator[Store]:
    """A copy of the flake and a store of its own, gone afterwards."""
    try:
        with scratch_store() as made:
            yield made
    except NoNix as missing:
        pytest.skip(str(missing))
