"""What a kind of check or fault is, declared once, beside its options: rules ask for the property, never for the kind.

No property has a default. mypy refuses a declaration that leaves one out, and a registry refuses a kind without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol


class FailsAt(StrEnum):
    """The moment at which a check fails on a rank."""

    EVENT = "at its event"
    RANK_END = "at the end of its rank"
    WORLD_END = "at the end of the world"


@dataclass(frozen=True, kw_only=True)
class CheckProperties:
    """What a kind of check is.

    Attributes:
        reports_a_value: judges what ranks report, so that a report that is missing is no wrong value.
        of_an_end: fails for whatever keeps a rank from coming to its event or its end, a slip too.
        compares_ranks: says something only about two ranks or more.
        needs_an_event: judges events that the subject emits.
        needs_a_hub: judges what the scenario's hub logs.
        wrong: the moment at which it fails by something that is there; None where nothing could be wrong.
        missing: the moment at which it fails because something is not there (`RankFinding.missing`).
    """

    reports_a_value: bool
    of_an_end: bool
    compares_ranks: bool
    needs_an_event: bool
    needs_a_hub: bool
    wrong: FailsAt | None
    missing: FailsAt

    def fails(self, *, missing: bool) -> FailsAt:
        """The moment at which a finding of this kind fails."""
        return self.missing if missing or self.wrong is None else self.wrong


@dataclass(frozen=True, kw_only=True)
class FaultProperties:
    """What a kind of fault is.

    Attributes:
        needs_a_gate: strikes where the rank emits `at`, which blocks it; else the fault strikes as the rank starts.
        inside: our runtime carries it out inside a rank of Python.
        ends_rank: may end the rank, whose end is meant then: it fails nobody else.
        needs_a_hub: is done by the scenario's hub.
    """

    needs_a_gate: bool
    inside: bool
    ends_rank: bool
    needs_a_hub: bool


class DeclaredCheck(Protocol):
    """The options of a kind of check, which say what it is."""

    properties: ClassVar[CheckProperties]


class DeclaredFault(Protocol):
    """The options of a kind of fault, which say what it is."""

    properties: ClassVar[FaultProperties]
