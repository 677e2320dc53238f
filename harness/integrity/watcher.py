"""What a line needs of whoever attends to it while no caller does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from harness.integrity.line import Line


class Watcher(Protocol):
    """What a line needs of whoever attends to it while no caller does.

    Attributes:
        until: when it looks at the clock next; infinity while it is about to work that out.
    """

    until: float

    def watch(self, line: Line, descriptor: int, events: int) -> None:
        """Call `attend` of the line at these events, until `unwatch`; whatever was said of this descriptor before."""
        ...

    def unwatch(self, descriptor: int) -> None: ...

    def wake(self) -> None:
        """Ask every line anew when something is due."""
        ...
