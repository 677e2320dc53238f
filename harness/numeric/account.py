"""What a run differs from the whole model by, small enough for a record: judged again without the
arrays.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.forms.model import Model
from harness.numeric.comparison import Told
from harness.numeric.envelope import Departure, Distance, Envelope, Place
from harness.numeric.needles import Needles

Count = Annotated[int, Field(ge=0)]


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
    at: Place
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
