"""What must hold in every trial, and cannot be switched off by a scenario."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.checks import world
from harness.events import Event
from harness.history import History

Make = Callable[..., History]


def failing(history: History) -> dict[str, tuple[int, ...]]:
    return {
        finding.check: finding.failed_ranks
        for finding in world.judge(history)
        if not finding.passed
    }


def on(rank: int | None, name: str, **changes: object) -> Callable[[Event], Event | None]:
    """Change the fields of one event; `values` are merged. Without changes the event is dropped."""

    def change(event: Event) -> Event | None:
        if (event.rank, event.name) != (rank, name):
            return event
        if not changes:
            return None
        values = (
            {**event.values, **changes.pop("values", {})} if "values" in changes else event.values
        )  # type: ignore[dict-item]
        return event._replace(values=values, **changes)  # type: ignore[arg-type]

    return change


def note(name: str, rank: int | None = None, **values: object) -> Event:
    return Event(
        ns=15_500_000,
        by="harness",
        rank=rank,
        pid=None if rank is None else 200 + rank,
        name=name,
        values=values,
    )


def test_a_healthy_world_has_nothing_against_it(history: Make) -> None:
    """All five findings hold for one to eight healthy ranks."""
    for size in range(1, 9):
        assert failing(history(size=size)) == {}


@pytest.mark.parametrize(
    ("change", "check", "ranks"),
    [
        (on(1, "rank.started"), "world:ranks-are-processes", (1,)),
        (on(1, "rank.started", pid=200), "world:ranks-are-processes", (0, 1)),
        (on(1, "rank.started", pid=100), "world:ranks-are-processes", (1,)),
        (on(1, "rank.started", by="rank"), "world:ranks-are-processes", (1,)),
        (on(1, "rank.exited", pid=999), "world:ranks-are-processes", (1,)),
        (on(1, "backend.ready", values={"rank": 0, "size": 1}), "world:group-is-whole", (1,)),
        (on(1, "backend.ready"), "world:group-is-whole", (1,)),
        (
            on(1, "subject.loaded", values={"entry": None, "elsewhere": True}),
            "world:code-is-the-arms",
            (1,),
        ),
        (on(1, "subject.loaded"), "world:code-is-the-arms", (1,)),
        (on(1, "subject.end"), "world:finished", (1,)),
        (on(1, "subject.end", by="harness"), "world:finished", (1,)),
    ],
)
def test_each_fault_is_found_on_its_rank(
    history: Make, change: Callable[[Event], Event | None], check: str, ranks: tuple[int, ...]
) -> None:
    """Breaking one fact fails the finding that exists for it, on the rank it was broken on."""
    assert failing(history(change))[check] == ranks


@pytest.mark.parametrize(
    ("failed", "more", "reason"),
    [
        ([], [], "it was stopped"),
        ([1], [], "it was stopped"),
        ([0], [], "it did not exit in time after another rank had failed"),
        (
            [],
            [("machine.lost", {"machine": "b", "why": "x"})],
            "it did not exit in time after a machine of its world was lost",
        ),
        (
            [],
            [("machine.ended", {"machine": "b", "why": "x"})],
            "it did not exit in time after a machine of its world was lost",
        ),
        ([], [("world.deadline", {"after": 5.0})], "it was still running at the deadline"),
        ([0], [("world.deadline", {"after": 5.0})], "it was still running at the deadline"),
    ],
)
def test_why_a_rank_was_stopped(
    history: Make, failed: list[int], more: list[tuple[str, dict[str, object]]], reason: str
) -> None:
    """Another rank is said to have failed only where the harness saw one that had."""
    stopped = note("world.stopped", ranks=[1], why="after-failure", failed=failed)
    told = history(
        on(1, "subject.end"), more=[stopped, *(note(name, **values) for name, values in more)]
    )
    (finished,) = (one for one in world.judge(told) if one.check == "world:finished")
    assert [part.reason for part in finished.ranks if part.rank == 1] == [reason]


def as_program(event: Event) -> Event | None:
    """The same life as a program's: nothing of ours speaks from inside, the server says what it
    executed.
    """
    if event.name == "world.begin":
        return event._replace(values={**event.values, "program": True})
    if event.name == "backend.ready":
        values = {"files": [{"file": "rank.sh", "sha256": "a" * 64}], "folder": "f" * 64}
        return event._replace(by="server", name="program.started", values=values)
    return (
        None
        if event.name in ("rank.begin", "subject.loaded", "subject.begin", "subject.end")
        else event
    )


def test_a_program_is_judged_by_what_is_seen_from_outside(history: Make) -> None:
    """Execution told by the server and exit code 0 are enough; a group is not asked for."""
    assert failing(history(as_program)) == {}
    checks = {finding.check for finding in world.judge(history(as_program))}
    assert "world:group-is-whole" not in checks


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (on(1, "program.started"), "world:code-is-the-arms"),
        (on(1, "program.started", by="rank"), "world:code-is-the-arms"),
        (on(1, "program.started", values={"files": []}), "world:code-is-the-arms"),
        (on(1, "rank.exited", values={"code": 3}), "world:finished"),
        (on(1, "rank.exited", by="rank"), "world:finished"),
    ],
)
def test_each_fault_of_a_program_is_found_on_its_rank(
    history: Make, change: Callable[[Event], Event | None], check: str
) -> None:
    """What the program itself says, and a command line without the arm's code, prove nothing."""
    found = failing(
        history(lambda event: None if (kept := as_program(event)) is None else change(kept))
    )
    assert found[check] == (1,)


