"""A report of the commit, verified or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.forms.model import Model
from harness.forms.text import visible
from harness.gate.policy import Role
from harness.record.model import Record

SHOWN = 3


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
        """When it says it was made, in UTC; None where it does not say a time."""
        try:
            return datetime.strptime(self.record.run.made, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            return None

    @property
    def age(self) -> tuple[datetime, str]:
        """For sorting: the newest is the largest."""
        return self.made or datetime.min.replace(tzinfo=UTC), self.record.run.id


class Refusal(Model):
    """A report that says it is of the commit, and that verification refused; `word` as in docs/verify.md."""

    place: str
    word: str
    message: str


def some(items: Sequence[str]) -> str:
    """A few of many."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return visible(f"{'; '.join(item[:300] for item in items[:SHOWN])}{more}")
