"""The case that a gate decides, and what it answers with: the values its rules work on."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal

from pydantic import Field

from harness.forms.git import Entry
from harness.forms.model import Model
from harness.forms.text import visible
from harness.gate.policy import Policy, Required, Role
from harness.record.model import Record
from harness.scenario import Scenario, cells

Word = Literal["MET", "REFUSED", "MISSING", "CANNOT TELL", "NOT VERIFIED"]
Answer = Literal["OPEN", "CLOSED", "CANNOT TELL", "NOT VERIFIED"]
CODES: dict[Answer, int] = {"OPEN": 0, "CLOSED": 1, "CANNOT TELL": 2, "NOT VERIFIED": 3}
SHOWN = 3


class Requirement(Model):
    """One rule, and what became of it.

    Attributes:
        scenario: the required scenario it is about; None for a rule about the whole.
        name: the rule's name, one of RULES and those that `decide` adds.
        reason: why the word is what it is.
        codes: of what the reports give as reasons for it (docs/reading.md), and the words of those that were refused.
    """

    scenario: str | None
    name: str
    word: Word
    reason: str
    codes: list[str] = Field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TrustedScenario:
    """A required scenario as the trusted revision has it.

    Attributes:
        path: of its file, from the top of the repository.
        sha256: of its file.
        files: of its folder, by their path from there.
    """

    path: str
    sha256: str
    scenario: Scenario
    files: Mapping[str, Entry]

    @property
    def folder(self) -> str:
        """The folder of its file."""
        return posixpath.dirname(self.path)

    @cached_property
    def cells(self) -> tuple[str, ...]:
        """Ids of all cells of its matrix."""
        return tuple(cell.id for cell in cells(self.scenario))

    @property
    def no_claim(self) -> str:
        """Why it cannot count at all, or empty: it is a finding about others, or expects something but PASS."""
        if self.scenario.role == "upstream":
            return "its role is upstream: a finding about somebody else's code does not count"
        if self.scenario.expects not in (None, "PASS"):
            return f"it is a self-test that must end {self.scenario.expects}; a gate asks for PASS"
        return ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A verified report of the commit.

    Attributes:
        place: where it lies, for messages.
        record: its record, from the bytes that were verified.
        signer: the name under which the key is allowed.
        key: fingerprint of the key; two certificates for one key, or two names, do not make it two.
        roles: of the signer, by the policy.
        differs: how its scenario differs from the trusted one; empty where it is the same.
        foreign: files of its arms that are not the commit's; empty where all are.
        strangers: what ranks loaded beside their arm's folder that is not the commit's; empty where all is.
    """

    place: str
    record: Record
    signer: str
    key: str
    roles: tuple[Role, ...]
    differs: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()

    @property
    def made(self) -> datetime | None:
        """When it says it was made, in UTC; None where that is not a time."""
        try:
            return datetime.strptime(self.record.run.made, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            return None

    @property
    def age(self) -> tuple[datetime, str]:
        """For sorting: the newest is the largest."""
        return self.made or datetime.min.replace(tzinfo=UTC), self.record.run.id


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A report that says it is of the commit, and that verification refused."""

    place: str
    word: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """What one decision is about.

    Attributes:
        commit: full id of the commit under test.
        challenge: the text that every report must bear, or None.
        now: for the age of reports.
        scenarios: every required scenario as trusted, by its id.
        locks: sha256 of the policy's lock files as trusted.
        trusted: the revision that decides, for messages.
    """

    policy: Policy
    commit: str
    challenge: str | None
    now: datetime
    scenarios: Mapping[str, TrustedScenario]
    locks: frozenset[str]
    trusted: str

    def cells(self, required: Required, record: Record) -> tuple[str, ...]:
        """The cells that must be PASS: those of the policy, else every one of the trusted matrix and of the run's."""
        if required.cells is not None:
            return required.cells
        own = (cell.id for cell in record.judgement.cells)
        return tuple(dict.fromkeys((*self.scenarios[required.scenario].cells, *own)))


def some(items: Sequence[str]) -> str:
    """A few of many."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return visible(f"{'; '.join(item[:300] for item in items[:SHOWN])}{more}")
