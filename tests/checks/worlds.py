"""Worlds made by hand that kept logits, a checkpoint and hidden states beside a reference, and what
a check says.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check, Finding
from harness.checks.accounted import note_accounts
from harness.events import Event
from harness.history import ARTEFACT_FOUND, ARTEFACTS_ACCOUNTED, History
from harness.numeric.arrays import ArrayFile

CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)
NOISE = 1e-6
Kept = Mapping[str, Any]


def content(values: Any) -> bytes:
    """An array as a file of NumPy's format; bytes as they are."""
    if isinstance(values, bytes):
        return values
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


class Reference:
    """Logits of two prompts, a noisy variant, and the tokens that they give."""

    def __init__(self, *, seed: int = 1, size: int = 12) -> None:
        random = np.random.default_rng(seed)
        self.kept: dict[str, Any] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []
        for prompt, (positions, steps) in enumerate(((5, 4), (9, 4))):
            rows = random.standard_normal((positions + steps, size)).astype("float32")
            noise = (random.standard_normal((2, *rows.shape)) * NOISE).astype("float32")
            for phase, place in (("prefill", slice(positions)), ("decode", slice(positions, None))):
                self.kept[f"{phase}.logits.{prompt}"] = rows[place]
                for variant in (0, 1):
                    self.kept[f"envelope.{variant}.{phase}.logits.{prompt}"] = (
                        rows + noise[variant]
                    )[place]
            ids = rows[positions - 1 :].argmax(axis=1).tolist()
            self.events.append(("generated", {"prompt": prompt, "ids": ids}))

    @property
    def answer(self) -> dict[str, Any]:
        """What a rank keeps that computes the same to the bit."""
        return {
            name: values
            for name, values in self.kept.items()
            if name.startswith(("prefill", "decode"))
        }


def history(
    kept: list[Kept],
    said: list[list[tuple[str, dict[str, Any]]]],
    *,
    reference: History | None = None,
    arm: str = "",
) -> History:
    """The events of a world whose ranks kept and said this."""
    events = [Event(ns=1, by="harness", name="world.begin", values={"arm": arm or "candidate"})]
    for rank, own in enumerate(said):
        events += [
            Event(ns=2, by="rank", rank=rank, name=name, values=values) for name, values in own
        ]
    for rank, files in enumerate(kept):
        for name, values in files.items():
            digest = hashlib.sha256(content(values)).hexdigest()
            found = {"artefact": name, "sha256": digest, "bytes": len(content(values))}
            found |= {} if isinstance(values, bytes) else {"shape": list(values.shape)}
            events.append(Event(ns=3, by="harness", rank=rank, name=ARTEFACT_FOUND, values=found))
    return History(events, size=len(kept), reference=reference)


def judged(
    check: Mapping[str, Any],
    reference: Reference,
    kept: list[Kept],
    *,
    said: list[list[tuple[str, dict[str, Any]]]] | None = None,
    change: Any = lambda values: values,
    arm: str = "",
) -> Finding:
    """What a check says of a world beside a reference; `change` forges the event of the account."""
    model = CHECK.validate_python({"id": "it", "ranks": "every", "against": "reference", **check})
    return model.judge(noted(model, reference, kept, said=said, change=change, arm=arm))


def noted(
    model: Check,
    reference: Reference,
    kept: list[Kept],
    *,
    said: list[list[tuple[str, dict[str, Any]]]] | None = None,
    change: Any = lambda values: values,
    arm: str = "",
) -> History:
    """The events of a world beside a reference, with the account that a check is judged by."""
    whole = history([reference.kept], [reference.events], arm="reference")
    told = said if said is not None else [reference.events] * len(kept)
    events = history(kept, told, reference=whole, arm=arm)
    files = {
        hashlib.sha256(content(values)).hexdigest(): ArrayFile(name, content(values))
        for own in (reference.kept, *kept)
        for name, values in own.items()
    }
    accounts = [
        Event(
            ns=4,
            by="harness",
            name=ARTEFACTS_ACCOUNTED,
            values=change(json.loads(json.dumps(values))),
        )
        for values in note_accounts([model], events, file=lambda found: files[str(found["sha256"])])
    ]
    return History(
        [*(seen.event for seen in events.seen), *accounts], size=len(kept), reference=whole
    )
