"""What two sets of logits differ by as distributions: KL divergence, the best tokens, the rank of
the reference's.

Small enough for a record, and judged again without the arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from harness.forms.model import Model
from harness.numeric.array import NotAnArray
from harness.numeric.arrays import ArrayFile, numbers
from harness.numeric.comparison import POSITIONS, Told

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

ROWS = 1 << 20
"""Logits that are looked at together."""
# Of what two versions of NumPy make of exp and log, and two orders of a sum.
ROUNDING = 1e-9
# Of the four digits that the picture is drawn with.
DRAWN = 2e-3
Count = Annotated[int, Field(ge=0)]


class Position(Model):
    """A position that is the worst in one respect.

    Attributes:
        position: its place, counted over all axes but the last.
        token: the most likely one by what was expected.
        margin: by how much its logit was above the second one's there, which says whether another
            is near.
        found: the most likely one by what was found.
    """

    position: Count
    token: Count
    margin: float
    found: Count


class Distances(Told):
    """Logits compared, position by position; the last axis is the vocabulary.

    Attributes:
        shape: of both.
        expected_shape: of what it was compared with. Where the two differ nothing else was
            compared.
        positions: how many were compared.
        undefined: how many have a NaN, +infinity or no finite logit at all, on either side.
        kl: the largest KL divergence of found from expected, in nats; None where a token that was
            expected with some probability is impossible.
        kl_at: the position of it.
        mean_kl: over the positions, in nats; None likewise.
        overlap: the least number of the expected k best tokens among the k best found.
        overlap_at: the position of it.
        place: the highest place, from 1, of the most likely expected token among those found.
        place_at: the position of it.
        stretch: how many positions each number of `excess` stands for.
        excess: the largest KL divergence in each stretch, in nats; None is infinite.
    """

    shape: list[Count]
    expected_shape: list[Count]
    positions: Count = 0
    undefined: Count = 0
    kl: float | None = 0.0
    kl_at: Position | None = None
    mean_kl: float | None = 0.0
    overlap: Count = 0
    overlap_at: Position | None = None
    place: Count = 0
    place_at: Position | None = None
    stretch: Annotated[int, Field(ge=1)] = 1
    excess: list[float | None] = Field(default_factory=list, max_length=POSITIONS)

    def contradiction(self, *, k: int) -> str:
        """Why these numbers cannot all be true of two arrays; empty where they can."""
        if self.shape != self.expected_shape:
            return "shapes differ, and yet positions were compared" if self.positions else ""
        if not self.shape or self.positions != math.prod(self.shape[:-1]):
            return (
                f"{self.positions} positions were compared, but the array has a different number of"
                " positions"
            )
        if self.undefined > self.positions or self.overlap > k or self.place > self.shape[-1]:
            return "more positions are counted than exist"
        if self.positions > self.undefined and None in (self.kl_at, self.overlap_at, self.place_at):
            return "the worst position is missing"
        return ""


def compare(found: ArrayFile, expected: ArrayFile, *, k: int) -> Distances:
    """Compare two files of logits.

    Args:
        found: of any shape; the last axis is the vocabulary.
        expected: of the same shape.
        k: how many of the best tokens are compared.

    Raises:
        NotAnArray: one is not an array, or it has no axis.
    """
    import numpy as np

    left = numbers(found)
    right = numbers(expected)
    shapes = list(left.shape), list(right.shape)
    if not left.shape or not right.shape:
        raise NotAnArray("logits must have an axis for the vocabulary, but this is a single number")
    if left.shape != right.shape or not left.shape[-1]:
        return Distances(shape=shapes[0], expected_shape=shapes[1])
    size = left.shape[-1]
    rows = [part.reshape(-1, size) for part in (left, right)]
    many = rows[0].shape[0]
    parts = [_rows(*pair, k=min(k, size)) for pair in _chunks(rows[0], rows[1])]
    if not parts:
        return Distances(shape=shapes[0], expected_shape=shapes[1])
    kl, overlap, rank, undefined, best, margin, chosen = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )

    def at(place: int) -> Position:
        finite = float(margin[place]) if math.isfinite(margin[place]) else 0.0
        return Position(
            position=place, token=int(best[place]), margin=finite, found=int(chosen[place])
        )

    judged = np.flatnonzero(~undefined)
    stretch = max(1, -(-many // POSITIONS))
    worst = [
        np.max(np.where(undefined, 0, kl)[start : start + stretch])
        for start in range(0, many, stretch)
    ]
    worst_at = (
        [int(judged[np.argmax(kl[judged])]), int(judged[np.argmin(overlap[judged])])]
        if judged.size
        else []
    )
    worst_at += [int(judged[np.argmax(rank[judged])])] if judged.size else []
    return Distances(
        shape=shapes[0],
        expected_shape=shapes[1],
        positions=many,
        undefined=int(np.count_nonzero(undefined)),
        kl=_finite(float(kl[worst_at[0]])) if worst_at else 0.0,
        kl_at=at(worst_at[0]) if worst_at else None,
        mean_kl=_finite(float(np.mean(kl[judged]))) if worst_at else 0.0,
        overlap=int(overlap[worst_at[1]]) if worst_at else 0,
        overlap_at=at(worst_at[1]) if worst_at else None,
        place=int(rank[worst_at[2]]) if worst_at else 0,
        place_at=at(worst_at[2]) if worst_at else None,
        stretch=stretch,
        excess=[_finite(float(f"{value:.4g}")) for value in worst],
    )


class Beyond(NamedTuple):
    """Positions of logits held against what a check asks: how many differ, how many are too far,
    and if none is.
    """

    telling: int
    beyond: int
    passes: bool


def beyond(
    found: ArrayFile,
    expected: ArrayFile,
    *,
    k: int,
    kl: float | None,
    overlap: int | None,
    rank: int | None,
) -> Beyond:
    """Count the positions that are further than is asked; the arguments are those of the check.

    Raises:
        NotAnArray: one is not an array of the same shape, with an axis.
    """
    import numpy as np

    left = numbers(found)
    right = numbers(expected)
    if not left.shape or left.shape != right.shape:
        raise NotAnArray(
            "logits must have an axis for the vocabulary, and the same shape on both sides"
        )
    size = left.shape[-1]
    if not left.size:
        return Beyond(0, 0, True)
    telling = far = 0
    passes = True
    for ours, theirs in _chunks(left.reshape(-1, size), right.reshape(-1, size)):
        apart, many, place, undefined, *_ = _rows(ours, theirs, k=min(k, size))
        wrong = np.zeros(len(apart), bool)
        wrong |= apart > kl if kl is not None else False
        wrong |= many < overlap if overlap is not None else False
        wrong |= place > rank if rank is not None else False
        # Where other tokens are ruled out, any tolerance is exceeded: it says nothing of how much
        # this one allows.
        alike = (np.isfinite(ours) == np.isfinite(theirs)).all(axis=1)
        telling += int(np.count_nonzero(undefined | (alike & (ours != theirs).any(axis=1))))
        far += int(np.count_nonzero(wrong & alike & ~undefined))
        passes = passes and not (wrong | undefined).any()
    return Beyond(telling, far, bool(passes))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _chunks(left: Array, right: Array) -> Iterator[tuple[Array, Array]]:
    import numpy as np

    step = max(1, ROWS // left.shape[1])
    for begin in range(0, left.shape[0], step):
        yield tuple(
            np.asarray(side[begin : begin + step]).astype(np.float64) for side in (left, right)
        )  # type: ignore[misc]


def _rows(found: Array, expected: Array, *, k: int) -> tuple[Array, ...]:
    """Per position: KL, overlap, rank, whether it is undefined, the best tokens, and the margin of
    the expected one.
    """
    import numpy as np

    undefined = np.zeros(found.shape[0], bool)
    for side in (found, expected):
        undefined |= np.isnan(side).any(1) | np.isposinf(side).any(1) | ~np.isfinite(side).any(1)
    found, expected = (np.where(undefined[:, None], 0.0, side) for side in (found, expected))
    p = np.exp(_log_softmax(expected))
    log_p = _log_softmax(expected)
    log_q = _log_softmax(found)
    with np.errstate(invalid="ignore"):
        kl = np.maximum(0.0, np.where(p > 0, p * (log_p - log_q), 0.0).sum(1))
    # By value, then by the number of the token: which of two equal ones is the best depends on
    # nothing else.
    orders = [np.argsort(-side, axis=1, kind="stable") for side in (found, expected)]
    tops = [np.sort(order[:, :k], axis=1) for order in orders]
    overlap = np.array([np.intersect1d(one, other).size for one, other in zip(*tops, strict=True)])
    best = orders[1][:, 0]
    rank = np.argmax(orders[0] == best[:, None], axis=1) + 1
    two = np.take_along_axis(expected, orders[1][:, : min(2, expected.shape[1])], axis=1)
    return kl, overlap, rank, undefined, best, two[:, 0] - two[:, -1], orders[0][:, 0]


def _log_softmax(logits: Array) -> Array:
    import numpy as np

    # Float64's largest and its negative are further apart than it tells.
    with np.errstate(over="ignore"):
        shifted = logits - logits.max(axis=1, keepdims=True)
    total: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return total


def agrees(stated: Distances, again: Distances) -> bool:
    """Return whether two are the same but for the rounding of exp, log and sums."""

    def near(one: float | None, other: float | None, *, share: float = 1e-6) -> bool:
        if one is None or other is None:
            return one is other
        return math.isclose(one, other, rel_tol=share, abs_tol=ROUNDING)

    left = stated.model_dump()
    right = again.model_dump()
    pairs = [(left.pop(name), right.pop(name)) for name in ("kl", "mean_kl")]
    if not all(near(*pair) for pair in pairs):
        return False
    drawn = [part.pop("excess") for part in (left, right)]
    if len(drawn[0]) != len(drawn[1]) or not all(
        near(*pair, share=DRAWN) for pair in zip(*drawn, strict=True)
    ):
        return False
    # Which of two positions has the largest KL may be a matter of rounding where both are as large.
    places = [part.kl_at for part in (stated, again)]
    if places[0] is not None and places[1] is not None and places[0].position != places[1].position:
        stretch = places[0].position // again.stretch
        if stretch >= len(again.excess) or not near(again.excess[stretch], again.kl, share=DRAWN):
            return False
        left.pop("kl_at")
        right.pop("kl_at")
    return left == right
