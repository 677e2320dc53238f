"""Which rule strikes which request.

One place that counts, so that the same requests meet the same faults.

And what a rule makes of a true answer.
"""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from harness.forms.digest import sha256
from harness.hub import rules
from harness.hub.protocol import Answer, failure
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
    """The rules with their counts.

    Not thread-safe: the hub asks from its one thread, in the order of arrival.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._matched: Counter[tuple[str, str]] = Counter()
        self._struck: Counter[tuple[str, str]] = Counter()
        self._same: Counter[tuple[str, str, str]] = Counter()
        self._spent: dict[tuple[str, str], tuple[int, int]] = {}

    def judge(
        self,
        *,
        client: str,
        method: str,
        address: str,
        target: Target,
        at: float,
        changes: Callable[[Rule], bool],
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
        """Return whether a rule strikes a request that matches.

        For a quota the seconds left of its window.
        """
        when = rule.when
        key = (rule.id, "" if when.shared else client)
        self._matched[key] += 1
        same = (rule.id, client, request)
        self._same[same] += 1
        if (
            when.requests is not None
            and not when.requests[0] <= self._matched[key] <= when.requests[1]
        ):
            return False
        if when.seconds is not None and not when.seconds[0] <= at <= when.seconds[1]:
            return False
        # The number is that of equal requests of one client: threads of a client may swap places,
        # not this count.
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
    """Return a number from 0 up to 1 that follows from its parts alone."""
    return int(sha256("\0".join(map(str, parts)).encode())[:14], 16) / (1 << 56)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An answer as it will be sent.

    Attributes:
        answer: what to send; None: nothing at all.
        announced: Content-Length.
        sent: bytes of the body to send (for GET).
        then: what happens to the connection afterwards.
        flipped: offset of the byte to change in the body, or None.
        refuse: seconds for which the hub refuses connections afterwards.
    """

    answer: Answer | None
    announced: int = 0
    sent: int = 0
    then: Literal["keep", "close", "reset"] = "keep"
    flipped: int | None = None
    refuse: float | None = None


def truly(answer: Answer) -> Outgoing:
    """Send an answer as it is."""
    return Outgoing(answer, answer.length, answer.length)


def changes(rule: rules.Rule, answer: Answer) -> bool:
    """Return whether a rule would change this answer.

    A strike that changes nothing would not be evidence of a fault.
    """
    match rule.answer:
        case rules.Truncate() | rules.Short() | rules.WrongBytes():
            return answer.length > 0
        case rules.WrongEtag():
            return "ETag" in answer.headers
        case _:
            return True


def spoiled(struck: Struck, answer: Answer, *, target: Target, commit: str | None) -> Outgoing:
    """Apply the rule that struck to the true answer.

    Args:
        struck: what the rules said; without a rule the answer stays true.
        answer: the true answer.
        target: what was asked for.
        commit: of the revision asked for, or None.
    """
    if struck.rule is None:
        return truly(answer)
    match struck.rule.answer:
        case rules.Missing() | rules.RateLimit() | rules.ServerError() as wrong:
            return truly(_refusal(wrong, struck, target, commit))
        case rules.Reset() | rules.Refuse() as wrong:
            return Outgoing(
                None,
                then="reset",
                refuse=wrong.lasting if isinstance(wrong, rules.Refuse) else None,
            )
        case rules.Close():
            return Outgoing(None, then="close")
        case rules.Truncate() as wrong:
            cut = wrong.after if wrong.after is not None else int(answer.length * wrong.share)
            return Outgoing(answer, answer.length, min(cut, answer.length - 1), wrong.ending)
        case rules.Short() as wrong:
            kept = int(answer.length * wrong.share)
            return Outgoing(answer, kept, kept)
        case rules.WrongEtag() as wrong:
            return truly(_another_etag(wrong, answer))
        case rules.WrongBytes(text=None):
            return replace(truly(answer), flipped=answer.length // 2)
        case rules.WrongBytes() as wrong:
            return truly(Answer(answer.status, answer.headers, (wrong.text or "").encode()))
        case rules.Latency():
            return truly(answer)


def _refusal(
    wrong: rules.Missing | rules.RateLimit | rules.ServerError,
    struck: Struck,
    target: Target,
    commit: str | None,
) -> Answer:
    if isinstance(wrong, rules.Missing):
        code = None if wrong.code == "none" else wrong.code
        return failure(404, "Entry not found", code=code, commit=commit if wrong.commit else None)
    if isinstance(wrong, rules.RateLimit):
        return _rate_limited(wrong, struck, target)
    no = failure(
        wrong.status, "Internal Error - We're working hard to fix this as soon as possible!"
    )
    if wrong.retry_after is not None:
        no.headers["Retry-After"] = str(math.ceil(wrong.retry_after))
    return no


def _rate_limited(wrong: rules.RateLimit, struck: Struck, target: Target) -> Answer:
    no = failure(429, "Too Many Requests")
    left = math.ceil(struck.left if struck.left is not None else wrong.reset)
    if wrong.headers in {"ratelimit", "both"}:
        kind = "resolvers" if target.kind == "resolve" else "api"
        no.headers["RateLimit"] = f'"{kind}";r=0;t={left}'
        when = struck.rule.when if struck.rule is not None else None
        if when is not None and when.quota is not None and when.window is not None:
            window = math.ceil(when.window)
            no.headers["RateLimit-Policy"] = f'"fixed window";"{kind}";q={when.quota};w={window}'
    if wrong.headers in {"retry-after", "both"}:
        no.headers["Retry-After"] = str(left)
    return no


def _another_etag(wrong: rules.WrongEtag, answer: Answer) -> Answer:
    true = answer.headers["ETag"].strip('"')
    etag = wrong.etag
    if etag is None:
        # As long as the true one, so that only comparing bytes with digests can tell.
        etag = true[::-1] if true != true[::-1] else "0" * len(true)
    headers = {**answer.headers, "ETag": f'"{etag}"'}
    if "X-Linked-Etag" in headers:
        headers["X-Linked-Etag"] = f'"{etag}"'
    return replace(answer, headers=headers)
