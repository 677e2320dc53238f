"""A run over several ranks held against the whole model: the account that says how far apart the
two are.

Names of the artefacts: `prefill.logits.P` and `decode.logits.P` [positions or steps, vocabulary] of
prompt P; `prefill.router.P`, `decode.router.P` [positions, choices], how far the last one chosen is
above the first that was not, of each router (experts) and each indexer (keys, or blocks of them),
infinite where nothing was left out; `hidden.L.P` or `hidden.L.PART.P` [positions, width] of layer
L, `router` of the parts being what its router chose the best of where it is told what to take. The
reference has `envelope.K.` before each of these for its variant K, and `sensitivity.J.` before
logits for a defect of known size.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from harness.numeric.array import NotAnArray
from harness.numeric.arrays import ArrayFile, numbers
from harness.numeric.envelope import (
    Departure,
    Envelope,
    Flip,
    LayerDeparture,
    OtherArray,
    Parity,
    RankParity,
    Sensitivity,
    Sequences,
    Slack,
    departure,
    distances,
    envelope,
    margins,
    middle,
)
from harness.numeric.needles import LEAST, OTHERS, Needle, Needles, extent, unmasked, wrong_ones

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

PHASES = ("prefill", "decode")
ROUTER = "router"
"""The part of a layer in which its router's scores are kept."""
NAME = re.compile(
    r"(?:(?P<series>envelope|sensitivity)\.(?P<number>\d+)\.)?"
    r"(?:(?P<phase>prefill|decode)\.(?P<what>logits|router)|hidden\.(?P<layer>\d+)(?:\.(?P<part>[a-z][a-z-]*))?)"
    r"\.(?P<prompt>\d+)"
)
Count = Annotated[int, Field(ge=0)]


Files = Mapping[str, ArrayFile]
Tokens = Mapping[int, list[int]]
"""The tokens that were generated, by prompt."""
UNREADABLE = -1
"""The prompt of what was said of tokens and cannot be read."""


class MovedLayer(NamedTuple):
    """What leaves a layer, or a part of one, held against the reference.

    Attributes:
        prompts: of how many prompts it can be compared.
        times: how far off it is, in units of what is allowed.
        departed: where it lies beyond that.
    """

    prompts: int
    times: float
    departed: LayerDeparture | None


