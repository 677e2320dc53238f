"""Modules that a scenario asks to be imported before the ranks are forked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.commands import SCENARIO, Ran

SUBJECT = """
import sys

LOADED = "wave" in sys.modules


def meet(context, *, broken):
    context.emit("found", loaded=LOADED)
    thing = None if broken and context.rank else "thing"
    assert thing
    context.emit("met", thing=thing)
"""


def told(ran: Ran) -> set[object]:
    cell = ran.record.judgement.cells[0]
    text = (ran.folder / "evidence" / cell.slug / "candidate-00000" / "events.jsonl").read_text()
    said = map(json.loads, text.splitlines())
    return {event["values"]["loaded"] for event in said if event["name"] == "found"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "loaded"),
    [
        ("world: {deadline: 30s, preload: [wave, no.such_module]}", True),
        ("world: {deadline: 30s}", False),
    ],
)
def test_a_warm_rank_finds_what_is_preloaded(
    scenario: Callable[..., Path], rankproof: Callable[..., Ran], world: str, loaded: bool
) -> None:
    """What cannot be imported there is left to the ranks, which do not ask for it here."""
    text = SCENARIO.replace("world: {deadline: 30s}", world)
    ran = rankproof("run", str(scenario({"scenario.yaml": text, "subject.py": SUBJECT})))
    assert ran.code == 0, ran.out + ran.err
    assert told(ran) == {loaded}


@pytest.mark.whole
def test_an_arm_that_brings_the_module_starts_fresh(
    scenario: Callable[..., Path], rankproof: Callable[..., Ran]
) -> None:
    """What a server has imported cannot be imported again from an arm's folder."""
    text = SCENARIO.replace("deadline: 30s}", "deadline: 30s, preload: [wave]}")
    files = {"scenario.yaml": text, "subject.py": SUBJECT, "wave.py": ""}
    ran = rankproof("run", str(scenario(files)))
    assert ran.code == 0, ran.out + ran.err
    assert ran.record.run.start == "fresh"
