"""Tested files: `evidence/source-files.sha256`, and the digest that ties each trial to all that it
was made of.

One digest of the list, which is written as `sha256sum` writes it, names the tested source, also
where a tree was dirty or the code lies in no repository. `sha256sum -c
evidence/source-files.sha256` in the results folder checks it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from harness.forms.digest import fold, sha256
from harness.forms.manifest import encode
from harness.forms.strict_json import JSON
from harness.record.facts import SOURCE_FOLDER

PATH = "evidence/source-files.sha256"
KEY = "recipe"


def listing(digests: Mapping[str, str]) -> bytes:
    """Return the list of both arms' files.

    Args:
        digests: path in the results folder to sha256 in hex; what lies outside `evidence/source/`
            is left out.
    """
    return encode(
        {path: digest for path, digest in digests.items() if path.startswith(f"{SOURCE_FOLDER}/")}
    )


def of_arm(digests: Mapping[str, str], arm: str) -> dict[str, str]:
    """One arm's files among them, by their path in its folder."""
    prefix = f"{SOURCE_FOLDER}/{arm}/"
    return {
        path[len(prefix) :]: digest for path, digest in digests.items() if path.startswith(prefix)
    }


def recipe(
    *,
    scenario: bytes,
    overrides: Sequence[str],
    files: Mapping[str, str],
    arguments: Mapping[str, JSON],
    inputs: Mapping[str, str],
    environment: str | None,
) -> str:
    """Return what the trials of an arm are made of, as one digest that the first line of every
    trial bears.

    Who changes the scenario, the code or an input that lies beside a trial has to write every trial
    anew.

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
