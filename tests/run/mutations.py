"""What a signer can do to a run's folder: operators, each of which changes one thing, with the words that refuse it.

`words` is empty where the result is consistent with itself: then nothing can tell it from a run. What an operator
writes is as good as it can be: what follows from its change is mended where the operator is about something else.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.reason import RefusalWord, SkipCode
from tests import forge

DIFFERENT = "JUDGED DIFFERENTLY"
SCENARIO = """
schema: 1
id: meet
title: Ranks meet
question: Do all ranks meet?
subject:
  entry: subject:meet
  candidate: {with: {broken: false}}
  control:
    file: old.py
    with: {broken: true}
    must_fail: {check: met, ranks: nonzero, error: AssertionError, source: assert thing}
inputs: {words: {path: words.txt}}
matrix: {ranks: [2], backend: [none], flavour: [plain, salted]}
world: {deadline: 30s, start: fresh}
seed: "7"
trials: {candidate: 4, control: 3, accept: {failure_rate_below: 45%}}
checks:
  - {id: met, kind: event, ranks: every, event: met}
  - {id: thing, kind: equal, ranks: every, value: met.thing, to: thing}
  - {id: ended, kind: exit, ranks: every, code: 0}
  - {id: nobody-left, kind: no-survivors}
"""
SUBJECT = """
def meet(context, *, broken, flavour):
    print(flavour, flush=True)
    thing = None if broken and context.rank else "thing"
    assert thing
    context.emit("met", thing=thing)
"""
OLD = f"# before the fix\n{SUBJECT}"
CELLS = ("ranks=2,backend=none,flavour=plain", "ranks=2,backend=none,flavour=salted")
SECOND = 1_000_000_000
Events = list[dict[str, Any]]


@dataclass(frozen=True)
class Copy:
    """A copy of the run, and the dice that say which trial is meant where any will do."""

    folder: Path
    dice: random.Random

    def trials(self, cell: int, arm: str) -> list[Path]:
        """The events of each trial of a cell's arm."""
        flavour = CELLS[cell].rpartition("=")[2]
        return sorted(self.folder.glob(f"evidence/*-{flavour}/{arm}-*/events.jsonl"))

    @property
    def every(self) -> list[Path]:
        """The events of every trial."""
        return sorted(self.folder.glob("evidence/*/*/events.jsonl"))

    def any(self, arm: str = "candidate") -> Path:
        """One trial."""
        return self.dice.choice(sorted(self.folder.glob(f"evidence/*/{arm}-*/events.jsonl")))

    def two(self) -> tuple[Path, Path]:
        """Two trials of the candidate."""
        one, other = self.dice.sample(sorted(self.folder.glob("evidence/*/candidate-*/events.jsonl")), 2)
        return one, other

    @property
    def facts(self) -> Any:
        return json.loads((self.folder / forge.PATH).read_text())

    def remove(self, cell: int) -> None:
        """Remove the trials of a cell."""
        for path in self.trials(cell, "candidate")[:1]:
            shutil.rmtree(path.parents[1])

    def scenario(self, old: str, new: str) -> None:
        """Change the scenario's file."""
        path = self.folder / forge.SCENARIO_PATH
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


Change = Callable[[Copy], None]


@dataclass(frozen=True)
class Operator:
    """A change, by its name, and the words that it is refused by when it is signed again."""

    change: Change
    words: frozenset[str]
    removes: bool = False
    on_record: bool = False

    @property
    def name(self) -> str:
        return self.change.__name__

    def __repr__(self) -> str:
        return self.name


OPERATORS: list[Operator] = []


def refused(*words: str, removes: bool = False, on_record: bool = False) -> Callable[[Change], Change]:
    """Register an operator, refused by one of these words; without any it makes what nothing can tell from a run."""

    def register(change: Change) -> Change:
        OPERATORS.append(Operator(change, frozenset(words), removes, on_record))
        return change

    return register


def read(path: Path) -> Events:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, events: Events, *, mended: bool = True) -> None:
    """Write a trial; `mended` lets each rank say that it is of this one."""
    lines = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events).encode()
    path.write_bytes(forge.marked(lines) if mended else lines)


def shifted(events: Events, by: int) -> Events:
    return [{**event, "ns": event["ns"] + by} for event in events]


def other_pids(events: Events, by: int = 1000) -> Events:
    return [{**event, "pid": event["pid"] and event["pid"] + by} for event in events]


