"""The record alone, and files that no run writes."""

from __future__ import annotations

from typing import Any

from tests.kit import forge
from tests.run.mutations.operators import (
    DIFFERENT,
    Copy,
    refused,
)


def cell_of(record: Any) -> Any:
    return record["judgement"]["cells"][0]


@refused(DIFFERENT, on_record=True)
def a_control_trial_that_did_not_fail(copy: Copy) -> None:
    forge.record(
        copy.folder, lambda record: cell_of(record)["control"]["trials"][0].update(outcome="pass")
    )


@refused(DIFFERENT, on_record=True)
def another_seed_in_the_record(copy: Copy) -> None:
    forge.record(
        copy.folder, lambda record: cell_of(record)["candidate"]["trials"][0].update(seed="1")
    )


@refused(DIFFERENT, on_record=True)
def a_tighter_bound_in_the_record(copy: Copy) -> None:
    forge.record(copy.folder, lambda record: cell_of(record)["candidate"].update(upper=0.001))


@refused(DIFFERENT, on_record=True)
def a_shorter_trial_in_the_record(copy: Copy) -> None:
    forge.record(
        copy.folder, lambda record: cell_of(record)["candidate"]["trials"][0].update(ms=0.0)
    )


@refused(DIFFERENT, on_record=True)
def another_verdict_in_the_record(copy: Copy) -> None:
    forge.record(copy.folder, lambda record: record["judgement"].update(verdict="INCONCLUSIVE"))


@refused(DIFFERENT, on_record=True)
def a_failure_drawn_as_a_pass(copy: Copy) -> None:
    path = copy.folder / "evidence/figures/trials.svg"
    path.write_text(path.read_text().replace("<svg ", '<svg data-x="" ', 1))


@refused(DIFFERENT, on_record=True)
def a_word_in_the_appendix(copy: Copy) -> None:
    path = copy.folder / "appendix.md"
    path.write_text(path.read_text().replace("pass", "fail", 1))


@refused(DIFFERENT)
def a_file_that_no_run_writes(copy: Copy) -> None:
    (copy.folder / "evidence/approved-by-qa.txt").write_text("yes")


@refused(DIFFERENT)
def another_time_of_making(copy: Copy) -> None:
    forge.facts(copy.folder, made="2020-01-01T00:00:00Z")
