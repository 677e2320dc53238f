"""What a failure is, without what changes from run to run: pids, addresses, times, folders, who was dragged along.

The cause is the failure that came first. Ranks that ended in another way are its consequences, and how a rank notices
that its peer is gone is a race: they are left out.
"""

from __future__ import annotations

from harness.forms.model import Model
from harness.forms.text import numbered
from harness.history import History, ended
from harness.stats.outcome import Trial

CAUSE_LIMIT = 600


class Signature(Model):
    """A failure as two runs can have it in common.

    Attributes:
        cause: type of the error, function and source line of the last frame inside the subject; or how the process
            ended; or that the deadline came. Empty where no rank failed and only a check did not hold.
        ranks: the ranks that failed for this cause.
        checks: the checks that do not hold there, with their ranks.
        faults: the state of every fault on every rank.
    """

    cause: str
    ranks: list[int]
    checks: list[str]
    faults: list[str]

    def description(self) -> str:
        """In one line."""
        parts = [self.cause + (f" on {numbered('rank', self.ranks)}" if self.ranks and self.cause else "")]
        parts += [f"checks: {', '.join(self.checks)}" if self.checks else "", *self.faults]
        return "; ".join(part for part in parts if part)


def signature_of(trial: Trial, history: History) -> Signature | None:
    """The signature of a trial that failed; None for one that passed or is void."""
    if trial.outcome != "fail":
        return None
    cause, ranks = "", None
    if trial.first is not None:
        if trial.first.rank is None:
            cause = "the deadline"
            hung = [seen.event.values.get("ranks") for seen in history.noted("world.deadline")]
            ranks = (
                sorted({rank for rank in hung[0] if type(rank) is int}) if hung and isinstance(hung[0], list) else []
            )
        else:
            cause = _cause(history, trial.first.rank)
            failed = [moment.rank for moment in (trial.first, *trial.consequences) if moment.rank is not None]
            ranks = sorted(rank for rank in failed if _cause(history, rank) == cause)
    checks = []
    for failure in trial.failures:
        where = failure.ranks if ranks is None else [rank for rank in failure.ranks if rank in ranks]
        if where or not failure.ranks:
            checks.append(failure.check + (f" on {numbered('rank', where)}" if where else ""))
    own = [check for check in checks if not check.startswith("world:")]
    return Signature(
        cause=cause,
        ranks=ranks or [],
        checks=sorted(own or checks),
        faults=[f"fault {one.fault} on rank {one.rank}: {_state(one.struck, one.proved)}" for one in trial.strikes],
    )


def _state(struck: bool, proved: bool) -> str:
    return "proved" if proved else "struck, not proved" if struck else "did not strike"


def _cause(history: History, rank: int) -> str:
    if (error := history.error(rank)) is not None:
        values = error.event.values
        frames = values.get("frames")
        # A program tells its errors itself, in whatever form it likes.
        frames = frames if isinstance(frames, list) else []
        own = [frame for frame in frames if isinstance(frame, dict) and frame.get("subject")]
        place = f" in {own[-1].get('function')} of {own[-1].get('file')}" if own else ""
        source = f" at {values['source']!r}" if values.get("source") else ""
        text = f"{values.get('type')}{place}{source}"[:CAUSE_LIMIT]
        # Half a character is not a text that a record could be keyed by.
        return text.encode("utf-8", "backslashreplace").decode()
    if (end := history.exit(rank)) is not None:
        return ended(end.event.values)
    return "its end was not seen"
