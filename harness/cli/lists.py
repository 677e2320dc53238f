"""The commands that list what there is: scenarios, ready-made subjects, kinds of faults, checks and
backends, schemas.

`rankproof list`, `faults`, `checks`, `backends` and `schema`; kinds of plug-ins are listed too.
"""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from harness.backends import KINDS as BACKENDS
from harness.checks import KINDS as CHECKS
from harness.cli import PASS, USAGE
from harness.cli.arguments import scenarios
from harness.faults import KINDS as FAULTS
from harness.forms.text import visible
from harness.plugins import PluginFailed
from harness.registry import Registry

# What is printed of a kind, by the command that lists it.
LISTS: dict[str, tuple[Registry[Any], Callable[[Any], Iterable[str]]]] = {
    "faults": (
        FAULTS,
        lambda kind: (
            kind.does,
            f"needs: {kind.needs}",
            f"example: {kind.example}",
            _here(kind.refusal()),
        ),
    ),
    "checks": (
        CHECKS,
        lambda kind: (_first_paragraph(kind), f"example: {kind.example}"),
    ),
    "backends": (BACKENDS, lambda kind: (kind.description, _here(kind.refusal(size=2)))),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command; its name is the last word of the parser's."""
    name = parser.prog.rpartition(" ")[2]
    if name == "list":
        scenarios(parser)
        parser.add_argument(
            "--subjects",
            action="store_true",
            help="list the ready-made subjects instead, with their purpose, arguments and events",
        )
    elif name == "schema":
        parser.add_argument(
            "what",
            nargs="?",
            choices=("scenario", "policy", "gate"),
            default="scenario",
            help="schema to print: for scenario files (default), policy files, or the output of"
            " `gate --json`",
        )


def main(options: argparse.Namespace) -> int:
    """List what was asked for."""
    if options.command == "schema":
        return _print_schema(options.what)
    if options.command != "list":
        return _print_kinds(*LISTS[options.command])
    if options.subjects:
        from harness.subjects import READY

        return _print_kinds(
            READY, _lines, about=lambda subject: f"  ({', '.join(subject.backends)})"
        )
    return _print_scenarios(options)


def _print_scenarios(options: argparse.Namespace) -> int:
    """List scenarios, one line each and one per cell."""
    from harness.cli.arguments import load_all
    from harness.scenario import cells

    loaded, problems = load_all(options.scenarios, ())
    for file in loaded:
        scenario = file.scenario
        expects = f", expects {scenario.expects}" if scenario.expects else ""
        demand = ", on demand" if {"on-demand", "sweep"} & set(scenario.tags) else ""
        print(f"{scenario.id}  ({scenario.role}{expects}{demand})  {file.path}")
        print(f"    {scenario.title}")
        control = scenario.trials.control if scenario.subject.control else 0
        for cell in cells(scenario):
            print(f"    {cell.id}: {scenario.trials.candidate} + {control} trials")
    return USAGE if problems else PASS


def _print_schema(what: str) -> int:
    """Print a JSON Schema: of a scenario, of a policy, or of what a gate prints."""
    if what == "scenario":
        from harness.scenario import schema_text

        print(schema_text(), end="")
        return PASS
    from harness.gate.decision import Decision
    from harness.gate.policy import Policy

    schema = (Policy if what == "policy" else Decision).model_json_schema()
    print(json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False))
    return PASS


def _print_kinds(
    registry: Registry[Any],
    lines: Callable[[Any], Iterable[str]],
    *,
    about: Callable[[Any], str] = lambda _: "",
) -> int:
    """Print every kind, `about` behind its name, what its `lines` say, where it is from.

    And what cannot be used.
    """
    for name, kind in registry.items():
        print(f"{name}{about(kind)}")
        try:
            with registry.guarded(name):
                text = list(lines(kind))
        except PluginFailed as error:
            text = [visible(str(error), 400)]
        for line in text:
            print(f"    {line}")
        if name in registry.plugins:
            plugin = registry.plugins[name]
            print(f"    from:  {plugin.distribution} {plugin.version}, sha256 {plugin.sha256}")
    for name, reason in registry.broken.items():
        print(f"{name}\n    {visible(reason, 400)}")
    return PASS


def _lines(subject: Any) -> Iterator[str]:
    """Yield what is printed of a ready-made subject."""
    yield subject.does
    for key, argument in subject.arguments.items():
        allowed = f": {', '.join(argument.choices)}" if argument.choices else ""
        yield f"with {key} (default {argument.default}{allowed})"
        yield f"    {argument.does}"
    for event, keys in subject.emits.items():
        yield f"emits {event}{': ' + ', '.join(keys) if keys else ''}"


def _first_paragraph(kind: type) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join(f"{inspect.getdoc(kind)}".partition("\n\n")[0].split())


def _here(refusal: object) -> str:
    return f"here:  {f'no: {refusal}' if refusal else 'yes'}"
