"""The environments of the arms in the record: what the scenario asks for, what was made, how the arms differ in it."""

from __future__ import annotations

from harness.forms.distribution import normal
from harness.record.facts import ArmEnvironmentFacts, RunFacts
from harness.record.model import RecordError
from harness.scenario import Environment, Scenario
from harness.stats.provenance import ArmEnvironment


def own_environments(scenario: Scenario) -> dict[str, Environment]:
    """The environment of each arm that does not run in the harness' own."""
    subject = scenario.subject
    arms = {"candidate": subject.candidate, "control": subject.control}
    by_arm = {name: subject.environment_of(arm) for name, arm in arms.items() if arm is not None}
    return {name: environment for name, environment in by_arm.items() if environment is not None}


def missing(scenario: Scenario, run: RunFacts) -> list[str]:
    """Arms whose environment could not be made: no cell can run then."""
    return [arm for arm in own_environments(scenario) if arm not in run.environments]


def arm_environments(scenario: Scenario, run: RunFacts) -> dict[str, ArmEnvironment]:
    """What the verdict needs to know of each environment that was made.

    Raises:
        RecordError: one that the scenario does not ask for, or that is not what it asks for.
    """
    wanted = own_environments(scenario)
    by_arm = {}
    for arm, made in run.environments.items():
        if arm not in wanted:
            raise RecordError(f"the run has an environment for the {arm}, the scenario asks for none")
        names = [package.name for package in made.packages]
        if names != sorted({normal(name) for name in names}):
            raise RecordError(f"the packages of the {arm}'s environment are not in order, or one is there twice")
        if not wanted[arm].is_met_by(python=made.python, packages=made.versions):
            raise RecordError(f"the {arm}'s environment is not what the scenario asks for")
        by_arm[arm] = ArmEnvironment(
            digest=made.digest,
            python=made.python,
            implementation=made.implementation,
            named={
                package.name: (package.version, package.record)
                for package in made.packages
                if package.name in wanted[arm].packages
            },
        )
    return by_arm


def installed(run: RunFacts, arm: str) -> tuple[str, dict[str, str]]:
    """The Python version of an arm and its packages by normal name: its own environment's, or the harness'."""
    own: ArmEnvironmentFacts | None = run.environments.get(arm)
    if own is not None:
        return own.python, own.versions
    return run.environment.python, {normal(package.name): package.version for package in run.environment.packages}


def changed_environment(scenario: Scenario, run: RunFacts) -> list[str]:
    """How the environments of the arms differ, from the control's to the candidate's, as lines of a diff.

    Of an environment beside the harness' own only what the former holds is compared: the harness has much that no arm
    asks for.
    """
    if not run.environments or "control" not in run.arguments or missing(scenario, run):
        return []
    before, after = installed(run, "control"), installed(run, "candidate")
    lines = [] if before[0] == after[0] else [f"-python {before[0]}", f"+python {after[0]}"]
    sides = [set(run.environments[arm].versions) for arm in ("control", "candidate") if arm in run.environments]
    for name in sorted(set[str]().union(*sides)):
        old, new = before[1].get(name), after[1].get(name)
        if old != new:
            lines += [f"-{name} {old}"] if old else []
            lines += [f"+{name} {new}"] if new else []
    own = {arm: arm in run.environments for arm in ("control", "candidate")}
    if own["control"] != own["candidate"]:
        words = {True: "an environment of its own", False: "the environment of the harness"}
        lines = [f"-in {words[own['control']]}", f"+in {words[own['candidate']]}", *lines]
    elif not lines and len({made.digest for made in run.environments.values()}) > 1:
        lines = ["-other files of the same versions", "+other files of the same versions"]
    return lines