@pytest.mark.parametrize("name", ["channel.garbage", "channel.overflow", "channel.closed"])
def test_a_channel_that_is_not_whole_fails(history: Make, name: str) -> None:
    """Garbage, a flood or a closed channel makes everything that rank reported doubtful."""
    assert failing(history(more=[note(name, 1)])) == {"world:channel-is-whole": (1,)}


def closed(
    change: Callable[[Event], Event | None] = lambda event: event,
) -> Callable[[Event], Event | None]:
    """A program's life in which rank 1 closed its channel when it had said all it says here."""

    def life(event: Event) -> Event | None:
        if (event.rank, event.name) == (1, "tokenizer.ready"):
            return change(event._replace(name="ready", values={}))
        if (event.rank, event.name) == (1, "decode"):
            return event._replace(by="harness", name="channel.closed", values={})
        return None if (kept := as_program(event)) is None else change(kept)

    return life


def test_a_program_may_close_its_channel_and_end(history: Make) -> None:
    """A program that said `ready`, closed its channel and ended with code 0 has nothing against
    it.
    """
    assert history(closed()).noted("channel.closed", 1)
    assert failing(history(closed())) == {}


def test_a_program_that_closed_its_channel_fails_by_its_exit_code(history: Make) -> None:
    """How long it took from one to the other says nothing: what failed is that it exited with 3."""
    assert failing(history(closed(on(1, "rank.exited", values={"code": 3})))) == {
        "world:finished": (1,)
    }


@pytest.mark.parametrize(
    "change",
    [
        on(1, "rank.exited", values={"code": None, "signal": "SIGKILL"}),
        on(1, "rank.exited", by="rank"),
        on(1, "ready"),
        on(1, "ready", by="harness"),
    ],
)
def test_a_program_that_lost_its_channel_fails(
    history: Make, change: Callable[[Event], Event | None]
) -> None:
    """Closed before it was ready, or before an end that is not its own, the channel hid what
    belongs to that end.
    """
    assert failing(history(closed(change)))["world:channel-is-whole"] == (1,)


def test_a_deadline_fails_the_world(history: Make) -> None:
    """A world that had to be stopped did not finish, even if every rank claims that it ended."""
    found = failing(
        history(
            more=[
                note("world.deadline", after=60.0, ranks=[1]),
                note("world.stopped", ranks=[1], why="deadline"),
            ]
        )
    )
    assert found == {"world:finished": (1,)}
