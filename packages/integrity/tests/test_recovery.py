"""Recovery by a plan: in its order, as often as it says, all of it written down, and never without
an end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rankproof_integrity.problem import Misused
from rankproof_integrity.records import FailureClass, RecoveryAction
from rankproof_integrity.recovery import (
    PLAN,
    Attempt,
    FailureMode,
    RecoveryManager,
    RecoveryOutcome,
    RecoveryResult,
)

STEPS = sorted({step for steps in PLAN.values() for step in steps})
TRANSIENT = FailureMode(failure=FailureClass.TRANSIENT, position=7, words="a bit was flipped")


class Recovering(RuleBasedStateMachine):
    """Failures of every class at a few places, and actions that work or do not, by chance."""

    @initialize(
        budget=st.integers(1, 12),
        actions=st.sets(st.sampled_from(STEPS), min_size=1),
        works=st.lists(st.booleans()),
    )
    def begin(self, budget: int, actions: set[RecoveryAction], works: list[bool]) -> None:
        self.budget, self.able, self.works = budget, actions, works
        self.called: list[tuple[RecoveryAction, int]] = []
        self.waits: list[float] = []
        self.told: list[Attempt] = []
        self.tried: Counter[tuple[int, FailureClass]] = Counter()
        self.manager = RecoveryManager(
            actions={one: self.action(one) for one in actions},
            budget=budget,
            wait=self.waits.append,
            recorded=self.told.append,
        )

    def action(self, name: RecoveryAction):  # type: ignore[no-untyped-def]
        def act(mode: FailureMode, number: int) -> None:
            self.called.append((name, number))
            if not (self.works.pop() if self.works else False):
                raise OSError(f"{name} did not work at {mode.position}")

        return act

    @rule(position=st.integers(0, 2), failure=st.sampled_from(FailureClass))
    def fail(self, position: int, failure: FailureClass) -> None:
        before, spent = len(self.called), self.tried[position, failure]
        plan = [step for step in PLAN[failure] if step in self.able]
        result = self.manager.recover(FailureMode(failure=failure, position=position))
        made = [name for name, _ in self.called[before:]]
        assert made == plan[spent : spent + len(made)], (
            "in the order of the plan, from where it was left"
        )
        assert [one.action for one in result.attempts] == made
        assert [one.outcome for one in result.attempts[:-1]] == [RecoveryOutcome.FAILED] * max(
            0, len(made) - 1
        )
        assert result.recovered is (
            bool(made) and result.attempts[-1].outcome is RecoveryOutcome.RECOVERED
        )
        self.tried[position, failure] += len(made)
        if not result.recovered:
            assert result.words
            assert self.tried[position, failure] == len(plan) or len(self.called) == self.budget

    @invariant()
    def it_ends(self) -> None:
        if not hasattr(self, "manager"):
            return
        assert len(self.called) <= self.budget
        assert [number for _, number in self.called] == list(range(1, len(self.called) + 1))
        assert self.manager.attempts == self.told
        assert [one.action for one in self.told] == [name for name, _ in self.called]
        assert self.waits == [one.waited for one in self.told if one.waited]
        assert all(bool(one.words) is (one.outcome is RecoveryOutcome.FAILED) for one in self.told)
        assert self.manager.left == self.budget - len(self.called)


Recovering.TestCase.settings = settings(
    max_examples=settings().max_examples // 2, stateful_step_count=8
)
TestRecovering = Recovering.TestCase
TestRecovering.__doc__ = (
    "Whatever fails, and whatever helps: in the order of the plan, bounded, and all of it recorded."
)


def working(mode: FailureMode, number: int) -> None:
    pass


def failing(mode: FailureMode, number: int) -> None:
    raise OSError("still the same")


def test_what_comes_back_ends() -> None:
    """A failure that returns after each recovery goes on in its plan, with longer waits, and is
    exhausted at last.
    """
    waits: list[float] = []
    manager = RecoveryManager(actions=dict.fromkeys(STEPS, working), wait=waits.append)
    results = [manager.recover(TRANSIENT) for _ in range(6)]
    assert [one.recovered for one in results] == [True] * 5 + [False]
    assert [one.action for one in manager.attempts] == list(PLAN[FailureClass.TRANSIENT])
    assert waits == [0.05, 0.1]
    assert "all 5 steps against a transient failure" in results[-1].words


def test_an_interrupted_attempt_is_recorded_and_counted() -> None:
    """Ctrl-C inside of an action passes through, and was an attempt."""

    def interrupted(mode: FailureMode, number: int) -> None:
        raise KeyboardInterrupt

    manager = RecoveryManager(actions={RecoveryAction.FALL_BACK: interrupted})
    with pytest.raises(KeyboardInterrupt):
        manager.recover(FailureMode(failure=FailureClass.CATASTROPHIC, position=0))
    assert [(one.outcome, one.words) for one in manager.attempts] == [
        (RecoveryOutcome.FAILED, "interrupted")
    ]
    assert not manager.recover(FailureMode(failure=FailureClass.CATASTROPHIC, position=0)).recovered


@pytest.mark.parametrize("beside", [False, True], ids=["plain", "in a loop of its own"])
def test_no_recovery_begins_inside_of_another(*, beside: bool) -> None:
    """An action that recovers would wait for itself: it is an error of its own, and the next step
    is taken.
    """
    manager: RecoveryManager

    def again(mode: FailureMode, number: int) -> None:
        if beside:
            asyncio.run(manager.recover_from_corruption(mode))
        manager.recover(mode)

    manager = RecoveryManager(
        actions={RecoveryAction.RESTART_STAGE: again, RecoveryAction.FALL_BACK: working}
    )
    assert asyncio.run(manager.reinitialize_pipeline(["rank 1"], position=3))
    assert [one.outcome for one in manager.attempts] == [
        RecoveryOutcome.FAILED,
        RecoveryOutcome.RECOVERED,
    ]
    assert "inside another one" in manager.attempts[0].words
    assert manager.attempts[0].mode.nodes == ("rank 1",)
    assert manager.attempts[0].mode.position == 3


def test_the_loop_goes_on_while_a_stream_recovers() -> None:
    """The coroutine waits in a thread: the action ends by what the loop does meanwhile."""
    done = threading.Event()

    async def both() -> RecoveryResult:
        recovering = asyncio.create_task(manager.recover_from_corruption(TRANSIENT))
        await asyncio.sleep(0)
        done.set()
        return await recovering

    def waits(mode: FailureMode, number: int) -> None:
        assert done.wait(30)

    manager = RecoveryManager(actions={RecoveryAction.REGENERATE: waits})
    assert asyncio.run(both()).recovered


def test_a_manager_that_can_do_nothing_is_refused() -> None:
    """No action, no budget, or a step that is done on the spot: a slip of whoever makes it."""
    with pytest.raises(Misused):
        RecoveryManager(actions={})
    with pytest.raises(Misused):
        RecoveryManager(actions={RecoveryAction.REGENERATE: failing}, budget=0)
    with pytest.raises(Misused, match="discard"):
        RecoveryManager(actions={RecoveryAction.DISCARD: failing})
