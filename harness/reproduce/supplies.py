"""What the environments of a run were made from beside an index, found again in its evidence."""

from __future__ import annotations

from dataclasses import replace

from harness.record.facts import ENVIRONMENT_FOLDER, REQUIREMENTS
from harness.reproduce.inputs import InputMissing
from harness.reproduce.report_copy import ReportCopy
from harness.run.environments.checkout import Found, Kept
from harness.run.environments.supply import Supply, supplied
from harness.scenario import Environment


def find(copy: ReportCopy) -> dict[str, Supply]:
    """The file of requirements and the built wheels of each arm, as the evidence holds them.

    Raises:
        InputMissing: the run never came so far as to build a package; without it nobody can tell.
    """
    return {arm: _of(copy, arm, wanted) for arm, wanted in copy.scenario.subject.environments.items()}


def _of(copy: ReportCopy, arm: str, wanted: Environment) -> Supply:
    folder = f"{ENVIRONMENT_FOLDER}/{arm}"
    made = copy.record.run.environments.get(arm)
    checkouts: dict[str, Found | Kept] = {}
    for name, given in wanted.checkouts.items():
        if made is None:
            raise InputMissing(
                f"package {name} of the {arm} was to be built from {given.rev or 'HEAD'} of a checkout, and the run "
                "never built it (its cells were skipped): run the scenario itself, beside that checkout"
            )
        facts = made.checkouts[name]
        checkouts[name] = Kept(name=name, facts=facts, data=copy.read(f"{folder}/{facts.wheel}"))
    if wanted.requirements is None:
        return Supply(checkouts=checkouts)
    text = supplied(copy.read(f"{folder}/{REQUIREMENTS}"), name=wanted.requirements)
    return replace(text, checkouts=checkouts)
