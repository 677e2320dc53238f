"""Checks of the events that ranks emit: `event` (it came), `within` (it came in time) and
`progress`
(it came again and again).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from harness.checks.check import OF_A_VALUE, FailsAt, RankCheck
from harness.checks.finding import RankFinding, failed
from harness.checks.survivors import at_line
from harness.forms.model import Event, Name
from harness.forms.problem import Draft, Problem
from harness.forms.text import numbered
from harness.forms.units import Duration
from harness.history import History, Seen


class EventCheck(RankCheck):
    """Every rank emits the event."""

    properties: ClassVar = replace(
        OF_A_VALUE, compares=False, reports_a_value=False, of_an_end=True, wrong=None
    )
    example: ClassVar = "{id: ready-everywhere, kind: event, ranks: every, event: tokenizer.ready}"

    kind: Literal["event"]
    event: Event = Field(description="The event that every rank must emit.")

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Where it is missing, the error that ended the rank is named."""
        if said := history.said(rank, self.event):
            observed = dict(said[0].event.values) or "emitted"
            return RankFinding(rank=rank, passed=True, observed=observed, line=said[0].line)
        reason = f"event {self.event} was not reported"
        line = None
        if (error := history.error(rank)) is not None:
            values = error.event.values
            reason = f"{reason}: {values.get('type')} at {values.get('source')!r}"
            line = error.line
        return failed(rank, reason, line, missing=True)


