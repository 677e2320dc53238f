"""Events that two trials share, and events of another trial."""

from __future__ import annotations

from pathlib import Path

from harness.reason import RefusalWord
from tests.kit import forge
from tests.run.mutations.operators import (
    Copy,
    other_pids,
    put_over,
    read,
    refused,
    shifted,
    write,
)


@refused(RefusalWord.EVENTS_SHARED)
def one_trial_copied_over_all(copy: Copy) -> None:
    one, *others = copy.trials(copy.dice.randrange(2), "candidate")
    for index, path in enumerate(others, start=1):
        put_over(path, [{**read(one)[0], "ns": read(one)[0]["ns"] - index}, *read(one)[1:]])


@refused(RefusalWord.EVENTS_SHARED)
def one_trial_copied_and_shifted(copy: Copy) -> None:
    one, other = copy.two()
    put_over(other, shifted(read(one), read(other)[0]["ns"] - read(one)[0]["ns"]))


@refused(RefusalWord.EVENTS_SHARED)
def one_trial_copied_shifted_with_other_pids(copy: Copy) -> None:
    one, other = copy.two()
    put_over(other, other_pids(shifted(read(one), read(other)[0]["ns"] - read(one)[0]["ns"])))


@refused(RefusalWord.EVENTS_SHARED)
def one_trial_copied_with_its_first_gap_changed(copy: Copy) -> None:
    one, other = copy.two()
    first, *rest = shifted(read(one), read(other)[0]["ns"] - read(one)[0]["ns"])
    put_over(other, other_pids([first, *shifted(rest, 12_345)]))


@refused(RefusalWord.EVENTS_SHARED)
def a_trial_of_the_control_copied_over_another(copy: Copy) -> None:
    one, other = copy.trials(0, "control")[:2]
    put_over(other, other_pids(shifted(read(one), read(other)[0]["ns"] - read(one)[0]["ns"])))


@refused(RefusalWord.EVENTS_SHARED)
def a_trial_of_another_cell_copied(copy: Copy) -> None:
    one, other = copy.trials(1, "candidate")[2], copy.trials(0, "candidate")[2]
    put_over(other, other_pids(shifted(read(one), read(other)[0]["ns"] - read(one)[0]["ns"])))


@refused(RefusalWord.EVENTS_SHARED)
def one_rank_copied_over_the_other(copy: Copy) -> None:
    path = copy.any()
    events = read(path)
    pid = next(event["pid"] for event in events if event["rank"] == 1)
    said = [event for event in events if (event["by"], event["rank"]) == ("rank", 0)]
    twins = [{**event, "rank": 1, "pid": pid} for event in said]
    for twin in twins:
        twin["values"] = {
            key: 1 if key == "rank" else value for key, value in twin["values"].items()
        }
    kept = [event for event in events if (event["by"], event["rank"]) != ("rank", 1)]
    write(path, sorted([*kept, *twins], key=lambda event: int(event["ns"])))


@refused(RefusalWord.EVENTS_SHARED)
def one_rank_of_another_trial_copied(copy: Copy) -> None:
    one, other = copy.two()
    begin, here = read(one)[0]["ns"], read(other)
    pid = next(event["pid"] for event in here if event["rank"] == 1)
    kept = [event for event in here[:-1] if (event["by"], event["rank"]) != ("rank", 1)]
    taken = [
        {**event, "pid": pid, "ns": here[0]["ns"] + event["ns"] - begin}
        for event in read(one)
        if (event["by"], event["rank"]) == ("rank", 1)
    ]
    moved = sorted([*kept, *taken], key=lambda event: int(event["ns"]))
    write(other, [*moved, {**here[-1], "ns": max(here[-1]["ns"], moved[-1]["ns"])}])


@refused(RefusalWord.EVENTS_SHARED)
def one_event_of_another_trial(copy: Copy) -> None:
    one, other = copy.two()
    taken = next(event for event in read(one) if event["name"] == "met")
    first, *rest = read(other)
    write(other, [first, taken, *rest])


@refused(RefusalWord.EVENTS_SHARED)
def the_start_of_a_rank_of_another_trial(copy: Copy) -> None:
    one, other = copy.two()
    taken = next(event for event in read(one) if event["name"] == "rank.started")
    events = read(other)
    index = next(index for index, event in enumerate(events) if event["name"] == "rank.started")
    write(other, [*events[:index], taken, *events[index + 1 :]])


# --- events of another trial
# ----------------------------------------------------------------------------------------


def swap_bodies(one: Path, other: Path, *, mended: bool) -> None:
    first, second = read(one), read(other)
    put_over(one, second, mended=mended)
    put_over(other, first, mended=mended)


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def bodies_of_two_cells_swapped(copy: Copy) -> None:
    swap_bodies(copy.trials(0, "candidate")[0], copy.trials(1, "candidate")[0], mended=False)


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def bodies_of_two_trials_swapped(copy: Copy) -> None:
    swap_bodies(*copy.two(), mended=False)


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def bodies_of_the_arms_swapped(copy: Copy) -> None:
    swap_bodies(copy.trials(0, "candidate")[1], copy.trials(0, "control")[1], mended=False)


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def the_arms_relabelled(copy: Copy) -> None:
    for cell in range(2):
        for one, other in zip(
            copy.trials(cell, "candidate"), copy.trials(cell, "control"), strict=False
        ):
            first, second = read(one), read(other)
            for path, events, arm in ((one, second, "candidate"), (other, first, "control")):
                values = {**read(path)[0]["values"], "arm": arm}
                write(path, [{**events[0], "values": values}, *events[1:]], mended=False)


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def files_of_two_trials_swapped(copy: Copy) -> None:
    one, other = copy.two()
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_seed_in_a_trial(copy: Copy) -> None:
    path = copy.any()
    first, *rest = read(path)
    write(path, [{**first, "values": {**first["values"], "seed": "1"}}, *rest])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_moment_in_a_first_line(copy: Copy) -> None:
    path = copy.any()
    first, *rest = read(path)
    write(path, [{**first, "ns": first["ns"] - 1}, *rest], mended=False)


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_pid_in_an_event(copy: Copy) -> None:
    path = copy.any()
    events = read(path)
    write(
        path,
        [
            {**event, "pid": event["pid"] + 1} if event["name"] == "met" else event
            for event in events
        ],
    )


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_backend_in_a_trial(copy: Copy) -> None:
    path = copy.any()
    path.write_text(
        path.read_text().replace('{"backend":"none","rank"', '{"backend":"gloo","rank"')
    )


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_host(copy: Copy) -> None:
    forge.facts(copy.folder, environment={"host": "000000000000"})


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_python(copy: Copy) -> None:
    forge.facts(copy.folder, environment={"python": "3.99.0"})


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_start(copy: Copy) -> None:
    forge.facts(copy.folder, start="warm")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_harness(copy: Copy) -> None:
    forge.facts(copy.folder, harness_pid=copy.facts["harness_pid"] + 1)
