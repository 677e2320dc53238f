"""Checks of the ranks that a fault left alive: `detected-within` and `survivors-end`.

Times are of one machine: the harness strikes and ranks fail by the same monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field

from harness.checks.check import NO_VALUE, FailsAt, RankCheck
from harness.checks.finding import Finding, RankFinding, failed
from harness.forms.model import ExceptionName, Id, Message
from harness.forms.problem import Draft, Problem, closest
from harness.forms.strict_json import JSON
from harness.forms.units import Duration
from harness.history import SLIPS, History, Seen, ended


class Failing(NamedTuple):
    """Error with which a rank came to its end.

    Attributes:
        seen: the event that shows it: what the rank raised, or its end.
        text: it, in words.
        classes: names of the exception's class and of those it descends from; empty where it raised
            nothing.
        is_slip: whether it is what a typing mistake raises, or the rank's own runtime.
        message: its message.
    """

    seen: Seen
    text: str
    classes: tuple[str, ...] = ()
    is_slip: bool = False
    message: str = ""


class SurvivorsCheck(RankCheck):
    """Check of the ranks that a fault did not end.

    One that a fault provably ended has nothing to answer for.
    """

    fault: Id = Field(description="The id of the fault; the time starts when it first struck.")
    limit: Duration = Field(
        description="The longest time allowed from the strike, with a unit: 200ms, 60s."
    )
    error: ExceptionName | None = Field(
        None,
        description=(
            "Type of the exception, or a base class of it. Default: any but those that typing"
            f" mistakes raise ({', '.join(sorted(SLIPS))})."
        ),
    )
    message: Message | None = Field(
        None, description="A text that the exception's message must contain."
    )

    # In words, what has to come within the limit.
    awaited: ClassVar[str]

    def judge(self, history: History) -> Finding:
        """Without a survivor among those who are asked there is nothing to judge, and that is a
        failure.
        """
        finding = super().judge(history)
        if finding.ranks and all(history.ended_by(part.rank) for part in finding.ranks):
            return finding._replace(
                reason="faults ended every rank that it covers, so no rank is left to notice"
            )
        return finding

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        if (fault := history.ended_by(rank)) is not None:
            end = history.exit(rank)
            line = end.line if end is not None else None
            return RankFinding(
                rank=rank, passed=True, observed=f"ended by fault {fault.fault}", line=line
            )
        strikes = [
            strike.struck
            for strike in history.faults
            if strike.fault == self.fault and strike.struck is not None
        ]
        if not strikes:
            return failed(
                rank,
                f"fault {self.fault} did not take effect, so there was nothing to notice",
                missing=True,
            )
        failing = failing_of(history, rank)
        if failing is None:
            reason = f"it did not exit with an error: {self._how(history, rank)}"
            end = history.exit(rank)
            line = end.line if end is not None else None
            return failed(rank, reason, line, missing=True)
        moment = self.moment(history, rank, failing)
        struck = min(strikes, key=lambda seen: seen.event.ns)
        seconds = (moment.event.ns - struck.event.ns) / 1e9
        reason = self._why_not(failing, struck=struck, seconds=seconds)
        return RankFinding(
            rank=rank,
            passed=not reason,
            observed=f"{failing.text}, {self.awaited} {seconds:.3f} s after fault {self.fault}",
            reason=reason,
            line=moment.line,
            share=seconds / self.limit if self.limit else None,
        )

    def moment(self, history: History, rank: int, failing: Failing) -> Seen:
        """Return the event that has to come within the limit."""
        raise NotImplementedError

    def _why_not(self, failing: Failing, *, struck: Seen, seconds: float) -> str:
        if failing.seen.event.ns < struck.event.ns:
            return f"it failed before the fault {self.fault} struck, so not because of it"
        if self.error is not None and self.error not in failing.classes:
            return f"it did not end with {self.error}"
        if self.error is None and failing.is_slip:
            return (
                "it ended with an error that a typing mistake raises; if that is intended, set"
                " error"
            )
        if self.message is not None and self.message not in failing.message:
            return f"its error message does not contain {self.message!r}"
        return "" if seconds <= self.limit else f"it took longer than {self.limit:g} s"

    def _how(self, history: History, rank: int) -> str:
        if history.was_stopped(rank):
            how = "it kept running until the harness stopped it"
        elif history.returned(rank) is not None:
            how = "it returned as if nothing had happened"
        else:
            end = history.exit(rank)
            how = (
                f"it ended with {ended(end.event.values)}"
                if end is not None
                else "its exit was not observed"
            )
        return how + at_line(history, rank)

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield faults that the scenario lacks, and limits that cannot be exceeded."""
        faults = {fault.id: fault for fault in draft.faults.values()}
        stated = draft.at("faults")
        readable = len(stated) == len(faults) if isinstance(stated, list) else True
        for index, check in checks.items():
            if check.fault not in faults and readable:
                message = (
                    "must be the id of a fault of this scenario, because otherwise there is"
                    " nothing to notice"
                )
                yield draft.problem(
                    ("checks", index, "fault"),
                    message,
                    suggestion=closest(check.fault, list(faults)) if faults else None,
                )
            elif check.fault in faults and faults[check.fault].arm is not None:
                arm = faults[check.fault].arm
                message = (
                    f"strikes only the {arm}, so in the other arm there is nothing to notice and"
                    " the check fails"
                )
                yield draft.problem(("checks", index, "fault"), message, kind="note")
            if draft.deadline is not None and not 0 < check.limit < draft.deadline:
                message = (
                    f"must be more than 0s and less than world.deadline ({draft.deadline:g}s), or"
                    " no rank can be late"
                )
                yield draft.problem(("checks", index, "limit"), message)


