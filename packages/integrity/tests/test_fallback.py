"""The fallback to one device: one decision that all read, in any interleaving, and by real
processes.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rankproof_integrity.fallback import (
    FallbackCoordinator,
    FallbackDecision,
    FallbackThreshold,
    LeftOut,
    Mode,
)
from rankproof_integrity.problem import Misused
from rankproof_integrity.records import FailureClass
from rankproof_integrity.store import FolderStore, MemoryStore

SIZE = 3
RANKS = st.integers(0, SIZE - 1)


class Deciding(RuleBasedStateMachine):
    """Three ranks that propose, answer, are late, begin again and return, in any order."""

    @initialize()
    def begin(self) -> None:
        self.store = MemoryStore()
        self.ranks = [FallbackCoordinator(self.store, rank=rank, size=SIZE) for rank in range(SIZE)]
        self.read: dict[tuple[int, str], FallbackDecision] = {}
        self.answered: dict[tuple[int, str], set[int]] = {}

    @rule(rank=RANKS, position=st.integers(0, 9))
    def propose(self, rank: int, position: int) -> None:
        if self.ranks[rank].mode is Mode.SINGLE:
            with pytest.raises(Misused):
                self.ranks[rank].propose("flips", position=position)
        else:
            self.ranks[rank].propose("flips", position=position)

    @rule(rank=RANKS, position=st.integers(0, 9))
    def answer_and_stop(self, rank: int, position: int) -> None:
        one = self.ranks[rank]
        if one.proposed:
            one._once(self.ready(one), str(position))
            self.answered.setdefault((one.generation, one._decision), set()).add(rank)

    @rule(rank=RANKS, position=st.integers(0, 9))
    def agree(self, rank: int, position: int) -> None:
        one = self.ranks[rank]
        act = one.agree if one.mode is Mode.DISTRIBUTED else one.agree_on_return
        if not one.proposed:
            with pytest.raises(Misused):
                act(position=position, timeout=0)
            return
        place = (one.generation, one._decision)
        self.answered.setdefault(place, set()).add(rank)
        try:
            decision = act(position=position, timeout=0)
        except LeftOut as left:
            decision = left.decision
            assert rank not in decision.participants
        else:
            assert rank in decision.participants
        assert self.read.setdefault(place, decision) == decision, "all read the same"
        assert set(decision.participants) <= self.answered[place], (
            "who did not answer takes no part"
        )
        assert sorted((*decision.participants, *decision.missing)) == list(range(SIZE))
        assert decision.mode is Mode.SINGLE or not decision.missing, (
            "many devices again only with every rank"
        )
        assert decision.mode is Mode.DISTRIBUTED or decision.device in decision.participants, (
            "nobody waits for who is gone"
        )
        assert one.mode is decision.mode

    @rule(rank=RANKS)
    def ask_to_return(self, rank: int) -> None:
        if self.ranks[rank].mode is Mode.SINGLE:
            self.ranks[rank].request_return("mended")

    @rule(rank=RANKS)
    def begin_again(self, rank: int) -> None:
        before = self.ranks[rank]
        self.ranks[rank] = after = FallbackCoordinator(self.store, rank=rank, size=SIZE)
        assert (after.generation, len(after.decisions)) >= (
            before.generation,
            len(before.decisions),
        )

    @invariant()
    def nobody_is_in_another_mode_than_was_decided(self) -> None:
        for one in getattr(self, "ranks", []):
            assert one.mode is (one.decisions[-1].mode if one.decisions else Mode.DISTRIBUTED)
            assert one.generation == sum(made.mode is Mode.DISTRIBUTED for made in one.decisions)

    @staticmethod
    def ready(one: FallbackCoordinator) -> str:
        return (
            f"ready/{one.rank}"
            if one.mode is Mode.DISTRIBUTED
            else one._return(f"ready/{one.rank}")
        )


Deciding.TestCase.settings = settings(
    max_examples=settings().max_examples // 2, stateful_step_count=20
)
TestDeciding = Deciding.TestCase
TestDeciding.__doc__ = (
    "In any interleaving there is one decision for each proposal, and nobody acts on another."
)


def test_all_ranks_go_over_at_the_same_token() -> None:
    """Ranks that come to it at different times wait for each other, and begin at what all have
    verified.
    """
    store = MemoryStore()
    ranks = [FallbackCoordinator(store, rank=rank, size=4, prefer=2) for rank in range(4)]
    ranks[3].propose("digests differ", position=40)
    found: dict[int, FallbackDecision] = {}

    def agree(rank: int) -> None:
        found[rank] = ranks[rank].agree(position=40 - rank, timeout=30)

    threads = [threading.Thread(target=agree, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (decision,) = set(found.values())
    assert (decision.position, decision.device, decision.missing) == (37, 2, ())
    assert decision.reason == "rank 3 at position 40: digests differ"


RANK = """
import sys
from rankproof_integrity.fallback import FallbackCoordinator, LeftOut
from rankproof_integrity.store import FolderStore
one = FallbackCoordinator(FolderStore(sys.argv[1]), rank=int(sys.argv[2]), size=3)
print(one.mode.value, flush=True)
for line in sys.stdin:
    word, timeout = line.split()
    act = one.agree if word == "agree" else one.agree_on_return
    try:
        made = act(position=10 + one.rank, timeout=float(timeout))
        print(made.mode.value, made.position, made.device, *made.missing, flush=True)
    except LeftOut as left:
        print("left out", *left.decision.participants, flush=True)
