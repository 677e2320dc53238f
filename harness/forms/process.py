"""Children with a session of their own. Standard library only."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

_STARTED: WeakSet[subprocess.Popen[Any]] = WeakSet()
# Who is in no list was adopted, and is ended with the pool. Held while a child starts, so that
# nobody finds one that is not listed yet.
_STARTING = threading.Lock()


def start_apart(command: Sequence[str], **how: Any) -> subprocess.Popen[Any]:
    """Start a child in a session of its own: Ctrl-C does not reach it, and no pool of fork servers
    takes it away.

    Args:
        command: as for `subprocess.Popen`.
        **how: likewise.
    """
    with _STARTING:
        child = subprocess.Popen(command, start_new_session=True, **how)
        _STARTED.add(child)
    return child


def started_apart() -> set[int]:
    """Pids of the children that were not waited for yet."""
    with _STARTING:
        return {child.pid for child in _STARTED if child.returncode is None}
