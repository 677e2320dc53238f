"""Worlds that are struck by faults, and histories of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.events import Event
from harness.faults.strikes import Strikes
from harness.history import History
from harness.run.hub import WorldHub
from harness.world.control.pool import PortLease, ServerPool
from harness.world.control.world import World
from tests.kit.faulted_worlds import SUBJECTS, Struck, a_fault
from tests.kit.launches import launch_of
from tests.kit.worlds import ENGINES


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
