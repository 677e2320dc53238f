"""The offline check of the flake: it passes, and each of these faults makes it fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.nix import check
from tests.nix.store import PROJECT, CheckFailed, Store
from tests.nix.wheels import tiny_environment

pytestmark = pytest.mark.whole

NIXPKGS = "github:NixOS/nixpkgs/"


@pytest.mark.slow
def test_the_flake_is_sound(store: Store) -> None:
    """The flake as it stands passes every step, and nothing of it is written into the project."""
    before = (PROJECT / "flake.lock").read_bytes()
    check.check(store, tell=lambda _: None)
    assert (PROJECT / "flake.lock").read_bytes() == before


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A change of one file, the step that must find it, and what its message must name."""

    file: str
    before: str
    after: str
    step: Callable[[Store], None]
    named: str


FAULTS = {
    "syntax": Fault(
        file="nix/source.nix",
        before="{ lib }:",
        after="{ lib:",
        step=check.parses,
        named="source.nix",
    ),
    "lock-of-another-branch": Fault(
        file="flake.nix",
        before="nixos-26.05",
        after="nixos-25.11",
        step=check.lock_answers,
        named="flake.lock does not answer",
    ),
    "input-without-lock": Fault(
        file="flake.nix",
        before="  outputs =",
        after='  inputs.other.url = "github:NixOS/other";\n  outputs =',
        step=check.lock_answers,
        named="flake.lock does not answer",
    ),
    "lock-without-hash": Fault(
        file="flake.lock",
        before='"narHash": "sha256-ugpsyk3NM2s87vXfUiIIiibbJ4Pp0JPS5p/3mfs+q+c=",',
        after="",
        step=check.lock_answers,
        named="nixpkgs has no narHash",
    ),
    "typo-on-darwin-only": Fault(
        file="nix/check.nix",
        before="      nativeBuildInputs = programs;",
        after='      nativeBuildInputs = if variant == "metal" then programms else programs;',
        step=check.parses,
        named="programms",
    ),
    "darwin-without-a-package": Fault(
        file="nix/default.nix",
        before="pkgs.openssh",
        after='(if variant == "metal" then pkgs.openssh-darwin else pkgs.openssh)',
        step=check.evaluates,
        named="openssh-darwin",
    ),
    "unknown-package": Fault(
        file="nix/environment.nix",
        before="pkgs.zlib",
        after="pkgs.zlibb",
        step=check.evaluates,
        named="zlibb",
    ),
    "variant-without-wheels": Fault(
        file="flake.nix",
        before='[ "metal" ]',
        after='[ "metal" "rocm" ]',
        step=check.evaluates,
        named="rocm",
    ),
    "system-dropped": Fault(
        file="flake.nix",
        before='      aarch64-linux = [ "cpu" "cuda" ];\n',
        after="",
        step=check.evaluates,
        named="packages.aarch64-linux has nothing",
    ),
    "output-dropped": Fault(
        file="flake.nix",
        before="      checks = each (piece: piece.check);\n",
        after="",
        step=check.evaluates,
        named="checks.x86_64-linux has nothing",
    ),
    "missing-file": Fault(
        file="nix/source.nix",
        before="../scenarios",
        after="../scenarioss",
        step=check.evaluates,
        named="toSource",
    ),
    "locks-moved-on": Fault(
        file="locks/cuda.txt",
        before="rich==",
        after="rich===",
        step=check.evaluates,
        named="locks/wheels.json was not made from this locks/cuda.txt. Run `nox -s lock`",
    ),
    "version-differs": Fault(
        file="locks/dev.txt",
        before="pytest==9",
        after="pytest==8",
        step=check.evaluates,
        named="locks/wheels.json was not made from this locks/dev.txt. Run `nox -s lock`",
    ),
    "wheel-of-no-python": Fault(
        file="locks/wheels.json",
        before='"python": "3.13"',
        after='"python": "3.1"',
        step=check.evaluates,
        named="python31",
    ),
    "wheel-without-tags": Fault(
        file="locks/wheels.json",
        before="anyio-4.16.0-py3-none-any.whl",
        after="anyio-4.16.0.whl",
        step=check.evaluates,
        named="anyio-4.16.0.whl is not a wheel's name. Run `nox -s lock`",
    ),
    "results-in-the-source": Fault(
        file="nix/source.nix",
        before="    ../LICENSE",
        after="    ../LICENSE\n    ../.",
        step=check.source_is_filtered,
        named="a file in results/ or docs/ changes what is built",
    ),
    "harness-not-in-the-source": Fault(
        file="nix/source.nix",
        before="    ../harness\n",
        after="",
        step=check.source_is_filtered,
        named="a new file in harness/ does not change",
    ),
    "shell-without-environment": Fault(
        file="nix/default.nix",
        before="programs = [ environment ",
        after="programs = [ ",
        step=check.develops,
        named="not the environment's own",
    ),
    "shell-does-not-say-which": Fault(
        file="nix/default.nix",
        before="    RANKPROOF_VARIANT = variant;",
        after='    RANKPROOF_VARIANT = "cuda";',
        step=check.develops,
        named="not the cpu environment",
    ),
    "shell-keeps-pythonpath": Fault(
        file="nix/shell.nix",
        before="unset PYTHONPATH PYTHONHOME",
        after="true",
        step=check.develops,
        named="PYTHONPATH is not unset",
    ),
    "shell-sets-library-path": Fault(
        file="nix/shell.nix",
        before="unset PYTHONPATH PYTHONHOME",
        after="unset PYTHONPATH PYTHONHOME; export LD_LIBRARY_PATH=/usr/lib",
        step=check.develops,
        named="LD_LIBRARY_PATH is set",
    ),
    "session-gone": Fault(
        file="noxfile.py",
        before="def validate(session",
        after="def validated(session",
        step=check.develops,
        named="no session validate",
    ),
    "app-drops-its-arguments": Fault(
        file="nix/programs.nix",
        before=" run \"''${arguments[@]}\"",
        after=" run",
        step=check.runs,
        named="nix run .#validate -- --help",
    ),
    "app-runs-something-else": Fault(
        file="nix/programs.nix",
        before='-P -m harness.cli "$@"',
        after='-P -c pass "$@"',
        step=check.runs,
        named="nix/programs.nix: `nix run",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(store: Store, name: str) -> None:
    """Each fault stops its step with a message that names it, so the check could have failed."""
    fault = FAULTS[name]
    path = store.flake / fault.file
    sound = path.read_text()
    assert fault.before in sound
    path.write_text(sound.replace(fault.before, fault.after, 1))
    if fault.step is check.runs:
        tiny_environment(store)
    with pytest.raises(CheckFailed, match=re.escape(fault.named)):
        fault.step(store)


def test_the_lock_is_that_of_the_flake() -> None:
    """Without Nix: flake.lock has the one input of flake.nix, its branch, its revision and a hash
    of it.
    """
    lock = json.loads((PROJECT / "flake.lock").read_text())
    node = lock["nodes"]["nixpkgs"]
    asked = node["original"]
    assert set(lock["nodes"]) == {"root", "nixpkgs"}
    assert f'inputs.nixpkgs.url = "{NIXPKGS}{asked["ref"]}"' in (PROJECT / "flake.nix").read_text()
    assert re.fullmatch("[0-9a-f]{40}", node["locked"]["rev"])
    assert re.fullmatch(r"sha256-[A-Za-z0-9+/]{43}=", node["locked"]["narHash"])


def test_the_flake_is_one_page() -> None:
    """flake.nix stays below 80 lines."""
    assert len((PROJECT / "flake.nix").read_text().splitlines()) < 80
