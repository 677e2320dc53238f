"""The digests of a rank's calls, for either library: what is taken of arrays, and the parts that a ledger gets.

xxhash is asked for only where digests are: `harness.rank` needs nothing else beside the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from harness.ledger.part import EVERYONE, NOTHING, bits_of
from harness.rank.ledger import Book, Taking

REDUCING = frozenset(
    {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor", "all_sum", "all_max", "all_min", "sum_scatter"}
)
SKETCHED = "sum"
"""The reduction that can be worked out again from sketches."""
WHOLE = 2**64
STEP = 2_654_435_761
"""What the weights of a sketch are made with: an odd number about 2**32 / 1.618."""
NO_BITS = bytes(8)
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
        sent: what the ledger gets of the arrays that the rank gives, taken before the call.
        received: its arrays, to be digested when it is done.
        call: its number in the ledger; 0 until it is written.
        at_once: whether it is done when it comes back.
    """

    sketches: bool
    sent: Sequence[Taking] = ()
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

    def taking(self, arrays: Sequence[Array], *, sketches: bool) -> list[Taking]:
        """What the ledger gets of the arrays of one side of a call."""
        found = []
        for whom, array in arrays:
            kind, bits, size = NOTHING, NO_BITS, 0.0
            if sketches and (made := self._sketch(array)) is not None and isfinite(made[0]) and isfinite(made[1]):
                size = made[1]
                kind, bits = bits_of(made[0])
            found.append((self._digest(array), kind, bits, size, EVERYONE if whom is None else whom))
        return found

    def sent(self, taken: Taken, call: int) -> None:
        """Write what a call sends; its number is known now."""
        taken.call = call
        self._book.digest(call, 0, taken.sent)

    def done(self, taken: Taken) -> None:
        """Write what a call received; whatever goes wrong costs the digests, and never the call."""
        try:
            self._book.digest(taken.call, 1, self.taking(taken.received, sketches=taken.sketches))
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
