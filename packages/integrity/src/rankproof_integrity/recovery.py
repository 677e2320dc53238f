"""RecoveryManager: do something against a failure, step by step, so often and not once more, and
write it down.

What an engine can do (make tokens again, restart a stage, …) it gives as functions. Which of them
is called follows from the class of the failure, in the order of a plan. Attempts are counted for
each place of a stream, and for the stream: a failure that comes back at its place goes on in the
plan where it was, it does not begin anew. So what cannot be mended ends, after a number of attempts
that is known beforehand.

No collective is tried again on one rank alone: every attempt has a number that no other has, which
the engine takes for the epoch, so that all ranks do the same and whatever is still under way from
before is known as stale.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from .metrics import Metrics
from .problem import Misused
from .records import FailureClass, NodeId, RecoveryAction, ValidationError

_RETRY = RecoveryAction.REGENERATE
_RESTART = RecoveryAction.RESTART_STAGE
_ANEW = RecoveryAction.REINITIALIZE_DEVICE
_ALONE = RecoveryAction.FALL_BACK

PLAN: Mapping[FailureClass, tuple[RecoveryAction, ...]] = {
    FailureClass.TRANSIENT: (_RETRY, _RETRY, _RETRY, _RESTART, _ALONE),
    FailureClass.PERSISTENT: (_RESTART, _ANEW, _ALONE),
    FailureClass.CATASTROPHIC: (_ALONE,),
}
"""What is tried against each class, in this order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureMode:
    """Failure, and where it is.

    Attributes:
        failure: its class.
        position: of the first token of the stream that is not good.
        nodes: those that it is about; empty where nobody knows.
        error_type: what a validator said, where one did.
        words: what happened.
    """

    failure: FailureClass
    position: int
    nodes: tuple[NodeId, ...] = ()
    error_type: ValidationError | None = None
    words: str = ""


class RecoveryOutcome(StrEnum):
    """Of an attempt or a recovery: it worked, it did not, or there was nothing left to try."""

    RECOVERED = "recovered"
    FAILED = "failed"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One thing that was tried.

    Attributes:
        number: from 1 over the whole life of the manager; never the same twice. Take it for the
            epoch.
        action: what was tried.
        mode: against what.
        waited, seconds: before it, and in it; by the monotonic clock of this host.
        outcome: recovered or failed.
        words: the error's type and text, where it failed.
    """

    number: int
    action: RecoveryAction
    mode: FailureMode
    waited: float
    seconds: float
    outcome: RecoveryOutcome
    words: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecoveryResult:
    """How a recovery ended.

    Attributes:
        outcome: recovered or exhausted.
        attempts: what was tried for it now.
        words: why nothing more is tried, where it is exhausted.
    """

    outcome: RecoveryOutcome
    attempts: tuple[Attempt, ...]
    words: str = ""

    @property
    def recovered(self) -> bool:
        """Return whether the stream can go on."""
        return self.outcome is RecoveryOutcome.RECOVERED


Action = Callable[[FailureMode, int], object]
"""What an engine does: the failure and the attempt's number in.

Whatever it raises says that it did not work.
"""


_AROUND: ContextVar[tuple[RecoveryManager, ...]] = ContextVar("_AROUND", default=())
"""Managers whose actions are under way around here.

