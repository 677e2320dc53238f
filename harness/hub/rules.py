"""Fault rules as data: which requests, which answer instead, when; and which rule strikes which
request. The file is a closed schema.

See docs/hub.md.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from harness.forms import units
from harness.forms.digest import sha256
from harness.forms.model import Id, Model, SchemaVersion
from harness.forms.problem import ScenarioError, complaint
from harness.forms.source import read_source
from harness.forms.validation import parse_model
from harness.hub import RulesError
from harness.hub.request import CLIENT, Roles, Target, one_or_list

T = TypeVar("T")

LONGEST = 86_400.0


def _bounded(seconds: float) -> float:
    if seconds > LONGEST:
        raise complaint("must be at most 24h")
    return seconds


def _client(value: str) -> str:
    if not CLIENT.fullmatch(value):
        raise complaint("must be 1 to 64 letters, digits, '.', '_' or '-', as in /client/NAME")
    return value


Duration = Annotated[units.Duration, AfterValidator(_bounded)]
Listed = Annotated[tuple[T, ...], Strict(False), Field(min_length=1, max_length=1000)]
Methods = Annotated[
    tuple[Literal["HEAD", "GET"], ...],
    Strict(False),
    BeforeValidator(one_or_list),
    Field(min_length=1),
]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Text = Annotated[str, Field(min_length=1, max_length=300)]
OF_A_BODY = frozenset({"truncate", "wrong-bytes"})


class Missing(Model):
    """404: the file does not exist.

    With ``commit`` the answer carries X-Repo-Commit, as the public hub's does, and clients write it
    down for ever.
    """

    kind: Literal["missing"]
    commit: bool = Field(True, description="Whether X-Repo-Commit is sent, as the public hub does.")
    code: Literal["EntryNotFound", "RevisionNotFound", "RepoNotFound", "none"] = Field(
        "EntryNotFound", description="The X-Error-Code."
    )


class RateLimit(Model):
    """429, with the headers the public hub sends (``ratelimit``), a plain Retry-After, both, or
    none.
    """

    kind: Literal["rate-limit"]
    headers: Literal["ratelimit", "retry-after", "both", "none"] = Field(
        "both", description="The headers that say when to try again."
    )
    reset: Duration = Field(
        1.0,
        description="The time after which these headers say to try again, with a unit.",
        json_schema_extra={"default": "1s"},
    )


class ServerError(Model):
    """A status of 500 to 599."""

    kind: Literal["error"]
    status: Annotated[int, Field(ge=500, le=599)] = Field(
        503, description="The status, 500 to 599."
    )
    retry_after: Duration | None = Field(None, description="The Retry-After header, with a unit.")


class Reset(Model):
    """The connection is reset (RST) before any byte of an answer."""

    kind: Literal["reset"]


class Close(Model):
    """The connection is closed (FIN) before any byte of an answer."""

    kind: Literal["close"]


class Refuse(Model):
    """The request and every open connection are reset, and the port refuses new ones for a time."""

    kind: Literal["refuse"]
    lasting: Duration = Field(
        1.0,
        alias="for",
        description="How long the port stays closed, with a unit.",
        json_schema_extra={"default": "1s"},
    )


class Truncate(Model):
    """Announce the whole length, send a part, close."""

    kind: Literal["truncate"]
    share: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.5, description="The share of the bytes that is sent."
    )
    after: Annotated[int, Field(ge=0)] | None = Field(
        None, description="The number of bytes that are sent, instead of a share."
    )
    ending: Literal["close", "reset"] = Field("close", description="How the connection ends.")


class Short(Model):
    """Announce fewer bytes than the file has and send exactly those: a whole answer, and a wrong
    one.
    """

    kind: Literal["short"]
    share: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.5, description="The share of the bytes that is sent."
    )


class Latency(Model):
    """Wait before the answer, then look at the rules that follow."""

    kind: Literal["latency"]
    lasting: Duration = Field(alias="for", description="The duration, with a unit.")


class WrongEtag(Model):
    """The right bytes under another ETag."""

    kind: Literal["wrong-etag"]
    etag: Annotated[str, Field(max_length=400, pattern=r"^[\x21\x23-\x7e]*$")] | None = Field(
        None, description="The ETag to send instead (default: a made-up one)."
    )


class WrongBytes(Model):
    """As many bytes as announced, one of them changed (or all, if ``text`` is given: its length is
    then announced).
    """

    kind: Literal["wrong-bytes"]
    text: Annotated[str, Field(max_length=100_000)] | None = Field(
        None,
        description="The content to send instead (default: the file with one byte changed).",
    )


WrongAnswer = Annotated[
    Missing
    | RateLimit
    | ServerError
    | Reset
    | Close
    | Refuse
    | Truncate
    | Short
    | Latency
    | WrongEtag
    | WrongBytes,
    Field(discriminator="kind"),
]


def _window(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if value[0] > value[1]:
        raise complaint("must be [first, last], and first must not be greater than last")
    return value


class When(Model):
    """Which of the requests that match are struck. All conditions that are given must hold.

    None given: every one.
    """

    times: Count | None = Field(
        None, description="Only this many of the first requests that meet the other conditions."
    )
    requests: Annotated[tuple[Count, Count], Strict(False), AfterValidator(_window)] | None = Field(
        None, description="Only these matching requests, [first, last], counted from 1."
    )
    seconds: Annotated[tuple[Duration, Duration], Strict(False), AfterValidator(_window)] | None = (
        Field(
            None,
            description="Only between these times since the hub started, [from, to], with units.",
        )
    )
    quota: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = Field(
        None,
        description="Only requests beyond this number in one window, as a rate limit counts them.",
    )
    window: Duration | None = Field(None, description="The window of the quota, with a unit.")
    probability: Annotated[float, Field(ge=0, le=1, strict=False)] | None = Field(
        None,
        description=(
            "The share of the requests, chosen by a hash of the seed, rule, client,"
            " request and request number."
        ),
    )
    per: Literal["client", "all"] | None = Field(
        None,
        description=(
            "Whether requests are counted for each client (the default) or for all clients"
            " together (the default of a quota)."
        ),
    )

    @model_validator(mode="after")
    def _together(self) -> When:
        if (self.quota is None) != (self.window is None):
            given = "quota" if self.window is None else "window"
            raise complaint(
                "quota and window must be set together: quota 500 with window 5min allows 500 requests"
                " in 5 minutes",
                at=given,
            )
        if self.window is not None and self.window <= 0:
            raise complaint("must be greater than 0", at="window")
        return self

    @property
    def shared(self) -> bool:
        """Return whether all clients are counted together."""
        return (self.per or ("client" if self.quota is None else "all")) == "all"


class Rule(Model):
    """One fault: which requests it is for, what they are answered instead, and when."""

    id: Id
    role: Roles = ("any",)
    method: Methods | None = None
    repository: Text | None = None
    path: Text | None = None
    clients: Listed[Annotated[str, AfterValidator(_client)]] | None = None
    answer: WrongAnswer
    when: When = When()

    @model_validator(mode="after")
    def _has_a_body(self) -> Rule:
        if self.answer.kind in OF_A_BODY and self.method is not None and "HEAD" in self.method:
            raise complaint(
                f"{self.answer.kind} changes a body, but the answer to HEAD has no body; use GET",
                at="method",
            )
        return self

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods it is for; by default all whose answer it can change."""
        return self.method or (("GET",) if self.answer.kind in OF_A_BODY else ("HEAD", "GET"))


