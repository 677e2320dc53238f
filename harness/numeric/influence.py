"""What the logits of a rank move by when another rank's share is changed: the account of a proof
that ranks take part.

A rank keeps `influence.K.prefill.logits.P` of the pass in which rank K's share was changed, and
`prefill.logits.P`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from harness.forms.model import Model
from harness.numeric.array import NotAnArray
from harness.numeric.comparison import Told
from harness.numeric.envelope import Distance, Sequences, Slack, departure
from harness.numeric.parity import NO_SERIES, Files, Whole, sort

NAME = re.compile(r"influence\.(?P<rank>\d+)\.(?P<rest>(?:prefill|decode)\.logits\.\d+)")


class Moved(Model):
    """What the logits of one rank moved by.

    Attributes:
        changed: the rank whose share was changed.
        seen_by: the rank whose logits these are.
        times: in units of what noise allows; None is beyond any number.
    """

    changed: Annotated[int, Field(ge=0)]
    seen_by: Annotated[int, Field(ge=0)]
    times: Distance | None


class Influence(Told):
    """All that moved, and the ranks that kept logits at all."""

    keep: list[int]
    moved: list[Moved]


def work_out(reference: Files, ranks: Sequence[Files], *, margin: float) -> Influence:
    """Hold each changed pass of each rank against its own unchanged one.

    Args:
        reference: what it kept, by name, for its envelope.
        ranks: what each rank kept, in order.
        margin: times the envelope that noise is allowed.

    Raises:
        NotAnArray: the reference lacks something, or a file is not an array.
    """
    whole = Whole(reference, tokens=None, slack=Slack(margin))
    moved = []
    keep = []
    for rank, files in enumerate(ranks):
        own = sort(files).get(NO_SERIES, {})
        if any(what == "logits" for _, what in own):
            keep.append(rank)
        passes: dict[int, dict[str, str]] = {}
        for name in files:
            if (match := NAME.fullmatch(name)) is not None:
                passes.setdefault(int(match["rank"]), {})[match["rest"]] = name
        for changed, names in sorted(passes.items()):
            if odd := sorted(names.keys() - files.keys()):
                raise NotAnArray(f"rank {rank} kept {names[odd[0]]}, and no {odd[0]}")
            most = 0.0
            for phase, limits in whole.envelopes.items():
                asked = {
                    name: place for name, place in names.items() if name.startswith(f"{phase}.")
                }
                pairs = {
                    int(name.rpartition(".")[2]): (files[place], files[name])
                    for name, place in asked.items()
                }
                louder, before = (
                    Sequences({prompt: pair[side] for prompt, pair in pairs.items()})
                    for side in (0, 1)
                )
                keeps = {prompt: before.rows(prompt).shape[0] for prompt in pairs}
                found = departure(louder, before, keep=keeps, most=limits.most)
                limit = limits.allows(Slack(margin))[1]
                if found.most is None:
                    most = math.inf
                elif limit:
                    most = max(most, found.most / limit)
            # A NaN is no proof of anything but itself.
            moved.append(
                Moved(changed=changed, seen_by=rank, times=most if math.isfinite(most) else None)
            )
    return Influence(keep=keep, moved=moved)
