"""The thread that attends to lines: how it is woken and how it ends."""

from __future__ import annotations

import threading

from rankproof_integrity.attendant import Attendant
from rankproof_integrity.link import TransportLimits


class StoppedWhileWoken(Attendant):
    """Is told to stop after its thread read the pipe, and before the thread notes that it did."""

    _noted = False
    _thread: threading.Thread | None = None

    @property
    def _asked(self) -> bool:
        return self._noted

    @_asked.setter
    def _asked(self, asked: bool) -> None:
        if not asked and self._thread is not None:
            # What `stop` does; it takes the pipe for written to, so it writes nothing.
            self._stopped = True
            self.wake()
        self._noted = asked


def test_a_stop_between_two_steps_of_waking_is_seen() -> None:
    """A thread that is told to stop in the middle of waking up ends at once, and does not wait for
    an hour.
    """
    attendant = StoppedWhileWoken(node="a", lines={}, limits=TransportLimits())
    attendant.wake()
    thread = attendant._thread
    assert thread is not None
    thread.join(10.0)
    ended = not thread.is_alive()
    attendant._noted = False
    attendant.stop()
    attendant.close()
    assert ended
