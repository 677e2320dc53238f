"""`rankproof list`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from harness.cli import PASS, USAGE
from harness.cli.arguments import scenarios
from harness.cli.kinds import print_kinds
from harness.cli.load import load_all
from harness.scenario import cells
from harness.subjects import READY, ReadySubject


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    scenarios(parser)
    parser.add_argument(
        "--subjects", action="store_true", help="list the ready subjects instead: what each does, takes and emits"
    )


def main(options: argparse.Namespace) -> int:
    """List scenarios, one line each and one per cell; or the ready subjects."""
    if options.subjects:
        return print_kinds(READY, _lines, about=lambda subject: f"  ({', '.join(subject.backends)})")
    loaded, problems = load_all(options.scenarios, ())
    for one in loaded:
        scenario = one.scenario
        expects = f", expects {scenario.expects}" if scenario.expects else ""
        demand = ", on demand" if {"on-demand", "sweep"} & set(scenario.tags) else ""
        print(f"{scenario.id}  ({scenario.role}{expects}{demand})  {one.path}")
        print(f"    {scenario.title}")
        control = scenario.trials.control if scenario.subject.control else 0
        for cell in cells(scenario):
            print(f"    {cell.id}: {scenario.trials.candidate} + {control} trials")
    return USAGE if problems else PASS


def _lines(subject: ReadySubject) -> Iterator[str]:
    yield subject.does
    for key, argument in subject.arguments.items():
        allowed = f": {', '.join(argument.choices)}" if argument.choices else ""
        yield f"with {key} (default {argument.default}{allowed})"
        yield f"    {argument.does}"
    for event, keys in subject.emits.items():
        yield f"emits {event}{': ' + ', '.join(keys) if keys else ''}"
