"""The releases of a package that an index offers, and an environment in which one of them takes the
place of another while everything else is held.

Nothing here is downloaded but what pip needs to choose: metadata of packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from pydantic import ValidationError

from harness.forms.distribution import normal
from harness.run.environments import pip
from harness.run.environments.make import EnvironmentPlan, plan
from harness.run.environments.pip import (
    Conflicting,
    EnvironmentProblem,
    Interpreter,
    Unavailable,
)
from harness.run.environments.supply import NOTHING
from harness.scenario import Environment
from harness.scenario.environment import bare

YANKED = "yanked"
PRE_RELEASE = "pre-release"
NO_FILE = "no wheel for this Python and platform"
_VERSION = re.compile(
    r"(?:([0-9]+)!)?([0-9]+(?:\.[0-9]+)*)(?:(a|b|rc)([0-9]+))?(?:\.post([0-9]+))?"
    r"(?:\.dev([0-9]+))?(?:\+[a-z0-9.]+)?"
)
_FOUND = re.compile(r"Found link (\S+) .*version: (\S+)$", re.MULTILINE)
_PASSED_OVER = re.compile(r"Skipping link: (.+?): (\S+/\S+)", re.MULTILINE)
_YANKED = re.compile(r"Ignored the following yanked versions: (.+)$", re.MULTILINE)
_SDIST = re.compile(r"(.+)-([0-9][^-]*)\.(?:tar\.gz|tar\.bz2|zip)")


@dataclass(frozen=True, kw_only=True)
class Release:
    """A version that an index has; `why_not` says why it is left out, and is empty for the rest."""

    version: str
    why_not: str = ""


def order(version: str) -> tuple[object, ...]:
    """Return what versions are sorted by, oldest first (PEP 440)."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (-1, (), (), ())
    numbers = [int(part) for part in match[2].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    final = (1, "", 0)
    before = (0, match[3], int(match[4])) if match[3] else final
    if match[6] and not match[3] and not match[5]:
        before = (-1, "", 0)
    unfinished = (0, int(match[6])) if match[6] else (1, 0)
    return (int(match[1] or 0), tuple(numbers), before, (int(match[5] or -1), unfinished))


def releases(python: Path, name: str, *, base: Interpreter) -> list[Release]:
    """Return every release of a package that pip finds, oldest first.

    Args:
        python: interpreter of an environment for which the package has to fit.
        name: of the package.
        base: the interpreter that the environment was made from.

    Raises:
        Unavailable: pip finds none.
    """
    found = _read(pip.files_seen(python, name, base=base), name)
    if not found:
        raise Unavailable(
            f"pip finds no version of {name}; check the name and the index that pip uses"
        )
    return [found[version] for version in sorted(found, key=order)]


def _read(text: str, name: str) -> dict[str, Release]:
    """Read pip's words; a version with several files is left out only where none of them fits."""
    yanked = {version.strip() for line in _YANKED.findall(text) for version in line.split(",")}
    fitting = {version for _, version in _FOUND.findall(text)}
    passed_over = {
        version: reason
        for reason, address in _PASSED_OVER.findall(text)
        for version in _version_of(address, name)
    }
    known: dict[str, Release] = {}
    for version in fitting | passed_over.keys():
        match = _VERSION.fullmatch(version)
        if match is None:
            continue
        why = ""
        if version in yanked:
            why = YANKED
        elif match[3] or match[6]:
            why = PRE_RELEASE
        elif version not in fitting:
            reason = passed_over[version]
            needs = re.search(r"not in: '([^']+)'", reason)
            why = f"needs Python {needs[1]}" if needs else NO_FILE
        known[version] = Release(version=version, why_not=why)
    return known


def _version_of(address: str, name: str) -> Iterator[str]:
    """Yield the version in the name of a file; nothing where the file is of another package."""
    file = unquote(address.partition("#")[0].rpartition("/")[2])
    wheel = file.removesuffix(".whl").split("-")
    if file.endswith(".whl") and len(wheel) >= 5 and normal(wheel[0]) == normal(name):
        yield wheel[1]
    elif (sdist := _SDIST.fullmatch(file)) and normal(sdist[1]) == normal(name):
        yield sdist[2]


@dataclass(frozen=True, kw_only=True)
class HeldEnvironment:
    """An environment with one version of a package, and everything else as it was.

    Attributes:
        wanted: every package of it with its exact version.
        moved: the other packages that could not be held: their version before and now, empty where
            they are not installed.
        plan: what pip would install.
    """

    wanted: Environment
    moved: Mapping[str, tuple[str, str]]
    plan: EnvironmentPlan


def hold(
    python: Path,
    package: str,
    version: str,
    *,
    like: Environment,
    companions: Mapping[str, str],
    base: Interpreter,
) -> HeldEnvironment:
    """Choose an environment with this version of a package, in which as little else as possible
    moves.

    Args:
        python: interpreter of an empty environment.
        package: its name, with extras or without.
        version: that it has to have.
        like: the scenario's environment, whose interpreter, extras and build of torch are kept.
        companions: the other packages by normal name, with the versions they are held at.
        base: the interpreter that the environment was made from.

    Raises:
        Unavailable, EnvironmentProblem: pip cannot choose one.
    """
    own = bare(package)
    written = {bare(name): name for name in like.packages} | {own: package}
    held = dict(companions)
    # Each round frees at least one package, so it ends.
    while True:
        packages = {written.get(name, name): given for name, given in held.items()}
        packages[package] = version
        try:
            chosen = plan(python, _with(like, packages), NOTHING, {}, base=base)
            break
        except Conflicting as conflict:
            freed = _to_free(conflict.lines, held)
            if not freed:
                raise
            for name in freed:
                del held[name]
    versions = {one.name: one.version for one in chosen.chosen}
    moved = {
        name: (companions.get(name, ""), versions.get(name, ""))
        for name in sorted(companions.keys() | versions.keys())
        if name != own and companions.get(name) != versions.get(name)
    }
    pinned = {written.get(name, name): given for name, given in versions.items()}
    return HeldEnvironment(wanted=_with(like, pinned), moved=moved, plan=chosen)


def _with(like: Environment, packages: Mapping[str, str]) -> Environment:
    try:
        return Environment.model_validate(
            {"python": like.python, "packages": dict(packages), "torch": like.torch}
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = next((str(part) for part in first["loc"] if part in packages), "a package")
        raise EnvironmentProblem(
            f"a scenario cannot refer to {name} {packages.get(name, '')}, because its version is not"
            " normalized (PEP 440)"
        ) from None


def _to_free(lines: Iterable[str], held: Mapping[str, str]) -> set[str]:
    """Return the held packages that a conflict is about: those that were asked for, else those that
    ask.
    """
    named = [
        [normal(word) for word in re.findall(r"[A-Za-z0-9][A-Za-z0-9._-]*", line)] for line in lines
    ]
    asked = {
        word
        for line, words in zip(lines, named, strict=True)
        if line.startswith("The user requested")
        for word in words
    }
    mentioned = {word for words in named for word in words}
    return (asked & held.keys()) or (mentioned & held.keys())
