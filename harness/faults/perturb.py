"""`perturb`: one element of what the rank reports or keeps is changed by a stated size, before
anybody sees it.

Proof: the rank told which element it changed, from what to what; what it then reported, or the file
that the harness found, is what the order makes of that, worked out again. The element is chosen by
the trial's seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from harness.faults.fault import FROM_INSIDE, Effect, FaultAtEvent, Place
from harness.faults.proof import Landing, Proof, not_proved
from harness.forms.model import Event, EventValue, Model, demand_one
from harness.forms.strict_json import JSON
from harness.history import History, Seen, artefact_found, artefact_was_changed
from harness.numeric.change import (
    ABSOLUTE,
    RELATIVE,
    ULP,
    Position,
    change_number,
    change_value,
    restored,
    restored_file,
    verb,
)

# What the rank tells: fault, of, position, before, after, and of a file its sha256 then (`was`) and
# now; or `why`.
TOLD = "fault.perturbed"


class Change(Model):
    """One element of a value or of an artefact, changed by a stated size."""

    value: EventValue | None = Field(
        None, description="An event and one of its keys; the first such report is changed."
    )
    artefact: Event | None = Field(
        None, description="Instead of value: the name of an array that the rank keeps."
    )
    absolute: float | None = Field(None, gt=0, description="The amount that is added to a number.")
    relative: float | None = Field(
        None, gt=0, description="The fraction of a number's size that is added to it."
    )
    ulp: int | None = Field(
        None,
        ge=1,
        description="The number of representable numbers of its dtype further from zero (for values,"
        " float64).",
    )
    one: Literal["token", "character"] | None = Field(
        None,
        description=(
            "token: a whole number becomes the next one; character: one character of a string"
            " becomes another."
        ),
    )

    @model_validator(mode="after")
    def _one_change(self) -> Self:
        demand_one(
            self,
            "value",
            "artefact",
            nothing="does not say what to change; give value or artefact",
        )
        nothing = (
            "does not say the size; give absolute, relative or ulp, or one: token or character"
        )
        return demand_one(self, "absolute", "relative", "ulp", "one", nothing=nothing)

    @property
    def what(self) -> str:
        """Name of the value or the artefact."""
        return self.value or self.artefact or ""

    @property
    def order(self) -> dict[str, Any]:
        """Order for the rank."""
        sizes = {ABSOLUTE: self.absolute, RELATIVE: self.relative, ULP: self.ulp}
        name = next((name for name, size in sizes.items() if size is not None), str(self.one))
        return {
            "value": self.value,
            "artefact": self.artefact,
            "change": name,
            "size": sizes.get(name),
        }

    @property
    def size(self) -> str:
        """Words for what is done to an element."""
        return verb(self.order)


class PerturbFault(Change, FaultAtEvent):
    """One element of what the rank reports or keeps is changed."""

    does: ClassVar = (
        "changes one element, chosen by the seed, of the next reported value, or of the array"
    )
    needs: ClassVar = "a Python subject (`subject.entry`)"
    properties: ClassVar = FROM_INSIDE
    effect: ClassVar[Effect | None] = "silent"
    over_machines: ClassVar = True
    example: ClassVar = "{id: off, kind: perturb, ranks: [1], value: score.loss, absolute: 0.01}"
    inside_file: ClassVar = Path(__file__).with_name("perturb_inside.py")

    kind: Literal["perturb"]
    at: Event = Field(
        "subject.begin",
        description="The event after which the next report is changed.",
    )

    @property
    def place(self) -> Place:
        return Place(
            "artefact" if self.value is None else "value", (self.what,), "changes the same"
        )

    def description(self) -> str:
        return f"an element of {self.what} {self.size}"

    def inside(self) -> dict[str, JSON]:
        """Return the order that goes with the answer to the gate."""
        return self.order

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, order, the rank's word, and what the harness has of it."""
        reports = [
            seen for seen in history.said(rank, TOLD) if seen.event.values.get("fault") == self.id
        ]
        reports = [seen for seen in reports if seen.line > landed.struck.line]
        if len(reports) != 1:
            what = (
                f"{self.what} was not reported or kept"
                if not reports
                else f"{self.what} was changed {len(reports)} times"
            )
            return not_proved(what, landed.lines)
        (seen,) = reports
        lines = (*landed.lines, seen.line)
        values = seen.event.values
        if values.get("of") != self.what or "why" in values:
            return not_proved(
                f"{self.what}: {values.get('why', 'a different value was changed')}", lines
            )
        shown = f"{self.what}{_index(values.get('position'))} was {_short(values.get('before'))}"
        shown = f"{shown}, made {_short(values.get('after'))} ({self.size})"
        evidence = (
            self._kept(history, rank, values)
            if self.value is None
            else self._reported(history, rank, seen)
        )
        if evidence is None:
            return not_proved(f"the harness did not receive {self.what} with this change", lines)
        return Proof(proved=True, description=shown, lines=(*lines, evidence.line))

    def asked(self, history: History, rank: int) -> dict[str, Any]:
        """Return the order as the rank got it in this trial."""
        seed = str(history.about().get("seed", "0"))
        return {**self.order, "fault": self.id, "kind": self.kind, "rank": rank, "seed": seed}

    def _reported(self, history: History, rank: int, told: Seen) -> Seen | None:
        """Find the report that was changed, if the change makes it of what it was."""
        event, _, key = str(self.value).rpartition(".")
        reports = [
            seen
            for seen in history.said(rank, event)
            if key in seen.event.values and seen.line > told.line
        ]
        values = told.event.values
        if not reports or (position := _position(values.get("position"))) is None:
            return None
        now = reports[0].event.values[key]
        try:
            again = change_value(
                restored(now, position, values.get("before")), self.asked(history, rank)
            )
        except (LookupError, TypeError):
            return None
        stated = [now, position, values.get("before"), values.get("after")]
        return reports[0] if again is not None and _text(list(again)) == _text(stated) else None

    def _kept(self, history: History, rank: int, values: Mapping[str, JSON]) -> Seen | None:
        """Find the file, if it is the one that the rank made.

        Its content is judged with it.
        """
        found = artefact_found(history, rank, self.what)
        if found is None or artefact_was_changed(history, rank, self.what):
            return None
        position = _position(values.get("position"))
        shape = found.event.values.get("shape")
        inside = (
            position is not None
            and isinstance(shape, list)
            and len(position) == len(shape)
            and all(
                type(part) is type(size) is int and 0 <= part < size
                for part, size in zip(position, shape, strict=True)
            )
        )
        before = _number(values.get("before"))
        after = None
        if before is not None:
            after = change_number(before, self.order, dtype=str(found.event.values.get("dtype")))
        is_it = found.event.values.get("sha256") == values.get("sha256") != values.get("was")
        return (
            found
            if inside and is_it and after is not None and _text(after) == _text(values.get("after"))
            else None
        )

    def before(
        self, content: bytes, name: str, told: Mapping[str, JSON], order: Mapping[str, Any]
    ) -> bytes:
        """Restore a changed file by what the rank reported; nothing where the report does not
        fit.
        """
        position = _position(told.get("position"))
        before = _number(told.get("before"))
        if position is None or before is None:
            return b""
        return restored_file(content, name, position, before, order)


def _position(value: JSON) -> Position | None:
    if not isinstance(value, list):
        return None
    parts: Position = [part for part in value if type(part) in (int, str)]
    return parts if len(parts) == len(value) else None


def _number(value: JSON) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _index(value: JSON) -> str:
    position = _position(value)
    return f"[{', '.join(map(str, position))}]" if position else ""


def _short(value: JSON) -> str:
    return f"{value:.9g}" if isinstance(value, float) else _text(value)[:40]


def _text(value: object) -> str:
    """One text per JSON value: 1 is neither true nor 1.0."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True)