class Whole:
    """What the reference kept, and its envelope."""

    def __init__(self, files: Files, *, tokens: Tokens | None, slack: Slack) -> None:
        """Measure the envelope; without `tokens` for nothing but that.

        Raises:
            NotAnArray: something is missing, or is not what it has to be.
        """
        self.tokens = tokens or {}
        self.slack = slack
        self._series = sort(files)
        self._limits: dict[tuple[str | int, ...], Envelope] = {}
        self.logits = {
            phase: found for phase in PHASES if (found := self._of(None, phase, "logits"))
        }
        if not self.logits:
            raise NotAnArray(
                "the reference kept no logits; keep prefill.logits.0, and so on for each prompt"
            )
        if tokens is not None and UNREADABLE in tokens:
            raise NotAnArray(
                "the reference emitted `generated` twice for the same prompt, or emitted it"
                " without `prompt` or the list `ids`"
            )
        if tokens is not None and not any(tokens.values()):
            raise NotAnArray(
                "the reference generated no tokens; emit the event `generated` with `prompt` and"
                " `ids`"
            )
        self._variants = sorted(
            number or 0 for series, number in self._series if series == "envelope"
        )
        self._keep = {phase: self._undecided(phase) for phase in self.logits}
        for prompt in self.logits.get("decode", {}):
            # What a router chose otherwise in the prompt lies in the cache of every step.
            if self._cut("prefill", prompt):
                self._keep["decode"][prompt] = 0
        self.envelopes = {
            phase: envelope(Sequences(of), self._like(of, phase, "logits"), keep=self._keep[phase])
            for phase, of in self.logits.items()
        }

    def parity(self, rank: Files, tokens: Tokens) -> RankParity:
        """Hold a rank against it.

        Raises:
            NotAnArray: what it kept is not an array.
        """
        own = sort(rank).get(NO_SERIES, {})
        phases: dict[str, Departure] = {}
        keeps = any(what == "logits" for _, what in own)
        flips = self._flips(tokens)
        why = flips if isinstance(flips, str) else ""
        for phase, of in self.logits.items() if keeps else ():
            found = own.get((phase, "logits"), {})
            if missing := sorted(of.keys() - found.keys()) or sorted(found.keys() - of.keys()):
                return RankParity(
                    why=f"{phase}.logits.{missing[0]} was not kept on both sides", keeps=keeps
                )
            try:
                phases[phase] = departure(
                    Sequences(found),
                    Sequences(of),
                    keep=self._keep[phase],
                    most=self.envelopes[phase].allows(self.slack)[1],
                )
            except OtherArray as error:
                return RankParity(why=f"{phase}.logits of {error}", lacks=error.lacks, keeps=keeps)
            except NotAnArray as error:
                return RankParity(why=f"{phase}.logits of {error}", keeps=keeps)
        moved = list(self._layers(own))
        beyond = [one.departed for one in moved if one.departed is not None]
        near = (
            max((one.times for one in moved), default=math.inf)
            if self.slack.layers is not None
            else math.inf
        )
        found_flips = [] if isinstance(flips, str) else flips
        return RankParity(
            why=why,
            keeps=keeps,
            phases=phases,
            layers=sum(one.prompts for one in moved),
            layer=next(iter(beyond), None),
            near=near if near < math.inf else None,
            router=next((one for one in beyond if one.part == ROUTER), None),
            tokens=sum(map(len, tokens.values())) if not why else 0,
            flips=len(found_flips),
            flip=next((flip for flip in found_flips if not self._is_near(flip)), None),
        )

    def sensitivities(self) -> list[Sensitivity]:
        """Return what defects of known size move, each by its worst phase."""
        found = []
        for series, number in sorted(self._series, key=str):
            if series != "sensitivity":
                continue
            times = []
            for phase, of in self.logits.items():
                own = self._series[series, number].get((phase, "logits"), {})
                if own.keys() == of.keys():
                    limits = self.envelopes[phase]
                    moved = departure(
                        Sequences(own),
                        Sequences(of),
                        keep=self._keep[phase],
                        most=limits.allows(self.slack)[1],
                    )
                    times.append(moved.times(limits, self.slack))
            if self.slack.layers is not None:
                times += [layer.times for layer in self._layers(self._series[series, number])]
            if times:
                worst = max(times)
                found.append(
                    Sensitivity(number=number or 0, times=worst if worst != math.inf else None)
                )
        return sorted(found, key=lambda one: one.number)

    def needles(self) -> Needles:
        """Wrong logits in place of its own, held against what noise allows, until some are
        refused.
        """
        import numpy as np

        extents = [extent(unmasked(file)) for of in self.logits.values() for file in of.values()]
        elements = max((one.elements for one in extents), default=0)
        tried: list[Needle] = []
        for phase, of in self.logits.items():
            half, most = self.envelopes[phase].allows(self.slack)
            for prompt, kept in of.items() if not any(one.is_refused for one in tried) else ():
                keep = self._keep[phase][prompt]
                file = unmasked(kept)
                others = {
                    f"prompt {other}": unmasked(of[other])
                    for other in sorted(of.keys() - {prompt})[:OTHERS]
                }
                for what, wrong in wrong_ones(file, others) if numbers(file).size >= LEAST else ():
                    far = distances(numbers(wrong), numbers(file))[:keep]
                    passes = bool((far <= most).all()) and (middle(far) or 0.0) <= half
                    far = far[np.isfinite(far)]  # of the others the masks differ
                    place = f"{phase} of prompt {prompt}, {what}"
                    telling = int((far != 0).sum())
                    beyond = int((far > most).sum())
                    if telling:
                        tried.append(
                            Needle(what=place, telling=telling, beyond=beyond, passes=passes)
                        )
                    if tried and tried[-1].is_refused:
                        break
                if tried and tried[-1].is_refused:
                    break
        scales = [one.scale for one in extents if one.scale is not None]
        return Needles(
            elements=elements,
            scale=max(scales, default=None),
            constant=all(one.constant for one in extents),
            hollow=elements if all(2 * one.hollow > one.elements for one in extents) else 0,
            tried=tried,
        )

    @property
    def dtype(self) -> str:
        """Of the logits."""
        of = next(iter(self.logits.values()))
        return of[min(of)].load()[0].dtype

    @property
    def choices(self) -> int:
        """Of how many choices at each position it told by how much each was decided."""
        files = [file for phase in self.logits for file in self._of(None, phase, ROUTER).values()]
        return max(
            (shape[1] for file in files if len(shape := file.load()[0].shape) > 1), default=0
        )

    def _of(self, series: Series | None, phase: str, what: str) -> Mapping[int, ArrayFile]:
        return self._series.get(series or NO_SERIES, {}).get((phase, what), {})

    def _like(self, of: Mapping[int, ArrayFile], phase: str, what: str) -> dict[int, Sequences]:
        """Return the variants of these arrays, as many for each prompt as there are.

        One at least.
        """
        found = {
            number: Sequences(self._of(("envelope", number), phase, what))
            for number in self._variants
        }
        if lacking := sorted(
            of.keys() - {prompt for variant in found.values() for prompt in variant.of}
        ):
            raise NotAnArray(
                "the reference kept no variants; make it also compute the same values in another"
                " allowed order and keep them, starting with the array"
                f" envelope.0.{phase}.{what}.{lacking[0]}"
            )
        return found

    def _undecided(self, phase: str) -> dict[int, int]:
        """How many positions of each prompt come before the first at which noise can make a choice
        another one.
        """
        of = self.logits[phase]
        gaps = self._of(None, phase, ROUTER)
        if not gaps:
            return {prompt: numbers(file).shape[0] for prompt, file in of.items()}
        if gaps.keys() != of.keys():
            raise NotAnArray(
                f"{phase}.router and {phase}.logits of the reference are not for the same prompts"
            )
        for prompt, file in gaps.items():
            if numbers(file).shape[0] != numbers(of[prompt]).shape[0]:
                raise NotAnArray(
                    f"{phase}.router.{prompt} and {phase}.logits.{prompt} differ in length"
                )
        variants = [one.of for one in self._like(gaps, phase, ROUTER).values()]
        return decided(gaps, variants, margin=self.slack.margin)

    def _cut(self, phase: str, prompt: int) -> bool:
        if prompt not in self._keep.get(phase, {}):
            return False
        many: int = numbers(self.logits[phase][prompt]).shape[0]
        return self._keep[phase][prompt] < many

    def _layers(self, own: Arrays) -> Iterator[MovedLayer]:
        """In order, each layer, and part of one, of which hidden states can be compared."""
        reference = self._series.get(NO_SERIES, {})
        for place in sorted((one for one in own if one[0] == "hidden"), key=_in_order):
            shared = sorted(own[place].keys() & reference.get(place, {}).keys())
            variants = [self._of(("envelope", number), *place) for number in self._variants]
            shared = [prompt for prompt in shared if any(prompt in variant for variant in variants)]
            if not shared:
                continue
            expected = Sequences({prompt: reference[place][prompt] for prompt in shared})
            rows = {prompt: expected.rows(prompt).shape[0] for prompt in shared}
            keep = {
                prompt: self._keep.get("prefill", {}).get(prompt, many)
                for prompt, many in rows.items()
            }
            among: tuple[str | int, ...] = (*place, *shared)
            # The same for every rank that kept these prompts.
            if (limits := self._limits.get(among)) is None:
                limits = envelope(
                    expected,
                    {number: Sequences(of) for number, of in enumerate(variants)},
                    keep=keep,
                )
                self._limits[among] = limits
            slack = self.slack if _is_of_a_router(place) else self.slack.of_layers()
            half, most = limits.allows(slack)
            found = Sequences({prompt: own[place][prompt] for prompt in shared})
            moved = departure(found, expected, keep=keep, most=most)
            departed = None
            times = moved.times(limits, slack)
            if times > 1:
                layer, _, part = place[1].partition(".")
                at = moved.first or moved.most_at
                assert at is not None
                departed = LayerDeparture(
                    layer=int(layer),
                    part=part,
                    at=at,
                    most=moved.most if moved.beyond else moved.half,
                    allowed=most if moved.beyond else half,
                )
            yield MovedLayer(len(shared), times, departed)

    def _flips(self, tokens: Tokens) -> list[Flip] | str:
        """Where other tokens were generated than by the reference; or why that cannot be told."""
        if tokens.keys() != self.tokens.keys():
            return "the prompts that tokens were generated for differ from the reference's"
        found = []
        for prompt, expected in self.tokens.items():
            if len(tokens[prompt]) != len(expected):
                return (
                    f"{len(tokens[prompt])} tokens were generated for prompt {prompt},"
                    f" {len(expected)} by the reference"
                )
            pairs = enumerate(zip(expected, tokens[prompt], strict=True))
            differing: list[tuple[int, float | None]] = [
                (step, None) for step, (one, other) in pairs if one != other
            ]
            if (rows := self._rows_behind(prompt)) is not None:
                others = margins(rows, expected, tokens[prompt])
                differing = [
                    (step, margin if margin < math.inf else None) for step, margin in others
                ]
            decided = self._decided(prompt)
            found += [
                Flip(prompt=prompt, step=step, margin=margin)
                for step, margin in differing
                if step < decided
            ]
        return found

    def _decided(self, prompt: int) -> int:
        """How many of the tokens were chosen before any router was undecided."""
        if self._cut("prefill", prompt):
            return 0
        return (
            self._keep["decode"][prompt] + 1
            if self._cut("decode", prompt)
            else len(self.tokens[prompt])
        )

    def _rows_behind(self, prompt: int) -> Array | None:
        """Return the reference's logits from which it chose its tokens; None where it did not
        choose the best ones.
        """
        import numpy as np

        parts = [
            numbers(self.logits[phase][prompt])
            for phase in PHASES
            if prompt in self.logits.get(phase, {})
        ]
        ids = self.tokens[prompt]
        ways = [np.concatenate([parts[0][-1:], *parts[1:]])] if parts else []
        for rows in [*ways, *parts[1:]]:
            if len(rows) >= len(ids) and rows[: len(ids)].argmax(axis=1).tolist() == ids:
                return rows
        return None

    def _is_near(self, flip: Flip) -> bool:
        """Return whether noise on both tokens explains it."""
        most = max(one.most for one in self.envelopes.values())
        return flip.margin is not None and flip.margin <= 2 * self.slack.margin * most


