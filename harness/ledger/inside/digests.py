"""Digests of a rank's calls, for either library: what is taken of arrays, and the parts that a
ledger gets.

xxhash is asked for only where digests are: `harness.rank` needs nothing else beside the standard
library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from harness.ledger.file import FLOAT, NOTHING, WHOLE
from harness.ledger.inside.book import Book, Taking

SKETCHED = "sum"
"""The reduction that can be worked out again from sketches."""
EVERY = 2**64
"""Sketches of whole numbers are counted up to here."""
STEP = 2_654_435_761
"""What the weights of a sketch are made with: an odd number about 2**32 / 1.618."""
TOGETHER = 8
"""So many elements have one weight."""
FEW = 64
"""Up to so many elements each has a weight of its own: to change places among equal ones changes no
sum.
"""
Array = tuple[int, Any]
"""An array, and the rank to which it goes or from which it comes; EVERYONE for all members of the
group.
"""
Look = Callable[[Any, bool, bool], Taking]
"""What the ledger gets of an array, whether it is part of a sum, and whether the rank gives it."""


class NotDigested(Exception):
    """Why a call is not digested, as a clause."""


@dataclass(slots=True)
class Taken:
    """Call that is digested: what is known of it until it is done.

    Attributes:
        sketches: whether its arrays are parts of a sum.
        received: its arrays, to be digested when it is done.
        call: its number in the ledger.
    """

    sketches: bool
    received: Sequence[Array]
    call: int


class Digester:
    """Makes the parts of calls and writes them into the ledger."""

    def __init__(self, book: Book, look: Look) -> None:
        """Take the ledger, and what looks at the arrays of a library."""
        self._book = book
        self._look = look

    def write(self, call: int, side: int, arrays: Sequence[Array], *, sketches: bool) -> None:
        """Write the digests of the arrays that a call has on one side: 0 of those it sends, 1 of
        those it receives.
        """
        many = len(arrays)
        look = self._look
        write = self._book.digest
        for whom, array in arrays:
            write(call, side, many, whom, look(array, sketches, not side))

    def done(self, taken: Taken) -> None:
        """Write what a call received; whatever goes wrong costs the digests, and never the call."""
        try:
            self.write(taken.call, 1, taken.received, sketches=taken.sketches)
        except Exception as error:  # noqa: BLE001 - see above
            self._book.undigested(f"{type(error).__name__}: {error}")


def sketched(digest: int, total: float, size: float = 0.0) -> Taking:
    """Return what the ledger gets of an array that has a sketch, which has to be finite."""
    if isinstance(total, int):
        return digest, WHOLE, total % EVERY, 0.0
    if isfinite(total) and isfinite(size):
        return digest, FLOAT, total, size
    return digest, NOTHING, 0.0, 0.0


def weight_power(width: int) -> int:
    """Return how fast the weights of floats of so many bytes fall: see `harness.ledger.file`."""
    return 2 if width < 4 else 1


def few_weights(count: int, *, power: int) -> list[float]:
    """Return the weights of up to `FEW` floats, all different, in the disorder of those of more."""
    weights = [0.0] * count
    disorder = sorted(range(count), key=lambda index: index * STEP % 2**32)
    for place, index in enumerate(disorder, start=1):
        weights[index] = float(place) ** -power
    return weights


def hasher() -> Callable[[Any], int]:
    """Return xxh3 of 64 bits.

    Raises:
        NotDigested: xxhash is not installed where the rank runs.
    """
    try:
        import xxhash
    except ImportError:
        raise NotDigested("xxhash is not installed in the rank's environment") from None
    digest: Callable[[Any], int] = xxhash.xxh3_64_intdigest
    return digest
