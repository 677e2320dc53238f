"""Two passes of one reproduction, held against each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from harness.run.run import Finished
from harness.scenario import Scenario
from harness.stats.profile import CellProfile, profile
from harness.stats.reproduction import ORDER, Answer, reproduction

Seeds = Literal["THE SEEDS DECIDE", "NO SIGN THAT THE SEEDS DECIDE", "CANNOT TELL WHETHER THE SEEDS DECIDE"]


def digest(finished: Finished) -> str:
    """`sha256:` and the digest of a pass' report."""
    return f"sha256:{hashlib.sha256(finished.report.read_bytes()).hexdigest()}"


def between(scenario: Scenario, one: Finished, other: Finished, *, tests: int = 1) -> Answer:
    """Whether one pass reproduces another, by the rules for any two runs.

    Args:
        scenario: what both asked.
        one: a pass.
        other: another one of the same reproduction.
        tests: how many such comparisons are made; they share the level.
    """
    return reproduction(scenario, _cells(scenario, one), _cells(scenario, other), tests=tests).answer


def seeds_word(answer: Answer) -> Seeds:
    """Whether the verdict hangs on the seeds, from how the two passes compare."""
    if answer == "REPRODUCED":
        return "NO SIGN THAT THE SEEDS DECIDE"
    return "CANNOT TELL WHETHER THE SEEDS DECIDE" if answer == "CANNOT TELL" else "THE SEEDS DECIDE"


def joint(answers: Iterable[Answer]) -> Answer:
    """The answer of several passes together: what refutes goes before what cannot tell, that before REPRODUCED."""
    return min(answers, key=ORDER.index)


def _cells(scenario: Scenario, finished: Finished) -> list[CellProfile]:
    return profile(scenario, finished.record.judgement.cells, read=lambda name: (finished.folder / name).read_bytes())
