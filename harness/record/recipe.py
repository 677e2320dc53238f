"""What the trials of an arm are made of, as one digest that the first line of every trial bears.

It ties each trial to the scenario, the code and the inputs that lie beside it in the evidence. Who changes one of them
afterwards has to write every trial anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from harness.forms.digest import fold, sha256
from harness.forms.strict_json import JSON

KEY = "recipe"


def recipe(
    *,
    scenario: bytes,
    overrides: Sequence[str],
    files: Mapping[str, str],
    arguments: Mapping[str, JSON],
    inputs: Mapping[str, str],
    environment: str | None,
) -> str:
    """One digest.

    Args:
        scenario: the scenario's file.
        overrides: what was given beside it, as the record keeps them.
        files: path to sha256 of the arm's code.
        arguments: of its entry, without the cell's axes.
        inputs: name to digest.
        environment: digest of the arm's own environment; None is the harness' own.
    """
    parts = {
        "scenario": sha256(scenario),
        "overrides": list(overrides),
        "code": fold(files),
        "arguments": dict(arguments),
        "inputs": dict(inputs),
        "environment": environment,
    }
    return sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode())
