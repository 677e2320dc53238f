"""Surroundings of the arms, in the record: environments of their own and what these were made from,
and what ranks loaded beside their arm's folder.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping

from harness.forms.digest import sha256
from harness.forms.distribution import (
    MODULE_SUFFIXES,
    WheelError,
    evident_wheel,
    normal,
    wheel_digest,
    wheel_identity,
)
from harness.reason import RefusalWord
from harness.record import plugins
from harness.record.facts import (
    ENVIRONMENT_FOLDER,
    REQUIREMENTS,
    ArmEnvironmentFacts,
    CheckoutFacts,
    Installed,
    RunFacts,
    SourceFacts,
    installed,
)
from harness.record.model import Contradiction, RecordError
from harness.scenario import Environment, Scenario, ScenarioError
from harness.scenario.environment import bare, parse_requirements, unmet_requirements
from harness.scenario.service import Service
from harness.stats.arm_code import JudgedEnvironment
from harness.stats.counterparts import BuiltCheckout, Counterparts, Source, spread
from harness.stats.provenance import FOLDER, TOOL, path_of, releases
from harness.stats.verdict import Judgement


def compared(arms: Collection[str]) -> tuple[str, str]:
    """Return the arms between which the report says what changed, of those there are: from the
    first one to the second.
    """
    return ("reference" if "reference" in arms else "control"), "candidate"


def missing(scenario: Scenario, run: RunFacts) -> list[str]:
    """Arms whose environment could not be made: no cell can run then."""
    return [arm for arm in scenario.subject.environments if arm not in run.environments]


def arm_environments(
    scenario: Scenario, run: RunFacts, read: Callable[[str], bytes], names: Collection[str]
) -> dict[str, JudgedEnvironment]:
    """Return what the verdict needs to know of each environment that was made.

    Args:
        scenario: what was asked for.
        run: what was made.
        read: gives the bytes of an evidence file by its path.
        names: the paths there are.

    Raises:
        RecordError: one that the scenario does not ask for, that is not what it asks for, or that
            was not made from what the evidence holds.
    """
    wanted = scenario.subject.environments
    demand_all_supplies_used(run.environments, wanted, names)
    by_arm = {}
    for arm, facts in run.environments.items():
        if arm not in wanted:
            raise RecordError(
                f"the run has an environment for {scenario.subject.named(arm)}, but the scenario"
                " does not ask for an environment"
            )
        listed = [package.name for package in facts.packages]
        if listed != sorted({normal(name) for name in listed}):
            raise RecordError(
                f"the packages of the {arm}'s environment are not sorted, or a package is listed"
                " twice"
            )
        if unmet := next(wanted[arm].unmet(python=facts.python, packages=facts.versions), ""):
            raise RecordError(
                f"the {arm}'s environment does not meet the scenario's requirements: {unmet}"
            )
        # A file of requirements names every package.
        named = {bare(name) for name in wanted[arm].packages} | (
            facts.versions.keys() if facts.requirements else set()
        )
        by_arm[arm] = JudgedEnvironment(
            digest=facts.content,
            python=facts.python,
            implementation=facts.implementation,
            named={
                package.name: (package.version, package.record)
                for package in facts.packages
                if package.name in named
            },
            checkouts=demand_supplies(arm, wanted[arm], facts, read, names),
        )
    return by_arm


def differing(
    scenario: Scenario,
    environments: Mapping[str, ArmEnvironmentFacts],
    named: Mapping[str, Iterable[str]],
) -> frozenset[str]:
    """Normal names of the packages that the scenario names for one of the arms, and that are not
    known to be the same.

    Of what the harness' own environment holds nobody knows the wheel: a package beside it counts as
    another one.

    Args:
        scenario: what is asked.
        environments: the environments of the arms that have their own.
        named: what the scenario names for each of them.
    """
    sides = compared(scenario.subject.arms)
    wanted = scenario.subject.environments
    if (
        any(arm not in scenario.subject.arms for arm in sides)
        or not wanted.keys() <= environments.keys()
    ):
        return frozenset()
    wheels = [
        {package.name: package.wheel for package in environments[arm].packages}
        for arm in sides
        if arm in environments
    ]
    names = frozenset(name for arm in sides if arm in environments for name in named[arm])
    return frozenset(
        name for name in names if len(wheels) < 2 or wheels[0].get(name) != wheels[1].get(name)
    )


def changed_environment(scenario: Scenario, run: RunFacts) -> list[str]:
    """How the environments of the arms differ, from the control's (or a's) to the candidate's, as
    lines of a diff.

    Of an environment beside the harness' own only what the former holds is compared: the harness
    has much that no arm asks for.
    """
    other, _ = compared(scenario.subject.arms)
    if not run.environments or other not in run.arguments or missing(scenario, run):
        return []
    before = installed(run, other)
    after = installed(run, "candidate")
    lines = [] if before[0] == after[0] else [f"-python {before[0]}", f"+python {after[0]}"]
    sides = [
        set(run.environments[arm].versions)
        for arm in (other, "candidate")
        if arm in run.environments
    ]
    for name in sorted(set[str]().union(*sides)):
        old = before[1].get(name)
        new = after[1].get(name)
        if old != new:
            lines += [f"-{name} {old}"] if old else []
            lines += [f"+{name} {new}"] if new else []
    own = {arm: arm in run.environments for arm in (other, "candidate")}
    if own[other] != own["candidate"]:
        words = {True: "an environment of its own", False: "the environment of the harness"}
        lines = [f"-in {words[own[other]]}", f"+in {words[own['candidate']]}", *lines]
    elif not lines and len({environment.content for environment in run.environments.values()}) > 1:
        lines = ["-other files of the same versions", "+other files of the same versions"]
    return lines


def changed_services(scenario: Scenario) -> list[str]:
    """How the services of the arms differ, as lines of a diff."""
    other, newer = compared(scenario.subject.arms)
    lines: list[str] = []
    after = scenario.services_of(newer)
    for name, before in scenario.services_of(other).items():
        for sign, service in (("-", before), ("+", after[name])):
            if before != after[name]:
                lines.append(f"{sign}service {name}: {_command(service)}")
    return lines


def _command(service: Service) -> str:
    variables = [f"{key}={shlex.quote(value)}" for key, value in sorted(service.env.items())]
    return " ".join([*variables, shlex.join(service.program)])


def repositories(
    scenario: Scenario,
    run: RunFacts,
    environments: Mapping[str, JudgedEnvironment],
    arms: Mapping[str, Collection[str]],
) -> dict[str, Source]:
    """Return what the repository of each arm holds of the code that was not staged.

    Args:
        scenario: what was asked.
        run: what was made.
        environments: of the arms that have their own.
        arms: the files of each arm's folder.

    Raises:
        RecordError: it does not tell of each arm.
    """
    if sorted(run.provenance) != sorted(run.arguments):
        raise RecordError("the run does not record what the repository contained for each arm")
    brought = frozenset(digest for one in run.inputs for digest in one.files.values())
    acting = plugins.inside(run)
    others = differing(
        scenario, run.environments, {arm: one.named for arm, one in environments.items()}
    )
    return {
        arm: Source(
            declared=frozenset(facts.declared),
            files=facts.files,
            inputs=brought,
            plugins=acting,
            named=frozenset(environments[arm].named) if arm in environments else (),
            checkouts=environments[arm].checkouts if arm in environments else {},
            installed=scenario.subject.of == "installed",
            differing=others,
            counterparts=_counterparts(facts, arms[arm]),
        )
        for arm, facts in run.provenance.items()
    }


def _counterparts(facts: SourceFacts, files: Collection[str]) -> Counterparts:
    roots = {
        name: [(prefix, folder) for prefix, folder in places]
        for name, places in facts.roots.items()
    }
    return Counterparts(
        roots=roots, files=facts.files, installed=facts.installed, hidden=spread(files)
    )


def demand_lists(
    judgement: Judgement, read: Callable[[str], bytes], names: Collection[str]
) -> None:
    """Refuse lists of what ranks had loaded that are not those that their events name.

    Raises:
        RecordError: one is missing, changed, or of no rank.
    """
    listed = {
        path_of(digest)
        for cell in judgement.cells
        if cell.ran is not None
        for digests in cell.ran.lists.values()
        for digest in digests
    }
    there = {name for name in names if name.startswith(f"{FOLDER}/")}
    if odd := sorted(listed ^ there):
        raise RecordError(f"{odd[0]} is {'missing' if odd[0] in listed else 'not from any rank'}")
    for name in sorted(there):
        if path_of(sha256(read(name))) != name:
            raise RecordError(f"{name} does not match the digest that its rank listed")


def demand_releases(
    scenario: Scenario, run: RunFacts, judgement: Judgement, read: Callable[[str], bytes]
) -> None:
    """Refuse a run whose environment lists another release of a distribution than its ranks loaded.

    Only on the machine that the environment describes, and where the scenario adds no folder to the
    import path: a release that ranks find elsewhere is not the one that is installed.

    Raises:
        Contradiction: an arm's ranks loaded a release that its environment does not list.
    """
    elsewhere = (
        run.machines is not None or run.farm is not None or "PYTHONPATH" in scenario.world.env
    )
    if elsewhere:
        return
    lists: dict[str, set[str]] = {}
    for cell in judgement.cells:
        for arm, named in cell.ran.lists.items() if cell.ran is not None else ():
            lists.setdefault(arm, set()).update(named)
    for arm, digests in sorted(lists.items()):
        _, versions = installed(run, arm if arm in run.arguments else "candidate")
        for path in sorted(map(path_of, digests)):
            for name, version in sorted(releases(read(path))):
                listed = versions.get(name, version).partition(" (commit ")[0]
                if name == TOOL and arm not in run.environments:
                    listed = run.rankproof
                if listed != version:
                    why = (
                        f"a rank of the {arm} loaded {name} {version}, but its environment lists"
                        f" {listed}"
                    )
                    raise Contradiction(RefusalWord.EVENTS_OF_ANOTHER_TRIAL, f"{path}: {why}")


Read = Callable[[str], bytes]
HEAD = "HEAD"


def demand_supplies(
    arm: str, wanted: Environment, made: ArmEnvironmentFacts, read: Read, names: Collection[str]
) -> dict[str, BuiltCheckout]:
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
            f"the {arm}'s requirements file differs from the scenario's or from the saved file"
        )
    if text is not None:
        try:
            lines = parse_requirements(text, name=file)
        except ScenarioError as error:
            raise RecordError(
                f"the {arm}'s requirements file cannot be read again: {error}"
            ) from None
        files = {package.name: (package.version, package.wheel) for package in made.packages}
        if wrong := next(unmet_requirements(lines, files, built=wanted.checkouts), ""):
            raise RecordError(
                f"the {arm}'s environment does not match its requirements file: {wrong}"
            )
    if made.checkouts.keys() != wanted.checkouts.keys():
        raise RecordError(f"the {arm}'s packages from checkouts differ from the scenario's")
    by_name = {package.name: package for package in made.packages}
    for name, given in wanted.checkouts.items():
        if made.checkouts[name].rev != (given.rev or HEAD):
            raise RecordError(
                f"the {arm}'s {name} was built from {made.checkouts[name].rev}, not from the"
                " scenario's revision"
            )
    return {
        name: _checkout(arm, by_name[name], facts, read, names)
        for name, facts in made.checkouts.items()
    }


def demand_all_supplies_used(
    environments: Mapping[str, ArmEnvironmentFacts],
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
        f"{ENVIRONMENT_FOLDER}/{arm}/{checkout.wheel}"
        for arm, facts in environments.items()
        for checkout in facts.checkouts.values()
    }
    there = {name for name in names if name.startswith(f"{ENVIRONMENT_FOLDER}/")}
    if odd := sorted(there - known):
        raise RecordError(f"this run does not account for the file {odd[0]}")


def _checkout(
    arm: str, package: Installed, facts: CheckoutFacts, read: Read, names: Collection[str]
) -> BuiltCheckout:
    """Demand that the wheel that was built is the one that was installed, with the files that its
    RECORD said there; return what the checkout gave.
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
        raise RecordError(
            f"{path} is not a wheel in the format that is stored with a run: {error}"
        ) from None
    if (name, version) != (package.name, package.version):
        raise RecordError(f"{path} contains {name} {version}, not {package.name} {package.version}")
    record = next((text for file, text in files.items() if file.endswith(".dist-info/RECORD")), b"")
    # What a wheel lays elsewhere than among the packages, its RECORD lists under other names once
    # installed.
    elsewhere = any(file.partition("/")[0].endswith(".data") for file in files)
    if not elsewhere and wheel_digest(record.decode("utf-8", "surrogateescape")) != package.record:
        raise RecordError(
            f"the files in {path} differ from the files of the installed {package.name}"
        )
    modules = frozenset(
        sha256(text) for file, text in files.items() if file.endswith(MODULE_SUFFIXES)
    )
    return BuiltCheckout(commit=facts.commit, files=facts.files, wheel=modules)
