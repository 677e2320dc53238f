"""Which rule strikes which request. One place that counts, so that the same requests meet the same faults."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from harness.forms.digest import sha256
from harness.hub.rules import Latency, Rule, Rules
from harness.hub.target import Target


@dataclass(frozen=True, slots=True)
class Struck:
    """What the rules say about one request.

    Attributes:
        delays: seconds to wait first.
        rule: the rule that gives the answer, or None for a true answer.
        ids: ids of all rules that struck, in order.
        left: seconds until the quota of ``rule`` is fresh again, or None where no quota spoke.
    """

    delays: float = 0.0
    rule: Rule | None = None
    ids: tuple[str, ...] = ()
    left: float | None = None


class Strikes:
    """The rules with their counts. Not thread-safe: the hub asks from its one thread, in the order of arrival."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._matched: Counter[tuple[str, str]] = Counter()
        self._struck: Counter[tuple[str, str]] = Counter()
        self._same: Counter[tuple[str, str, str]] = Counter()
        self._spent: dict[tuple[str, str], tuple[int, int]] = {}

    def judge(
        self, *, client: str, method: str, address: str, target: Target, at: float, changes: Callable[[Rule], bool]
    ) -> Struck:
        """Count a request and say what happens to it.

        Args:
            client: who asks.
            method: HEAD or GET.
            address: path without the client's prefix and without the query.
            target: the parsed address.
            at: seconds since the hub started.
            changes: whether a rule would change the true answer; one that would not does not count.
        """
        delays = 0.0
        ids: list[str] = []
        for rule in self.rules.rules:
            if not _matches(rule, client=client, method=method, target=target) or not changes(rule):
                continue
            left = self._strikes(rule, client=client, request=f"{method} {address}", at=at)
            if left is False:
                continue
            ids.append(rule.id)
            if isinstance(rule.answer, Latency):
                delays += rule.answer.lasting
                continue
            return Struck(delays, rule, tuple(ids), None if left is True else left)
        return Struck(delays, None, tuple(ids))

    def _strikes(self, rule: Rule, *, client: str, request: str, at: float) -> bool | float:
        """Whether a rule strikes a request that matches; for a quota the seconds left of its window."""
        when = rule.when
        key = (rule.id, "" if when.shared else client)
        self._matched[key] += 1
        same = (rule.id, client, request)
        self._same[same] += 1
        if when.requests is not None and not when.requests[0] <= self._matched[key] <= when.requests[1]:
            return False
        if when.seconds is not None and not when.seconds[0] <= at <= when.seconds[1]:
            return False
        # The number is that of equal requests of one client: threads of a client may swap places, not this count.
        if when.probability is not None and not (
            _chance(self.rules.seed, rule.id, client, request, self._same[same]) < when.probability
        ):
            return False
        left: float | None = None
        if when.quota is not None and when.window is not None:
            window = int(at // when.window)
            before, spent = self._spent.get(key, (window, 0))
            spent = spent + 1 if before == window else 1
            self._spent[key] = (window, spent)
            if spent <= when.quota:
                return False
            left = (window + 1) * when.window - at
        if when.times is not None and self._struck[key] >= when.times:
            return False
        self._struck[key] += 1
        return True if left is None else left


def _matches(rule: Rule, *, client: str, method: str, target: Target) -> bool:
    return (
        method in rule.methods
        and ("any" in rule.role or target.role in rule.role)
        and (rule.clients is None or client in rule.clients)
        and (rule.repository is None or fnmatch.fnmatchcase(target.repository, rule.repository))
        and (rule.path is None or fnmatch.fnmatchcase(target.path, rule.path))
    )


def _chance(*parts: object) -> float:
    """A number from 0 up to 1 that follows from its parts alone."""
    return int(sha256("\0".join(map(str, parts)).encode())[:14], 16) / (1 << 56)
