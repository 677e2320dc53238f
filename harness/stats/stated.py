"""Judge of how a control has to fail: at its check, on its ranks, by its end, and nothing else was
the cause.

Any slip in a control makes some check fail. So what counts is that every stated rank failed in the
stated way, and that no rank ended in a way that nobody stated and that may have made the others
fail. Time order alone decides nothing: an error that says "my peer is gone" often comes first. It
is not a cause, and where it is what was stated it counts only if no rank ended otherwise. The rules
with their cases: docs/adr/0037.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from harness.checks import KINDS, Finding, RankFinding
from harness.checks.check import FailsAt
from harness.forms.text import numbered
from harness.history import History, ended, machine_of
from harness.reason import Deviation, DeviationCode
from harness.scenario import HangsAt, MustFail, SeesDefects
from harness.scenario.arm import WANTS, Expected
from harness.stats.ends import RankEnd, ends, harness_error, how_it_ended, short, source_of
from harness.stats.hang import hang_deviation


class StatedEnd(NamedTuple):
    """How some ranks of a control failed as required.

    The fields are those of `harness.stats.tally.Way`.
    """

    what: str
    where: str
    place: str
    ranks: tuple[int, ...]


# What a control's evidence must hold whatever it failed at.
UNTRUSTED = ("world:ranks-are-processes", "world:channel-is-whole", "world:machines-stayed")


def deviation(
    must_fail: MustFail,
    findings: Sequence[Finding],
    history: History,
    *,
    faults: Mapping[int, str],
    silence: float,
    line_of: Callable[[str, int], str | None],
) -> Deviation | None:
    """How a control trial differs from what it must do; None where it failed exactly as required.

    Args:
        must_fail: what is stated.
        findings: of every check.
        history: the trial's events.
        faults: rank to the fault that provably ended it.
        silence: the longest silence of the cell's candidate trials that passed, in seconds.
        line_of: the text of a line of the arm's files, without indentation; None where there is
            none.
    """
    expected = must_fail.expected(history.size)
    wanted = tuple(sorted({rank for one in expected for rank in one.ranks})) or must_fail.ranks.of(
        history.size
    )
    by_rank = ends(history, faults=faults)
    if lost := harness_error(history):
        return Deviation(
            DeviationCode.HARNESS_FAILED, f"the harness failed while its ranks ran: {lost}"
        )
    for finding in findings:
        if finding.check in UNTRUSTED and not finding.passed:
            return Deviation(
                DeviationCode.EVIDENCE_NOT_WHOLE,
                f"its evidence is incomplete: check `{finding.check}` failed",
            )
    if must_fail.hang is not None:
        deviation = hang_deviation(
            must_fail, history, wanted=wanted, silence=silence, line_of=line_of
        )
        lacks = Deviation(*deviation) if deviation else does_not_say_why(must_fail.hang, findings)
        return lacks or _other_cause(must_fail, history, by_rank, wanted=(), before=None)
    moments: list[int] = []
    for one in expected:
        at = _moments(must_fail, one, findings, history, by_rank)
        if isinstance(at, Deviation):
            return at
        moments += at
    if not moments:
        return Deviation(
            DeviationCode.PEER_GONE_ONLY,
            f"{numbered('rank', wanted)} only noticed that a peer was gone",
        )
    return _other_cause(must_fail, history, by_rank, wanted=wanted, before=min(moments))


def _moments(
    must_fail: MustFail,
    one: Expected,
    findings: Sequence[Finding],
    history: History,
    by_rank: Mapping[int, RankEnd],
) -> list[int] | Deviation:
    """When the ranks failed a check as required, in nanoseconds, or how that went otherwise."""
    finding = next(found for found in findings if found.check == one.check)
    if finding.passed:
        others = [f"`{found.check}`" for found in findings if not found.passed]
        instead = f"; {', '.join(others)} failed instead" if others else ""
        held = f": {one.held}" if one.held else ""
        return Deviation(
            DeviationCode.CHECK_HELD, f"check `{one.check}` passed on every rank{held}{instead}"
        )
    if history.noted("world.deadline"):
        return Deviation(DeviationCode.DEADLINE, "it reached the deadline")
    if not finding.ranks:
        # It is about the world, such as a service of it, and so about every rank.
        if len(one.ranks) != history.size:
            text = f"check `{one.check}` is about the world, so it fails on every rank"
            instead = f"{text} instead of {numbered('rank', one.ranks)}"
            return Deviation(DeviationCode.OTHER_RANKS, instead)
        return [_moment_of(finding, history)]
    if finding.failed_ranks != one.ranks:
        text = f"check `{one.check}` failed on {numbered('rank', finding.failed_ranks)}"
        held = f" ({one.held})" if one.held else ""
        return Deviation(
            DeviationCode.OTHER_RANKS, f"{text} instead of {numbered('rank', one.ranks)}{held}"
        )
    moments = []
    for rank in one.ranks:
        at = _failed_as_stated(must_fail, finding, history, by_rank, rank)
        if isinstance(at, Deviation):
            return at
        if at is not None:
            moments.append(at)
    return moments


def _moment_of(finding: Finding, history: History) -> int:
    """When what a finding about the world points at was noted, in nanoseconds."""
    noted = [seen.event.ns for seen in history.seen if seen.line == finding.line]
    return noted[0] if noted else history.seen[-1].event.ns


def does_not_say_why(hang: HangsAt, findings: Sequence[Finding]) -> Deviation | None:
    """Why the check that has to fail beside a hang does not; None where it does, or none has to."""
    if hang.fails is None:
        return None
    finding = next(finding for finding in findings if finding.check == hang.fails)
    if finding.passed:
        return Deviation(
            DeviationCode.CHECK_HELD, f"it hung, but check `{hang.fails}` passed on every rank"
        )
    if not any(not part.passed and not part.want(compares=False) for part in finding.ranks):
        reason = next((part.reason for part in finding.ranks if not part.passed), finding.reason)
        return Deviation(
            DeviationCode.NOT_COMPARED,
            f"it hung, but check `{hang.fails}` compared nothing: {reason}",
        )
    return None


def stated_ends(
    must_fail: MustFail, findings: Sequence[Finding], history: History
) -> list[StatedEnd]:
    """How the stated ranks of a trial failed that failed as required: ranks that failed in one way
    are one entry.
    """
    wanted = must_fail.ranks.of(history.size)
    if (hang := must_fail.hang) is not None:
        where = "at"
        if hang.function:
            where = "in"
        elif hang.after:
            where = "after"
        return [StatedEnd("hang", where, hang.source or hang.function or hang.after or "", wanted)]
    if isinstance(must_fail, SeesDefects):  # each trial has its own element, and so its own numbers
        return [
            StatedEnd(f"check `{one.check}` detects the defect", "", "", one.ranks)
            for one in must_fail.expected(history.size)
        ]
    finding = next(one for one in findings if one.check == must_fail.check)
    reasons = {part.rank: part.reason for part in finding.ranks}
    ways: dict[tuple[str, str, str], list[int]] = {}
    for rank in wanted:
        error = history.error(rank)
        end = history.exit(rank)
        if not must_fail.says_how:
            way = (
                f"check `{must_fail.check}` failed",
                "because",
                short(reasons.get(rank, finding.reason)),
            )
        elif error is not None:
            source = source_of(error.event.values, must_fail.file)
            # Without any place, the way to fail has none: `where` is left out below.
            way = (
                short(str(error.event.values.get("type"))),
                "at" if source else "saying",
                short(str(source or error.event.values.get("message") or "")),
            )
        else:
            way = (ended(end.event.values) if end else "its exit was not observed", "", "")
        ways.setdefault(way if way[2] else (way[0], "", ""), []).append(rank)
    return [StatedEnd(*way, tuple(ranks)) for way, ranks in ways.items()]


def _failed_as_stated(
    must_fail: MustFail,
    finding: Finding,
    history: History,
    by_rank: Mapping[int, RankEnd],
    rank: int,
) -> int | Deviation | None:
    """When a rank failed as required, on CLOCK_MONOTONIC; None where it only followed another one.

    Or how it did not.
    """
    part = next(part for part in finding.ranks if part.rank == rank)
    properties = KINDS[finding.kind].properties
    moment = properties.fails(missing=part.missing)
    end = by_rank.get(rank)
    if not must_fail.says_how and (
        lacking := _want(must_fail, part, end, compares=properties.compares)
    ):
        return lacking
    how = how_it_ended(history, rank)
    if must_fail.says_how:
        if end is None or end.stopped:
            return Deviation(
                DeviationCode.STOPPED, f"rank {rank} was still running when the harness stopped it"
            )
        if deviation := end.differs(must_fail):
            return Deviation(deviation[0], f"rank {rank} {deviation[1]}: {how}")
    if (
        properties.demands_an_error
        and not must_fail.says_how
        and end is not None
        and not _ignored(end)
    ):
        code = DeviationCode.SLIP if end.is_slip else DeviationCode.UNSTATED_END
        return Deviation(code, f"rank {rank} ended with an error that is not in must_fail: {how}")
    if moment is FailsAt.EVENT and part.line is not None:
        return history.seen[part.line - 1].event.ns
    if moment is FailsAt.WORLD_END or end is None:
        return history.seen[-1].event.ns
    if end.fault or must_fail.says_how:
        return end.ns
    if end.is_clean:
        return end.ns
    # What it should have said is missing, or its code is wrong, because it ended: by an end that
    # nobody stated.
    if end.stopped:
        return Deviation(
            DeviationCode.STOPPED, f"rank {rank} had not failed when the harness stopped it"
        )
    if end.peer_gone:
        return None
    if end.error is None:
        code = DeviationCode.SLIP if end.is_slip else DeviationCode.UNSTATED_END
        return Deviation(
            code, f"rank {rank} ended with a signal or code that is not in must_fail: {how}"
        )
    return Deviation(
        DeviationCode.SLIP if end.is_slip else DeviationCode.UNSTATED_END,
        f"rank {rank} ended with an error that is not in must_fail: {how}",
    )


def _want(
    must_fail: MustFail, part: RankFinding, end: RankEnd | None, *, compares: bool
) -> Deviation | None:
    """How a rank fails for want of a comparison and that is not stated, or does not and it is; None
    where all is well.

    A control that keeps nothing, another shape or NaN shows nothing of how far apart the two may
    be: any slip does it.
    """
    want = part.want(compares=compares)
    if want == must_fail.want:
        return None
    if want == "missing" and end is not None and not end.is_clean:
        # It is missing because the rank ended, and whether that was stated is told by its end.
        return None
    if not want:
        text = (
            f"rank {part.rank} failed by comparison, but must_fail states {must_fail.want}:"
            f" {part.reason}"
        )
        return Deviation(DeviationCode.NOT_COMPARED, text)
    text = f"rank {part.rank} failed without a comparison: {part.reason}"
    if want in WANTS:
        text += f" (a mistake, unless must_fail states {want}: true)"
    return Deviation(DeviationCode.NOT_COMPARED, text)


def _ignored(end: RankEnd) -> bool:
    """Return whether a rank ended as one does that notices a peer's end too late or not at all, and
    by nothing else.
    """
    return not end.is_slip and (end.is_clean or end.stopped or end.peer_gone)


def _other_cause(
    must_fail: MustFail,
    history: History,
    by_rank: Mapping[int, RankEnd],
    *,
    wanted: Sequence[int],
    before: int | None,
) -> Deviation | None:
    """Return an end that nobody stated and that may be why the stated ranks failed; None where
    there is none.

    Args:
        must_fail: what is stated.
        history: the trial's events.
        by_rank: every rank's end.
        wanted: ranks that failed as required.
        before: when the first of them did; None where whatever ended is a cause, as in a world that
            hangs.
    """
    # Where what is stated is "my peer is gone", the cause is whatever made the peer go.
    stated_is_peer_gone = must_fail.says_how and any(
        by_rank[rank].peer_gone for rank in wanted if rank in by_rank
    )
    for end in sorted(by_rank.values(), key=lambda rank_end: rank_end.ns):
        # What became of a stated rank after it failed as required is a consequence.
        if end.is_clean or end.fault or end.stopped or end.rank in wanted:
            continue
        # The stated end on a rank that the check does not ask is the bug too, and no other cause.
        if must_fail.says_how and not stated_is_peer_gone and end.differs(must_fail) is None:
            continue
        if any(
            end.rank in also.ranks.of(history.size) and end.differs(also) is None
            for also in must_fail.also
        ):
            continue
        apart = bool(wanted) and all(
            machine_of(history, end.rank) != machine_of(history, rank) for rank in wanted
        )
        if why := _why_a_cause(
            end, before=before, stated_is_peer_gone=stated_is_peer_gone, apart=apart
        ):
            code, text = why
            return Deviation(code, f"rank {end.rank} {text}: {how_it_ended(history, end.rank)}")
    return None


def _why_a_cause(
    end: RankEnd, *, before: int | None, stated_is_peer_gone: bool, apart: bool
) -> tuple[DeviationCode, str] | None:
    """Why an end that nobody stated may have made the stated ranks fail, as the end of a sentence.

    Args:
        end: of a rank.
        before: when the first of the stated ranks failed, if that counts.
        stated_is_peer_gone: whether the stated error says no more than that another rank is gone.
        apart: whether it ended on another machine than any of them: times of two machines are never
            compared.
    """
    if end.is_slip and not end.peer_gone:
        return DeviationCode.SLIP, "ended with an unstated typing mistake"
    if before is None:
        return (
            DeviationCode.CAUSE_ELSEWHERE,
            "ended, so the hanging ranks may only be waiting for it",
        )
    if end.peer_gone:
        return None
    if stated_is_peer_gone:
        return (
            DeviationCode.CAUSE_ELSEWHERE,
            "ended in a different way, and the stated error only says that a peer is gone",
        )
    if apart:
        return (
            DeviationCode.CAUSE_ELSEWHERE,
            "ended on another machine, earlier or later, in an unstated way",
        )
    if end.ns < before:
        return DeviationCode.CAUSE_ELSEWHERE, "ended earlier, in an unstated way"
    return None
