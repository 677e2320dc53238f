"""Barrier that says who is missing, that may be tried again, and that opens for all of its ranks or
for none.

Every arrival is a key of its own: the view (every rank's epoch), the sequence number, the rank. So
whoever arrives again has arrived once; a rank that began again belongs to another view, where
nobody has arrived yet; and whether a barrier opened or broke is claimed once in the store, so that
a rank that gives up cannot leave others believing it is there.

Who takes part, and as which start of itself, is a rank's `Membership`; the view follows from all
of them.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict

from .loops import Waits
from .problem import BarrierBroken, Misused
from .records import BarrierStatus, SyncState
from .store import SharedStore, next_epoch


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """Epochs of all ranks at one time. Ranks are in step under one view only.

    Attributes:
        epochs: by rank.
    """

    epochs: tuple[int, ...]

    @property
    def name(self) -> str:
        """Short, and another one for other epochs."""
        return hashlib.sha256(repr(self.epochs).encode()).hexdigest()[:16]


class Membership:
    """One rank's place in a group.

    Args:
        store: what the ranks share.
        group: the group's name.
        rank, world_size: of this rank.

    Attributes:
        epoch: how often this rank has begun, this time included: the first is 1.
    """

    def __init__(
        self, *, store: SharedStore, rank: int, world_size: int, group: str = "world"
    ) -> None:
        if not 0 <= rank < world_size:
            raise Misused(f"rank {rank} is not in a group of {world_size}")
        self.store = store
        self.group = group
        self.rank = rank
        self.world_size = world_size
        self.epoch = next_epoch(store, f"{group}/{rank}")

    def epochs(self) -> tuple[int, ...]:
        """Return the epoch of every rank now; 0 for one that has not begun."""
        return tuple(
            int(self.store.get(f"epoch/{self.group}/{rank}") or b"0")
            for rank in range(self.world_size)
        )

    def view(self) -> GroupView | None:
        """Return the view now; None while a rank has not begun."""
        epochs = self.epochs()
        return GroupView(epochs=epochs) if all(epochs) else None


FIRST_LOOK = 0.0005
LAST_LOOK = 0.02
"""Seconds between two looks at the store: they become longer while nothing happens."""


@dataclass(frozen=True, kw_only=True)
class SyncResult:
    """Result of a barrier that opened.

    Attributes:
        state: how it stood; nobody is missing.
        sequence: its number under this view, from 0.
        seconds: how long this rank waited.
        tries: how many timeouts began, 1 where none passed.
    """

    state: SyncState
    sequence: int
    seconds: float
    tries: int


class BreakClaim(TypedDict):
    """Value of the key `decided` of a barrier that is broken; of one that is open it is `open`.

    Attributes:
        by: the rank that wrote it.
        missing: the ranks that it names.
        words: what these did, as part of a sentence.
    """

    by: int
    missing: list[int]
    words: str


class DistributedBarrier:
    """One rank's side.

    Args:
        membership: this rank's place in its group. Make one at each start of a process.
        name: the barrier's.

    Attributes:
        sequence: the number of the barrier that is next, or is waited for.
    """

    def __init__(self, *, membership: Membership, name: str = "barrier") -> None:
        self._membership = membership
        self._store = membership.store
        self._name = name
        self._view: GroupView | None = None
        self.sequence = 0
        self._arrived = False
        # One waits at a time: a number that two threads waited for would be passed twice. `renew`
        # waits for whoever does.
        self._lock = threading.Lock()
        self._waits = Waits()

    # Steps that wait for nothing: what a property test drives.

    def arrive(self) -> bool:
        """Say that this rank is there; as often as one likes.

        False while some rank has not begun at all.
        """
        return not self._absent()

    def _absent(self) -> tuple[int, ...]:
        """Arrive; or who has not begun at all, so that there is nothing to arrive at yet.

        Told by one look at the store: with a second, somebody who begins in between would make the
        barrier look open.
        """
        if self._view is None:
            epochs = self._membership.epochs()
            if not all(epochs):
                return tuple(rank for rank, epoch in enumerate(epochs) if not epoch)
            self._view = GroupView(epochs=epochs)
        if not self._arrived:
            self._store.set(self._key(self._membership.rank), b"1")
            self._arrived = True
        return ()

    def look(self) -> tuple[int, ...]:
        """Who is missing now; nobody: the barrier has opened, and the next one has the next number.

        Raises:
            BarrierBroken: it will not open: a rank gave up, or began again.
        """
        if absent := self._absent():
            return absent
        decided = self._store.get(self._key("decided"))
        if decided is None:
            missing = self._missing()
            if not missing:
                decided = self._store.claim(self._key("decided"), b"open")
            elif (restarted := self._restarted()) is not None:
                decided = self._break(missing=restarted, words="restarted")
            else:
                return missing
        if decided == b"open":
            self._passed()
            return ()
        raise self._broken(decided)

    def give_up(self) -> None:
        """Break the barrier for everybody, unless it has opened: then this returns as if it had
        been looked at.

        Raises:
            BarrierBroken: it names who is missing.
        """
        if absent := self._absent():
            raise BarrierBroken(f"{self._title()}: {_ranks(absent)} never started", missing=absent)
        if self._store.get(self._key("decided")) is None and (missing := self._missing()):
            self._break(missing=missing, words="did not arrive")
        self.look()

    def _key(self, last: object) -> str:
        assert self._view is not None
        group = self._membership.group
        return f"barrier/{group}/{self._name}/{self._view.name}/{self.sequence}/{last}"

    def _title(self) -> str:
        return f"barrier {self._name!r} number {self.sequence} of {self._membership.group!r}"

    def _missing(self) -> tuple[int, ...]:
        ranks = range(self._membership.world_size)
        return tuple(rank for rank in ranks if self._store.get(self._key(rank)) is None)

    def _restarted(self) -> tuple[int, ...] | None:
        assert self._view is not None
        now = self._membership.epochs()
        known = self._view.epochs
        return tuple(rank for rank, epoch in enumerate(now) if epoch != known[rank]) or None

    def _break(self, *, missing: tuple[int, ...], words: str) -> bytes:
        claim = BreakClaim(by=self._membership.rank, missing=list(missing), words=words)
        # Claimed, not set: of two ranks that give up at once, or of one that gives up while the
        # last arrives, all read the first.
        return self._store.claim(self._key("decided"), json.dumps(claim).encode())

    def _broken(self, decided: bytes) -> BarrierBroken:
        claim: BreakClaim = json.loads(decided)
        missing = tuple(claim["missing"])
        words = (
            f"{self._title()} is broken for all ranks: {_ranks(missing)} {claim['words']}"
            f" (reported by rank {claim['by']})"
        )
        if claim["words"] == "restarted":
            words += "; every rank must call renew()"
        self.sequence += 1
        self._arrived = False
        return BarrierBroken(words, missing=missing)

    def _passed(self) -> None:
        # All have arrived at this one, so nobody looks at the one before any more. This one's keys
        # stay until the next is passed: another rank may still have to read them.
        self.sequence -= 1
        if self.sequence >= 0:
            self._store.delete(self._key(self._membership.rank))
            if self._membership.rank == 0:
                self._store.delete(self._key("decided"))
        self.sequence += 2
        self._arrived = False

    def renew(self) -> None:
        """Begin at number 0 under the view that there is now: every rank has to, after one of them
        began again.
        """
        with self._lock:
            self._view = None
            self.sequence = 0
            self._arrived = False

    def state(self, *, remaining: float = 0.0) -> SyncState:
        """How it stands, for people and records; `remaining` in seconds."""
        if self._view is None:
            return self._state(tuple(range(self._membership.world_size)), remaining)
        return self._state(self._missing(), remaining)

    def _state(self, missing: tuple[int, ...], remaining: float) -> SyncState:
        status = BarrierStatus.COMPLETE
        if missing:
            status = BarrierStatus.WAITING if remaining > 0 else BarrierStatus.TIMED_OUT
        ranks = range(self._membership.world_size)
        return SyncState(
            participating_devices=tuple(f"rank {rank}" for rank in ranks),
            sync_timestamp=datetime.now(UTC),
            barrier_status=status,
            timeout_remaining=max(0.0, remaining),
            name=self._name,
            sequence=self.sequence,
            epoch=self._membership.epoch,
            missing=missing,
        )

    # What waits.

    def wait(self, *, timeout: float, retry_count: int = 0) -> SyncResult:
        """Wait until all ranks are there.

        Args:
            timeout: seconds of one try.
            retry_count: tries after the first. A try is a longer wait for the same number: nothing
                is sent twice.

        Raises:
            BarrierBroken: not all came; it names who is missing. All ranks hear so, also those that
                come later.
        """
        result = self._waited(timeout, retry_count, threading.Event())
        assert result is not None  # nobody sets the event
        return result

    def _waited(self, timeout: float, retry_count: int, left: threading.Event) -> SyncResult | None:
        """Wait, until nobody waits for it any more: then it is broken for nobody, and may be waited
        for again.
        """
        # Not `<= 0`: nothing compares with NaN, and such a wait would not end.
        if not timeout > 0 or retry_count < 0:
            raise Misused(
                f"a barrier needs a timeout above 0 s and 0 or more retries, not {timeout:g} s and"
                f" {retry_count}"
            )
        with self._lock:
            begin = time.monotonic()
            number = self.sequence
            pause = FIRST_LOOK
            until = begin + timeout * (retry_count + 1)
            while self.look():
                if left.is_set():
                    return None
                now = time.monotonic()
                if now >= until:
                    self.give_up()
                    break
                left.wait(min(pause, until - now))
                pause = min(2 * pause, LAST_LOOK)
            seconds = time.monotonic() - begin
            remaining = timeout * (retry_count + 1) - seconds
            tries = min(retry_count, int(seconds / timeout)) + 1
            return SyncResult(
                state=self._state((), remaining), sequence=number, seconds=seconds, tries=tries
            )

    # The name and the arguments that were asked for; asyncio.timeout serves too.
    async def sync_with_timeout(
        self,
        timeout: float,  # noqa: ASYNC109
        retry_count: int = 0,
    ) -> SyncResult:
        """`wait`, for callers that run an event loop.

        Who is cancelled has arrived, and may wait for it again.
        """
        return await self._waits.wait(lambda left: self._waited(timeout, retry_count, left))

    async def validate_sync_state(self) -> bool:
        """Return whether every rank is still the one that this barrier was made with."""
        return await Waits().wait(lambda _: self.is_valid())

    def is_valid(self) -> bool:
        """Return so at once; true before the first barrier if all ranks have begun."""
        now = self._membership.view()
        return now is not None and (self._view is None or now == self._view)


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "ranks " + ", ".join(str(rank) for rank in ranks)
