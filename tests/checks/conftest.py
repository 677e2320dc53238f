"""Histories made by hand: what a world of two healthy ranks says, to be broken one piece at a
time.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.events import Event
from harness.history import History
from tests.kit.histories import healthy


@pytest.fixture
def history() -> Callable[..., History]:
    """Make a history from the healthy events: `change` maps each event to what takes its place
    (None drops it).
    """

    def make(
        change: Callable[[Event], Event | None] = lambda event: event,
        *,
        size: int = 2,
        more: list[Event] | None = None,
    ) -> History:
        kept = [changed for event in healthy(size) if (changed := change(event)) is not None]
        return History(sorted([*kept, *(more or [])], key=lambda event: event.ns), size=size)

    return make
