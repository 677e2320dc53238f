"""What Nix says of the environment that this interpreter is of.

Starts no Nix: its shell left all of it in variables.

* `RANKPROOF_ENV`: the environment's store path.
* `RANKPROOF_NIX`: a file with the digests of flake.lock and of the nixpkgs that was used.
* `RANKPROOF_SHELL`: the shell's derivation path. `RANKPROOF_SOURCE`: the code's store path, under
  `nix run`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from harness.forms.digest import sha256
from harness.record import repository
from harness.record.facts import NixFacts
from harness.world.control import rank_environment
from harness.world.control.names import ROOT

SOURCES = (
    "flake.nix",
    "flake.lock",
    "nix/",
    "locks/",
    "harness/",
    "scenarios/",
    "pyproject.toml",
    "noxfile.py",
)
SHOWN = 20


def describe(*, wheels_sha256: str | None, project: Path = Path(ROOT)) -> NixFacts | None:
    """Describe the Nix environment, or None where this interpreter is not of one.

    A variable alone makes no Nix environment: this interpreter must be the one in it, and Nix must
    have built it.

    Args:
        wheels_sha256: of the table of wheels that the environment says it was built from.
        project: the folder of the flake.
    """
    given = os.environ.get("RANKPROOF_ENV")
    if not given or wheels_sha256 is None or not _is_of(Path(given)):
        return None
    facts = _facts_of_shell()
    source = os.environ.get("RANKPROOF_SOURCE") or None
    status = None if source else repository.status(project)
    tree = {"flake.lock": facts.get("flake_lock_sha256"), "locks/wheels.json": wheels_sha256}
    return NixFacts(
        environment=given,
        shell=os.environ.get("RANKPROOF_SHELL") or None,
        flake_lock_sha256=facts.get("flake_lock_sha256"),
        wheels_sha256=wheels_sha256,
        nixpkgs=facts.get("nixpkgs"),
        as_locked=(
            facts["nixpkgs"] == facts["flake_lock_nixpkgs"]
            if {"nixpkgs", "flake_lock_nixpkgs"} <= set(facts)
            else None
        ),
        source=source,
        stale=(
            []
            if source
            else [name for name, was in tree.items() if was and _sha256(project / name) != was]
        ),
        changed=(
            None
            if status is None
            else [line[3:] for line in status if not line.startswith("??")][:SHOWN]
        ),
        untracked=(
            None
            if status is None
            else [name for name in _new(status) if name.startswith(SOURCES)][:SHOWN]
        ),
        driver=(
            sorted(path.resolve().name for path in rank_environment.find_driver().values())
            if rank_environment.is_driver_wanted()
            else []
        ),
    )


def _is_of(folder: Path) -> bool:
    try:
        return Path(sys.prefix).samefile(folder)
    except OSError:
        return False


def _facts_of_shell() -> dict[str, str]:
    try:
        shell = json.loads(Path(os.environ["RANKPROOF_NIX"]).read_text())
    except (KeyError, OSError, ValueError):
        return {}
    return (
        {key: value for key, value in shell.items() if isinstance(value, str)}
        if isinstance(shell, dict)
        else {}
    )


def _new(status: list[str]) -> list[str]:
    return [line[3:].strip('"') for line in status if line.startswith("??")]


def _sha256(path: Path) -> str | None:
    try:
        return sha256(path.read_bytes())
    except OSError:
        return None
