"""Small records for tests of what is made from records.

The functions that count are the real ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.record.model import Record
from harness.stats.measured import summarise
from harness.stats.rates import fisher, upper_bound
from harness.stats.tally import Word
from harness.stats.verdict import merge


def trial(
    arm: str, index: int, outcome: str, *, seed: int = 0, check: str = "met", **more: Any
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "index": index,
        "seed": str(seed * 1000 + index),
        "evidence": f"evidence/cell/{arm}-{index:05d}/events.jsonl",
        "ms": 100.0 + index,
        "outcome": outcome,
    }
    if outcome == "void":
        found["void"] = {"code": "void:harness-error", "text": "port taken"}
    if outcome == "fail":
        found["failures"] = [{"check": check, "ranks": [1], "reasons": ["AssertionError"]}]
    if arm == "control":
        found["as_stated"] = outcome == "fail"
        passed = {"code": "control:check-held", "text": "it passed"}
        found["otherwise"] = None if outcome == "fail" else passed
    return {**found, **more}


def cell(
    name: str = "ranks=2,backend=gloo",
    *,
    candidate: Sequence[str] = ("pass",) * 5,
    control: Sequence[str] = ("fail",) * 5,
    verdict: Word | None = None,
    seed: int = 0,
    load: Sequence[float] = (),
    reasons: Sequence[str] = (),
    check: str = "met",
    ms: float | None = None,
) -> dict[str, Any]:
    """A cell; `candidate` and `control` are outcomes, `load` what rank 0 measured."""
    arms: dict[str, Any] = {}
    for arm, outcomes in (("candidate", candidate), ("control", control)):
        more = {} if ms is None else {"ms": ms}
        trials = [
            trial(arm, i, word, seed=seed, check=check, **more) for i, word in enumerate(outcomes)
        ]
        failed, voids = outcomes.count("fail"), outcomes.count("void")
        counted = len(outcomes) - voids
        arms[arm] = {
            "trials": trials,
            "counted": counted,
            "failed": failed,
            "voids": voids,
            "upper": upper_bound(failed, counted, confidence=0.95),
            "upper_with_voids": upper_bound(failed + voids, len(outcomes), confidence=0.95),
        }
    good = arms["candidate"]
    p_value = fisher(
        arms["control"]["failed"], arms["control"]["counted"], good["failed"], good["counted"]
    )
    arms["control"].update(as_stated=arms["control"]["failed"], p_value=p_value)
    row = {"id": "load", "what": "time to load", "unit": "s", "rank": 0, "arms": {}}
    if load:
        row["arms"] = {"candidate": summarise(load).model_dump()}
    found: Word = "FAIL" if good["failed"] else "PASS" if good["upper"] < 0.5 else "INCONCLUSIVE"
    return {
        "id": name,
        "slug": name.replace("=", "-").replace(",", "-"),
        "ranks": 2,
        "backend": "gloo",
        "verdict": verdict or found,
        "reasons": [{"code": "verdict:too-few-trials", "text": reason} for reason in reasons],
        **arms,
        "measured": [row],
    }


def record(
    *cells: Mapping[str, Any],
    scenario: Mapping[str, Any] | None = None,
    run: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
    **more: Any,
) -> Record:
    """A record of these cells; what is given replaces what would be there."""
    listed = [dict(each) for each in cells] or [cell()]
    here = {
        **dict.fromkeys(("variant", "lock", "lock_sha256", "nix", "gpu", "openssh")),
        "python": "3.11.7",
        "implementation": "CPython",
        "system": "Linux",
        "release": "6.1",
        "machine": "x86_64",
        "cpu": "some processor",
        "cores": 2,
        "affinity": 2,
        "memory": 2**34,
        "host": "0123456789ab",
        "variables": {},
        "other_variables": 20,
        "packages": [{"name": "torch", "version": "2.13.0", "record": "aa"}],
        **(environment or {}),
    }
    verdict = merge(each["verdict"] for each in listed)
    return Record.model_validate(
        {
            "run": {
                "format": 1,
                "rankproof": "0.1.0",
                "id": "20260103T100000Z-00000000",
                "made": "2026-01-03T10:00:00Z",
                "seconds": 1.5,
                "jobs": 1,
                "start": "warm",
                "harness_pid": 7,
                "server_pids": [8],
                "server_seconds": 0.5,
                "overrides": [],
                "inputs": [],
                "arguments": {"candidate": {}, "control": {}},
                "room": {"home": "room", "kept": [], "compiled": []},
                "provenance": {},
                "source": {
                    "commit": "ab" * 20,
                    "tree": "cd" * 20,
                    "dirty": False,
                    "untracked": 0,
                    "origin": None,
                    "scenario": "scenarios/meet",
                    **(source or {}),
                },
                "environment": here,
                "cells": [
                    {"id": each["id"], "skipped": None, "candidate": 5, "control": 5}
                    for each in listed
                ],
                **(run or {}),
            },
            "scenario": {
                "id": "meet",
                "title": "Ranks meet",
                "question": "Do all ranks meet?",
                "role": "claim",
                "expects": None,
                "tags": [],
                "sha256": "ef" * 32,
                "seed": "7",
                "entry": "subject:meet",
                "program": [],
                "accept_rate": 0.05,
                "accept_confidence": 0.95,
                "candidate_trials": 5,
                "control_trials": 5,
                "must_fail": "met fails on rank 1, in every trial",
                "faults": [],
                **(scenario or {}),
            },
            "arms": {
                name: {"files": {"subject.py": name.ljust(64, "0")}, "arguments": "{}"}
                for name in ("candidate", "control")
            },
            "changed": [],
            "judgement": {
                "verdict": verdict,
                "as_expected": verdict == "PASS",
                "reasons": [],
                "cells": listed,
            },
            **more,
        }
    )