Series = tuple[str, int | None]
NO_SERIES: Series = ("", None)
Arrays = Mapping[tuple[str, str], Mapping[int, ArrayFile]]
"""Phase and what, or `hidden` and the layer with its part, to prompt to array."""


def sort(files: Files) -> dict[Series, Arrays]:
    """Sort artefacts by what their names say; others are left out."""
    found: defaultdict[Series, defaultdict[tuple[str, str], dict[int, ArrayFile]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for name, file in files.items():
        if (match := NAME.fullmatch(name)) is None:
            continue
        series = (match["series"], int(match["number"])) if match["series"] else NO_SERIES
        part = f".{match['part']}" if match["part"] else ""
        place = (
            (match["phase"], match["what"])
            if match["phase"]
            else ("hidden", f"{match['layer']}{part}")
        )
        found[series][place][int(match["prompt"])] = file
    return {series: dict(places) for series, places in found.items()}


def _in_order(place: tuple[str, str]) -> tuple[int, bool, str]:
    """Parts of a layer come before what leaves it."""
    layer, _, part = place[1].partition(".")
    return int(layer), not part, part


def work_out(
    reference: Files,
    ranks: Iterable[Files],
    *,
    tokens: Callable[[int | None], Tokens],
    slack: Slack,
    needles: bool = False,
) -> Parity:
    """Hold the ranks of a world against the reference.

    Args:
        reference: what it kept, by name.
        ranks: what each rank kept, in order.
        tokens: what a rank generated; of None, the reference.
        slack: times the envelope that is allowed.
        needles: whether wrong logits are tried.

    Raises:
        NotAnArray: the reference lacks something, or a file is not an array.
    """
    whole = Whole(reference, tokens=tokens(None), slack=slack)
    found = []
    files_of = list(ranks)
    for rank, files in enumerate(files_of):
        try:
            found.append(whole.parity(files, tokens(rank)))
        except NotAnArray as error:
            found.append(RankParity(why=str(error), keeps=True))
    kept = {name for files in files_of for name in files}
    asked = [
        name
        for name in reference
        if (place := _hidden(name)) and (slack.layers or _is_of_a_router(place))
    ]
    unseen = sum(1 for name in asked if name not in kept)
    return Parity(
        dtype=whole.dtype,
        phases=whole.envelopes,
        sensitivity=whole.sensitivities(),
        ranks=found,
        unseen=unseen,
        choices=whole.choices,
        needles=whole.needles() if needles else None,
    )


def _hidden(name: str) -> tuple[str, str] | None:
    """Return the place of a hidden state of the reference itself; None of anything else."""
    places = sort({name: ArrayFile(name, b"")}).get(NO_SERIES, {})
    return next((place for place in places if place[0] == "hidden"), None)


def _is_of_a_router(place: tuple[str, str]) -> bool:
    return place[1].partition(".")[2] == ROUTER


def decided(
    gaps: Mapping[int, ArrayFile], variants: Sequence[Mapping[int, ArrayFile]], *, margin: float
) -> dict[int, int]:
    """How many positions of each prompt come before the first at which noise can make a choice
    another one.

    A choice is held against its own noise: the scores of routers and of indexers are numbers of
    different size.

    Args:
        gaps: by prompt, `[positions, choices]`, infinite where nothing was left out; or the least
            of all, `[positions]`.
        variants: the same in other orders of the same sums, of all prompts or some.
        margin: times its noise that a gap has to be.

    Raises:
        NotAnArray: one is not an array of floats with one axis or two, or has other positions in a
            variant.
    """
    import numpy as np

    kept = {prompt: _columns(file) for prompt, file in gaps.items()}
    others = [
        {prompt: _columns(file) for prompt, file in one.items() if prompt in kept}
        for one in variants
    ]
    width = max(found.shape[1] for one in (kept, *others) for found in one.values())
    kept = {prompt: _widened(gap, width) for prompt, gap in kept.items()}
    noise = {prompt: np.zeros(gap.shape) for prompt, gap in kept.items()}
    for variant in others:
        for prompt, found in variant.items():
            gap = kept[prompt]
            other = _widened(found, width)
            if other.shape != gap.shape:
                raise NotAnArray(f"{gaps[prompt].name} has a different shape in a variant")
            # What chooses nothing leaves nothing undecided: its gap is infinite, on both sides.
            with np.errstate(invalid="ignore"):
                apart = np.where(other == gap, 0.0, np.abs(other - gap))
            noise[prompt] = np.maximum(noise[prompt], apart)
    # Behind a choice that was made otherwise everything is something else, which is not noise of
    # what comes before: what counts is the noise so far, and no less than that of half of all
    # positions at which there is a choice.
    gap_of_all, noise_of_all = (np.concatenate(list(one.values())) for one in (kept, noise))
    half = np.array(
        [_median(noise_of_all[~np.isinf(gap_of_all[:, at]), at]) for at in range(width)]
    )
    many = {}
    for prompt, gap in kept.items():
        so_far = np.maximum(np.maximum.accumulate(noise[prompt]), half)
        tied = np.flatnonzero(~(gap > margin * so_far).all(axis=1))
        many[prompt] = int(tied[0]) if tied.size else int(gap.shape[0])
    return many


def _columns(file: ArrayFile) -> Array:
    array = numbers(file)
    if array.ndim not in (1, 2) or array.dtype.kind != "f":
        raise NotAnArray(
            f"{file.name} must contain floats and have one or two axes, but its shape is"
            f" {list(array.shape)}"
        )
    return (array if array.ndim == 2 else array[:, None]).astype("float64")


def _widened(gaps: Array, width: int) -> Array:
    """With the choices that came up later, which were none before."""
    import numpy as np

    return np.pad(gaps, ((0, 0), (0, width - gaps.shape[1])), constant_values=np.inf)


def _median(values: Array) -> float:
    import numpy as np

    return float(np.median(values)) if values.size else 0.0
