"""The barrier: whatever the order of arrivals, looks, restarts and giving up, nobody is through
early or twice.

With --soak many more orders are tried.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from rankproof_integrity import (
    BarrierBroken,
    DistributedBarrier,
    FolderStore,
    Membership,
    MemoryStore,
    SharedStore,
    TorchStore,
)
from rankproof_integrity.problem import Misused
from rankproof_integrity.records import BarrierStatus

SIZE = 3
RANKS = st.integers(0, SIZE - 1)


class Group(RuleBasedStateMachine):
    """Ranks that arrive, look, give up, begin again and renew in any order.

    What each was told is held together.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.barriers: dict[int, DistributedBarrier] = {}
        self.arrived: set[tuple[str, int, int]] = set()
        self.told: dict[tuple[str, int], dict[int, bool]] = {}

    def begun(self, rank: int) -> DistributedBarrier:
        return DistributedBarrier(
            membership=Membership(store=self.store, rank=rank, world_size=SIZE)
        )

    def of(self, rank: int) -> DistributedBarrier:
        if rank not in self.barriers:
            self.barriers[rank] = self.begun(rank)
        return self.barriers[rank]

    def turn(self, rank: int, act: Any) -> None:
        barrier = self.of(rank)
        if barrier.arrive():
            self.arrived.add((barrier._view.name, barrier.sequence, rank))
        view, number = barrier._view, barrier.sequence
        missing, opened = self.outcome(barrier, act)
        assert set(missing) <= set(range(SIZE))
        if not opened and barrier.sequence == number:
            assert missing
            return  # it waits, or cannot begin
        assert opened or missing
        assert view is not None, "through without a view"
        told = self.told.setdefault((view.name, number), {})
        assert rank not in told, "through twice"
        told[rank] = opened
        assert len(set(told.values())) == 1, "open for some, broken for others"
        if opened:
            assert {(view.name, number, other) for other in range(SIZE)} <= self.arrived, (
                "through early"
            )
            assert barrier.sequence == number + 1

    @staticmethod
    def outcome(barrier: DistributedBarrier, act: Any) -> tuple[tuple[int, ...], bool]:
        """Who was said to be missing, and whether it opened."""
        try:
            missing = act(barrier) or ()
        except BarrierBroken as error:
            return error.missing, False
        return missing, not missing

    @rule(rank=RANKS, times=st.integers(1, 3))
    def arrive(self, rank: int, times: int) -> None:
        for _ in range(times):
            barrier = self.of(rank)
            if barrier.arrive():
                self.arrived.add((barrier._view.name, barrier.sequence, rank))

    @rule(rank=RANKS)
    def look(self, rank: int) -> None:
        self.turn(rank, DistributedBarrier.look)

    @rule()
    def all_look(self) -> None:
        for rank in (0, 1, 2, 0, 1):
            self.turn(rank, DistributedBarrier.look)

    @rule(rank=RANKS)
    def give_up(self, rank: int) -> None:
        self.turn(rank, DistributedBarrier.give_up)

    @rule(rank=RANKS, chance=st.integers(0, 4))
    def restart(self, rank: int, chance: int) -> None:
        if not chance:
            self.barriers[rank] = self.begun(rank)

    @rule()
    def renew(self) -> None:
        for barrier in self.barriers.values():
            if not barrier.is_valid():
                barrier.renew()


def test_no_order_of_events_lets_a_rank_through_early_or_twice(pytestconfig: Any) -> None:
    """A rank that is through was joined by all, is through once, and each number is open for all or
    broken for all.
    """
    examples = 5000 if pytestconfig.getoption("--soak") else 40
    run_state_machine_as_test(
        Group, settings=settings(max_examples=examples, stateful_step_count=40, deadline=None)
    )


def test_a_rank_that_begins_while_another_looks_opens_nothing() -> None:
    """Between two looks of one rank the last one begins: the first is not through before that one
    has arrived.
    """

    class Late(MemoryStore):
        """A store in which rank 1 begins while rank 0 reads who there is."""

        def get(self, key: str) -> bytes | None:
            found = super().get(key)
            if key == "epoch/world/1" and found is None:
                Membership(store=self, rank=1, world_size=2)
            return found

    barrier = DistributedBarrier(membership=Membership(store=Late(), rank=0, world_size=2))
    assert [barrier.look(), barrier.look()] == [(1,), (1,)]


def stores(folder: Path) -> list[SharedStore]:
    from torch.distributed import HashStore, TCPStore

    tcp = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return [MemoryStore(), FolderStore(folder), TorchStore(tcp), TorchStore(HashStore())]


@pytest.mark.slow
def test_every_store_keeps_what_a_barrier_needs(tmp_path: Path) -> None:
    """What is set is there, sums add up, the first claim holds byte by byte, and a key that is not
    there is nothing, at once.
    """
    for store in stores(tmp_path):
        assert store.get("a/b") is None
        store.set("a/b", b"1")
        assert store.get("a/b") == b"1"
        assert [store.add("n", 1), store.add("n", 2)] == [1, 3]
        assert store.get("n") == b"3"
        assert [store.claim("c", b"mine"), store.claim("c", b"yours"), store.get("c")] == [
            b"mine"
        ] * 3
        for value in ("größe 大きさ".encode(), b"\xff\0\xc3"):
            assert [store.claim(value.hex(), value), store.get(value.hex())] == [value, value]
        store.delete("c")
        store.delete("never there")
        assert store.get("c") is None


