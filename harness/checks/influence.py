"""`influence`: each rank's share takes part in the output.

Change it, and the logits of the other ranks move.

A rank that holds nothing, or all of the model for itself, moves nobody else's logits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.checks.accounted import AccountedCheck, Sources
from harness.checks.check import NO_VALUE, FailsAt
from harness.checks.finding import RankFinding
from harness.forms.model import Model
from harness.forms.strict_json import JSON
from harness.forms.text import numbered
from harness.history import ARTEFACT_FOUND, History
from harness.numeric import parity
from harness.numeric.array import NotAnArray
from harness.numeric.comparison import Told
from harness.numeric.envelope import Distance, Sequences, Slack, departure
from harness.numeric.parity import NO_SERIES, Files, Whole, sort

PERTURBED = "perturbed"
# A rank keeps `influence.K.prefill.logits.P` of the pass in which rank K's share was changed.
PASS_NAME = re.compile(r"influence\.(?P<rank>\d+)\.(?P<rest>(?:prefill|decode)\.logits\.\d+)")


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


def _work_out(reference: Files, ranks: Sequence[Files], *, margin: float) -> Influence:
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
            if (match := PASS_NAME.fullmatch(name)) is not None:
                passes.setdefault(int(match["rank"]), {})[match["rest"]] = name
        for changed, names in sorted(passes.items()):
            if odd := sorted(names.keys() - files.keys()):
                raise NotAnArray(f"rank {rank} kept {names[odd[0]]}, but not {odd[0]}")
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


class InfluenceCheck(AccountedCheck):
    """When only the shard of one rank is changed, the logits of every other rank with logits
    move.
    """

    properties: ClassVar = replace(
        NO_VALUE,
        reports_a_value=True,
        compares=True,
        wrong=FailsAt.RANK_END,
        missing=FailsAt.RANK_END,
    )
    example: ClassVar = "{id: takes-part, kind: influence, ranks: every, against: reference}"

    kind: Literal["influence"]
    against: Literal["reference"] = Field(
        description="The noise to exceed: that of subject.reference."
    )
    margin: Annotated[float, Field(ge=1, le=100)] = Field(
        2.0,
        description=(
            "How far the logits must move, as a multiple of the distance of the reference's own"
            " variants."
        ),
    )

    def wants(self, name: str) -> bool:
        found = parity.NAME.fullmatch(name)
        logits = (
            found is not None and found["what"] is not None and found["series"] != "sensitivity"
        )
        return logits or PASS_NAME.fullmatch(name) is not None

    def account(self, sources: Sources) -> dict[str, JSON]:
        """Each rank's changed passes against its own unchanged ones, with NumPy."""
        ranks = [sources.ranks[rank] for rank in range(sources.history.size)]
        return _work_out(sources.reference, ranks, margin=self.margin).values()

    def judge_account(
        self, history: History, account: Mapping[str, JSON], line: int
    ) -> list[RankFinding]:
        found = Influence.of(account)
        return [self._judge(history, rank, found, line) for rank in self.ranks.of(history.size)]

    def _judge(
        self, history: History, rank: int, found: Influence | None, line: int
    ) -> RankFinding:
        def fails(
            reason: str, *, uncompared: bool = False, lacks: Literal["", "nonfinite"] = ""
        ) -> RankFinding:
            return RankFinding(
                rank=rank,
                passed=False,
                reason=reason,
                line=line,
                uncompared=uncompared,
                lacks=lacks,
            )

        if found is None:
            return fails("it cannot be compared, because its account is not valid", uncompared=True)
        who = [other for other in range(history.size) if _changed(history, other, rank)]
        if who != [rank]:
            said = (
                f"{numbered('rank', tuple(who))} changed their shards"
                if who
                else "no rank changed its shard"
            )
            return fails(
                f"in pass {rank} only its shard may be changed, but {said}", uncompared=True
            )
        # The one rank that has logits at all is the only one that can show its own share.
        others = [one for one in found.keep if one != rank] or [
            one for one in found.keep if one == rank
        ]
        if not others:
            return fails("no rank kept logits", uncompared=True)
        moved = {
            movement.seen_by: movement.times for movement in found.moved if movement.changed == rank
        }
        if lacking := [other for other in others if other not in moved]:
            return fails(
                f"rank {lacking[0]} kept no influence.{rank}.prefill.logits", uncompared=True
            )
        for one in others:
            times = moved[one]
            if times is None:
                what = f"the logits of rank {one} are not finite, which proves nothing"
                return fails(f"with its shard changed, {what}", lacks="nonfinite")
            if times <= 1:
                how_far = f"moved by {times:.2g} times the noise" if times else "did not move"
                return fails(
                    f"it has no influence: with its shard changed, the logits of rank {one}"
                    f" {how_far}"
                )
            if alike := _passes_alike(history, one, rank):
                said = (
                    f"rank {one} kept bit-identical logits in passes"
                    f" {' and '.join(map(str, [rank, *alike]))}"
                )
                return fails(f"{said}, but each pass must change the shard of a different rank")
        least = min(moved[other] or 0.0 for other in others)
        alone = " (itself, because no other rank has logits)" if others == [rank] else ""
        observed = (
            f"moves the logits of {numbered('rank', tuple(others))}{alone} by {least:.3g} times"
            " the noise"
        )
        return RankFinding(rank=rank, passed=True, observed=observed, line=line)


def _passes_alike(history: History, rank: int, number: int) -> list[int]:
    """Passes whose logits a rank kept with the bits of those of the pass of that number.

    A change that every pass holds moves them as well, also where nothing is split.
    """
    kept: dict[int, set[tuple[str, JSON]]] = {}
    for seen in history.noted(ARTEFACT_FOUND, rank):
        if (match := PASS_NAME.fullmatch(str(seen.event.values.get("artefact")))) is not None:
            kept.setdefault(int(match["rank"]), set()).add(
                (match["rest"], seen.event.values.get("sha256"))
            )
    own = kept.get(number, set())
    return [other for other, its in sorted(kept.items()) if other != number and its & own]


def _changed(history: History, rank: int, number: int) -> bool:
    """Tell whether a rank said that it changed its share for the pass of that number."""
    return any(
        value == number and type(value) is int
        for value, _ in history.values(rank, PERTURBED, "number")
    )