class WithinCheck(RankCheck):
    """On every rank the event follows another event within a time limit."""

    properties: ClassVar = replace(OF_A_VALUE, compares=False)
    example: ClassVar = (
        "{id: loads-in-time, kind: within, ranks: every, event: tokenizer.ready, limit: 5s}"
    )

    kind: Literal["within"]
    from_: Event = Field("rank.begin", alias="from", description="The event that starts the clock.")
    event: Event = Field(description="The event that stops the clock.")
    limit: Duration = Field(
        description="The longest time allowed between the two, with a unit: 200ms, 60s."
    )

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """From the first `from` to the first `event` after it, in seconds."""
        starts = history.said(rank, self.from_)
        if not starts:
            return failed(rank, f"event {self.from_} was not reported", missing=True)
        begin = starts[0].event.ns
        after = [seen for seen in history.said(rank, self.event) if seen.event.ns >= begin]
        if not after:
            reason = f"event {self.event} was not reported after {self.from_}"
            return failed(rank, reason, starts[0].line, missing=True)
        seconds = (after[0].event.ns - begin) / 1e9
        reason = "" if seconds <= self.limit else f"it took longer than {self.limit:g} s"
        return RankFinding(
            rank=rank,
            passed=not reason,
            observed=f"{seconds:.3f} s",
            reason=reason,
            line=after[0].line,
            share=seconds / self.limit if self.limit else None,
        )

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield limits that cannot be exceeded, and clocks that a program never starts."""
        deadline = draft.deadline
        for index, check in checks.items():
            if draft.has("subject", "program") and not draft.has("checks", index, "from"):
                message = (
                    "is missing, and a program has no rank.begin; give the event that starts the"
                    " clock, such as ready"
                )
                yield draft.problem(("checks", index, "from"), message)
            if deadline is not None and not 0 < check.limit <= deadline:
                message = (
                    f"must be more than 0s and at most world.deadline ({deadline:g}s), or it can"
                    " never be exceeded"
                )
                yield draft.problem(("checks", index, "limit"), message)


# Of a rank that paused it tells since when, which ranks are behind it, and where it stood when its
# world was stopped.
class ProgressCheck(RankCheck):
    """Every rank emits the event repeatedly, or counts up in it, and never pauses for longer than a
    time limit.
    """

    # A pause has an end: by the next event, or by that of the rank. Only one that never began to
    # move has none.
    properties: ClassVar = replace(
        OF_A_VALUE, compares=False, wrong=FailsAt.EVENT, missing=FailsAt.WORLD_END
    )
    example: ClassVar = (
        "{id: nobody-waits, kind: progress, ranks: every, event: step, counter: number, limit: 1s}"
    )

    kind: Literal["progress"]
    event: Event = Field(description="The event that every rank must emit repeatedly.")
    counter: Name | None = Field(
        None,
        description=(
            "A key of the event whose number must grow; an event that repeats the number is not"
            " progress."
        ),
    )
    limit: Duration = Field(
        description="The longest time allowed from one step of progress to the next, with a unit: 200ms,"
        " 60s."
    )
    from_: Event = Field(
        "subject.begin", alias="from", description="The event that starts the clock."
    )
    until: Event = Field(
        "subject.end", description="The event that stops the clock; so does the end of the rank."
    )
    at_least: Annotated[int, Field(ge=1)] = Field(
        1, description="The minimum number of steps of progress."
    )

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Each pause counts: from the start to the first move, between two, and from the last one
        to the end.
        """
        starts = history.said(rank, self.from_)
        if not starts:
            return failed(rank, f"event {self.from_} was not reported", missing=True)
        moves = self._moves(history, rank)
        if isinstance(moves, RankFinding):
            return moves
        begin = starts[0]
        end = self._end(history, rank, starts[0])
        watched = [seen for seen in moves if begin.event.ns <= seen.event.ns <= end.event.ns]
        pauses = pairwise([begin, *watched, end])
        long = next((pause for pause in pauses if _seconds(*pause) > self.limit), None)
        if long is not None:
            reason = self._pause(history, rank, *long)
            return failed(rank, reason, long[1].line, observed=f"{len(watched)} steps")
        if len(watched) < self.at_least:
            return failed(
                rank,
                f"it made {len(watched)} steps of progress, but at least {self.at_least} are"
                " required",
                end.line,
                missing=True,
            )
        longest = max(_seconds(*pause) for pause in pairwise([begin, *watched, end]))
        return RankFinding(
            rank=rank,
            passed=True,
            observed=f"{len(watched)} steps, longest pause {longest:.3f} s",
            line=watched[-1].line,
            share=longest / self.limit if self.limit else None,
        )

    def _moves(self, history: History, rank: int) -> Sequence[Seen] | RankFinding:
        """Return the events that count, in order of time."""
        said = history.said(rank, self.event)
        if self.counter is None:
            return said
        moves: list[Seen] = []
        best: float | None = None
        for seen in said:
            value = seen.event.values.get(self.counter)
            if isinstance(value, bool) or not isinstance(value, int | float):
                return failed(
                    rank, f"{self.event}.{self.counter} is not a number", seen.line, observed=value
                )
            if best is None or value > best:
                best = value
                moves.append(seen)
        return moves

    def _end(self, history: History, rank: int, begin: Seen) -> Seen:
        """Where the clock stops: the event, the rank's error or end, at the latest the end of the
        trial.
        """
        ends = [seen for seen in history.said(rank, self.until) if seen.event.ns >= begin.event.ns][
            :1
        ]
        ends += [seen for seen in (history.error(rank), history.exit(rank)) if seen is not None]
        return min(ends, key=lambda seen: seen.event.ns, default=history.seen[-1])

    def _pause(self, history: History, rank: int, last: Seen, following: Seen) -> str:
        """Who waits since when, for whom as far as the moves tell, and where."""
        since = (last.event.ns - history.start_ns()) / 1e9
        seconds = _seconds(last, following)
        what = last.event.name
        if self.counter is not None and what == self.event:
            what = f"{what}.{self.counter} {last.event.values.get(self.counter)}"
        reason = (
            f"it paused for {seconds:.3f} s (at most {self.limit:g} s), since {what} at"
            f" {since:.3f} s"
        )
        # At the moment at which it had paused for too long: who was late may have caught up since.
        moment = last.event.ns + round(self.limit * 1e9)
        counts = {one: self._count(history, one, until=moment) for one in range(history.size)}
        behind = [one for one, count in counts.items() if count < counts[rank]]
        reason += f"; behind it: {numbered('rank', behind)}" if behind else "; no rank is behind it"
        # Stacks were taken when the world was stopped: they show this pause only where it lasted
        # until then.
        return reason + (
            at_line(history, rank)
            if history.was_stopped(rank) and following == history.exit(rank)
            else ""
        )

    def _count(self, history: History, rank: int, *, until: int) -> int:
        moves = self._moves(history, rank)
        return 0 if isinstance(moves, RankFinding) else sum(seen.event.ns < until for seen in moves)

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield limits that cannot be exceeded, and clocks that a program never starts."""
        for index, check in checks.items():
            if draft.has("subject", "program") and not draft.has("checks", index, "from"):
                message = (
                    "is missing, and a program has no subject.begin; give the event that starts"
                    " the clock, such as ready"
                )
                yield draft.problem(("checks", index, "from"), message)
            if draft.deadline is not None and not 0 < check.limit < draft.deadline:
                message = (
                    f"must be more than 0s and less than world.deadline ({draft.deadline:g}s), or"
                    " it never fails"
                )
                yield draft.problem(("checks", index, "limit"), message)


def _seconds(start: Seen, end: Seen) -> float:
    return (end.event.ns - start.event.ns) / 1e9