"""


class Rank:
    """A process that does as it is told, line by line."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RANK, str(folder), str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.communicate()


def test_a_killed_rank_is_named_and_comes_back_only_with_all(tmp_path: Path) -> None:
    """Without the killed one the others decide, alike; begun again it reads that.

    Back only with it.
    """
    ranks = [Rank(tmp_path, rank) for rank in range(3)]
    try:
        assert [rank.hear() for rank in ranks] == ["distributed"] * 3
        here = FallbackCoordinator(FolderStore(tmp_path), rank=0, size=3)
        here.propose("rank 2 does not answer", position=12)
        ranks[2].end()
        for rank in ranks[:2]:
            rank.tell("agree 0.5")
        assert [rank.hear() for rank in ranks[:2]] == ["single 10 0 2"] * 2
        ranks[2] = Rank(tmp_path, 2)
        assert ranks[2].hear() == "single"
        FallbackCoordinator(FolderStore(tmp_path), rank=0, size=3).request_return("rank 2 is back")
        for rank in ranks:
            rank.tell("return 60")
        assert [rank.hear() for rank in ranks] == ["distributed 10 None"] * 3
    finally:
        for rank in ranks:
            rank.end()


def test_where_the_device_is_killed_another_takes_its_place(tmp_path: Path) -> None:
    """It answered and ended: the others, asked to return, go on alone on one of them, which all
    read; nobody waits.
    """
    ranks = [Rank(tmp_path, rank) for rank in range(3)]
    try:
        assert [rank.hear() for rank in ranks] == ["distributed"] * 3
        FallbackCoordinator(FolderStore(tmp_path), rank=1, size=3).propose(
            "digests differ", position=12
        )
        for rank in ranks:
            rank.tell("agree 60")
        assert [rank.hear() for rank in ranks] == ["single 10 0"] * 3
        ranks[0].end()
        FallbackCoordinator(FolderStore(tmp_path), rank=2, size=3).request_return(
            "rank 0 does not answer"
        )
        for rank in ranks[1:]:
            rank.tell("return 0.5")
        assert [rank.hear() for rank in ranks[1:]] == ["single 11 1 0"] * 2
        ranks[0] = Rank(tmp_path, 0)
        assert ranks[0].hear() == "single"
        assert FallbackCoordinator(FolderStore(tmp_path), rank=0, size=3).decisions[-1].device == 1
    finally:
        for rank in ranks:
            rank.end()


def binomial_at_most(successes: int, trials: int, rate: float) -> float:
    """Probability of at most so many successes in independent trials."""
    ways = (
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(successes + 1)
    )
    return math.fsum(ways)


@given(st.floats(1e-4, 0.05), st.integers(100, 2000))
def test_the_threshold_is_the_least_that_is_rare_enough(rate: float, window: int) -> None:
    """One failure fewer would come by chance more often than is accepted."""
    failures = FallbackThreshold(acceptable=rate, window=window, error=1e-6).failures
    assert 1 - binomial_at_most(failures - 1, window, rate) < 1e-6 * (1 + 1e-6)
    assert failures == 1 or 1 - binomial_at_most(failures - 2, window, rate) >= 1e-6 * (1 - 1e-6)


def test_failures_count_within_the_window_alone() -> None:
    """So many within the window are enough, the same number over a longer time is not.

    One catastrophe is.
    """
    threshold = FallbackThreshold(acceptable=1e-3, window=1000)
    assert threshold.failures == 10
    assert [threshold.failed(token=at * 10) for at in range(10)] == [False] * 9 + [True]
    spread = FallbackThreshold(acceptable=1e-3, window=1000)
    assert not any(spread.failed(token=at * 112) for at in range(100))
    assert spread.failed(token=20_000, failure=FailureClass.CATASTROPHIC)
    for wrong in (
        {"acceptable": 0.0},
        {"window": 0},
        {"error": 1.0},
        {"acceptable": 0.9, "window": 2},
    ):
        with pytest.raises(Misused):
            FallbackThreshold(**wrong)
