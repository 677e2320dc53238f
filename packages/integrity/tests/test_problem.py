"""What is raised, on its way to another process, and raised again and again."""

from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Callable

import pytest

from rankproof_integrity import (
    BarrierBroken,
    IntegrityError,
    MessageCorrupt,
    MessageLate,
    MessageLost,
    Misused,
    OutOfStep,
    PeerRestarted,
    TransferFailed,
)

RAISED = [
    *(
        kind("words", peer="b", sequence=3, epoch=7)
        for kind in (TransferFailed, MessageCorrupt, MessageLate)
    ),
    *(kind("words", peer="b", sequence=None, epoch=7) for kind in (MessageLost, PeerRestarted)),
    BarrierBroken("words", missing=(1, 2)),
    OutOfStep("words"),
    Misused("words"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_reaches_another_process_whole(error: IntegrityError) -> None:
    """By multiprocessing or a future: an error that cannot be read there is another error, or ends
    a pool.
    """
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert type(made) is type(error)
        assert (str(made), made.__dict__, made.failure) == (
            str(error),
            error.__dict__,
            error.failure,
        )


def test_an_error_that_is_raised_again_and_again_keeps_nobodys_frames(
    pair: Callable[..., tuple],
) -> None:
    """Each call gets one of its own: as long at the hundredth call as at the first."""
    a, b, _ = pair()
    b.send(b"x", to="a")
    a.receive(source="b")
    line = a._lines["b"]
    with line._lock:
        line.conversation._give_up("somebody has to")
    for call in (
        lambda: a.receive(source="b"),
        lambda: a.send(b"x", to="b"),
        lambda: a.flush(to="b"),
    ):
        lengths = set()
        for _ in range(20):
            with pytest.raises(MessageLost, match="somebody has to") as caught:
                call()
            lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
        assert max(lengths) < 10
        assert line.conversation.problem.__traceback__ is None