A recovery inside of an action would wait for itself for ever. A context, because `asyncio.to_thread`
hands it to its thread.
"""


class RecoveryManager:
    """Recovers one stream. May be called by several threads; they take turns.

    Args:
        actions: what the engine can do. Steps of the plan that it lacks are left out.
        plan: what is tried against each class, in order.
        budget: attempts for the whole stream; when they are spent, nothing is tried any more.
        first_wait, longest_wait: seconds before the second attempt of one kind at one place,
            doubled at each further one up to the longest. Before the first nothing is waited.
        wait: how to wait; an engine that has to be woken at its end gives its own.
        recorded: called with every attempt when it is over.
        metrics: counts attempts and their seconds.

    Raises:
        Misused: a plan or action that is not one of `regenerate` to `fall-back`, or a budget below
            1.
    """

    # Eight arguments: what is done (2), how often and after which waits (4), who is told (2).
    def __init__(
        self,
        *,
        actions: Mapping[RecoveryAction, Action],
        plan: Mapping[FailureClass, Sequence[RecoveryAction]] = PLAN,
        budget: int = 16,
        first_wait: float = 0.05,
        longest_wait: float = 2.0,
        wait: Callable[[float], object] = time.sleep,
        recorded: Callable[[Attempt], object] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        if budget < 1 or not actions:
            raise Misused(
                f"a recovery needs at least one attempt and one action, not {budget} attempts and"
                f" {len(actions)} actions"
            )
        steps = {*actions, *(step for steps in plan.values() for step in steps)}
        if wrong := sorted(steps - {_RETRY, _RESTART, _ANEW, _ALONE}):
            raise Misused(
                f"a plan cannot contain {', '.join(wrong)}; take such steps without a"
                " RecoveryManager"
            )
        self._plan = {
            failure: tuple(step for step in plan.get(failure, ()) if step in actions)
            for failure in FailureClass
        }
        self._actions = dict(actions)
        self._budget = budget
        self._wait = wait
        self._recorded = recorded
        self._first = first_wait
        self._longest = longest_wait
        self._metrics = metrics
        # One recovery at a time: attempts have numbers that no two share, and a plan goes on where
        # it was.
        self._lock = threading.Lock()
        # Which step of the plan comes next, by place.
        self._next: Counter[tuple[int, FailureClass]] = Counter()
        self.attempts: list[Attempt] = []

    @property
    def left(self) -> int:
        """How many attempts this stream may still have."""
        return self._budget - len(self.attempts)

    def recover(self, failure_mode: FailureMode) -> RecoveryResult:
        """Try what the plan has against this, until something works or nothing is left.

        A step that does not raise has worked: an engine validates again inside of it, and raises
        where it has to.

        Returns:
            Recovered or exhausted, with what was tried. Exhausted is for the engine to tell its
            user, as one error.

        Raises:
            Misused: called from inside of an action.
        """
        around = _AROUND.get()
        if self in around:
            raise Misused(
                "a recovery cannot begin inside another one; let the action raise, so that the"
                " recovery takes the next step"
            )
        with self._lock:
            token = _AROUND.set((*around, self))
            try:
                return self._recover(failure_mode)
            finally:
                _AROUND.reset(token)

    async def recover_from_corruption(self, failure_mode: FailureMode) -> RecoveryResult:
        """`recover` in a thread, for callers that run an event loop.

        A recovery whose caller is cancelled goes on: half of one would leave the pipeline between
        two steps.
        """
        import asyncio  # here, so that whoever has no loop does not load it

        return await asyncio.to_thread(self.recover, failure_mode)

    async def reinitialize_pipeline(
        self, affected_nodes: Sequence[NodeId], *, position: int = 0
    ) -> bool:
        """Have these nodes made anew, within the budget; gives whether that worked.

        Args:
            affected_nodes: to be made anew.
            position: of the first token that is not good; attempts are counted for each.

        Raises:
            Misused: called from inside of an action.
        """
        mode = FailureMode(
            failure=FailureClass.PERSISTENT,
            position=position,
            nodes=tuple(affected_nodes),
            words="requested by the engine",
        )
        return (await self.recover_from_corruption(mode)).recovered

    def _recover(self, mode: FailureMode) -> RecoveryResult:
        done: list[Attempt] = []
        place = (mode.position, mode.failure)
        steps = self._plan[mode.failure]
        while self._next[place] < len(steps) and self.left > 0:
            step = self._next[place]
            self._next[place] += 1  # before the attempt: whatever ends it, it was one
            attempt = self._attempt(mode, steps[step], turn=steps[:step].count(steps[step]))
            done.append(attempt)
            if attempt.outcome is RecoveryOutcome.RECOVERED:
                return RecoveryResult(outcome=RecoveryOutcome.RECOVERED, attempts=tuple(done))
        spent = f"all {len(steps)} steps against a {mode.failure} failure were tried"
        if self.left <= 0:
            spent = f"all {len(self.attempts)} attempts of this stream were used"
        words = f"position {mode.position}: {spent}"
        return RecoveryResult(outcome=RecoveryOutcome.EXHAUSTED, attempts=tuple(done), words=words)

    def _attempt(self, mode: FailureMode, action: RecoveryAction, *, turn: int) -> Attempt:
        pause = min(self._longest, self._first * 2 ** (turn - 1)) if turn else 0.0
        if pause:
            self._wait(pause)
        outcome = RecoveryOutcome.FAILED
        words = "interrupted"
        begin = time.monotonic()
        number = len(self.attempts) + 1
        try:
            self._actions[action](mode, number)
            outcome = RecoveryOutcome.RECOVERED
            words = ""
        # Whatever an engine raises, the next step is there for.
        except Exception as error:  # noqa: BLE001
            words = f"{type(error).__name__}: {error}"
        finally:
            attempt = Attempt(
                number=number,
                action=action,
                mode=mode,
                waited=pause,
                seconds=time.monotonic() - begin,
                outcome=outcome,
                words=words,
            )
            self.attempts.append(attempt)
            if self._metrics is not None:
                self._metrics.count("integrity_recoveries_total", action=action, outcome=outcome)
                self._metrics.observe("integrity_recovery_seconds", attempt.seconds, action=action)
            if self._recorded is not None:
                self._recorded(attempt)
        return attempt
