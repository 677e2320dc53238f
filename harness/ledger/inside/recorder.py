"""The quick way of a rank's ledger, in C (`recorder.c`), loaded where it could be compiled.

Else Python does it all.
"""

from __future__ import annotations

import contextlib
import importlib.util
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType
from typing import Any, Protocol


class Quick(Protocol):
    """Writes calls of one operation of torch that were met before."""

    def write(
        self, frame: Any, arguments: tuple[Any, ...], state: int, /
    ) -> tuple[int, Any] | None:
        """Return the place of the record, and what was kept with it; None of a call that Python has
        to look at.
        """

    def remember(
        self,
        frame: Any,
        arguments: tuple[Any, ...],
        state: int,
        at: int,
        counter: Any,
        known: Any,
        /,
    ) -> None:
        """Keep the record that lies there, under all that it followed from."""


class LedgerRecorder:
    """What is made in C of one ledger."""

    def __init__(self, module: Any, records: tuple[Any, ...]) -> None:
        """Take the module, and where the records of the ledger lie: see `recorder_of`."""
        self._module = module
        self._own = module.Recorder(*records)
        self.end = self._own.end
        self.look = self._own.look
        self.stop = self._own.stop

    def operation(self, *about: Any) -> Quick:
        """Return an operation: what unboxes groups, torch's function that asks for a sum, the sum,
        and the places.
        """
        found: Quick = self._module.Operation(self._own, *about)
        return found


def module_of(path: str) -> ModuleType | None:
    """Load what was compiled, which is the harness's own: before anybody listens to what a subject
    loads.

    Args:
        path: empty where nothing was compiled.

    Returns:
        None where it was compiled for another interpreter, or cannot be loaded.
    """
    if not path.endswith(EXTENSION_SUFFIXES[0]):
        return None
    try:
        spec = importlib.util.spec_from_file_location("recorder", path)
        if spec is None or spec.loader is None:
            return None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    # Whatever a compiler made of it, the ledger is written without.
    except Exception:  # noqa: BLE001
        return None
    return module


def recorder_of(module: ModuleType | None, records: tuple[Any, ...]) -> LedgerRecorder | None:
    """Make the recorder of a ledger.

    Args:
        module: what `module_of` gave.
        records: the file as it is mapped, what gives calls their numbers, which code is passed,
            where the records lie, how many there are, and the bytes of one.

    Returns:
        None where there is no module, or it was made for records of another form.
    """
    with contextlib.suppress(ValueError):
        return None if module is None else LedgerRecorder(module, records)
    return None
