"""`environment-agrees`: the ranks run in the same environment, as each rank's own runtime finds it.

What differs is named key by key, with the ranks at fault: those whose value is not the one that
more than half of them have. The event is emitted by the runtime of the rank, where a scenario has
this check, and never by the subject.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from harness.checks.check import NO_VALUE, FailsAt, RankCheck
from harness.checks.finding import Finding, RankFinding, canonical, failed, over_ranks
from harness.forms.model import Distinct, Line
from harness.forms.problem import Draft, Problem
from harness.forms.strict_json import JSON
from harness.forms.units import Duration
from harness.history import ENVIRONMENT_TOLD, History, Seen

Part = Literal["versions", "libraries", "variables", "threads", "numerics", "clock"]
PARTS: tuple[Part, ...] = ("versions", "libraries", "variables", "threads", "numerics", "clock")
MOMENTS = ("begin", "end")
CLOCK = "clock.offset"
# Nanoseconds fit into 64 bits; a float holds the sum of two such numbers.
LARGEST_NS = 1 << 63
ABSENT = "(none)"
SHOWN = 3
VALUE_LIMIT = 60


class EnvironmentAgreesCheck(RankCheck):
    """Every rank runs in the same environment: versions, native libraries, variables, threads,
    dtype and wall clock.
    """

    properties: ClassVar = replace(
        NO_VALUE,
        compares_ranks=True,
        needs_the_environment=True,
        wrong=FailsAt.EVENT,
        missing=FailsAt.WORLD_END,
    )
    example: ClassVar = (
        "{id: same-environment, kind: environment-agrees, ranks: every, but: [variables.SHARD]}"
    )

    kind: Literal["environment-agrees"]
    parts: Annotated[Distinct[Part], Field(min_length=1)] = Field(
        PARTS, description="The parts to compare (default: all)."
    )
    but: Distinct[Line] = Field(
        (),
        description=(
            "Keys in which ranks may differ, with their part, like variables.CUDA_VISIBLE_DEVICES."
        ),
    )
    clock: Duration = Field(
        0.1,
        description="How far a rank's wall clock may be from the others' median, with a unit.",
        json_schema_extra={"default": "100ms"},
    )

    def judge(self, history: History) -> Finding:
        """Each moment by itself, so that ranks that differ are told although the world came to no
        end.
        """
        asked = self.ranks.of(history.size)
        parts = {rank: self._missing(history, rank) for rank in asked}
        for moment in MOMENTS:
            values = {
                rank: found for rank in asked if (found := _told(history, rank, moment)) is not None
            }
            differing = self._differing({rank: self._keys(seen) for rank, seen in values.items()})
            for rank, keys in differing.items():
                if parts[rank].passed or parts[rank].missing:
                    more = f", and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
                    reason = "; ".join(keys[:SHOWN]) + more
                    parts[rank] = failed(rank, reason, values[rank].line)
        return over_ranks(self.id, self.kind, parts.values())

    def _missing(self, history: History, rank: int) -> RankFinding:
        """Judge whether the rank reported all of its environment, at the end too if it came there.

        A part must have a key.
        """
        for moment in MOMENTS if history.returned(rank) is not None else MOMENTS[:1]:
            seen = _told(history, rank, moment)
            if seen is None:
                return failed(
                    rank,
                    f"it did not report its environment at the {moment} of its subject",
                    missing=True,
                )
            # Only Linux says which libraries are mapped, and numerics are told of libraries that
            # are loaded.
            lacking = [
                part
                for part in self.parts
                if not _mapping(seen, part) and part not in ("libraries", "numerics")
            ]
            if lacking:
                return failed(
                    rank, f"it did not report {', '.join(lacking)}", seen.line, missing=True
                )
        assert seen is not None
        counts = ", ".join(f"{part} {len(_mapping(seen, part))}" for part in self.parts)
        return RankFinding(
            rank=rank, passed=True, observed=f"keys compared: {counts}", line=seen.line
        )

    def _keys(self, seen: Seen) -> dict[str, JSON]:
        keys = {
            f"{part}.{name}": value
            for part in self.parts
            for name, value in _mapping(seen, part).items()
        }
        return {key: value for key, value in keys.items() if key not in self.but}

    def _differing(self, told: Mapping[int, Mapping[str, JSON]]) -> dict[int, list[str]]:
        """Rank to the keys in which it differs, in words."""
        found: dict[int, list[str]] = {}
        if len(told) < 2:
            return found
        for key in sorted({key for keys in told.values() for key in keys}):
            values = {rank: keys.get(key) for rank, keys in told.items()}
            off = self._late(values) if key == CLOCK else _minority(values)
            for rank, words in off.items():
                found.setdefault(rank, []).append(f"{key} {words}")
        return found

    def _late(self, values: Mapping[int, JSON]) -> dict[int, str]:
        """Ranks whose wall clock is elsewhere.

        Of two that differ both are named: nothing says which is right.
        """
        numbers = {
            rank: value
            for rank, value in values.items()
            if type(value) is int and abs(value) < LARGEST_NS
        }
        off = {rank: "is not a number" for rank in values if rank not in numbers}
        if numbers:
            middle = median(numbers.values())
            # Of two ranks the median lies between them, and each is half of the way off.
            allowed = self.clock * (0.5 if len(numbers) == 2 else 1.0)
            for rank, value in numbers.items():
                seconds = (value - middle) / 1e9
                if abs(seconds) > allowed:
                    off[rank] = f"is {seconds:+.3f} s from the median of the ranks"
        return off

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Two ranks or more tell, and they are ranks of Python."""
        for index, check in checks.items():
            if draft.has("subject", "program"):
                message = "needs the runtime inside Python ranks, which a program does not have"
                yield draft.problem(("checks", index, "kind"), message)
            for key in check.but:
                if key.partition(".")[0] not in PARTS or not key.partition(".")[2]:
                    message = (
                        "must be a part and a name, like variables.TZ; the parts are"
                        f" {', '.join(PARTS)}"
                    )
                    yield draft.problem(("checks", index, "but", check.but.index(key)), message)
            for size in draft.sizes()[:1]:
                try:
                    alone = len(check.ranks.of(size)) < 2
                except ValueError:
                    continue  # ranks that are not there have a rule of their own
                if alone:
                    yield draft.problem(
                        ("checks", index),
                        f"covers only one rank in a world of {size}, which always agrees with"
                        " itself",
                        at_key=True,
                        kind="note",
                    )


def _told(history: History, rank: int, moment: str) -> Seen | None:
    said = history.said(rank, ENVIRONMENT_TOLD)
    return next((seen for seen in said if seen.event.values.get("at") == moment), None)


def _mapping(seen: Seen, part: str) -> Mapping[str, JSON]:
    found = seen.event.values.get(part)
    return found if isinstance(found, dict) else {}


def _minority(values: Mapping[int, JSON]) -> dict[int, str]:
    """Ranks whose value is not the one that more than half of them have.

    All of them where none is.
    """
    texts = {rank: ABSENT if value is None else canonical(value) for rank, value in values.items()}
    counts = Counter(texts.values())
    if len(counts) == 1:
        return {}
    text, count = counts.most_common(1)[0]
    if 2 * count > len(texts):
        return {
            rank: f"is {_short(value)}, but {_short(text)} on most ranks"
            for rank, value in texts.items()
            if value != text
        }
    return {
        rank: f"is {_short(value)}, and no value has a majority" for rank, value in texts.items()
    }


def _short(text: str) -> str:
    return text if len(text) <= VALUE_LIMIT else text[:VALUE_LIMIT] + "…"