def jittered(events: Events, dice: random.Random) -> Events:
    """The same, every moment a little later, in the same order: what no clock would have said is still possible."""
    moved, later = [], 0
    for event in events:
        later += dice.randrange(1, 2000)
        moved.append({**event, "ns": event["ns"] + later})
    return moved


def put_over(path: Path, events: Events, *, mended: bool = True) -> None:
    """Put another trial's events below the first line of this one."""
    write(path, [{**read(path)[0], "ns": events[0]["ns"]}, *events[1:]], mended=mended)


# --- events that two trials share -----------------------------------------------------------------------------------


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
        twin["values"] = {key: 1 if key == "rank" else value for key, value in twin["values"].items()}
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


# --- events of another trial ----------------------------------------------------------------------------------------


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
        for one, other in zip(copy.trials(cell, "candidate"), copy.trials(cell, "control"), strict=False):
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
    write(path, [{**event, "pid": event["pid"] + 1} if event["name"] == "met" else event for event in events])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_backend_in_a_trial(copy: Copy) -> None:
    path = copy.any()
    path.write_text(path.read_text().replace('{"backend":"none","rank"', '{"backend":"gloo","rank"'))


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


# --- another scenario, other code, other inputs than the trials were made of ----------------------------------------


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def a_weaker_bound_in_the_scenario(copy: Copy) -> None:
    path = copy.folder / forge.SCENARIO_PATH
    path.write_text(re.sub("failure_rate_below: [0-9]+%", "failure_rate_below: 99%", path.read_text()))


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def a_check_dropped_from_the_scenario(copy: Copy) -> None:
    copy.scenario("  - {id: ended, kind: exit, ranks: every, code: 0}\n", "")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def a_weaker_statement_of_how_the_control_fails(copy: Copy) -> None:
    copy.scenario(", error: AssertionError, source: assert thing}", "}")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def more_voids_allowed(copy: Copy) -> None:
    copy.scenario("trials: {", "trials: {max_voids: 9, ")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_root_of_the_seeds(copy: Copy) -> None:
    copy.scenario('seed: "7"', 'seed: "8"')


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def a_check_that_asks_one_rank_only(copy: Copy) -> None:
    copy.scenario("kind: equal, ranks: every", "kind: equal, ranks: [0]")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_question(copy: Copy) -> None:
    copy.scenario("Do all ranks meet?", "Is all well with every model?")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, removes=True)
def a_cell_dropped_from_the_scenario(copy: Copy) -> None:
    copy.scenario("flavour: [plain, salted]", "flavour: [plain]")
    copy.remove(1)
    forge.facts(copy.folder, cells=copy.facts["cells"][:1])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, removes=True)
def fewer_trials_in_the_scenario(copy: Copy) -> None:
    copy.scenario("candidate: 4, control: 3", "candidate: 3, control: 3")
    for path in (path for cell in range(2) for path in copy.trials(cell, "candidate")[-1:]):
        shutil.rmtree(path.parent)
    forge.facts(copy.folder, cells=[{**cell, "candidate": 3} for cell in copy.facts["cells"]])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_override(copy: Copy) -> None:
    forge.facts(copy.folder, overrides=[*copy.facts["overrides"], "trials.accept.confidence=50%"])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def an_override_left_out(copy: Copy) -> None:
    assert copy.facts["overrides"]
    forge.facts(copy.folder, overrides=[])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def code_of_the_arms_swapped(copy: Copy) -> None:
    one, other = (copy.folder / f"evidence/source/{arm}" for arm in ("candidate", "control"))
    one.rename(one.with_name("third"))
    other.rename(one)
    one.with_name("third").rename(other)


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def other_code(copy: Copy) -> None:
    for arm in ("candidate", "control"):
        path = copy.folder / f"evidence/source/{arm}/subject.py"
        path.write_text(path.read_text() + "# reviewed\n")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def a_file_beside_the_code(copy: Copy) -> None:
    (copy.folder / "evidence/source/candidate/fix.py").write_text("FIXED = True\n")


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def other_arguments(copy: Copy) -> None:
    copy.scenario("candidate: {with: {broken: false}}", "candidate: {with: {broken: 0}}")
    facts = copy.facts
    facts["arguments"]["candidate"] = {"broken": 0}
    forge.facts(copy.folder, arguments=facts["arguments"])


@refused(RefusalWord.EVENTS_OF_ANOTHER_TRIAL)
def another_input(copy: Copy) -> None:
    facts = copy.facts
    facts["inputs"][0]["digest"] = "0" * 64
    forge.facts(copy.folder, inputs=facts["inputs"])


