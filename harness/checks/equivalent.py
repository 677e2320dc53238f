"""`equivalent`: what the ranks compute is what the whole model computes, but for the noise of its
own arithmetic.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from harness.checks.accounted import REFERENCE, AccountedCheck, Sources
from harness.checks.check import NO_VALUE, FailsAt
from harness.checks.finding import RankFinding, failed, finite
from harness.forms.strict_json import JSON
from harness.forms.text import joined, plural
from harness.history import ARTEFACT_FOUND, ARTEFACTS_ACCOUNTED, History
from harness.numeric.envelope import ODD, Flip, LayerDeparture, Parity, RankParity, Slack
from harness.numeric.parity import NAME, PHASES, UNREADABLE, work_out
from harness.reason import VerdictCode

GENERATED = "generated"
SENSITIVITY = "sensitivity"


class EquivalentCheck(AccountedCheck):
    """Every rank's logits are within the noise of the reference's own arithmetic, and all ranks
    generate the same tokens.
    """

    asks_the_reference: ClassVar = True
    properties: ClassVar = replace(
        NO_VALUE,
        reports_a_value=True,
        compares=True,
        wrong=FailsAt.RANK_END,
        missing=FailsAt.RANK_END,
    )
    example: ClassVar = (
        "{id: same-model, kind: equivalent, ranks: every, against: reference, sees: 0.01}"
    )

    kind: Literal["equivalent"]
    against: Literal["reference"] = Field(
        description="What the ranks are compared with: subject.reference."
    )
    margin: Annotated[float, Field(ge=1, le=100)] = Field(
        2.0,
        description="How far a run may be from the reference, as a multiple of the distance of the"
        " reference's own variants.",
    )
    middle: Annotated[float, Field(ge=1, le=100)] | None = Field(
        None,
        description=(
            "The same for the median distance of 16 positions or more, if it must be less. The"
            " median varies little, so in 16 bits 1.25 shows what 2 lets pass."
        ),
    )
    layers: Annotated[float, Field(ge=1, le=100)] | None = Field(
        None,
        description=(
            "The same for the output of a layer, or of a part of one. Without it, hidden states"
            " only name the layer. In 16 bits, a part shows what the sum of the layers hides."
        ),
    )
    positions: Annotated[int, Field(ge=1)] = Field(
        16, description="The minimum number of positions to judge."
    )
    sees: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description=(
            "The size of defect that must be detectable, as the reference's sensitivity events"
            " name sizes. If it is inside the envelope, nothing is decided."
        ),
    )

    @property
    def _slack(self) -> Slack:
        return Slack(self.margin, self.middle, self.layers)

    def wants(self, name: str) -> bool:
        return NAME.fullmatch(name) is not None

    def account(self, sources: Sources) -> dict[str, JSON]:
        """Ranks of the world against the reference, with NumPy."""
        history = sources.history

        def tokens(rank: int | None) -> dict[int, list[int]]:
            events = history.reference if rank is None else history
            return tokens_of(events, rank or 0) if events is not None else {}

        ranks = [sources.ranks[rank] for rank in range(history.size)]
        is_reference = history.about().get("arm") == REFERENCE
        found = work_out(
            sources.reference, ranks, tokens=tokens, slack=self._slack, needles=is_reference
        )
        return found.values()

    def judge_account(
        self, history: History, account: Mapping[str, JSON], line: int
    ) -> list[RankFinding]:
        asked = self.ranks.of(history.size)
        parity = Parity.of(account)
        if parity is None or len(parity.ranks) != history.size:
            return self.uncompared(
                history, "it cannot be compared, because its account is not valid", line
            )
        odd = _odd_ones(history)
        keeps = any(judged.keeps and not judged.why for judged in parity.ranks)
        smallest = smallest_seen(history.reference, parity) if history.reference is not None else ""
        parts = [self._judge(rank, parity, odd, keeps=keeps, line=line) for rank in asked]
        seen = f"; the check would detect a defect of {smallest}" if smallest else ""
        for place, part in enumerate(parts):
            if part.passed and parity.ranks[part.rank].keeps:
                parts[place] = part._replace(observed=f"{part.observed}{seen}")
        return parts

    def _judge(
        self, rank: int, parity: Parity, odd: Mapping[int, str], *, keeps: bool, line: int
    ) -> RankFinding:
        departure = parity.ranks[rank]
        if departure.why or not keeps:
            why = departure.why or "no rank kept logits that could be compared"
            missing = not departure.keeps and not keeps
            return RankFinding(
                rank=rank,
                passed=False,
                reason=f"DIVERGENT: {why}" if departure.lacks else why,
                line=line,
                missing=missing,
                uncompared=not missing and departure.lacks != "shape",
                lacks="shape" if departure.lacks == "shape" else "",
            )
        if parity.unseen:
            routers = "of scores that the reference's routers"
            what = routers if self.layers is None else "that the reference"
            reason = f"no rank kept {plural(parity.unseen, 'array')} {what} kept"
            return failed(rank, reason, line, uncompared=True)
        if wrong := self._contradiction(departure, parity) or self._unjudged(departure):
            return failed(rank, wrong, line, uncompared=True)
        why = odd.get(rank) or self._complaint(departure, parity)
        if why:
            reason = f"DIVERGENT: {why}"
            # Tokens are chosen from what is not finite: they say nothing more.
            beyond = sum(phase.beyond for phase in departure.phases.values())
            unbounded = sum(phase.unbounded for phase in departure.phases.values())
            lacks: Literal["", "nonfinite"] = (
                "nonfinite" if unbounded and beyond == unbounded else ""
            )
            return RankFinding(
                rank=rank,
                passed=False,
                observed=reason,
                reason=reason,
                line=line,
                lacks=lacks,
                share=self._share(departure, parity),
            )
        return RankFinding(
            rank=rank,
            passed=True,
            observed=self._agreement(departure, parity),
            line=line,
            share=self._share(departure, parity),
        )

    def _share(self, departure: RankParity, parity: Parity) -> float | None:
        """How much of what noise allows the worst phase used; None where no logits were kept."""
        shares = [
            found.times(parity.phases[phase], self._slack)
            for phase, found in departure.phases.items()
        ]
        share = max(shares, default=math.inf)
        return share if math.isfinite(share) else None

    def _contradiction(self, departure: RankParity, parity: Parity) -> str:
        """Say how the account contradicts itself; empty where it does not."""
        phases = departure.phases
        if departure.keeps and not phases.keys() == parity.phases.keys() <= set(PHASES):
            return "the account contradicts itself: a phase was not compared"
        for name, phase in phases.items():
            if wrong := phase.contradiction(parity.phases[name], self._slack):
                return f"the account contradicts itself: {wrong}"
        return ""

    def _unjudged(self, own: RankParity) -> str:
        """Why hidden states cannot be judged, where they are to be; empty where they can."""
        if self.layers is None:
            return ""
        if not own.layers:
            return (
                "no hidden state was kept on both sides; keep hidden.0.0 and so on, and for the"
                " reference also those of its variants"
            )
        near = own.near is not None and own.near <= 1
        return (
            ""
            if near == (own.layer is None)
            else "the account contradicts itself: a layer is off, but not named"
        )

    def _complaint(self, own: RankParity, parity: Parity) -> str:
        """Why a rank is divergent: by the first phase, in the first prompt and position.

        Empty where it is not.
        """
        for phase in PHASES:
            if (found := own.phases.get(phase)) is None:
                continue
            limits = parity.phases[phase]
            times = found.times(limits, self._slack)
            if times <= 1:
                continue
            half, most = limits.allows(self._slack)
            far = "not finite" if found.most is None else f"off by {found.most:.3g}"
            at = (
                f" at position {found.most_at.position} of prompt {found.most_at.prompt}"
                if found.most_at
                else ""
            )
            if found.first is not None:
                first = f"first at position {found.first.position} of prompt {found.first.prompt}"
                many = f"{found.beyond} of {found.positions} positions beyond {most:.3g}"
                said = f"{phase} logits {far}{at}, {_times(times)} the noise limit; {many}, {first}"
            else:
                said = (
                    f"{phase} logits off by {found.half:.3g} or more at half of {found.positions}"
                    f" positions, {_times(times)} the noise limit there ({half:.3g})"
                )
            return said + (_layer_in_words(own.layer) if own.layer is not None else "")
        if own.router is not None:
            return (
                "a router makes a different choice, which noise does not"
                f" explain{_layer_in_words(own.router)}"
            )
        if self.layers is not None and own.layer is not None:
            far = "beyond any multiple of" if own.near is None else f"up to {own.near:.3g} times"
            return (
                f"hidden states are {far} the noise limit, and logits are within"
                f" it{_layer_in_words(own.layer)}"
            )
        return _flip_in_words(own.flip) if own.flip is not None else ""

    def _agreement(self, own: RankParity, parity: Parity) -> str:
        """IDENTICAL or EQUIVALENT, and how near."""
        parts = []
        alike = []
        what = "choice" if parity.choices else "router"
        for phase, found in own.phases.items():
            limits = parity.phases[phase]
            apart = f" ({limits.apart} skipped, a {what} was undecided)" if limits.apart else ""
            judged = f"{plural(found.positions, f'{phase} position')}{apart}"
            if found.identical:
                alike.append(judged)
            else:
                parts.append(f"{judged} off by at most {found.most or 0.0:.3g}")
        if alike:
            parts.insert(0, f"{joined(alike)} bit-identical")
        if not own.keeps:
            extent = "alone" if self.layers is None else f"and {plural(own.layers, 'hidden state')}"
            return (
                f"EQUIVALENT by {plural(own.tokens, 'token')} {extent}, because it kept no logits"
            )
        if own.flips:
            parts.append(f"{own.flips} of {own.tokens} tokens differ, each of them a tie")
        identical = all(one.identical for one in own.phases.values()) and not own.flips
        word = "IDENTICAL" if identical else "EQUIVALENT"
        share = self._share(own, parity) or 0.0
        within = "" if identical else f"; at most {share:.2g} times the noise limit"
        if self.layers is not None:
            within += (
                f"; hidden states at most {own.near:.2g} times the noise limit"
                if own.near
                else "; hidden states identical"
            )
        return f"{word}: {joined(parts)}{within}"

    def departure(self, history: History, rank: int) -> float | None:
        """By how much the logits of a rank are off at most; None where that is not finite, or it
        has none.
        """
        parity = parity_of(self, history)
        own = parity.ranks[rank] if parity is not None and rank < len(parity.ranks) else None
        found = (
            [phase.most for phase in own.phases.values() if phase.beyond] if own is not None else []
        )
        return max((one for one in found if one is not None), default=None)

    def doubts(self, history: History) -> Iterator[tuple[VerdictCode, str]]:
        """It kept too little, gave two answers, or its noise hides the defect that has to be
        seen.
        """
        if history.reference is None:
            return
        finding = self.judge(history)
        for part in finding.ranks[:1]:
            if not part.passed and (part.uncompared or part.missing):
                yield VerdictCode.REFERENCE_FAILED, f"cannot answer check {self.id}: {part.reason}"
            elif not part.passed:
                yield (
                    VerdictCode.REFERENCE_DIFFERS,
                    f"returned different results in two runs: check {self.id}: {part.reason}",
                )
            elif list(sizes_of(history)) != list(sizes_of(history.reference)):
                why = (
                    f"returned different results in two runs: check {self.id}: its defects of known"
                    " size have different sizes"
                )
                yield VerdictCode.REFERENCE_DIFFERS, why
            else:
                yield from self._too_coarse(history)

    def _too_coarse(self, history: History) -> Iterator[tuple[VerdictCode, str]]:
        parity = parity_of(self, history)
        if parity is None:
            return
        judged = sum(one.positions for one in parity.phases.values())
        if judged < self.positions:
            why = (
                f"has {plural(judged, 'position')} to judge, but check {self.id} requires"
                f" {self.positions}: give more or longer prompts, or a lower positions"
            )
            yield VerdictCode.REFERENCE_FAILED, why
        for phase, one in parity.phases.items():
            if one.positions and not one.most:
                many = plural(one.variants, "variant")
                why = f"shows no noise in {phase}: its {many} are bit-identical; reorder a sum"
                yield VerdictCode.REFERENCE_FAILED, why
        if self.sees is not None and (same := _one_defect(history)):
            why = (
                f"returned the same bits for defects of {same[0]:g} and {same[1]:g}, so one of them"
                " does not have the stated size"
            )
            yield VerdictCode.REFERENCE_FAILED, why
        if self.sees is not None and not self._seen(history, parity):
            smallest = smallest_seen(history, parity)
            so_far = (
                f"the smallest that it would detect: {smallest}"
                if smallest
                else "none was detected"
            )
            why = (
                f"would not detect a defect of {self.sees:g} (check {self.id}), which is within its"
                f" own noise; {so_far}{_odd_in_words(history.reference, parity)}"
            )
            yield VerdictCode.REFERENCE_TOO_COARSE, why

    def _seen(self, history: History, parity: Parity) -> bool:
        """Tell whether a defect of the stated size, or a smaller one, was measured and visible."""
        sizes = dict(sizes_of(history))
        stated = [
            defect
            for defect in parity.sensitivity
            if defect.number in sizes and sizes[defect.number][0] <= (self.sees or 0)
        ]
        return any(defect.times is None or defect.times > 1 for defect in stated)


def tokens_of(history: History, rank: int) -> dict[int, list[int]]:
    """Return the tokens that a rank says it generated, by prompt.

    What is not a list of whole numbers is none.
    """
    found: dict[int, list[int]] = {}
    for seen in history.said(rank, GENERATED):
        prompt = seen.event.values.get("prompt")
        ids = seen.event.values.get("ids")
        if (
            type(prompt) is int
            and prompt not in found
            and isinstance(ids, list)
            and all(type(one) is int for one in ids)
        ):
            found[prompt] = ids
        else:
            found[UNREADABLE] = []  # said twice, or not as asked: not what the reference said
    return found


def parity_of(check: EquivalentCheck, history: History) -> Parity | None:
    """Return the account of a trial, as its event holds it."""
    for seen in history.noted(ARTEFACTS_ACCOUNTED):
        if seen.event.values.get("check") == check.id and isinstance(
            seen.event.values.get("account"), dict
        ):
            return Parity.of(seen.event.values["account"])
    return None


def sizes_of(history: History) -> Iterator[tuple[int, tuple[float, str]]]:
    """Yield the defects of known size that the reference measured: number, size and what they
    are.
    """
    for seen in history.said(0, SENSITIVITY):
        values = seen.event.values
        number = values.get("defect")
        size = finite(values.get("size"))
        if type(number) is int and size is not None:
            yield number, (size, str(values.get("what", "")))


def _one_defect(history: History) -> tuple[float, float] | None:
    """Sizes of two defects that moved something, and moved it to the same bits; None where there
    are none.
    """
    kept: dict[int | None, set[tuple[str, str]]] = {}
    for seen in history.noted(ARTEFACT_FOUND, 0):
        match = NAME.fullmatch(str(seen.event.values.get("artefact")))
        if (
            match is not None
            and match["what"] == "logits"
            and match["series"] in (None, SENSITIVITY)
        ):
            name = f"{match['phase']}.{match['prompt']}"
            number = int(match["number"]) if match["series"] else None
            kept.setdefault(number, set()).add((name, str(seen.event.values.get("sha256"))))
    # A defect that moves nothing, as small ones in 16 bits, has the bits of the reference.
    by_bits = {frozenset(kept.get(None, ())): 0.0}
    for number, (size, _) in sizes_of(history):
        other = by_bits.setdefault(frozenset(kept.get(number, ())), size)
        if number in kept and other not in (0.0, size):
            return min(size, other), max(size, other)
    return None


def smallest_seen(history: History, parity: Parity) -> str:
    """Describe the size of the smallest defect that was visible and of the largest that was not, if
    there are any.
    """
    sizes = dict(sizes_of(history))
    known = [defect for defect in parity.sensitivity if defect.number in sizes]
    visible = [sizes[one.number] for one in known if one.times is None or one.times > 1]
    hidden = [sizes[one.number] for one in known if one.times is not None and one.times <= 1]
    if not visible:
        return ""
    size, what = min(visible)
    below = [other for other, _ in hidden if other < size]
    missed = f"; size {max(below):g} was not detected" if below else ""
    return f"size {size:g} ({what}{missed})"


def _odd_in_words(reference: History | None, parity: Parity) -> str:
    """Name the variant of the reference that lies far beyond the others, if there is one."""
    for phase in PHASES:
        odd = parity.phases[phase].odd if phase in parity.phases else None
        if odd is None or reference is None:
            continue
        orders = [seen.event.values for seen in reference.said(0, "envelope")]
        order = next(
            (str(values.get("order")) for values in orders if values.get("number") == odd),
            f"number {odd}",
        )
        return (
            f"; its variant {order!r} is more than {ODD} times as far from it in {phase} as another"
            " variant, so this is not noise but a different computation"
        )
    return ""


def _odd_ones(history: History) -> dict[int, str]:
    """Find the ranks whose tokens are not the majority's; without a majority, all ranks."""
    said = [tokens_of(history, rank) for rank in range(history.size)]
    texts = [str(sorted(tokens.items())) for tokens in said]
    common, many = Counter(texts).most_common(1)[0]
    if many == len(texts):
        return {}
    odd = {}
    for rank, text in enumerate(texts):
        if text != common or many * 2 <= len(texts):
            other = next(other for other, its in enumerate(texts) if its != text)
            odd[rank] = _difference(said, rank, other)
    return odd