class Rules(Model):
    """Rules file."""

    schema_: SchemaVersion = Field(alias="schema")
    seed: Annotated[str, Field(min_length=1, max_length=64)] = "0"
    rules: Annotated[tuple[Rule, ...], Strict(False), Field(max_length=200)] = ()

    @model_validator(mode="after")
    def _distinct(self) -> Rules:
        seen: set[str] = set()
        for rule in self.rules:
            if rule.id in seen:
                raise complaint(
                    f'two rules have the id "{rule.id}"; rename one of them',
                    at="rules",
                )
            seen.add(rule.id)
        return self


def load_rules(path: Path) -> Rules:
    """Read and check a rules file.

    Raises:
        RulesError: every mistake, with file, line, column, key and what to do.
    """
    try:
        return parse_model(
            Rules, read_source(path, remedy="pass a file that contains rules"), name=str(path)
        )
    except ScenarioError as error:
        raise RulesError(error.problems) from None


def parse_rules(text: bytes | str, *, name: str = "rules") -> Rules:
    """Check the text of a rules file; see `load_rules`.

    Raises:
        RulesError: every mistake.
    """
    try:
        return parse_model(Rules, text.encode() if isinstance(text, str) else text, name=name)
    except ScenarioError as error:
        raise RulesError(error.problems) from None


@dataclass(frozen=True, slots=True)
class Struck:
    """Verdict of the rules about one request.

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


class RuleCounts:
    """Rules with their counts.

    Not thread-safe: the hub asks from its one thread, in the order of arrival.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._matched: Counter[tuple[str, str]] = Counter()
        self._struck: Counter[tuple[str, str]] = Counter()
        self._same: Counter[tuple[str, str, str]] = Counter()
        self._spent: dict[tuple[str, str], tuple[int, int]] = {}

    # All that rules may ask of a request, and what the server alone knows of it.
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
