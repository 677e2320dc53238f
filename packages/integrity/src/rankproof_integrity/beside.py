"""ValidationBeside: validation in a thread beside the token path, which never waits for it.

Where the thread falls behind, that is said, with what was not validated. It is never counted as
valid.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Self, TypeVar

from .metrics import Metrics
from .problem import Misused
from .validation import ValidationResult

Item = TypeVar("Item")
MOST_KEPT = 1000  # failures that are kept; further ones are counted


@dataclass(frozen=True, kw_only=True, slots=True)
class Behind:
    """A stretch that was not validated: the queue was full.

    Attributes:
        first, last: numbers of the items, from 0, in the order they were offered.
        since: the monotonic clock when the first of them was offered, in seconds.
    """

    first: int
    last: int
    since: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """What became of everything that was offered.

    Attributes:
        offered, validated: how many items, and how many were looked at; where that is less, not all
            is known.
        failures: number of the item and what does not hold of it, at most a thousand; `failed`
            counts all.
        behind: what was passed over.
        error: why the validation itself ended, where it raised: what came after is not validated.
        seconds: time of the thread in the validation.
    """

    offered: int
    validated: int
    failed: int
    failures: tuple[tuple[int, ValidationResult], ...]
    behind: tuple[Behind, ...]
    error: BaseException | None
    seconds: float

    @property
    def is_valid(self) -> bool:
        """Return whether everything that was offered was validated and is valid, and there was
        something.
        """
        return 0 < self.offered == self.validated and not self.failed and self.error is None


class ValidationBeside(Generic[Item]):
    """Hands items to a thread that validates them, in their order.

    `offer` is for one thread, that of the tokens; everything else is for any. A thread does not
    outlive a fork: make one in the process that uses it.

    Args:
        check: validates one item, in the thread.
        capacity: items that may wait. When so many do, the next are passed over, until half of them
            are done.
        skipped: called in the thread, in order, with each stretch that was passed over, before the
            item behind it: a check that counts positions is told there that some are missing.
        failed: called in the thread with an item's number and its failure.
        metrics: is told how long after its offer each failure was found.

    Raises:
        Misused: a capacity below 1.
    """

    def __init__(
        self,
        check: Callable[[Item], ValidationResult],
        *,
        capacity: int = 1024,
        skipped: Callable[[Behind], object] | None = None,
        failed: Callable[[int, ValidationResult], object] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        if capacity < 1:
            raise Misused(f"a capacity of {capacity} items validates nothing: give at least 1")
        self._check = check
        self._capacity = capacity
        self._skipped = skipped
        self._told = failed
        self._metrics = metrics
        self._queue: SimpleQueue[tuple[int, float, Item] | Behind | None] = SimpleQueue()
        self._offered = self._passed = self._taken = self._validated = self._failed = 0
        self._first = -1
        self._since = 0.0
        self._failures: list[tuple[int, ValidationResult]] = []
        self._behind: list[Behind] = []
        self._error: BaseException | None = None
        self._seconds = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="validation beside", daemon=True)
        self._thread.start()

    def offer(self, item: Item) -> bool:
        """Hand over an item without waiting; whether it will be validated.

        False once it fell behind, or is closed.
        """
        number = self._offered
        self._offered = number + 1
        # This thread alone writes the first two, the other the third: no lock, and at worst it
        # seems fuller than it is.
        full = number - self._passed - self._taken >= (
            self._capacity if self._first < 0 else (self._capacity + 1) // 2
        )
        if full or self._error is not None or self._closed:
            self._passed += 1
            if self._first < 0:
                self._first, self._since = number, time.monotonic()
            return False
        if self._first >= 0:
            self._caught_up(number - 1)
        self._queue.put((number, time.monotonic(), item))
        return True

    @property
    def fell_behind(self) -> bool:
        """Return whether anything was passed over so far."""
        return self._passed > 0

    @property
    def waiting(self) -> int:
        """How many items wait."""
        return self._offered - self._passed - self._taken

    def close(self, timeout: float = 10.0) -> Account:
        """Take nothing more, validate what waits, for `timeout` seconds at most, and give the
        account of everything.
        """
        if not self._closed:
            self._closed = True
            if self._first >= 0:
                self._caught_up(self._offered - 1)
            self._queue.put(None)
        self._thread.join(timeout)
        return Account(
            offered=self._offered,
            validated=self._validated,
            failed=self._failed,
            failures=tuple(self._failures),
            behind=tuple(self._behind),
            error=self._error,
            seconds=self._seconds,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _caught_up(self, last: int) -> None:
        stretch = Behind(first=self._first, last=last, since=self._since)
        self._behind.append(stretch)
        self._first = -1
        self._queue.put(stretch)

    def _run(self) -> None:
        try:
            while (entry := self._queue.get()) is not None:
                if isinstance(entry, Behind):
                    if self._skipped is not None:
                        self._skipped(entry)
                    continue
                number, since, item = entry
                begin = time.perf_counter()
                result = self._check(item)
                self._seconds += time.perf_counter() - begin
                self._validated += result.checked
                if not result.is_valid:
                    self._failed += 1
                    if self._metrics is not None:
                        self._metrics.observe(
                            "integrity_detection_seconds", time.monotonic() - since
                        )
                    if len(self._failures) < MOST_KEPT:
                        self._failures.append((number, result))
                    if self._told is not None:
                        self._told(number, result)
                self._taken += 1
        # Told in the account; a thread has nobody to raise to.
        except BaseException as error:  # noqa: BLE001
            self._error = error
