"""FallbackCoordinator: all ranks go over to one device at the same token, or are told that they are
left out.

A rank that falls back by itself leaves the others waiting in a collective. So nobody acts before
there is a decision, there is one for each generation of the group, and all read the same: the first
that is written stands. A rank that does not answer in time is named in it as missing. When it turns
up later, it reads that it is left out, and does not take part. Back to many devices goes only who
asks for it, and only with every rank.

When it is time to, `FallbackThreshold` works out from the failures that are accepted.
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Collection
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TypedDict

from .metrics import Metrics
from .problem import IntegrityError, Misused
from .records import FailureClass
from .store import SharedStore

FIRST_LOOK = 0.001
LAST_LOOK = 0.05


class Mode(StrEnum):
    """How the group generates: over all its devices, or on one of them."""

    DISTRIBUTED = "distributed"
    SINGLE = "single"


@dataclass(frozen=True, kw_only=True, slots=True)
class FallbackDecision:
    """Decision that stands for a generation of the group; the same for whoever reads it.

    Attributes:
        generation: how often the group had gone back to all its devices before.
        mode: how it generates from now on.
        position: the first token that is made so: what every participant had before it is verified.
        participants, missing: ranks that answered in time, and those that did not.
        device: the rank that generates alone; null where the mode is distributed.
        reason: of whoever asked for it.
    """

    generation: int
    mode: Mode
    position: int
    participants: tuple[int, ...]
    missing: tuple[int, ...]
    device: int | None
    reason: str


class FallbackProposal(TypedDict):
    """Request of a rank for the fallback, as it stands in the store."""

    rank: int
    position: int
    reason: str


class LeftOut(IntegrityError):
    """Raised where the others decided without this rank: it has to stop, and may come back when the
    group returns to normal.

    Attributes:
        decision: what they decided.
    """

    failure = FailureClass.CATASTROPHIC

    def __init__(self, words: str, *, decision: FallbackDecision) -> None:
        super().__init__(words)
        self.decision = decision


class FallbackCoordinator:
    """One rank's part in the decision. Not for several threads at once.

    Args:
        store: what all ranks share, from `rankproof_integrity.store`.
        rank, size: who this is, of how many.
        prefer: the rank that generates alone where it answers; else the lowest that does.
        name: of the group, where several share a store.
        metrics: counts the decisions that this rank reads when they are made.

    Attributes:
        mode, generation: as of the last decision that this rank read.
        decisions: all that it read.
    """

    def __init__(
        self,
        store: SharedStore,
        *,
        rank: int,
        size: int,
        prefer: int = 0,
        name: str = "fallback",
        metrics: Metrics | None = None,
    ) -> None:
        if not (0 <= rank < size and 0 <= prefer < size):
            raise Misused(
                f"rank {rank} and the preferred rank {prefer} must both be in the world of {size}"
            )
        self._store = store
        self.rank = rank
        self.size = size
        self._prefer = prefer
        self._name = name
        self.mode = Mode.DISTRIBUTED
        self.generation = 0
        self._requests = 0
        self._metrics = metrics
        self.decisions: list[FallbackDecision] = []
        self._catch_up()

    def propose(self, reason: str, *, position: int) -> str:
        """Ask for the fallback; gives the reason that stands, which is that of whoever asked first.

        Raises:
            Misused: the group is on one device already.
        """
        if self.mode is Mode.SINGLE:
            raise Misused(
                f"rank {self.rank}: the group has already switched to a single device for this"
                " generation"
            )
        proposal = FallbackProposal(rank=self.rank, position=position, reason=reason)
        return _proposal_words(self._once("proposal", json.dumps(proposal)))

    @property
    def proposed(self) -> bool:
        """Return whether somebody asked for the fallback, or, on one device, for the return.

        Does not wait.

        To be looked at by every rank between two tokens, or as often as a token's delay may be
        missed.
        """
        what = "proposal" if self.mode is Mode.DISTRIBUTED else self._return("request")
        return self._get(what) is not None

    def agree(self, *, position: int, timeout: float) -> FallbackDecision:
        """Answer a proposal and wait for the decision, in `timeout` seconds at most and a little.

        Args:
            position: how many tokens this rank has verified.
            timeout: how long the others may take to answer.

        Raises:
            LeftOut: the decision was made without this rank.
            Misused: nobody proposed.
        """
        if self.mode is Mode.SINGLE or not self.proposed:
            raise Misused(
                f"rank {self.rank}: nothing has been proposed yet; call propose, or check proposed"
                " first"
            )
        self._once(f"ready/{self.rank}", str(position))
        answered = self._answers("ready", timeout)
        mine = FallbackDecision(
            generation=self.generation,
            mode=Mode.SINGLE,
            position=min(answered.values()),
            participants=tuple(sorted(answered)),
            missing=tuple(rank for rank in range(self.size) if rank not in answered),
            device=self._device(answered),
            reason=_proposal_words(self._get("proposal") or ""),
        )
        return self._decided("decision", mine)

    def request_return(self, reason: str) -> str:
        """Ask for all devices again; nothing does so by itself. Gives the reason that stands.

        Raises:
            Misused: the group is not on one device.
        """
        if self.mode is Mode.DISTRIBUTED:
            raise Misused(
                f"rank {self.rank}: the group is already generating on all of its devices, so there"
                " is nothing to return to"
            )
        return self._once(self._return("request"), f"rank {self.rank}: {reason}")

    def agree_on_return(self, *, position: int, timeout: float) -> FallbackDecision:
        """Answer a request to return and wait for the decision: distributed if every rank answered,
        else as before.

        A request that fails is spent; the next one may be made at once. A rank that was left out
        answers too. Where the device itself does not answer, another one takes its place: so the
        others go on when it ended.

        Raises:
            Misused: nobody asked.
        """
        if self.mode is Mode.DISTRIBUTED or not self.proposed:
            raise Misused(
                f"rank {self.rank}: no rank has requested a return; call `request_return`, or"
                " check `proposed` before this call"
            )
        self._once(self._return(f"ready/{self.rank}"), str(position))
        answered = self._answers(self._return("ready"), timeout)
        missing = tuple(rank for rank in range(self.size) if rank not in answered)
        before = self.decisions[-1]
        assert before.device is not None  # the mode is single
        device = before.device if before.device in answered else self._device(answered)
        mine = FallbackDecision(
            generation=self.generation,
            mode=Mode.SINGLE if missing else Mode.DISTRIBUTED,
            position=answered[device],
            participants=tuple(sorted(answered)),
            missing=missing,
            device=device if missing else None,
            reason=self._get(self._return("request")) or "",
        )
        return self._decided(self._return("decision"), mine)

    def _device(self, answered: Collection[int]) -> int:
        return self._prefer if self._prefer in answered else min(answered)

    def _answers(self, what: str, timeout: float) -> dict[int, int]:
        """Positions by rank, of those who answered in time."""
        end = time.monotonic() + timeout
        pause = FIRST_LOOK
        while True:
            answers = {rank: self._get(f"{what}/{rank}") for rank in range(self.size)}
            left = end - time.monotonic()
            if None not in answers.values() or left <= 0:
                return {rank: int(answer) for rank, answer in answers.items() if answer is not None}
            time.sleep(min(pause, left))
            pause = min(2 * pause, LAST_LOOK)

    def _decided(self, what: str, mine: FallbackDecision) -> FallbackDecision:
        # The first that is written stands: a rank whose own decision came second takes the other.
        decision = self._read(self._once(what, json.dumps(asdict(mine))))
        self._follow(decision)
        if self._metrics is not None:
            self._metrics.count("integrity_fallbacks_total", mode=decision.mode)
        if self.rank not in decision.participants:
            raise LeftOut(
                f"rank {self.rank} answered too late: ranks"
                f" {', '.join(map(str, decision.participants))} continued without it from position"
                f" {decision.position}, and only rank {decision.device} runs the model now",
                decision=decision,
            )
        return decision

    def _follow(self, decision: FallbackDecision) -> None:
        returning = self.mode is Mode.SINGLE
        self.decisions.append(decision)
        self.mode = decision.mode
        if returning:
            self._requests = 0 if decision.mode is Mode.DISTRIBUTED else self._requests + 1
            self.generation += decision.mode is Mode.DISTRIBUTED

    def _catch_up(self) -> None:
        """Read the decisions that were made before this rank, or after it went away."""
        while (text := self._get(self._decision)) is not None:
            self._follow(self._read(text))

    @property
    def _decision(self) -> str:
        return "decision" if self.mode is Mode.DISTRIBUTED else self._return("decision")

    def _return(self, what: str) -> str:
        return f"return/{self._requests}/{what}"

    def _key(self, what: str) -> str:
        return f"{self._name}/{self.generation}/{what}"

    def _once(self, what: str, value: str) -> str:
        """Return what stands under this key: the value, if nobody wrote one before."""
        return self._store.claim(self._key(what), value.encode()).decode()

    def _get(self, what: str) -> str | None:
        value = self._store.get(self._key(what))
        return None if value is None else value.decode()

    @staticmethod
    def _read(text: str) -> FallbackDecision:
        row = json.loads(text)
        for name in ("participants", "missing"):
            row[name] = tuple(row[name])
        return FallbackDecision(**row | {"mode": Mode(row["mode"])})


def _proposal_words(text: str) -> str:
    proposal: FallbackProposal = json.loads(text)
    return f"rank {proposal['rank']} at position {proposal['position']}: {proposal['reason']}"


class FallbackThreshold:
    """When failures are too many for chance: the number that a good pipeline would reach in one of
    a million windows.

    The threshold follows from what is accepted: with a failure rate of `acceptable` a token, it is
    the smallest number of failures in `window` tokens whose probability is below `error`.

    Args:
        acceptable: failures for each token that are put up with; above 0, below 1.
        window: tokens that are looked back.
        error: how often a pipeline that is as good as accepted may fall back, for each window.

    Attributes:
        failures: the threshold.

    Raises:
        Misused: a number is out of its range, or no number of failures in so short a window is rare
            enough.
    """

    def __init__(
        self, *, acceptable: float = 1e-3, window: int = 1000, error: float = 1e-6
    ) -> None:
        if not (0 < acceptable < 1 and 0 < error < 1 and window > 0):
            raise Misused(
                "acceptable and error must be between 0 and 1, and window above 0, not"
                f" {acceptable}, {error} and {window}"
            )
        self._window = window
        self._seen = deque[int]()  # tokens at which something failed, within the window
        enough = _least(window, acceptable, error)
        if enough > window:
            raise Misused(
                f"at a rate of {acceptable}, even {window} failures in {window} tokens would be"
                " expected; use a larger window"
            )
        self.failures = enough

    def failed(self, *, token: int, failure: FailureClass = FailureClass.TRANSIENT) -> bool:
        """Count a failure; whether it is time to fall back. Of catastrophic ones one is enough.

        Args:
            token: how many tokens were made before it, of all streams: a number that never falls.
            failure: its class.
        """
        self._seen.append(token)
        while self._seen[0] <= token - self._window:
            self._seen.popleft()
        return failure is FailureClass.CATASTROPHIC or len(self._seen) >= self.failures


def _least(trials: int, rate: float, error: float) -> int:
    """Return the least number of failures that is reached, or passed, in independent trials with a
    probability below the error.
    """
    whole = math.lgamma(trials + 1)
    log = math.log(rate)
    other = math.log1p(-rate)
    tail = 0.0
    for k in range(trials, 0, -1):
        tail += math.exp(
            whole
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + k * log
            + (trials - k) * other
        )
        if tail >= error:
            return k + 1
    return 1
