"""What arms' environments were made from beside an index, held against its evidence: requirements,
built wheels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from harness.forms.digest import sha256
from harness.forms.distribution import (
    MODULE_SUFFIXES,
    WheelError,
    evident_wheel,
    wheel_digest,
    wheel_identity,
)
from harness.record.facts import (
    ENVIRONMENT_FOLDER,
    REQUIREMENTS,
    ArmEnvironmentFacts,
    CheckoutFacts,
    Installed,
)
from harness.record.model import RecordError
from harness.scenario import Environment, ScenarioError
from harness.scenario.environment import parse_requirements, unmet_requirements
from harness.stats.provenance import Checkout

Read = Callable[[str], bytes]
HEAD = "HEAD"


def demand(
    arm: str, wanted: Environment, made: ArmEnvironmentFacts, read: Read, names: Collection[str]
) -> dict[str, Checkout]:
    """Refuse an environment that is not made from what its evidence holds.

    Returns:
        What each package is that was built from a checkout, by normal name.

    Raises:
        RecordError: it was made from something else, or the evidence is missing.
    """
    file = f"{ENVIRONMENT_FOLDER}/{arm}/{REQUIREMENTS}"
    text = read(file) if file in names else None
    if (text is not None) != (wanted.requirements is not None) or made.requirements != (
        text and sha256(text)
    ):
        raise RecordError(
            f"the {arm}'s file of requirements is not the scenario's, or not the one that is kept"
        )
    if text is not None:
        try:
            lines = parse_requirements(text, name=file)
        except ScenarioError as error:
            raise RecordError(
                f"the {arm}'s file of requirements cannot be read again: {error}"
            ) from None
        files = {package.name: (package.version, package.wheel) for package in made.packages}
        if wrong := next(unmet_requirements(lines, files, built=wanted.checkouts), ""):
            raise RecordError(
                f"the {arm}'s environment is not what its file of requirements asks for: {wrong}"
            )
    if made.checkouts.keys() != wanted.checkouts.keys():
        raise RecordError(
            f"the {arm}'s packages from checkouts are not those that the scenario names"
        )
    by_name = {package.name: package for package in made.packages}
    for name, given in wanted.checkouts.items():
        if made.checkouts[name].rev != (given.rev or HEAD):
            raise RecordError(
                f"the {arm}'s {name} was built from {made.checkouts[name].rev}, not from the"
                " scenario's"
            )
    return {
        name: _checkout(arm, by_name[name], facts, read, names)
        for name, facts in made.checkouts.items()
    }


def demand_all_used(
    made: Mapping[str, ArmEnvironmentFacts],
    wanted: Mapping[str, Environment],
    names: Collection[str],
) -> None:
    """Refuse what lies in the folder of environments and belongs to none.

    Raises:
        RecordError: there is such a file.
    """
    known = {
        # It is kept also where the environment could not be made.
        f"{ENVIRONMENT_FOLDER}/{arm}/{REQUIREMENTS}"
        for arm, given in wanted.items()
        if given.requirements is not None
    }
    known |= {
        f"{ENVIRONMENT_FOLDER}/{arm}/{one.wheel}"
        for arm, facts in made.items()
        for one in facts.checkouts.values()
    }
    there = {name for name in names if name.startswith(f"{ENVIRONMENT_FOLDER}/")}
    if odd := sorted(there - known):
        raise RecordError(f"a file that this run does not account for: {odd[0]}")


def _checkout(
    arm: str, package: Installed, facts: CheckoutFacts, read: Read, names: Collection[str]
) -> Checkout:
    """Return the wheel that was built is the one that was installed, and its files are those that
    its RECORD said there.
    """
    path = f"{ENVIRONMENT_FOLDER}/{arm}/{facts.wheel}"
    if path not in names:
        raise RecordError(f"the wheel that {package.name} was installed from is missing: {path}")
    data = read(path)
    if sha256(data) != package.wheel:
        raise RecordError(f"{path} is not the wheel that {package.name} was installed from")
    try:
        files = evident_wheel(data)
        name, version = wheel_identity(files)
    except WheelError as error:
        raise RecordError(f"{path} is not a wheel as runs keep them: {error}") from None
    if (name, version) != (package.name, package.version):
        raise RecordError(f"{path} is of {name} {version}, not of {package.name} {package.version}")
    told = next((text for file, text in files.items() if file.endswith(".dist-info/RECORD")), b"")
    # What a wheel lays elsewhere than among the packages, its RECORD lists under other names once
    # installed.
    elsewhere = any(file.partition("/")[0].endswith(".data") for file in files)
    if not elsewhere and wheel_digest(told.decode("utf-8", "surrogateescape")) != package.record:
        raise RecordError(f"{path} has other files than {package.name} that was installed")
    modules = frozenset(
        sha256(text) for file, text in files.items() if file.endswith(MODULE_SUFFIXES)
    )
    return Checkout(commit=facts.commit, files=facts.files, wheel=modules)