def _difference(said: list[dict[int, list[int]]], rank: int, other: int) -> str:
    for prompt in sorted(said[rank].keys() | said[other].keys()):
        ours = said[rank].get(prompt)
        theirs = said[other].get(prompt)
        if ours is None or theirs is None or len(ours) != len(theirs):
            return f"it has a different number of tokens for prompt {prompt} than rank {other}"
        for step, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            if left != right:
                return (
                    f"at step {step} of prompt {prompt} it generated token {left}, but rank"
                    f" {other} token {right}"
                )
    return ""


def _layer_in_words(found: LayerDeparture) -> str:
    part = f", {found.part}" if found.part else ""
    most = "not finite" if found.most is None else f"{found.most:.3g}, allowed {found.allowed:.3g}"
    return (
        f"; first in layer {found.layer}{part} at position {found.at.position} of prompt"
        f" {found.at.prompt} ({most})"
    )


def _flip_in_words(flip: Flip) -> str:
    margin = "noise does not explain the difference"
    if flip.margin is not None:
        margin = f"the reference scores that token {flip.margin:.3g} below its own choice"
    return (
        f"at step {flip.step} of prompt {flip.prompt} it generated a different token from the"
        f" reference; {margin}"
    )


def _times(times: float) -> str:
    return "beyond any multiple of" if math.isinf(times) else f"{times:.3g} times"
