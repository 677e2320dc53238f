"""Interfaces that a fault may touch: a launch before its ranks are forked, and a world through its
control object.

Both are described here as protocols, so that this package knows no process: whoever judges a trial
imports its proofs. `harness.world.control.launch.Launch` and `harness.world.control.world.World`
are what stands behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol, Self, TypeVar

from harness.forms.strict_json import JSON


class Startable(Protocol):
    """Launch before its ranks start. Every method returns a changed copy."""

    def gated(self, *, at: str) -> Self:
        """With the event `at` as a gate: emitting it blocks the rank until the harness has
        answered.
        """
        ...

    def with_variables(self, *, ranks: Collection[int], variables: Mapping[str, str]) -> Self:
        """With variables that only these ranks get."""
        ...

    def with_inside(self, *, kind: str, file: Path) -> Self:
        """With a file that the ranks load, in which a kind of fault acts."""
        ...

    def with_own_mounts(self, *, ranks: Collection[int]) -> Self:
        """With these ranks in mount namespaces of their own, in which folders can be covered."""
        ...

    def with_clock_ahead(self, *, ranks: Collection[int], seconds: float) -> Self:
        """With monotonic clocks of these ranks' own, so much ahead of the others'."""
        ...

    def late(self, *, ranks: Collection[int], seconds: float) -> Self:
        """With these ranks forked so much later than the others."""
        ...


L = TypeVar("L", bound=Startable)


class WorldControl(Protocol):
    """World while its ranks live, seen from its own thread. Nothing here blocks."""

    def signal(self, number: int, *, rank: int | None = None) -> None:
        """Have the process that forked the rank send it a signal.

        A gate answered after this waits for it to land.
        """
        ...

    def wire(self, order: Mapping[str, JSON]) -> None:
        """Tell the wire between the test hosts what to do to the links of a rank's host.

        A gate waits for it.
        """

    def press(self, rank: int, what: str, **order: JSON) -> None:
        """Have that process do something to the rank from outside.

        A gate answered after this waits until it is done.

        What it did, as it read it back from the kernel, is an event of its own; with `why`, where
        it could not.

        * `limit`, `rank.limited`: a soft limit, by `name` (`open-files`, `file-size`,
          `address-space`: beyond what is mapped, `memory`: beyond what is taken) and `to`; None
          takes it back.
        * `crowd`, `rank.crowded`: on one core with `burners` processes that only compute; 0 takes
          it back.
        * `cover`, `rank.covered`: a `place` (see `harness.faults.folder`) is made `read-only`,
          `full` (but for `space` bytes) or `denied`, as `how` says; `open` takes it back.
        * `spoil`, `rank.spoiled`: the file at a `place` is `truncated` to `keep` bytes, or
          `replaced` by one in which the byte at `keep` differs.
        """
        ...

    def cut_off(self, rank: int, *, fault: str) -> None:
        """Pull the cable of the rank's machine out, where it is a test machine: `machine.cut`."""
        ...

    def join(self, rank: int, *, fault: str) -> None:
        """Put it in again, if this fault pulled it: `machine.joined`."""
        ...

    def note(self, name: str, *, rank: int | None = None, **values: JSON) -> None:
        """Add an event of the harness."""
        ...

    def hold(self, rank: int) -> None:
        """Keep the rank at the gate it stands at."""
        ...

    def release(self, rank: int) -> None:
        """Answer the gate of a rank that is held."""
        ...

    def tell(self, rank: int, order: Mapping[str, JSON]) -> None:
        """Send an order along with the answer to the gate."""
        ...

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Call `do` not before so much time has passed, unless the world is over before."""
        ...

    def once_landed(self, do: Callable[[], None]) -> None:
        """Call `do` once every signal and order that was sent has landed."""
        ...

    def call(self, do: Callable[[], None]) -> None:
        """Call `do` in the world's own thread; at once where the world is over."""
        ...

    def once(self, name: str, *, rank: int, do: Callable[[], None]) -> None:
        """Call `do` when the process that forked the rank next tells `name` of it."""
        ...

    def expect_end(self, rank: int) -> None:
        """Note that the end of this rank is meant, so that it does not end the others' time."""
        ...
