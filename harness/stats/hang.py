"""Judge of a stated hang: the world stood still for long enough, and its ranks at the stated place.

What the harness proved is in the events (`world.still`, `rank.stack`); whether that is enough, and
where the ranks stood, is judged here, from the candidate's own silences and from the text of the
arm's files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.events import Event
from harness.forms.strict_json import JSON
from harness.forms.text import numbered
from harness.history import History, window
from harness.reason import DeviationCode
from harness.scenario import HangsAt, MustFail
from harness.stats.ends import how_it_ended

WATCHED = "watched"
"""A value of `world.still`: whether this world was watched for the whole of `within`."""
FEW = 4
"""So many samples of a thread that loops tell that it was at a line all the time."""
CODES = {"unreadable": DeviationCode.HANG_UNREADABLE, "doubtful": DeviationCode.HANG_DOUBTFUL}
# How much later than asked for the harness may look.
SLACK = 1.0
# Events of a rank's own clock and the harness' meet at the edge of the window.
EDGE_NS = 20_000_000
LineOf = Callable[[str, int], str | None]
OtherEnd = tuple[DeviationCode, str]


def hang_deviation(
    must_fail: MustFail, history: History, *, wanted: Sequence[int], silence: float, line_of: LineOf
) -> OtherEnd | None:
    """How a control that must hang did otherwise; None where it hung as required.

    Args:
        must_fail: what is stated, with its `hang`.
        history: the trial's events.
        wanted: the ranks that must hang there.
        silence: the longest silence of the cell's candidate trials that passed, in seconds.
        line_of: the text of a line of the arm's files, without indentation.
    """
    assert must_fail.hang is not None
    needed = window(silence)
    if needed > must_fail.within:
        text = (
            f"the candidate is silent for up to {silence:.2f} s, so proving a hang takes"
            f" {needed:.1f} s without progress"
        )
        return DeviationCode.HANG_NOT_WITHIN, f"{text}, but within is {must_fail.within:g} s"
    if unproved := history.noted("world.unproved"):
        values = unproved[0].event.values
        code = CODES.get(str(values.get("code")), DeviationCode.HANG_MOVING)
        return code, f"no hang was proved: {values.get('why')}"
    if not (proved := history.noted("world.still")):
        return DeviationCode.NO_HANG, f"it did not hang: {_how_it_went(history)}"
    still = proved[0].event
    seconds = still.values.get("seconds")
    started = history.noted("world.start")
    if not isinstance(seconds, int | float) or seconds < needed:
        return (
            DeviationCode.HANG_MOVING,
            f"it made no progress for {seconds} s, but {needed:.1f} s are needed",
        )
    # Whoever is watched longer has stood still for long enough before.
    enough = still.ns - int((seconds - needed) * 1e9)
    if not started or enough - started[0].event.ns > (must_fail.within + SLACK) * 1e9:
        return (
            DeviationCode.HANG_NOT_WITHIN,
            f"the hang was proved only after the time limit (within: {must_fail.within:g} s)",
        )
    since = still.ns - int(seconds * 1e9) + EDGE_NS
    if any(seen.event.by == "rank" and since < seen.event.ns <= still.ns for seen in history.seen):
        return (
            DeviationCode.HANG_MOVING,
            "a rank emitted an event during the time without progress",
        )
    if WATCHED in still.values and (moved := _moved_since(still, history, since=since)):
        return DeviationCode.HANG_MOVING, moved
    return _elsewhere(must_fail.hang, history, wanted, line_of)


def _moved_since(still: Event, history: History, *, since: int) -> str:
    """Return what moved after a world stood still and before it was stopped, in words.

    Empty where nothing did.
    """
    stopped = history.noted("world.stopped")
    end = stopped[0].event.ns if stopped else still.ns
    for seen in history.seen:
        event = seen.event
        is_late = event.ns > still.ns and event.by == "rank"
        if event.ns <= end and (is_late or (event.ns > since and event.name == "rank.exited")):
            return f"rank {event.rank} continued before it was stopped"
    waits = still.values.get("waits")
    for rank in range(history.size):
        samples = samples_of(history, rank)
        # A main thread that waits was asked at the end alone, because a signal might wake it.
        is_loop = (
            still.values.get("spins") is True
            and isinstance(waits, dict)
            and waits.get(str(rank)) == "none"
        )
        if is_loop and not history.is_of_programs and len(samples) < 2 * FEW:
            return (
                f"rank {rank} loops, but only {len(samples)} samples of its stack were taken;"
                f" {2 * FEW} are needed"
            )
        if line := _moved_on(samples):
            return f"rank {rank} left {line} while it was watched, and did not return"
    return ""


def _moved_on(samples: Sequence[Sequence[Sequence[Mapping[str, JSON]]]]) -> str:
    """Return a line at which a thread that loops was each time, and then no more, or never before.

    Empty where none is.

    A loop comes back to its lines. So a line that all of the first few samples have, and none of
    the others, was left.
    """
    lines = [_places(each) for each in samples]
    for many in range(FEW, len(lines) - FEW + 1):
        for near, far in ((lines[:many], lines[many:]), (lines[many:], lines[:many])):
            left = near[0].intersection(*near).difference(*far)
            if left:
                return min(left)
    return ""


def _places(threads: Sequence[Sequence[Mapping[str, JSON]]]) -> set[str]:
    return {f"{frame.get('file')}:{frame.get('line')}" for thread in threads for frame in thread}


def _elsewhere(
    stated: HangsAt, history: History, wanted: Sequence[int], line_of: LineOf
) -> OtherEnd | None:
    """Why the ranks that hang there are not those that must."""
    there = [rank for rank in range(history.size) if _stands(stated, history, rank, line_of)]
    if there == list(wanted):
        return None
    lost = [rank for rank in wanted if rank not in there]
    place = stated.after
    if stated.source:
        place = repr(stated.source)
    elif stated.function:
        place = f"function {stated.function}"
    if lost:
        where = standing(history, lost[0], line_of) or how_it_ended(history, lost[0])
        return DeviationCode.HANG_ELSEWHERE, f"rank {lost[0]} does not hang at {place}: {where}"
    return (
        DeviationCode.OTHER_RANKS,
        f"{numbered('rank', there)} hang at {place} instead of {numbered('rank', wanted)}",
    )


def _stands(stated: HangsAt, history: History, rank: int, line_of: LineOf) -> bool:
    if stated.after is not None:
        emitted = [
            seen.event.name
            for seen in history.seen
            if seen.event.by == "rank" and seen.event.rank == rank
        ]
        return bool(emitted) and emitted[-1] == stated.after and rank in living(history)
    samples = samples_of(history, rank)
    if (
        rank not in living(history)
        or len(samples) < 2
        or len({len(sample) for sample in samples}) != 1
    ):
        return False
    return any(
        all(any(_is_at(stated, frame, line_of) for frame in thread) for thread in each)
        for each in zip(*samples, strict=True)
    )


def samples_of(history: History, rank: int) -> list[list[list[Mapping[str, JSON]]]]:
    """Return the stacks of a rank's threads, each time that it was asked."""
    return [
        list(threads_at(history, rank, number + 1))
        for number in range(len(history.noted("rank.stack", rank)))
    ]


