"""Worlds that are struck by faults, and histories of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from harness.checks import Finding, judge_trial
from harness.events import Event
from harness.faults import KINDS, AnyFault, Proved, prove
from harness.faults.call import CallFault
from harness.history import History
from harness.scenario import Scenario, parse_scenario

SUBJECTS = Path(__file__).parents[1] / "faults" / "subjects"
FAULT: TypeAdapter[Any] = TypeAdapter(AnyFault)
SCENARIO = b"""
schema: 1
id: struck
title: Struck
question: Do they get through?
role: upstream
subject: {entry: struck:pass_by}
matrix: {ranks: [2], backend: [gloo]}
checks: [{id: nobody-left, kind: no-survivors}]
"""


# Of every fault of a wire, what it cannot be without.
LINKS: dict[str, dict[str, Any]] = {
    "latency": {"by": "5ms"},
    "bandwidth": {"per_second": "8MiB"},
    "loss": {"share": "2%"},
    "duplicate": {"share": "20%"},
    "reorder": {"share": "20%"},
    "flip": {},
    "flip-frame": {},
    "partition": {},
    "half-open": {},
    "reset": {},
}

# Of every fault of a call, what it cannot be without.
CALLS: dict[str, dict[str, Any]] = {
    kind: {} for kind, found in KINDS.items() if issubclass(found, CallFault)
}


def a_fault(**options: Any) -> Any:
    """A fault as a scenario would give it; its id is its kind."""
    return FAULT.validate_python({"id": options["kind"], **options})


@dataclass(frozen=True)
class Struck:
    """A world that was struck."""

    faults: list[Any]
    history: History

    @property
    def proved(self) -> list[Proved]:
        """Every fault on every rank, proved again from the events."""
        return prove(self.faults, self.history)

    @property
    def findings(self) -> dict[str, Finding]:
        """What holds in every trial, with what the faults ended excused."""
        ended = {
            found.rank: found.fault
            for found in self.proved
            if found.proof.proved and found.proof.ends
        }
        scenario: Scenario = parse_scenario(SCENARIO, name="s.yaml")
        return {
            finding.check: finding
            for finding in judge_trial(scenario.checks, self.history, ended_by_fault=ended)
        }

    @property
    def passed(self) -> bool:
        """Nothing to complain about."""
        return all(finding.passed for finding in self.findings.values())

    def one(self, by: str, rank: int | None, name: str) -> Event:
        """The only event of that name."""
        (found,) = (
            seen.event for seen in self.history.seen if self._is(seen.event, by, rank, name)
        )
        return found

    def count(self, by: str, rank: int | None, name: str) -> int:
        """How many events of that name there are."""
        return sum(self._is(seen.event, by, rank, name) for seen in self.history.seen)

    def _is(self, event: Event, by: str, rank: int | None, name: str) -> bool:
        return (event.by, event.rank, event.name) == (by, rank, name)
