"""How far logits lie from the reference's at each position, and how far they may by the reference's
own noise; with the account of it, which is small enough for a record and judged without the arrays.

The noise is measured: the reference computes the same once more in other orders that are allowed,
in the same dtype. Distances are differences of numbers that float64 holds exactly, so whoever works
them out again finds the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from harness.forms.model import Model
from harness.numeric.array import NotAnArray
from harness.numeric.arrays import ArrayFile, numbers
from harness.numeric.comparison import Told
from harness.numeric.needles import Needles

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


ROWS = 1 << 20
"""Numbers that are looked at together."""
ODD = 1000
"""Times as far as another variant: no order of sums is so much worse than another one."""
STEADY = 16
"""From so many positions on, the middle distance of two runs with the same noise is nearly the
same.
"""
Count = Annotated[int, Field(ge=0)]
Distance = Annotated[float, Field(ge=0)]


class OtherArray(NotAnArray):
    """An array of another shape or dtype than the one it is compared with: `lacks` says which."""

    def __init__(self, words: str, *, lacks: Literal["shape", "dtype"]) -> None:
        """Say which in words too."""
        super().__init__(words)
        self.lacks = lacks


class Slack(NamedTuple):
    """How many times the envelope a run may differ by: at any position, and at half of 16 and more.

    The second is the first where it is None. The third is of what leaves layers and their parts, in
    both places: None where that only names the layer.
    """

    margin: float
    middle: float | None = None
    layers: float | None = None

    def of_layers(self) -> Slack:
        """Return what holds for hidden states."""
        return self if self.layers is None else Slack(self.layers)


class Envelope(Model):
    """What the reference's variants differ from it by.

    Of each position the variant that lies furthest counts.

    Attributes:
        variants: how many there are.
        positions: how many positions are judged.
        apart: how many are not, because a choice (of experts, of keys) was undecided there or
            before.
        half: at half of the positions the distance is no more than this (the upper median).
        most: the largest distance.
        odd: a variant that lies more than `ODD` times as far as the nearest one that differs at
            all: the first of them, None where there is none. Another order of the same sums does
                not; it is another computation.
    """

    variants: Count
    positions: Count
    apart: Count
    half: Distance
    most: Distance
    odd: Count | None = None

    def allows(self, slack: Slack) -> tuple[float, float]:
        """Return what another run may differ by: at half of its positions, and at any.

        Of few positions the middle distance varies, and the margin for any position is its margin
        too. Where the variants are the same at half of the positions, the second limit is the only
        one.
        """
        middle = slack.margin if self.positions < STEADY or slack.middle is None else slack.middle
        return (self.half or math.inf) * middle, self.most * slack.margin


class ValuePlace(Model):
    """A position of a prompt; of decoding, a step."""

    prompt: Count
    position: Count


class Departure(Model):
    """What a run differs from the reference by, over the positions that are judged.

    Attributes:
        positions: how many are judged.
        identical: whether every number of every position has the same bits.
        differing: how many positions have any difference.
        half: the upper median of the distances; None where that is not finite.
        most: the largest one; None likewise.
        most_at: where it is.
        beyond: how many lie beyond what is allowed at any position.
        unbounded: how many of these are not finite, so that nobody can say how far off they are.
        first: the first of these.
    """

    positions: Count
    identical: bool
    differing: Count
    half: Distance | None
    most: Distance | None
    most_at: ValuePlace | None
    beyond: Count
    unbounded: Count = 0
    first: ValuePlace | None

    def contradiction(self, envelope: Envelope, slack: Slack) -> str:
        """Why these numbers cannot all be true; empty where they can."""
        if self.positions != envelope.positions:
            return (
                f"{self.positions} positions were compared, but the envelope has"
                f" {envelope.positions}"
            )
        if not self.unbounded <= self.beyond <= self.differing <= self.positions or (
            self.identical and self.differing
        ):
            return "more positions are beyond what is allowed than differ"
        if (self.first is None) != (self.beyond == 0) or (self.most_at is None) != (
            self.differing == 0
        ):
            return "a position is missing, or is present although nothing differs"
        if self.most is not None and (self.half is None or self.half > self.most):
            return "the middle distance is larger than the largest"
        over = self.most is None or self.most > envelope.allows(slack)[1]
        return (
            ""
            if over == bool(self.beyond)
            else "the largest distance and the count beyond what is allowed disagree"
        )

    def times(self, envelope: Envelope, slack: Slack) -> float:
        """Return the largest and the middle distance in units of what is allowed, whichever is
        more.

        Above 1 is too far.
        """
        if self.most is None or self.half is None:
            return math.inf
        half, most = envelope.allows(slack)
        return max(_share_of(self.half, half), _share_of(self.most, most))


class Sequences(NamedTuple):
    """The arrays of one phase, by the number of their prompt."""

    of: Mapping[int, ArrayFile]

    def rows(self, prompt: int) -> Array:
        """Positions by vocabulary (or width), as they lie in the file.

        Raises:
            NotAnArray: it is not an array of floats with two axes.
        """
        array = numbers(self.of[prompt])
        if array.ndim != 2 or array.dtype.kind != "f":
            raise NotAnArray(
                f"{self.of[prompt].name} must contain floats and have two axes, but its shape is"
                f" {list(array.shape)}"
            )
        return array


def distances(found: Array, expected: Array) -> Array:
    """Return the largest difference of each position, as float64 [positions].

    Equal infinities (tokens that are ruled out on both sides) differ by nothing; NaN, and an
    infinity against anything else, by infinity.
    """
    import numpy as np

    parts = [np.zeros(0)]
    step = max(1, ROWS // max(1, expected.shape[1]))
    for begin in range(0, expected.shape[0], step):
        one, other = (side[begin : begin + step].astype(np.float64) for side in (found, expected))
        with np.errstate(invalid="ignore"):
            apart = np.abs(one - other)
        apart[one == other] = 0.0
        apart[np.isnan(apart)] = np.inf
        parts.append(apart.max(axis=1, initial=0.0))
    return np.concatenate(parts)


def envelope(
    reference: Sequences, variants: Mapping[int, Sequences], *, keep: Mapping[int, int]
) -> Envelope:
    """Measure it.

    Args:
        reference: what the variants are held against.
        variants: each with the same prompts, or some of them.
        keep: how many positions of each prompt are judged, from its beginning.

    Raises:
        NotAnArray: one is not an array, or has another shape or dtype than the reference.
    """
    import numpy as np

    worst = []
    tops = dict.fromkeys(variants, 0.0)
    for prompt in sorted(reference.of):
        expected = reference.rows(prompt)
        far = np.zeros(expected.shape[0])
        for number, variant in variants.items():
            if prompt not in variant.of:
                continue
            demand_alike(variant, reference, prompt)
            own = distances(variant.rows(prompt), expected)
            far = np.maximum(far, own)
            tops[number] = max(tops[number], float(own[: keep[prompt]].max(initial=0.0)))
        worst.append(far[: keep[prompt]])
    joined = np.concatenate(worst) if worst else np.zeros(0)
    if not np.isfinite(joined).all():
        raise NotAnArray(
            "the reference has a NaN, or one of its variants has a NaN or an infinity where the"
            " reference has none"
        )
    total = sum(reference.rows(prompt).shape[0] for prompt in reference.of)
    return Envelope(
        variants=len(variants),
        positions=int(joined.size),
        apart=total - int(joined.size),
        half=middle(joined) or 0.0,
        most=float(joined.max(initial=0.0)),
        odd=_odd(tops),
    )


def _odd(tops: Mapping[int, float]) -> int | None:
    """Return the first variant that lies so much further than the nearest that differs."""
    nearest = min((top for top in tops.values() if top), default=math.inf)
    return next((number for number, top in sorted(tops.items()) if top > ODD * nearest), None)


def departure(
    found: Sequences, reference: Sequences, *, keep: Mapping[int, int], most: float
) -> Departure:
    """Return what a run differs from the reference by.

    Args:
        found: of the same prompts.
        reference: what it is held against.
        keep: how many positions of each prompt are judged, from its beginning.
        most: what is allowed at any position.

    Raises:
        NotAnArray: one is not an array, or has another shape or dtype than the reference.
    """
    import numpy as np

    far = [np.zeros(0)]
    places = []
    identical = True
    for prompt in sorted(reference.of):
        demand_alike(found, reference, prompt)
        ours = found.rows(prompt)
        theirs = reference.rows(prompt)
        many = keep[prompt]
        far.append(distances(ours, theirs)[:many])
        places += [ValuePlace(prompt=prompt, position=position) for position in range(many)]
        identical = identical and ours[:many].tobytes() == theirs[:many].tobytes()
    joined = np.concatenate(far)
    beyond = np.flatnonzero(joined > most)
    largest = float(joined.max(initial=0.0))
    return Departure(
        positions=int(joined.size),
        identical=identical and not joined.any(),
        differing=int(np.count_nonzero(joined)),
        half=middle(joined),
        most=largest if math.isfinite(largest) else None,
        most_at=places[int(joined.argmax())] if largest else None,
        beyond=int(beyond.size),
        unbounded=int(np.count_nonzero(np.isinf(joined))),
        first=places[int(beyond[0])] if beyond.size else None,
    )


def _share_of(difference: float, limit: float) -> float:
    """How much of a limit a difference takes; nothing may differ where the limit is 0."""
    if not difference:
        return 0.0
    return difference / limit if limit else math.inf


def demand_alike(found: Sequences, expected: Sequences, prompt: int) -> None:
    """Demand the same shape and dtype.

    Raises:
        NotAnArray: they differ; the message says how.
    """
    head, _ = found.of[prompt].load()
    other, _ = expected.of[prompt].load()
    if (head.shape, head.dtype) != (other.shape, other.dtype):
        ours, theirs = (f"{one.dtype} {list(one.shape)}" for one in (head, other))
        raise OtherArray(
            f"prompt {prompt} is {ours}, but {theirs} in the reference",
            lacks="shape" if head.shape != other.shape else "dtype",
        )


def middle(far: Array) -> float | None:
    """Return the upper median, which is one of the numbers; None where it is infinite."""
    import numpy as np

    if not far.size:
        return 0.0
    middle = float(np.sort(far)[far.size // 2])
    return middle if math.isfinite(middle) else None


def margins(rows: Array, ids: Sequence[int], others: Sequence[int]) -> list[tuple[int, float]]:
    """Where other tokens were chosen than the expected ones: the step, and by how much the logit
    expected was above.

    Args:
        rows: the reference's logits, a row for each step.
        ids: the tokens it chose.
        others: those that were found; as many.
    """
    return [
        (
            step,
            (
                float(rows[step][token]) - float(rows[step][other])
                if 0 <= other < rows.shape[1]
                else math.inf
            ),
        )
        for step, (token, other) in enumerate(zip(ids, others, strict=True))
        if token != other
    ]


class Sensitivity(Model):
    """What a defect of known size makes of the reference: by how much its logits move, in units of
    what is allowed.

    Attributes:
        number: of the defect.
        times: above 1 it would have been seen; None is beyond any number.
    """

    number: Count
    times: Distance | None


class LayerDeparture(Model):
    """The first hidden state that lies beyond what the variants of the reference allow there.

    Attributes:
        layer: its number.
        part: which part of the layer; empty for what leaves it.
        at: the first position beyond what is allowed at any; where none is, that of the largest
            distance.
        most: the largest distance, or, where none is beyond, the middle one; None where it is not
            finite.
        allowed: at any position, or at half of them.
    """

    layer: Count
    part: str
    at: ValuePlace
    most: Distance | None
    allowed: Distance


class Flip(Model):
    """Another token than the reference's, where that is not near: its margin is more than noise can
    turn over.

    Attributes:
        prompt: its number.
        step: of the tokens that were generated.
        margin: by how much the reference's token was above the other; None where that is beyond any
            number.
    """

    prompt: Count
    step: Count
    margin: float | None


class RankParity(Model):
    """One rank held against the reference.

    Attributes:
        why: why nothing could be compared; empty where it was.
        lacks: which of the two was another one, where that is why.
        keeps: whether it kept logits; else its tokens alone are compared.
        phases: what its logits differ by.
        layers: how many hidden states were compared.
        layer: the first that differs.
        near: where hidden states are judged, the one that lies furthest off, in units of what is
            allowed; None is beyond any number, or not judged.
        router: the first router whose scores do, of those that are told through which experts to
            send each token.
        tokens: how many tokens were compared.
        flips: how many are others than the reference's.
        flip: the first of them that noise cannot explain.
    """

    why: str = ""
    lacks: Literal["", "shape", "dtype"] = ""
    keeps: bool
    phases: dict[str, Departure] = Field(default_factory=dict)
    layers: Count = 0
    layer: LayerDeparture | None = None
    near: Distance | None = None
    router: LayerDeparture | None = None
    tokens: Count = 0
    flips: Count = 0
    flip: Flip | None = None


class Parity(Told):
    """A world held against the reference.

    Attributes:
        dtype: of the reference's logits.
        phases: the envelope of each phase.
        sensitivity: what was measured of defects of known size.
        ranks: each rank of the world, in order.
        unseen: how many of the scores that the reference kept of its routers no rank did; where
            hidden states are judged, how many of all that it kept of its layers.
        choices: of how many choices at each position it told by how much each was decided; 0 where
            it told the least of its routers alone, or has none.
        needles: what it makes of wrong logits in place of its own; of its second run alone.
    """

    dtype: str
    phases: dict[str, Envelope]
    sensitivity: list[Sensitivity]
    ranks: list[RankParity]
    unseen: Count = 0
    choices: Count = 0
    needles: Needles | None = None
