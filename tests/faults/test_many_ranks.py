"""Faults struck at the last of 64 ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.faulted_worlds import Struck

Live = Callable[..., Struck]
KINDS = {
    "pause": {"at": "door", "for": "50ms"},
    "delay": {"at": "door", "for": "50ms"},
    "kill": {"at": "door"},
    "raise": {"at": "door"},
    "exit": {"at": "door", "code": 3},
    "start-late": {"for": "200ms"},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_on_rank_63_is_proved_there_and_nowhere_else(
    live: Live, fault: Callable[..., Any], kind: str
) -> None:
    """The last of 64 ranks is struck, with proof; the other 63 go by."""
    struck = live(fault(kind=kind, ranks=[63], **KINDS[kind]), size=64, deadline=120.0)
    (proved,) = struck.proved
    assert proved.rank == 63
    assert proved.struck
    assert proved.proof.proved, proved.proof.description
    returned = {rank for rank in range(64) if struck.history.said(rank, "subject.end")}
    assert returned == set(range(63 if proved.proof.ends else 64))
