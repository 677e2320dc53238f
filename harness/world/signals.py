"""Names of signals, the real-time ones too, which the standard library does not name."""

from __future__ import annotations

import signal


def name(number: int) -> str:
    """`SIGKILL` for 9; `SIGRTMIN+3` for a real-time signal; the number for what this system does not know."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first = getattr(signal, "SIGRTMIN", None)
        return f"SIGRTMIN+{number - first}" if first is not None and number > first else str(number)
