"""Worlds that are struck by faults, and histories of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.checks import Finding, judge_trial
from harness.events import Event
from harness.faults import KINDS, AnyFault, Proved, prove
from harness.faults.call import CallFault
from harness.faults.strikes import Strikes
from harness.history import History
from harness.run.hub import WorldHub
from harness.scenario import Scenario, parse_scenario
from harness.world.control.pool import PortLease, ServerPool
from harness.world.control.world import World
from tests.launches import launch_of
from tests.world.conftest import ENGINES

SUBJECTS = Path(__file__).with_name("subjects")
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


@pytest.fixture(scope="package")
def pool() -> Iterator[ServerPool]:
    """One pool for all tests here, so that the warm server is started once."""
    with ServerPool() as found:
        yield found


@pytest.fixture(scope="package")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., WorldHub]]:
    """A hub for one world, with one repository of one file."""
    folder = tmp_path_factory.mktemp("repositories")
    (folder / "lab" / "tiny").mkdir(parents=True)
    (folder / "lab" / "tiny" / "config.json").write_text("{}")
    with PortLease() as ports:
        (port,) = ports.take(1)
        yield lambda faults, size: WorldHub(folder, port=port, faults=faults, size=size, seed=7)


@pytest.fixture
def live(pool: ServerPool, hub: Callable[..., WorldHub]) -> Callable[..., Struck]:
    """Run a world with faults."""

    def run(
        *faults: Any,
        entry: str = "struck:pass_by",
        size: int = 2,
        world: type[World] = World,
        **rest: Any,
    ) -> Struck:
        strikes = Strikes(faults, size=size, seed=rest.pop("seed", 0))
        served = hub(faults, size) if any(fault.kind == "hub" for fault in faults) else None
        warm = rest.pop("warm", True) and served is None
        launch = launch_of(
            about={"start": "warm" if warm else "fresh"},
            size=size,
            backend=rest.pop("backend", "gloo"),
            warm=warm,
            entry=entry,
            folder=SUBJECTS,
            arguments=rest.pop("arguments", {}),
            inputs={},
            seeds=list(range(size)),
            **{"deadline": 20.0, "after_failure": 0.5, "preload": ENGINES, **rest},
        )
        launch = strikes.prepare(launch)

        def begin(world: World) -> None:
            strikes.begin(world)
            if served is not None:
                served.begin(world)

        def end(world: World) -> None:
            strikes.end(world)
            if served is not None:
                served.end(world)

        launch = launch if served is None else served.prepare(launch)
        hosts = {"on_hosts": served.on_hosts} if served is not None else {}
        capture = world(
            launch, pool, on_begin=begin, on_gate=strikes.at_gate, on_end=end, **hosts
        ).run()
        assert capture.events == tuple(Event.parse(event.line()) for event in capture.events)
        return Struck(list(faults), History(capture.events, size=size))

    return run


@pytest.fixture
def fault() -> Callable[..., Any]:
    """See `a_fault`."""
    return a_fault
