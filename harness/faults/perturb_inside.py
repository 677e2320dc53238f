"""`perturb` inside a rank: it changes one element of what is reported or kept next."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from harness.numeric.array import NotAnArray
from harness.numeric.change import ArrayInFile, change_value, verb
from harness.rank.inside import expect_file, expect_report

# The event that tells of it: fault, of, position, before, after, and of a file its sha256 then and
# now; or why not.
TOLD = "fault.perturbed"

Emit = Callable[[str, dict[str, Any]], None]


def inside(order: Mapping[str, Any], emit: Emit) -> None:
    """Wait for the report, or for the artefact, that is to be changed.

    Args:
        order: what `PerturbFault.inside` gave, and of the strike the fault's id, the rank and the
            seed.
        emit: emits an event.
    """
    if order["artefact"] is not None:
        expect_file(order["artefact"], partial(_keep, order, emit))
    else:
        event, _, key = order["value"].rpartition(".")
        expect_report(event, partial(_report, order, emit, key))


def _report(
    order: Mapping[str, Any], emit: Emit, key: str, values: dict[str, Any]
) -> dict[str, Any] | None:
    if key not in values:
        return None
    changed = change_value(values[key], order)
    if changed is None:
        emit(
            TOLD,
            {
                "fault": order["fault"],
                "of": order["value"],
                "why": f"nothing in it can be {verb(order)}",
            },
        )
        return values
    report = {"position": changed.position, "before": changed.before, "after": changed.after}
    emit(TOLD, {"fault": order["fault"], "of": order["value"], **report})
    return {**values, key: changed.whole}


def _keep(order: Mapping[str, Any], emit: Emit, path: Path, suffix: str) -> None:
    about = {"fault": order["fault"], "of": order["artefact"]}
    with path.open("r+b") as file:
        was = hashlib.file_digest(file, "sha256").hexdigest()
        try:
            changed = ArrayInFile(file, f"kept{suffix}").change(order)
            why = f"nothing in it can be {verb(order)}"
        except NotAnArray as error:
            changed = None
            why = str(error)
        file.seek(0)
        now = hashlib.file_digest(file, "sha256").hexdigest()
    if changed is None:
        emit(TOLD, {**about, "why": why})
        return
    report = {
        "position": changed.position,
        "before": changed.before,
        "after": changed.after,
        "was": was,
        "sha256": now,
    }
    emit(TOLD, {**about, **report})
