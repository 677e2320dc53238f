"""The digests of a rank's calls, for either library: what is taken of arrays, and the parts that a ledger gets.

xxhash is asked for only where digests are: `harness.rank` needs nothing else beside the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.ledger.part import Part, Side, Sketch
from harness.rank.ledger import Book

REDUCING = frozenset(
    {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor", "all_sum", "all_max", "all_min", "sum_scatter"}
)
SKETCHED = "sum"
"""The reduction that can be worked out again from sketches."""
WHOLE = 2**64
STEP = 2_654_435_761
"""What the weights of a sketch are made with: an odd number about 2**32 / 1.618."""
TOGETHER = 8
"""So many elements have one weight."""
Array = tuple[int | None, Any]
"""An array, and the rank to which it goes or from which it comes; None for all members of the group."""


class NotDigested(Exception):
    """Why a call is not digested, as a clause."""


@dataclass
class Taken:
    """What is known of a call that is digested.

    Attributes:
        sketches: whether its arrays are parts of a sum.
        sent: the parts that the rank gives, taken before the call.
        received: its arrays, to be digested when it is done.
        call: its number in the ledger; 0 until it is written.
        at_once: whether it is done when it comes back.
    """

    sketches: bool
    sent: Sequence[Part] = ()
    received: Sequence[Array] = ()
    call: int = 0
    at_once: bool = True


class Digester:
    """Makes the parts of calls and writes them into the ledger."""

    def __init__(
        self, book: Book, *, digest: Callable[[Any], int], sketch: Callable[[Any], tuple[float | int, float] | None]
    ) -> None:
        """Take what the library of the arrays does.

        Args:
            book: the ledger.
            digest: xxh3 of an array's elements in the order of their indices.
            sketch: total and size of an array, see `harness.ledger.part`; None of one that has none.
        """
        self._book, self._digest, self._sketch = book, digest, sketch

    def parts(self, arrays: Sequence[Array], side: Side, *, call: int, sketches: bool) -> list[Part]:
        """The parts of one side of a call."""
        found = []
        for whom, array in arrays:
            made = self._sketch(array) if sketches else None
            sketch = None
            if made is not None and math.isfinite(made[0]) and math.isfinite(made[1]):
                sketch = Sketch(total=made[0], size=made[1])
            digest, many = self._digest(array), len(arrays)
            found.append(Part(number=1, call=call, side=side, whom=whom, many=many, digest=digest, sketch=sketch))
        return found

    def sent(self, taken: Taken, call: int) -> None:
        """Write what a call sends; its number is known now."""
        taken.call = call
        for part in taken.sent:
            self._book.digest(replace(part, call=call))

    def done(self, taken: Taken) -> None:
        """Write what a call received; whatever goes wrong costs the digests, and never the call."""
        try:
            for part in self.parts(taken.received, "received", call=taken.call, sketches=taken.sketches):
                self._book.digest(part)
        except Exception as error:  # noqa: BLE001 - see above
            self._book.undigested(f"{type(error).__name__}: {error}")


def weight_power(width: int) -> int:
    """How fast the weights of floats of so many bytes fall: see `harness.ledger.part`."""
    return 2 if width < 4 else 1


def hasher() -> Callable[[Any], int]:
    """xxh3 of 64 bits.

    Raises:
        NotDigested: xxhash is not installed where the rank runs.
    """
    try:
        import xxhash
    except ImportError:
        raise NotDigested("xxhash is not installed where the rank runs") from None
    found: Callable[[Any], int] = xxhash.xxh3_64_intdigest
    return found
