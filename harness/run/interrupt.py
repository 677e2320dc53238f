"""Stopping a run: a signal becomes an interrupt that every world sees."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupt:
    """A descriptor that becomes readable when the run is to stop, watched by every world."""

    def __init__(self) -> None:
        # A pipe, and not an event: every world waits for it among its other descriptors, and a
        # signal handler may write into it, where taking a lock could deadlock with the code that it
        # broke into.
        self.descriptor, self._alarm = os.pipe()

    def set(self) -> None:
        """Stop. Never taken back; safe from a signal handler."""
        with contextlib.suppress(OSError):
            os.write(self._alarm, b"x")

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self.descriptor)
        os.close(self._alarm)


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Turn Ctrl-C, SIGTERM and SIGHUP into an interrupt that worlds see, and into KeyboardInterrupt
    here.
    """
    interrupt = Interrupt()

    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        interrupt.set()
        # Only the first one breaks in: the second must not break into the cleaning up.
        if not stopping.is_set():
            stopping.set()
            raise KeyboardInterrupt

    # Python sets signal handlers in the main thread alone; in another one whoever started it
    # interrupts.
    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if main else ()
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        interrupt.close()
