"""`rankproof schema`."""

from __future__ import annotations

import argparse
import json

from harness.cli import PASS
from harness.scenario import schema_text


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=("scenario", "policy", "gate"),
        default="scenario",
        help="scenario (default) and policy: the files; gate: what `gate --json` prints",
    )


def main(options: argparse.Namespace) -> int:
    """Print a JSON Schema: of a scenario, of a policy, or of what a gate prints."""
    if options.what == "scenario":
        print(schema_text(), end="")
        return PASS
    from harness.gate.decision import Decision
    from harness.gate.policy import Policy

    schema = (Policy if options.what == "policy" else Decision).model_json_schema()
    print(json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False))
    return PASS
