"""What is consistent with itself: nothing can tell it from a run."""

from __future__ import annotations

from tests.kit import forge
from tests.run.mutations.operators import (
    Copy,
    jittered,
    other_pids,
    put_over,
    read,
    refused,
    shifted,
)


@refused()
def another_value_in_an_event(copy: Copy) -> None:
    path = copy.any()
    path.write_text(path.read_text().replace('"thing":"thing"', '"thing":"another thing"'))


@refused()
def a_trial_invented_after_another(copy: Copy) -> None:
    made = sorted(
        copy.trials(0, "candidate"),
        key=lambda path: int(read(path)[-1]["ns"] - read(path)[0]["ns"]),
    )
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
    forge.facts(
        copy.folder,
        source={"commit": "1" * 40, "tree": "2" * 40, "dirty": False, "why_unknown": ""},
    )


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