# --- time -----------------------------------------------------------------------------------------------------------


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
    write(path, [*(event for event in events if event is not late), {**late, "ns": events[-1]["ns"] + 1}])


@refused(RefusalWord.EVENTS_OUT_OF_TIME)
def a_world_without_an_end(copy: Copy) -> None:
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
    forge.facts(copy.folder, seconds=round((_end(copy.every) - first) / SECOND * 0.9, 1))


def _end(paths: Iterable[Path]) -> int:
    return max(read(path)[-1]["ns"] for path in paths)


# --- how many -------------------------------------------------------------------------------------------------------


def count(copy: Copy, cell: int, *, candidate: int) -> None:
    cells = copy.facts["cells"]
    cells[cell]["candidate"] = candidate
    forge.facts(copy.folder, cells=cells)


@refused(RefusalWord.TRIALS_NOT_PLANNED, removes=True)
def a_trial_left_out(copy: Copy) -> None:
    for path in copy.trials(0, "candidate")[-1:]:
        shutil.rmtree(path.parent)
    count(copy, 0, candidate=len(copy.trials(0, "candidate")))


@refused(RefusalWord.TRIALS_NOT_PLANNED, removes=True)
def two_trials_more_without_a_void(copy: Copy) -> None:
    made = copy.trials(0, "candidate")
    if not made:
        return
    end = _end(copy.every)
    for index, path in enumerate(made[:2], start=len(made)):
        more = path.parent.with_name(f"candidate-{index:05d}") / path.name
        more.parent.mkdir()
        first, *rest = jittered(read(path), copy.dice)
        seed = forge.seed(copy.folder, CELLS[0], index)
        first["values"] = {**first["values"], "trial": index, "seed": seed}
        write(more, other_pids(shifted([first, *rest], end + SECOND - first["ns"])))
        end = _end([more])
    count(copy, 0, candidate=len(made) + 2)
    forge.facts(copy.folder, seconds=copy.facts["seconds"] + 60)


@refused(RefusalWord.TRIALS_NOT_PLANNED)
def a_trial_called_void(copy: Copy) -> None:
    path = copy.any()
    first, *rest = read(path)
    ranks = [event for event in rest if event["by"] != "rank"]
    error = {**rest[-1], "name": "harness.error", "values": {"type": "OSError", "message": "port taken"}}
    write(path, [first, *ranks[:-1], error, ranks[-1]])


@refused(DIFFERENT, removes=True)
def a_gap_in_the_numbers(copy: Copy) -> None:
    for path in copy.trials(1, "candidate")[-1:]:
        path.parent.rename(path.parent.with_name("candidate-00009"))


@refused(DIFFERENT)
def a_trial_beside_those_that_count(copy: Copy) -> None:
    path = copy.any()
    shutil.copytree(path.parent, path.parent.with_name("candidate-00077"))


# --- skipped cells --------------------------------------------------------------------------------------------------


def call_skipped(copy: Copy, code: SkipCode, why: str, *, both: bool = False) -> None:
    cells = copy.facts["cells"]
    for index in range(len(cells)) if both else range(1, len(cells)):
        cells[index] = {"id": CELLS[index], "skipped": {"code": code, "text": why}, "candidate": 0, "control": 0}
        copy.remove(index)
    forge.facts(copy.folder, cells=cells)


@refused(RefusalWord.SKIP_CONTRADICTED, removes=True)
def a_cell_called_skipped_for_its_backend(copy: Copy) -> None:
    call_skipped(copy, SkipCode.BACKEND_UNKNOWN, "backend none: not in this version yet")


@refused(RefusalWord.SKIP_CONTRADICTED, removes=True)
def a_cell_called_skipped_for_another_backend(copy: Copy) -> None:
    call_skipped(copy, SkipCode.CELL_GPUS, "backend nccl: nccl needs a GPU per rank: 2 ranks, no NVIDIA GPUs here")


@refused(RefusalWord.SKIP_CONTRADICTED, removes=True)
def a_cell_called_skipped_for_memory(copy: Copy) -> None:
    call_skipped(copy, SkipCode.MACHINE_MEMORY, "needs 640.0 GiB of memory, this machine has 24.0 GiB")


@refused(RefusalWord.SKIP_CONTRADICTED, removes=True)
def a_cell_called_skipped_for_no_known_reason(copy: Copy) -> None:
    call_skipped(copy, SkipCode.NETWORK_PACKAGES, "the network was down")


