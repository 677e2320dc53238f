"""Making an environment: a virtual environment, the wheels of checkouts, what pip chose, and what
is there then.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.forms.distribution import normal, wheel_digest
from harness.reason import SkipCode
from harness.record.facts import ArmEnvironmentFacts, CheckoutFacts, Installed
from harness.run.environments import pip
from harness.run.environments.interpreters import Interpreter
from harness.run.environments.pip import EnvironmentProblem, Resolved, Unavailable
from harness.run.environments.plan import Plan, for_cpu, plan
from harness.run.environments.supply import Supply
from harness.scenario import Environment
from harness.scenario.environment import unmet_requirements

WHEELS = "wheels"
"""Folder of an environment with what was built for it.

So it is among the files that must stay as they are.
"""
Says = Callable[[str], None]


@dataclass(frozen=True)
class _Laid:
    """An interpreter with nothing in it, the wheels of checkouts, and what else pip chose.

    No plan without packages.
    """

    python: Path
    checkouts: Mapping[str, CheckoutFacts]
    plan: Plan | None


def make(
    folder: Path, wanted: Environment, supply: Supply, *, base: Interpreter, says: Says
) -> ArmEnvironmentFacts:
    """Make an environment in a folder that is not there yet; `says` hears what will be installed
    before it is.

    Raises:
        Unavailable: an interpreter or a package that cannot be had here.
        EnvironmentProblem: it cannot be made as it is asked for.
    """
    laid = _lay(folder, wanted, supply, base=base, says=says)
    resolved: list[Resolved] = []
    if laid.plan is not None:
        says(f"installing {laid.plan}")
        resolved = pip.install(laid.python, laid.plan.chosen, laid.plan.request, base=base)
        if different := set(map(str, resolved)) ^ set(map(str, laid.plan.chosen)):
            raise EnvironmentProblem(
                f"pip installed other packages than it had chosen: {min(different)}"
            )
    facts = ArmEnvironmentFacts(
        python=base.version,
        implementation=base.implementation,
        packages=_installed(folder, resolved),
        requirements=supply.digest,
        checkouts=dict(laid.checkouts),
    )
    lacking = list(wanted.unmet(python=facts.python, packages=facts.versions))
    if supply.text is not None:
        files = {package.name: (package.version, package.wheel) for package in facts.packages}
        lacking += unmet_requirements(supply.requirements, files, built=supply.checkouts)
    if lacking:
        raise EnvironmentProblem(f"pip did not install what was asked for: {'; '.join(lacking)}")
    return facts


def preview(wanted: Environment, supply: Supply, *, base: Interpreter, says: Says) -> Plan | None:
    """What would be installed; None where it is an interpreter alone.

    Raises:
        Unavailable, EnvironmentProblem: as for `make`.
    """
    with tempfile.TemporaryDirectory(prefix="rankproof-preview-") as folder:
        return _lay(Path(folder, "environment"), wanted, supply, base=base, says=says).plan


def _lay(
    folder: Path, wanted: Environment, supply: Supply, *, base: Interpreter, says: Says
) -> _Laid:
    _venv(folder, base)
    python = folder / "bin" / "python"
    checkouts: dict[str, CheckoutFacts] = {}
    wheels: dict[str, Path] = {}
    for name, source in supply.checkouts.items():
        built = source.wheel(python, base=base, says=says)
        place = wheels[name] = folder / WHEELS / built.facts.wheel
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(built.wheel)
        checkouts[name] = built.facts
    asked = bool(wanted.packages) or supply.text is not None
    if asked and for_cpu(wanted) and (caution := pip.caution(base)):
        says(caution)
    return _Laid(
        python, checkouts, plan(python, wanted, supply, wheels, base=base) if asked else None
    )


def _venv(folder: Path, base: Interpreter) -> None:
    """A virtual environment without pip: what is not asked for is not there."""
    done = subprocess.run(
        [str(base.path), "-I", "-m", "venv", "--without-pip", str(folder)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        if "No space left" in done.stderr:
            raise pip.problem(done.stderr, requirements=[], python=base.version)
        message = f"Python {base.version} makes no virtual environment: {pip.scrubbed(words)}"
        raise Unavailable(message, code=SkipCode.MACHINE_INTERPRETER)


def _installed(folder: Path, resolved: list[Resolved]) -> list[Installed]:
    """Everything that is installed, each with the digest of its wheel and of its files."""
    places = [str(path) for path in folder.glob("lib/python*/site-packages")]
    records: dict[str, tuple[str, str | None]] = {}
    for distribution in importlib.metadata.distributions(path=places):
        records[normal(distribution.metadata["Name"])] = (
            distribution.version,
            distribution.read_text("RECORD"),
        )
    told = {one.name: one.version for one in resolved}
    for name in sorted(records.keys() | told.keys()):
        there = records[name][0] if name in records else "nothing"
        if told.get(name) != there:
            raise EnvironmentProblem(
                f"pip tells that it installed {name} {told.get(name, 'not at all')}, and {there} is"
                " there: is its configuration elsewhere?"
            )
    packages = []
    for package in resolved:
        _, record = records[package.name]
        if record is None:
            raise EnvironmentProblem(
                f"{package.name} {package.version} has no RECORD: its files are unknown"
            )
        packages.append(
            Installed(
                name=package.name,
                version=package.version,
                wheel=package.wheel,
                record=wheel_digest(record),
            )
        )
    return packages