@pytest.mark.parametrize("key", ["a/../b", "\ud800", "request " + "x" * 300 + "\ud800"])
def test_a_folder_takes_every_key(tmp_path: Path, key: str) -> None:
    """A request's id may be long, look like a path, or hold half of a surrogate pair, as chunks
    may.
    """
    store = FolderStore(tmp_path)
    store.set(key, b"1")
    assert [store.get(key), store.get(key + "y")] == [b"1", None]


RANK = """
import sys
from rankproof_integrity import DistributedBarrier, FolderStore, Membership
barrier = DistributedBarrier(membership=Membership(store=FolderStore(sys.argv[1]), rank=int(sys.argv[2]), world_size=3))
print([barrier.wait(timeout=30).sequence for _ in range(20)])
"""


@pytest.mark.slow
def test_processes_meet_in_a_folder(tmp_path: Path) -> None:
    """Three processes pass twenty barriers over files, and leave no more than the last of them
    behind.
    """
    command = [sys.executable, "-c", RANK, str(tmp_path)]
    ranks = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True)
        for rank in range(3)
    ]
    assert [rank.communicate()[0] for rank in ranks] == [f"{list(range(20))}\n"] * 3
    assert len([path for path in tmp_path.iterdir() if "barrier" in path.name]) == 4


def test_who_is_missing_is_named_and_hears_of_it() -> None:
    """A rank that waits in vain names the missing one, which, coming late, is told that it is
    broken and by whom.
    """
    store = MemoryStore()
    barriers = [
        DistributedBarrier(membership=Membership(store=store, rank=rank, world_size=2))
        for rank in range(2)
    ]
    with pytest.raises(
        BarrierBroken, match=r"number 0 of 'world' is broken for all ranks: rank 1 did not arrive"
    ) as caught:
        barriers[0].wait(timeout=0.01, retry_count=1)
    assert caught.value.missing == (1,)
    with pytest.raises(BarrierBroken, match=r"reported by rank 0"):
        barriers[1].wait(timeout=10)
    late = threading.Thread(target=barriers[1].wait, kwargs={"timeout": 10})
    late.start()
    assert barriers[0].wait(timeout=10).sequence == 1
    late.join()


def test_a_rank_that_begins_again_is_not_counted_for_its_former_self() -> None:
    """It waits where nobody else is.

    The others hear that it restarted, and meet it after renewing.
    """
    store = MemoryStore()
    first, second = (
        DistributedBarrier(membership=Membership(store=store, rank=rank, world_size=2))
        for rank in range(2)
    )
    assert first.arrive()
    assert second.arrive()
    again = DistributedBarrier(membership=Membership(store=store, rank=1, world_size=2))
    assert again.look() == (0,)
    # Its former self had arrived: that barrier opens, for all of that view were there.
    assert first.look() == ()
    with pytest.raises(BarrierBroken, match=r"rank 1 restarted .*renew\(\)"):
        first.look()
    assert not first.is_valid()
    first.renew()
    assert first.look() == ()
    assert again.look() == ()


def test_the_state_of_a_barrier_is_that_of_its_ranks() -> None:
    """Who takes part, who is missing, and how long there is left; valid until one begins again."""
    store = MemoryStore()
    first, second = (
        DistributedBarrier(membership=Membership(store=store, rank=rank, world_size=2))
        for rank in range(2)
    )
    begin = datetime.now(UTC)
    assert first.look() == (1,)
    for remaining, status in ((2.5, BarrierStatus.WAITING), (-1.0, BarrierStatus.TIMED_OUT)):
        state = first.state(remaining=remaining)
        assert state.participating_devices == ("rank 0", "rank 1")
        assert (state.barrier_status, state.missing) == (status, (1,))
        assert state.timeout_remaining == max(0.0, remaining)
        assert begin <= state.sync_timestamp <= datetime.now(UTC)
    assert asyncio.run(first.validate_sync_state())
    assert second.look() == ()
    state = asyncio.run(first.sync_with_timeout(10.0, 0)).state
    assert (state.barrier_status, state.missing) == (BarrierStatus.COMPLETE, ())
    assert 0 < state.timeout_remaining <= 10
    Membership(store=store, rank=1, world_size=2)
    assert not asyncio.run(first.validate_sync_state())


def test_a_key_of_any_length_has_a_file(tmp_path: Path) -> None:
    """A request's id is part of a stream's keys; two that begin alike are two."""
    store = FolderStore(tmp_path)
    keys = ["stream/" + "長" * 300 + end for end in ("", "/0", "/1")]
    for number, key in enumerate(keys):
        assert store.add(key, number + 1) == number + 1
    assert [store.get(key) for key in keys] == [b"1", b"2", b"3"]
    for key in keys:
        store.delete(key)
        assert store.get(key) is None


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_a_wait_of_no_time_is_a_misuse(timeout: float) -> None:
    """NaN too: nothing compares with it, and the wait would not end."""
    barrier = DistributedBarrier(membership=Membership(store=MemoryStore(), rank=0, world_size=1))
    with pytest.raises(Misused, match="needs a timeout above 0 s"):
        barrier.wait(timeout=timeout)


def test_a_value_that_does_not_fit_on_the_disk_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes next may have the space, and what was there stays."""
    store = FolderStore(tmp_path)
    store.set("key", b"before")
    there = sorted(path.name for path in tmp_path.iterdir())

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        with pytest.raises(OSError, match="No space"):
            store.set("key", b"after")
    assert store.get("key") == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == there
