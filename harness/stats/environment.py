"""Whether a rank ran in its arm's environment: what its interpreter told against what was installed there (rule 12)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ArmEnvironment:
    """The environment that was made for an arm.

    Attributes:
        digest: of everything that is installed in it.
        python: version of its interpreter.
        implementation: such as `cpython`.
        named: packages that the scenario names, by normal name, with version and sha256 of RECORD.
    """

    digest: str
    python: str
    implementation: str
    named: Mapping[str, tuple[str, str]]


def unproven(arm: str, made: ArmEnvironment | None, reported: Any) -> Iterator[str]:
    """Why it is not proved that a rank ran in its arm's environment.

    Args:
        arm: its name.
        made: its environment; None is the one that Rankproof runs in.
        reported: `environment` of the rank's `subject.loaded`; None where it told nothing.
    """
    if made is None:
        if reported is not None:
            yield f"{arm}: a rank ran in an environment of its own, and the arm has none"
        return
    if not isinstance(reported, dict) or reported.get("apart") is not True:
        yield f"{arm}: a rank did not run in the arm's environment"
        return
    if (reported.get("python"), reported.get("implementation")) != (made.python, made.implementation):
        there = f"{reported.get('implementation')} {reported.get('python')}"
        yield f"{arm}: a rank ran in {there}, not in Python {made.python}"
    packages = reported.get("packages")
    for name, (version, record) in made.named.items():
        package = packages.get(name) if isinstance(packages, dict) else None
        if not isinstance(package, dict) or (package.get("version"), package.get("record")) != (version, record):
            seen = package.get("version") if isinstance(package, dict) else "no such package"
            yield f"{arm}: {name} {version} was installed, a rank found {seen} or other files of it"
