"""Times that no clock of the run would have said."""

from __future__ import annotations

from harness.reason import RefusalWord
from tests.kit import forge
from tests.run.mutations.operators import (
    SECOND,
    Copy,
    end_of,
    read,
    refused,
    shifted,
    write,
)


@refused(RefusalWord.EVENTS_OUT_OF_TIME)
def time_backwards(copy: Copy) -> None:
    path = copy.any()
    events = read(path)
    index = copy.dice.randrange(2, len(events) - 2)
    write(path, [*events[:index], events[index + 1], events[index], *events[index + 2 :]])


@refused(RefusalWord.EVENTS_OUT_OF_TIME)
def an_event_before_its_world(copy: Copy) -> None:
    path = copy.any()
    first, second, *rest = read(path)
    write(path, [first, {**second, "ns": first["ns"] - 1}, *rest])


@refused(RefusalWord.EVENTS_OUT_OF_TIME)
def an_event_after_its_world(copy: Copy) -> None:
    path = copy.any()
    events = read(path)
    late = next(event for event in events if event["name"] == "met")
    write(
        path,
        [*(event for event in events if event is not late), {**late, "ns": events[-1]["ns"] + 1}],
    )


@refused(RefusalWord.EVENTS_OUT_OF_TIME)
def a_world_without_anend_of(copy: Copy) -> None:
    path = copy.any()
    write(path, read(path)[:-1])


@refused(RefusalWord.EVENTS_OUT_OF_TIME)
def a_world_that_ends_twice(copy: Copy) -> None:
    path = copy.any()
    events = read(path)
    write(path, [*events, {**events[-1], "ns": events[-1]["ns"] + 1}])


@refused(RefusalWord.EVENTS_OUT_OF_TIME)
def more_trials_at_a_time_than_lanes(copy: Copy) -> None:
    one, other = copy.two()
    events, there = read(one), read(other)
    middle = (there[0]["ns"] + there[-1]["ns"]) // 2
    write(one, shifted(events, middle - events[0]["ns"]))


@refused(RefusalWord.SECONDS_TOO_SHORT)
def a_trial_an_hour_later(copy: Copy) -> None:
    path = copy.any()
    write(path, shifted(read(path), 3600 * SECOND))


@refused(RefusalWord.SECONDS_TOO_SHORT)
def no_seconds(copy: Copy) -> None:
    forge.facts(copy.folder, seconds=0.0)


@refused(RefusalWord.SECONDS_TOO_SHORT)
def fewer_seconds_than_trials(copy: Copy) -> None:
    first = min(read(path)[0]["ns"] for path in copy.every)
    forge.facts(copy.folder, seconds=round((end_of(copy.every) - first) / SECOND * 0.9, 1))