def _is_at(stated: HangsAt, frame: Mapping[str, JSON], line_of: LineOf) -> bool:
    if frame.get("subject") is not True:
        return False
    if stated.function is not None:
        return frame.get("function") == stated.function
    return text_of(frame, line_of) == stated.source


def text_of(frame: Mapping[str, JSON], line_of: LineOf) -> str | None:
    """Return the source line of a frame of the subject, from the arm's own file."""
    file = frame.get("file")
    line = frame.get("line")
    return line_of(file, line) if isinstance(file, str) and isinstance(line, int) else None


def living(history: History) -> list[JSON]:
    """Ranks that had not ended when the world stood still."""
    proved = history.noted("world.still")
    ranks = proved[0].event.values.get("ranks") if proved else None
    return ranks if isinstance(ranks, list) else []


def threads_at(history: History, rank: int, sample: int) -> Iterator[list[Mapping[str, JSON]]]:
    """Frames of each Python thread of a rank, innermost first, the time it was asked."""
    for seen in history.noted("rank.stack", rank):
        threads = seen.event.values.get("threads")
        if seen.event.values.get("sample") != sample or not isinstance(threads, list):
            continue
        for thread in threads:
            frames = thread.get("frames") if isinstance(thread, dict) else None
            yield (
                [frame for frame in frames if isinstance(frame, dict)]
                if isinstance(frames, list)
                else []
            )


def standing(history: History, rank: int, line_of: LineOf) -> str:
    """Where a rank stands, in words: the innermost line of the subject, of the first thread that is
    in it.
    """
    for thread in threads_at(history, rank, 1):
        for frame in thread:
            if frame.get("subject") is True:
                text = text_of(frame, line_of)
                code = f": {text}" if text else ""
                return (
                    f"it is in {frame.get('function')},"
                    f" {frame.get('file')}:{frame.get('line')}{code}"
                )
    return ""


def _how_it_went(history: History) -> str:
    for rank in range(history.size):
        if history.returned(rank) is None:
            return f"rank {rank}: {how_it_ended(history, rank)}"
    return "every rank ended"
