"""A scenario whose ranks keep arrays, and what is found in a run of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kit.commands import Ran

SUBJECT = """
import numpy as np

def add(context, *, stale):
    total = np.arange(12.0, dtype="float32").reshape(3, 4)
    if stale and context.rank:
        total[1, 2] += 0.5
    context.keep("total", total)
    context.keep("note", b"rank %d" % context.rank)
"""
SCENARIO = """
schema: 1
id: sums
title: Every rank has the sum
question: Does every rank hold the same sum?
subject:
  entry: subject:add
  candidate: {with: {stale: false}}
  control:
    with: {stale: true}
    must_fail: {check: same, ranks: [1]}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: same, kind: close, ranks: nonzero, artefact: total, against: 0, atol: 0.25}
"""
BARE = """
import sys, importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numpy" else found(name, *rest)
from harness.cli import main
sys.exit(main())
"""


def events(ran: Ran, trial: str, name: str) -> list[dict[str, Any]]:
    lines = (
        (ran.folder / f"evidence/ranks-2-backend-none/{trial}/events.jsonl")
        .read_text()
        .splitlines()
    )
    return [event for event in map(json.loads, lines) if event["name"] == name]


def signer(place: Path) -> Path:
    return place / "home/.local/share/rankproof/signing_key"
