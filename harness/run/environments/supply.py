"""What an environment needs that no index has: the file of requirements, and the commits of
checkouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.forms.digest import sha256
from harness.forms.regular_file import read_regular
from harness.forms.source import refusal
from harness.run.environments.checkout import Found, Kept, find
from harness.scenario import Environment, Scenario
from harness.scenario.environment import LARGEST, Requirement, parse_requirements


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What one environment needs.

    Attributes:
        text: the file of requirements; None where there is none.
        requirements: what it says.
        checkouts: by normal name of the package.
    """

    text: bytes | None = None
    requirements: tuple[Requirement, ...] = ()
    checkouts: Mapping[str, Found | Kept] = field(default_factory=dict)

    @property
    def digest(self) -> str | None:
        """The sha256 of the file of requirements."""
        return None if self.text is None else sha256(self.text)


NOTHING = Supply()


def of_scenario(scenario: Scenario, *, folder: Path) -> dict[str, Supply]:
    """What the environments of a scenario's arms need, found from its folder.

    Raises:
        ScenarioError: a file of requirements that is not there, or has lines that are refused.
        RevisionError: a checkout or revision that cannot be had.
    """
    return {
        arm: _found(wanted, folder=folder) for arm, wanted in scenario.subject.environments.items()
    }


def _found(wanted: Environment, *, folder: Path) -> Supply:
    checkouts = {name: find(name, given, folder=folder) for name, given in wanted.checkouts.items()}
    if wanted.requirements is None:
        return Supply(checkouts=checkouts)
    return replace(requirements(wanted.requirements, folder=folder), checkouts=checkouts)


def requirements(given: str, *, folder: Path) -> Supply:
    """The supply that a file of requirements is, by its path from the scenario's folder.

    Raises:
        ScenarioError: it cannot be read, or has lines that are refused.
    """
    file = folder / given
    try:
        text = read_regular(file, limit=LARGEST)
    except OSError as error:
        raise refusal(
            str(file), f"cannot be read ({error.strerror}); environment.requirements names it"
        ) from None
    return supplied(text, name=str(file))


def supplied(text: bytes, *, name: str) -> Supply:
    """The supply of a file of requirements; `name` is what messages call it.

    Raises:
        ScenarioError: it has lines that are refused.
    """
    return Supply(text=text, requirements=parse_requirements(text, name=name))
