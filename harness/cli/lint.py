"""`rankproof lint`."""

from __future__ import annotations

import argparse

from harness.cli import PASS, USAGE
from harness.cli.load import load_all
from harness.scenario import EnvFault, Scenario
from harness.world.environment import is_import_time


def main(options: argparse.Namespace) -> int:
    """Check scenario files; exit 64 where one has a problem."""
    loaded, problems = load_all(options.scenarios, options.overrides)
    for scenario in loaded:
        for note in scenario.notes:
            print(note)
        for text in _start(scenario.scenario):
            print(f"{scenario.path}: note: {text}")
        print(f"{scenario.path}: ok")
    return USAGE if problems else PASS


def _start(scenario: Scenario) -> list[str]:
    """What a fault makes of the way ranks are started."""
    names = [name for fault in scenario.faults if isinstance(fault, EnvFault) for name in fault.set]
    early = [name for name in names if is_import_time(name)]
    if not early or scenario.world.start == "fresh":
        return []
    return [f"{', '.join(early)}: libraries read this while they are imported, so every rank starts fresh"]
