"""`rankproof schema`."""

from __future__ import annotations

import argparse
import json
from typing import Any

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
    else:
        print(json.dumps(_schema(options.what), indent=2, sort_keys=True, ensure_ascii=False))
    return PASS


def _schema(what: str) -> dict[str, Any]:
    if what == "policy":
        from harness.gate.policy import Policy

        return Policy.model_json_schema(by_alias=True)
    from harness.gate.decision import Decision

    return Decision.model_json_schema()
