"""What `environment-agrees` says of ranks that run in different environments, by rank and by
key.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check, Finding
from harness.events import Event
from harness.history import History

CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)
TOLD: dict[str, Any] = {
    "versions": {"python": "3.11.9", "torch": "2.8.0"},
    "libraries": {"libgomp.so.1": "ab" * 8},
    "variables": {"OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"},
    "threads": {"cores": 2, "torch": 1},
    "numerics": {"torch.dtype": "torch.float32"},
    "clock": {"offset": 1_700_000_000_000_000_000},
}


def world(
    *changes: Callable[[dict[str, Any]], object] | None,
    size: int = 3,
    at: tuple[str, ...] = ("begin", "end"),
) -> History:
    """What each rank tells at both moments; the last ranks are changed."""
    events = [Event(ns=1, by="harness", name="world.begin", values={"size": size})]
    for rank in range(size):
        change = changes[rank - size + len(changes)] if rank >= size - len(changes) else None
        for place, moment in enumerate(("begin", "end")):
            told = copy.deepcopy(TOLD)
            if change is not None and moment in at:
                change(told)
            values = {"at": moment, **told}
            events.append(
                Event(ns=10 + place, by="rank", name="rank.environment", rank=rank, values=values)
            )
        events.append(Event(ns=20, by="rank", name="subject.end", rank=rank))
    return History(sorted(events, key=lambda event: event.ns), size=size)


def judge(history: History, **options: Any) -> Finding:
    given = {"id": "it", "kind": "environment-agrees", "ranks": "every", **options}
    return CHECK.validate_python(given).judge(history)


def sets(part: str, key: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda told: told[part].update({key: value})


def test_equal_environments_agree() -> None:
    """Ranks that tell the same pass, with the number of keys that were compared."""
    found = judge(world())
    assert found.passed
    assert "variables 2" in str(found.ranks[0].observed)


@pytest.mark.parametrize(
    "at", [("begin",), ("end",), ("begin", "end")], ids=["begin", "end", "both"]
)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            sets("versions", "torch", "2.9.0"),
            'versions.torch is "2.9.0", but "2.8.0" on most ranks',
        ),
        (sets("versions", "numpy", "2.0"), 'versions.numpy is "2.0", but (none) on most ranks'),
        (lambda told: told["versions"].pop("torch"), "versions.torch is (none)"),
        (sets("libraries", "libgomp.so.1", "cd" * 8), "libraries.libgomp.so.1"),
        (sets("variables", "OMP_NUM_THREADS", "4"), 'variables.OMP_NUM_THREADS is "4"'),
        (sets("threads", "torch", 4), "threads.torch is 4, but 1 on most ranks"),
        (sets("threads", "torch", 1.0), "threads.torch is 1.0, but 1 on most ranks"),
        (sets("numerics", "torch.dtype", "torch.float64"), "numerics.torch.dtype"),
        (
            sets("clock", "offset", TOLD["clock"]["offset"] + 200_000_000),
            "clock.offset is +0.200 s",
        ),
        (sets("clock", "offset", None), "clock.offset is not a number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_rank_and_the_key_are_named(change: Any, words: str, at: tuple[str, ...]) -> None:
    """One rank that differs in one key, at one moment or both, fails alone and says in what."""
    found = judge(world(change, at=at))
    assert found.failed_ranks == (2,)
    assert words in found.ranks[2].reason


def test_without_a_majority_every_rank_differs() -> None:
    """Of two ranks that differ nothing says which is right: both are named, in clocks too."""
    found = judge(world(sets("threads", "torch", 4), size=2))
    assert found.failed_ranks == (0, 1)
    assert "no value has a majority" in found.ranks[0].reason
    late = sets("clock", "offset", TOLD["clock"]["offset"] + 150_000_000)
    assert judge(world(late, size=2)).failed_ranks == (0, 1)
    assert judge(world(late, size=2), clock="200ms").passed


def test_what_is_meant_to_differ_can_be_said() -> None:
    """A key in `but`, and a part that is not asked for, are not compared."""
    history = world(sets("variables", "SHARD", "2"))
    assert judge(history).failed_ranks == (2,)
    assert judge(history, but=["variables.SHARD"]).passed
    assert judge(history, parts=["versions", "threads"]).passed


def test_a_rank_that_tells_nothing_fails() -> None:
    """Agreement among those who answered is not agreement.

    Nor is that on an empty part, or on the subject's word.
    """
    events = [seen.event for seen in world().seen]
    for moment in ("begin", "end"):
        silent = [one for one in events if (one.rank, one.values.get("at")) != (1, moment)]
        found = judge(History(silent, size=3))
        assert found.failed_ranks == (1,)
        assert found.ranks[1].missing
    empty = [
        one._replace(values={**one.values, "variables": {}}) if one.rank == 1 else one
        for one in events
    ]
    assert 1 in judge(History(empty, size=3)).failed_ranks
    forged = [
        one._replace(by="harness") if one.name == "rank.environment" else one for one in events
    ]
    assert judge(History(forged, size=3)).failed_ranks == (0, 1, 2)


def test_a_rank_that_did_not_return_tells_as_it_begins() -> None:
    """Where a rank ended on the way, what it told at the beginning is compared."""
    events = [seen.event for seen in world(sets("threads", "torch", 4)).seen]
    cut = [one for one in events if one.name != "subject.end" and one.values.get("at") != "end"]
    assert judge(History(cut, size=3)).failed_ranks == (2,)
    same = [one for one in cut if one.rank != 2]
    assert judge(History(same, size=3), ranks=[0, 1]).passed
