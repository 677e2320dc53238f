"""Base of the faults of a collective call: which call of the rank it strikes, and how that is
proved.

It strikes one call, at the seam where the ledger stands, from an event of the rank on. Proof: the
rank's word, from the seam, that it struck this very call, and what of the payload became of it. It
says nothing of what a library does with the call from there on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, StringConstraints

from harness.faults import proof
from harness.faults.fault import FROM_INSIDE, FaultAtEvent, Place
from harness.faults.proof import Landing, Proof, not_proved
from harness.forms.model import Event
from harness.forms.problem import Draft, Problem, closest
from harness.forms.strict_json import JSON
from harness.history import FAULT_IN_CALL, History
from harness.ledger.call import BARRIERS, OPERATIONS, RECEIVE

STATING = frozenset(
    {"all_reduce", "broadcast", "reduce", "all_gather", "send", "all_sum", "all_max", "all_min"}
)
GIVING = OPERATIONS - BARRIERS - {RECEIVE}
DIGEST = re.compile(r"[0-9a-f]{64}")
Line = Annotated[str, StringConstraints(pattern=r"^[^\s:][^\n:]*:[1-9][0-9]{0,6}$", max_length=200)]


class CallFault(FaultAtEvent):
    """A fault of one collective or point-to-point call.

    Attributes:
        effect: as of a link fault.
        what: the word that the rank knows it by.
        verb: what is done to the call, in words.
        only: the operations to which it can be done.
        alters: whether it changes the payload, and nothing that the ledger has.
        unordered: whether it cannot be done where a library runs calls later than they are made.
    """

    needs: ClassVar = "a subject in Python whose calls are observed (`observe: [collectives]`)"
    properties: ClassVar = FROM_INSIDE
    inside_file: ClassVar = Path(__file__).with_name("call_inside.py")
    effect: ClassVar[Literal["silent", "breaking"]]
    what: ClassVar[str]
    verb: ClassVar[str]
    only: ClassVar[frozenset[str]] = OPERATIONS
    alters: ClassVar[bool] = False
    unordered: ClassVar[bool] = False

    at: Event = Field("subject.begin", description="The event after which calls are counted.")
    operation: str | None = Field(
        None,
        description=(
            "The operation of the call, as the ledger names it: all_reduce, send (default: any)."
        ),
    )
    line: Line | None = Field(
        None, description="Where the call is made, as the ledger names it: subject.py:12."
    )
    nth: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        1,
        description=(
            "Which of the rank's calls of this operation and line after the event, from 1."
        ),
    )

    @property
    def place(self) -> Place:
        return Place(
            "nth", (f"{self.at} {self.operation} {self.line} {self.nth}",), "strikes the same call"
        )

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield a problem where calls are not observed, or it cannot be done to the operation."""
        observed = draft.at("observe")
        for index, fault in faults.items():
            place = ("faults", index)
            if not isinstance(observed, list) or "collectives" not in observed:
                yield draft.problem(
                    (*place, "kind"), "needs the ledger; add observe: [collectives]"
                )
            if fault.operation is not None and fault.operation not in cls.only:
                known = fault.operation in OPERATIONS
                message = "cannot have this fault" if known else "is not an operation of a ledger"
                suggestion = closest(fault.operation, sorted(cls.only))
                yield draft.problem(
                    (*place, "operation"),
                    f"{message}; it can be {', '.join(sorted(cls.only))}",
                    suggestion=suggestion,
                )

    def description(self) -> str:
        where = f" at {self.line}" if self.line else ""
        what = f"{self.operation} call" if self.operation else "call"
        return f"{what} {self.nth}{where} after {self.at} {self.verb}"

    def inside(self) -> dict[str, JSON]:
        """Return the order that goes with the answer to the gate."""
        only = list[JSON](sorted(self.only))
        return {
            "what": self.what,
            "operation": self.operation,
            "line": self.line,
            "nth": self.nth,
            "only": only,
        }

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, order, and the rank's word of the call that it struck."""
        reports = [
            seen
            for seen in history.said(rank, FAULT_IN_CALL)
            if seen.event.values.get("fault") == self.id
        ]
        reports = [seen for seen in reports if seen.line > landed.struck.line]
        if not reports:
            where = f" at {self.line}" if self.line else ""
            call = f"{self.operation} call" if self.operation else "call"
            what = f"it made no {call} {self.nth}{where} after {self.at}"
            return proof.missed(history, rank=rank, what=f"{what} that was struck")
        seen = reports[0]
        values = reports[0].event.values
        lines = (*landed.lines, seen.line)
        operation = values.get("operation")
        site = values.get("site")
        if len(reports) > 1 or values.get("what") != self.what or values.get("nth") != self.nth:
            return not_proved("it did not strike as planned", lines)
        # A rank may say anything: what is not a text cannot be looked for in a set.
        known = isinstance(operation, str) and operation in self.only
        if not known or self.operation not in (None, operation):
            return not_proved(f"it struck a call of {operation}", lines)
        if not isinstance(site, str) or (
            self.line is not None and site.partition(" in ")[0] != self.line
        ):
            return not_proved(f"it struck a call at {site}", lines)
        shown = f"{operation} at {site or 'an unknown place'}"
        if "why" in values:
            return not_proved(f"{shown}: {values['why']}", lines)
        if wrong := self.unproved(values):
            return not_proved(f"{shown}: {wrong}", lines)
        return Proof(
            proved=True, description=f"{shown} {self.verb}{self.shown(values)}", lines=lines
        )

    def unproved(self, values: Mapping[str, JSON]) -> str:
        """Why the rank's word proves nothing; empty where it does."""
        if not self.alters:
            return ""
        before = values.get("before")
        after = values.get("after")
        whole = all(
            isinstance(digest, str) and DIGEST.fullmatch(digest) for digest in (before, after)
        )
        return "" if whole and before != after else "its payload did not change"

    def shown(self, values: Mapping[str, JSON]) -> str:
        """Describe what else the rank's word shows."""
        return (
            f": {str(values.get('before'))[:12]} became {str(values.get('after'))[:12]}"
            if self.alters
            else ""
        )