@refused(RefusalWord.SKIP_CONTRADICTED, removes=True)
def all_cells_called_skipped(copy: Copy) -> None:
    call_skipped(copy, SkipCode.BACKEND_UNKNOWN, "backend none: not in this version yet", both=True)


# --- the record alone -----------------------------------------------------------------------------------------------


def cell_of(record: Any) -> Any:
    return record["judgement"]["cells"][0]


@refused(DIFFERENT, on_record=True)
def a_control_trial_that_did_not_fail(copy: Copy) -> None:
    forge.record(copy.folder, lambda record: cell_of(record)["control"]["trials"][0].update(outcome="pass"))


@refused(DIFFERENT, on_record=True)
def another_seed_in_the_record(copy: Copy) -> None:
    forge.record(copy.folder, lambda record: cell_of(record)["candidate"]["trials"][0].update(seed="1"))


@refused(DIFFERENT, on_record=True)
def a_tighter_bound_in_the_record(copy: Copy) -> None:
    forge.record(copy.folder, lambda record: cell_of(record)["candidate"].update(upper=0.001))


@refused(DIFFERENT, on_record=True)
def a_shorter_trial_in_the_record(copy: Copy) -> None:
    forge.record(copy.folder, lambda record: cell_of(record)["candidate"]["trials"][0].update(ms=0.0))


@refused(DIFFERENT, on_record=True)
def another_verdict_in_the_record(copy: Copy) -> None:
    forge.record(copy.folder, lambda record: record["judgement"].update(verdict="INCONCLUSIVE"))


@refused(DIFFERENT, on_record=True)
def a_failure_drawn_as_a_pass(copy: Copy) -> None:
    path = copy.folder / "evidence/figures/trials.svg"
    path.write_text(path.read_text().replace("<svg ", '<svg data-x="" ', 1))


@refused(DIFFERENT)
def a_file_that_no_run_writes(copy: Copy) -> None:
    (copy.folder / "evidence/approved-by-qa.txt").write_text("yes")


@refused(DIFFERENT)
def another_time_of_making(copy: Copy) -> None:
    forge.facts(copy.folder, made="2020-01-01T00:00:00Z")


# --- what is consistent with itself: nothing can tell it from a run -------------------------------------------------


@refused()
def another_value_in_an_event(copy: Copy) -> None:
    path = copy.any()
    path.write_text(path.read_text().replace('"thing":"thing"', '"thing":"another thing"'))


@refused()
def a_trial_invented_after_another(copy: Copy) -> None:
    made = sorted(copy.trials(0, "candidate"), key=lambda path: int(read(path)[-1]["ns"] - read(path)[0]["ns"]))
    events, first = jittered(read(made[0]), copy.dice), read(made[-1])[0]
    put_over(made[-1], other_pids(shifted(events, first["ns"] - events[0]["ns"])))


@refused()
def every_trial_rewritten_for_a_weaker_bound(copy: Copy) -> None:
    copy.scenario("failure_rate_below: 45%", "failure_rate_below: 60%")
    forge.rebind(copy.folder)


@refused()
def another_log(copy: Copy) -> None:
    path = copy.dice.choice(sorted(copy.folder.glob("evidence/*/candidate-*/rank-*.log")))
    path.write_text("all fine\n")


@refused()
def a_log_removed(copy: Copy) -> None:
    copy.dice.choice(sorted(copy.folder.glob("evidence/*/candidate-*/rank-1.log"))).unlink()


@refused()
def another_commit(copy: Copy) -> None:
    forge.facts(copy.folder, source={"commit": "1" * 40, "tree": "2" * 40, "dirty": False, "why_unknown": ""})


@refused()
def another_version_of_a_package(copy: Copy) -> None:
    packages = copy.facts["environment"]["packages"]
    packages[0]["version"] += ".post1"
    forge.facts(copy.folder, environment={"packages": packages})


@refused()
def another_processor(copy: Copy) -> None:
    forge.facts(copy.folder, environment={"cpu": "a faster one", "cores": 512})


@refused()
def a_challenge_that_nobody_gave(copy: Copy) -> None:
    forge.facts(copy.folder, challenge="release 7")


@refused()
def another_day(copy: Copy) -> None:
    tail = copy.facts["id"].rpartition("-")[2]
    forge.facts(copy.folder, id=f"20300101T000000Z-{tail}", made="2030-01-01T00:00:00Z")