def failing_of(history: History, rank: int) -> Failing | None:
    """Return the error with which a rank ended by itself, if it did.

    That is what it raised, a code other than 0, or SIGABRT, by which a library in C++ ends what
    nobody catches. Any other signal is a crash, and what the harness ended did not end by itself.
    """
    if (seen := history.error(rank)) is not None:
        values = seen.event.values
        message = str(values.get("message"))
        mro = values.get("mro")
        classes = (str(values.get("type")), *(map(str, mro) if isinstance(mro, list) else ()))
        is_slip = not SLIPS.isdisjoint(classes) or values.get("ours") is True
        return Failing(seen, classes[0], classes, is_slip, message)
    end = history.exit(rank)
    if end is None or history.was_stopped(rank) or not is_error(end.event.values):
        return None
    return Failing(end, ended(end.event.values))


def is_error(values: Mapping[str, JSON]) -> bool:
    """Tell whether an exit is one by the process' own error."""
    code = values.get("code")
    return values.get("signal") == "SIGABRT" if code is None else code != 0


def at_line(history: History, rank: int) -> str:
    """Say where the subject stood when its world was stopped; empty where nobody asked."""
    for seen in history.noted("rank.stack", rank):
        threads = seen.event.values.get("threads")
        for thread in threads if isinstance(threads, list) else ():
            frames = thread.get("frames") if isinstance(thread, dict) else None
            for frame in frames if isinstance(frames, list) else ():
                if isinstance(frame, dict) and frame.get("subject") is True:
                    return f", in {frame.get('function')} ({frame.get('file')}:{frame.get('line')})"
    return ""


class DetectedWithinCheck(SurvivorsCheck):
    """Every rank that survives the fault raises an error, or exits with an error, within a time
    limit.
    """

    properties: ClassVar = replace(
        NO_VALUE, demands_an_error=True, wrong=FailsAt.WORLD_END, missing=FailsAt.WORLD_END
    )
    example: ClassVar = (
        "{id: death-is-noticed, kind: detected-within, ranks: every, fault: rank-1-dies, limit: 2s}"
    )
    awaited: ClassVar = "raised"

    kind: Literal["detected-within"]

    def moment(self, history: History, rank: int, failing: Failing) -> Seen:
        """When it failed, however long its process needed to end afterwards."""
        del history, rank
        return failing.seen


class SurvivorsEndCheck(SurvivorsCheck):
    """Every rank that survives the fault exits by itself with an error within a time limit."""

    properties: ClassVar = replace(
        NO_VALUE, demands_an_error=True, wrong=FailsAt.WORLD_END, missing=FailsAt.WORLD_END
    )
    example: ClassVar = (
        "{id: nobody-hangs, kind: survivors-end, ranks: every, fault: rank-1-dies, limit: 2s}"
    )
    awaited: ClassVar = "ended"

    kind: Literal["survivors-end"]

    def moment(self, history: History, rank: int, failing: Failing) -> Seen:
        """When its process ended, as the process that forked it saw it."""
        return history.exit(rank) or failing.seen

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        """Judge a rank by its error and its end: it has to end, and by that error."""
        found = super().judge_rank(history, rank)
        end = history.exit(rank)
        if history.ended_by(rank) is not None or history.error(rank) is None:
            return found
        if end is None:
            return found._replace(passed=False, reason="its exit was not observed", missing=True)
        if history.was_stopped(rank):
            reason = (
                "it raised an error and kept running until the harness stopped"
                f" it{at_line(history, rank)}"
            )
        elif not is_error(end.event.values):
            reason = f"it raised an error and ended with {ended(end.event.values)}"
        else:
            return found
        return found._replace(passed=False, reason=reason)

    @classmethod
    def lint(cls, checks: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """And nobody is stopped before the limit is over."""
        yield from super().lint(checks, draft)
        after = draft.after_failure
        for index, check in checks.items():
            if after is not None and check.limit > after:
                message = (
                    f"is longer than world.after_failure ({after:g}s), after which the harness"
                    " stops the remaining ranks; make after_failure at least as long"
                )
                yield draft.problem(("checks", index, "limit"), message)
