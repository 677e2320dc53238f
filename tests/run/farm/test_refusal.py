"""Which scenarios are farmed, and which nodes are used."""

from __future__ import annotations

import pytest

from harness.forms.strict_json import JSON
from harness.record.environment import capture
from harness.run.farm.farm import _unlike, refusal
from harness.scenario import parse_scenario
from tests.kit.commands import SCENARIO

CHANGED = {
    "test hosts": ("world: {deadline: 30s}", "world: {deadline: 30s, hosts: 2}", "test hosts"),
    "home": ("world: {deadline: 30s}", "world: {deadline: 30s, home: shared}", "own home folder"),
    "GPUs": ("subject:\n", "needs: {gpus: 1}\nsubject:\n", "needs GPUs"),
    "nccl": ("backend: [none]", "backend: [nccl]", "needs GPUs"),
    "ledgers": ("subject:\n", "observe: [collectives]\nsubject:\n", "observes collectives"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_is_not_farmed_is_refused(name: str) -> None:
    """What a node cannot do yet as it is done here is refused with the reason, before anything
    runs.
    """
    before, after, why = CHANGED[name]
    assert before in SCENARIO
    scenario = parse_scenario(
        SCENARIO.replace(before, after, 1).encode(), name="scenario.yaml", overrides=[]
    )
    assert why in (refusal(scenario, environments=()) or "")


def test_an_ordinary_scenario_is_farmed() -> None:
    """One that needs none of that is not refused, unless an arm has an its own environment."""
    scenario = parse_scenario(SCENARIO.encode(), name="scenario.yaml", overrides=[])
    assert refusal(scenario, environments=()) is None
    assert "its own environment" in (refusal(scenario, environments=("control",)) or "")


def test_a_node_of_another_lock_is_refused() -> None:
    """Another wheel of the same version, another version, another Python: each is named with the
    remedy.
    """
    here = capture()
    assert _unlike(here, here) is None
    first = next(one for one in here.packages if one.name == "pydantic")
    changes: dict[str, tuple[dict[str, JSON], str]] = {
        "wheel": (
            {"record": "0" * 64},
            "from another wheel; install from the same lock file on that node",
        ),
        "version": (
            {"version": "1.0"},
            f"pydantic 1.0 instead of {first.version}; install from the same lock file on that node",
        ),
    }
    for change, why in changes.values():
        packages = [one.model_copy(update=change) if one is first else one for one in here.packages]
        assert why in (_unlike(here.model_copy(update={"packages": packages}), here) or "")
    other = _unlike(here.model_copy(update={"python": "3.12.1"}), here) or ""
    assert other.startswith("its python is 3.12.1, but")
