"""The pipeline of scenarios/corruption-and-recovery, in processes of this machine, is struck and gives
the tokens of an undisturbed run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scenarios" / "corruption-and-recovery" / "local.py"
# Seconds in which a stage has to come back: enough on a busy machine, and few where none does.
ENOUGH, FEW = "30", "8"

pytestmark = pytest.mark.slow


def events(*arguments: str) -> list[dict[str, Any]]:
    """What its ranks report."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told, errors = process.communicate(timeout=120)
    finally:
        # Stages too: where something is wrong they may be stopped, or wait for ever.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    return [json.loads(line) for line in told.splitlines()]


def values(told: Sequence[dict[str, Any]], event: str, key: str) -> list[Any]:
    return [one[key] for one in told if one["event"] == event]


@cache
def undisturbed() -> list[int]:
    """The tokens to which nothing was done."""
    told = events("--wait", ENOUGH)
    assert values(told, "attempt", "action") == []
    (tokens,) = values(told, "generated", "ids")
    assert len(set(tokens)) > 30
    return list(tokens)


def struck(*arguments: str, wait: str = ENOUGH) -> list[dict[str, Any]]:
    """The events of a run that ends with the same tokens."""
    told = events("--wait", wait, *arguments)
    assert values(told, "generated", "ids") == [undisturbed()]
    return told


def attempts(told: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["action"], one["outcome"]) for one in told if one["event"] == "attempt"]


@pytest.mark.parametrize("stages", ["2", "3"])
@pytest.mark.parametrize("position", ["0", "20", "39"])
def test_a_wrong_token_is_regenerated(stages: str, position: str) -> None:
    """One attempt, and every stage keeps its process and its cache."""
    told = struck("--stages", stages, "--slip", position, "1")
    assert attempts(told) == [("regenerate", "recovered")]
    assert len(values(told, "stage.began", "pid")) == int(stages) - 1


def test_a_stage_that_stays_wrong_is_restarted() -> None:
    """Three tokens in vain, then a process of its own that begins again, and is right."""
    told = struck("--slip", "20", "9")
    assert attempts(told) == [("regenerate", "failed")] * 3 + [("restart-stage", "recovered")]
    first, second = values(told, "stage.began", "pid")
    assert first != second


@pytest.mark.parametrize(
    ("stages", "stage", "position", "wait"),
    [
        ("2", 1, 1, ENOUGH),
        ("2", 1, 39, ENOUGH),
        ("3", 2, 20, ENOUGH),
        # Rank 0 talks to stage 1 only when it has a token from stage 2, so it has to wait.
        ("3", 1, 20, FEW),
    ],
)
def test_a_killed_stage_is_restarted(stages: str, stage: int, position: int, wait: str) -> None:
    """SIGKILL in the middle of the stream: a new process is fed the past, and the stream goes
    on.
    """
    told = struck("--stages", stages, "--kill", f"{stage}@{position}", wait=wait)
    assert attempts(told) == [("restart-stage", "recovered")]
    (died,) = [one for one in told if one["event"] == "stage.died"]
    assert (died["rank"], died["code"]) == (stage, -9)
    own = [one["pid"] for one in told if one["event"] == "stage.began" and one["rank"] == stage]
    assert own[0] == died["pid"]
    assert len(own) > 1


def test_a_stopped_stage_is_ended_and_restarted() -> None:
    """SIGSTOP: it does not answer, so its process is ended, and another one takes its place."""
    told = struck("--stop", "1@20", wait=FEW)
    assert attempts(told) == [("restart-stage", "recovered")]
    assert len(values(told, "stage.began", "pid")) == 2


def test_a_stage_that_never_comes_back_is_replaced_by_one_device() -> None:
    """SIGKILL, of what would restart it too: the restart fails, and rank 0 computes the rest
    alone.
    """
    told = struck("--lose", "1@20", wait=FEW)
    assert attempts(told) == [("restart-stage", "failed"), ("fall-back", "recovered")]
    assert values(told, "fell.back", "missing") == [[1]]
