"""Whether a rank ran the code that the scenario is about, in its arm's environment (rule 12). Pure.

A file of an installed package is proved by that package's RECORD, unless the repository under test
declares a distribution of this name, or holds what is imported by this name
(`harness.stats.counterparts`): then an installed copy may be any version of the very code that is
tested. Such a file, and one that no RECORD proves, is the repository's if its content is that of
the file at the corresponding path there. Of its environment a rank's interpreter tells, and that is
held against what was installed there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.forms.digest import EMPTY
from harness.forms.distribution import normal
from harness.forms.model import Model
from harness.forms.strict_json import strict_json
from harness.history import History
from harness.stats.counterparts import (
    Checkout,
    InstalledCopy,
    Place,
    Source,
    is_below,
    top_of,
)

FOLDER = "evidence/loaded"
NAMED = re.compile(r"[0-9a-f]{64}")
COMPILED = (".so", ".pyd")
CODE = (".py", *COMPILED)
TOOL = "rankproof"
# All that an editable install leaves among the packages: a file that leads the import system to the
# real ones.
REDIRECT = re.compile(r"(__editable__.*|_editable_.*|_.*_editable(_loader)?)\.py")
REMEDY = "set subject.path to the folder that holds the code, or install it from the commit"
STRANGER = "copy it into the folder of the subject, or set subject.path to the folder that holds it"


def loaded_files(history: History, rank: int) -> Iterator[tuple[str, str]]:
    """Yield file and sha256 of each module of its arm's folder that a rank tells it loaded.

    What is no such entry is yielded too, as text that no file of an arm is like.
    """
    for seen in history.said(rank, "subject.loaded"):
        modules = seen.event.values.get("modules")
        for module in modules if isinstance(modules, list) else ():
            entry = module if isinstance(module, dict) else {}
            yield str(entry.get("file")), str(entry.get("sha256"))


def path_of(digest: str) -> str:
    """Where the list of what a rank had loaded lies, by its sha256."""
    return f"{FOLDER}/{digest}.json"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the list of a rank comes to.

    Attributes:
        unproven: why it is not proved that this is the code.
        beside: what was loaded that no digest of the repository, a package or an input proves, and
            may be so.
        made: files without a counterpart in the repository, that the build of its code wrote, each
            with its sha256.
    """

    unproven: frozenset[str]
    beside: frozenset[str]
    made: frozenset[tuple[str, str]] = frozenset()


class Summary(Model):
    """What the trials of a cell told of the code that ran beside the arm's folder.

    Attributes:
        lists: per arm, the sha256 of every list of loaded files that a rank gave.
        children: programs that ranks started, by name; `fork` for a copy of the rank.
    """

    lists: dict[str, list[str]]
    children: list[str]


@dataclass
class Ran:
    """Gathers that, history by history; `beside` as in `Judgement`."""

    read: Callable[[str], bytes]
    names: Collection[str]
    lists: dict[str, set[str]] = field(default_factory=dict)
    children: set[str] = field(default_factory=set)
    beside: set[str] = field(default_factory=set)
    _known: dict[tuple[str, str], Judgement] = field(default_factory=dict)

    def summary(self) -> Summary:
        """For the record."""
        return Summary(
            lists={arm: sorted(digests) for arm, digests in sorted(self.lists.items())},
            children=sorted(self.children),
        )

    def hear(self, arm: str, source: Source, history: History) -> set[str]:
        """Take in a trial; return why it is not proved which code ran in it."""
        unproved: set[str] = set()
        for rank in range(history.size) if not history.is_of_programs else ():
            said = history.said(rank, "subject.loaded")
            end = history.said(rank, "subject.end")
            ended = history.exit(rank)
            well = bool(end) and ended is not None and ended.event.values.get("code") == 0
            if well and not any(seen.line > end[0].line for seen in said):
                unproved.add(f"{arm}: a rank did not tell at its end what it had loaded")
            for seen in said:
                children = seen.event.values.get("children")
                self.children.update(map(str, children if isinstance(children, list) else ()))
                unproved |= self._list(arm, source, seen.event.values.get("packages"))
        return unproved

    def _list(self, arm: str, source: Source, digest: Any) -> frozenset[str]:
        if not isinstance(digest, str) or not NAMED.fullmatch(digest):
            return frozenset({f"{arm}: a rank did not tell what it had loaded"})
        self.lists.setdefault(arm, set()).add(digest)
        if (loaded := self._known.get((arm, digest))) is None:
            path = path_of(digest)
            loaded = judge(self.read(path) if path in self.names else b"", source)
            self._known[arm, digest] = loaded
            self.beside |= loaded.beside
        return frozenset(f"{arm}: {why}" for why in loaded.unproven)


def judge(listing: bytes, source: Source) -> Judgement:
    """Judge the list of what a rank had loaded beside its arm's folder."""
    unproven: set[str] = set()
    beside: set[str] = set()
    made: dict[str, str] = {}
    try:
        loaded = strict_json(listing)
        installed = dict(loaded["installed"])
        others = list(loaded["others"])
        for package, names in installed.items():
            unproven.update(_silent(str(package), str(names).split(", "), source))
        unproven.update(_untold(loaded, installed, source))
        unproven.update(_not_the_repositorys(_came(installed, others), source, made))
        for other in others:
            files = {str(file): str(sha256) for file, sha256 in dict(other["files"]).items()}
            unproven.update(_changed(other, files, source))
            failed, accepted = _judge(other, files, source)
            if failed:
                unproven.add(_words(other, failed, source))
            beside.update(f"{file} (sha256 {files[file]}{accepted[file]})" for file in accepted)
        if loaded.get("more"):
            unproven.add(f"{loaded['more']} more files that a rank loaded are not listed")
    except (KeyError, TypeError, ValueError, AttributeError):
        unproven.add("the list of what a rank had loaded cannot be read")
    return Judgement(
        unproven=frozenset(unproven), beside=frozenset(beside), made=frozenset(made.items())
    )


def packages(listing: bytes) -> set[str]:
    """The import names that a list tells of; none where it cannot be read."""
    try:
        found = strict_json(listing)
        return {*map(str, found["installed"]), *(str(one["package"]) for one in found["others"])}
    except (KeyError, TypeError, ValueError, AttributeError):
        return set()


def loaded(listing: bytes) -> Iterator[tuple[str, str]]:
    """The files in question of a list, each with its sha256: those that the repository has to be
    asked for.

    Nothing is raised: what cannot be read has none.
    """
    try:
        for other in strict_json(listing)["others"]:
            for file, sha256 in dict(other["files"]).items():
                yield str(file), str(sha256)
    except (KeyError, TypeError, ValueError):
        return


def releases(listing: bytes) -> Iterator[tuple[str, str]]:
    """The distributions of a list whose files are as their RECORD says, and Rankproof: normal name
    and version of each.

    Nothing is raised: what cannot be read has none.
    """
    try:
        found = strict_json(listing)
        for names in dict(found["installed"]).values():
            for release in str(names).split(", "):
                name, _, version = release.rpartition(" ")
                yield normal(name), version
        for other in found["others"]:
            if other["record"] in ("as", "tool") and isinstance(other["distribution"], str):
                yield normal(other["distribution"]), str(other["version"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return


def told(listing: bytes) -> tuple[list[tuple[str, str, str]], int]:
    """Return what a list tells file by file of distributions; of what cannot be read nothing.

    Returns:
        Distribution, file and sha256 of each; and how many files of those told in full are left out
        for length.
    """
    files: list[tuple[str, str, str]] = []
    try:
        found = strict_json(listing)
        for one in (*found["others"], *found.get("in_full", ())):
            if isinstance(name := one["distribution"], str):
                files += [
                    (name, str(file), str(sha256)) for file, sha256 in dict(one["files"]).items()
                ]
        return files, max(0, int(found.get("left_out", 0)))
    except (KeyError, TypeError, ValueError, AttributeError):
        return [], 0


def _silent(package: str, names: Iterable[str], source: Source) -> Iterator[str]:
    """Distributions of the repository's that were told like any package: their files would have to
    be compared.
    """
    for name in names:
        distribution = normal(name.rpartition(" ")[0])
        if distribution in source.checkouts:
            yield f"{package} was built from a checkout ({name}), and its files are not told"
        elif (
            distribution in source.declared
            and not source.installed
            and distribution not in source.named
        ):
            yield (
                f"{package} came from an installed copy ({name}) whose files are not told: {REMEDY}"
            )


def _untold(
    loaded: Mapping[str, Any], installed: Mapping[str, str], source: Source
) -> Iterator[str]:
    """Distributions that differ between the arms, and whose files the list does not hold in full.

    Or others than it.
    """
    in_full = {
        (str(one["package"]), f"{one['distribution']} {one['version']}")
        for one in loaded.get("in_full", ())
    }
    releases = {
        (package, name) for package, names in installed.items() for name in str(names).split(", ")
    }
    for package, name in sorted(in_full - releases):
        yield f"files of {name} are told for {package}, which came from elsewhere"
    for package, name in sorted(releases - in_full):
        if normal(name.rpartition(" ")[0]) in source.differing and not loaded.get("left_out"):
            yield f"which files of {name} a rank loaded for {package} is not told"


def _came(
    installed: Mapping[str, str], others: Iterable[Mapping[str, Any]]
) -> list[tuple[str, str, str]]:
    """Return what was loaded from installed distributions: import name, distribution and version of
    each.
    """
    told = {
        (str(package), normal(release.rpartition(" ")[0]), release.rpartition(" ")[2])
        for package, releases in installed.items()
        for release in str(releases).split(", ")
    }
    told |= {
        (str(one["package"]), str(one["distribution"]), str(one["version"]))
        for one in others
        if one["distribution"] is not None and one["record"] in ("as", "differs")
    }
    return sorted(told)


def _not_the_repositorys(
    came: Iterable[tuple[str, str, str]], source: Source, made: dict[str, str]
) -> Iterator[str]:
    """InstalledCopy distributions that are the repository's by their import names, and are not as
    it has them.
    """
    known = source.counterparts
    if source.installed:
        return
    for package, name, version in came:
        if (
            name in source.named
            or name in source.checkouts
            or (name == TOOL and TOOL not in source.declared)
        ):
            continue
        if (
            package not in known.roots
            and package not in known.hidden
            and name not in source.declared
        ):
            continue
        what = f"the installed {name} {version}"
        found = known.distribution(name, version)
        if found is None:
            yield f"{package} came from {what}, whose files are not told: {REMEDY}"
            continue
        if package in known.hidden and _is_whole(found, package):
            yield (
                f"{package} of the arm's folder is hidden by {what}: rename it, or give it an"
                " __init__.py"
            )
        places = known.places(package, found.files)
        if not any(is_below(file, package) and file.endswith(CODE) for file in found.files):
            continue  # an editable install: its files are told one by one
        if not places:
            if name in source.declared:
                yield (
                    f"{package} came from {what}, and the repository has it at no place that is"
                    f" known: {REMEDY}"
                )
            continue
        believed = {*source.inputs, *source.plugins}
        files = {file: sha256 for file, sha256 in found.files.items() if sha256 not in believed}
        if odd := [*known.differing(files, places, package), *known.data(found)]:
            more = f", and {len(odd) - 1} more" if len(odd) > 1 else ""
            yield f"of {what}, {odd[0]} of the repository{more}: {REMEDY}"
        made |= known.made(found.files, places, package) | known.data_made(found)


def _is_whole(installed: InstalledCopy, package: str) -> bool:
    """Return whether a distribution brings a module or a package of this name, which hides folders
    of the name.
    """
    return any(
        file == f"{package}/__init__.py"
        or ("/" not in file and top_of(file) == package and file.endswith(CODE))
        for file in installed.files
    )


def _changed(other: Mapping[str, Any], files: Mapping[str, str], source: Source) -> Iterator[str]:
    """Files that a rank loaded with another content than their distribution had at the run's
    end.
    """
    found = source.counterparts.distribution(other["distribution"], other["version"])
    for file, sha256 in files.items() if found is not None else ():
        if found is not None and found.files.get(file, "") not in ("", sha256):
            yield f"{file} of {found.name} {found.version} is not what it was when a rank loaded it"


def _judge(
    other: Mapping[str, Any], files: Mapping[str, str], source: Source
) -> tuple[list[str], dict[str, str]]:
    """Return the files of one package that are not proved.

    And those that need no proof, with why.
    """
    record = other["record"]
    distribution = other["distribution"]
    if (built := source.checkouts.get(distribution)) is not None:
        return _built(distribution, built, files)
    places = _places_of(other, files, source)
    declared = distribution in source.declared or bool(places)
    if source.installed and distribution is not None and record in ("as", "absent"):
        return [], {} if record == "as" else dict.fromkeys(files, ", of an editable install")
    failed: list[str] = []
    accepted: dict[str, str] = {}
    for file, sha256 in files.items():
        # A file without content brings no code, and packages are full of them.
        if sha256 == EMPTY or sha256 in source.inputs or sha256 in source.plugins:
            continue
        if (why := _held(file, sha256, other, places, source)) is not None:
            accepted |= {file: why} if why else {}
            continue
        match record:
            case "as" if not declared or distribution in source.named or REDIRECT.fullmatch(file):
                pass
            case "tool" if TOOL not in source.declared:
                pass
            # Written by whoever used the package: where the repository has such a file, it is
            # another version.
            case "absent" if not file.endswith(CODE) and not source.like(file) and not declared:
                accepted[file] = ", data beside what was loaded"
            case "start":
                accepted[file] = ", loaded by the interpreter's own start"
            # Written while the run went on, by what it ran. Of a file of the repository it would be
            # another version.
            case "made" if not source.like(file):
                accepted[file] = ", written during the run"
            # Whoever packages for conda or Nix links such a file anew.
            case "differs" if file.endswith(COMPILED) and not declared:
                accepted[file] = f", not as the RECORD of {distribution} says"
            case _:
                failed.append(file)
    return sorted(failed), accepted


def _places_of(other: Mapping[str, Any], files: Mapping[str, str], source: Source) -> list[Place]:
    """Return the places in the repository of which the files of one package are copies, where its
    import name has any.
    """
    known = source.counterparts
    distribution = other["distribution"]
    if distribution in source.named or (other["record"] == "tool" and TOOL not in source.declared):
        return []
    package = str(other["package"])
    found = known.distribution(distribution, other["version"])
    if found is not None and any(
        is_below(file, package) and file.endswith(CODE) for file in found.files
    ):
        return known.places(package, found.files)
    return known.places(package, files)


def _held(
    file: str, sha256: str, other: Mapping[str, Any], places: Collection[Place], source: Source
) -> str | None:
    """Return whether a file is the repository's: None where it is not.

    Where only its build wrote it, words that say so.
    """
    known = source.counterparts
    package = top_of(file)
    if not places:
        # Of a distribution that the repository declares, a copy in any of its folders proves
        # nothing.
        unmapped = other["distribution"] in source.declared
        return "" if source.holds_alone(file, sha256) and not unmapped else None
    if list(known.differing({file: sha256}, places, package)):
        return None
    if not known.made({file: sha256}, places, package):
        return ""
    return (
        None
        if other["record"] == "differs"
        else f", made by the build of {other['distribution'] or package}"
    )


def _built(
    distribution: str, built: Checkout, files: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Of a package from a checkout each file is of its wheel, and the commit's if that has such a
    one.
    """
    tree = Source(declared=(), files=built.files)
    failed: list[str] = []
    accepted: dict[str, str] = {}
    for file, sha256 in files.items():
        if sha256 == EMPTY:
            continue
        if sha256 not in built.wheel or (tree.like(file) and not tree.holds(file, sha256)):
            failed.append(file)
        elif not tree.like(file):
            accepted[file] = (
                f", made by the build of {distribution}, in no file of commit {built.commit[:12]}"
            )
    return sorted(failed), accepted


def _words(other: Mapping[str, Any], failed: list[str], source: Source) -> str:
    name = other["distribution"]
    version = other["version"]
    record = other["record"]
    what = failed[0] + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")
    if (built := source.checkouts.get(name)) is not None:
        if other["files"][failed[0]] not in built.wheel:
            return f"{what} is not in the wheel that was built of {name} {version}"
        return (
            f"{what} is not as commit {built.commit[:12]} has it: the build of {name} {version}"
            " changed it; commit it as it is built, or name a release"
        )
    theirs = "its own differs" if source.like(failed[0]) else "it has no such file"
    if name is None:
        return f"{what} came from outside, and is not the repository's ({theirs}): {STRANGER}"
    if name in source.declared:
        how = (
            "the Rankproof that runs"
            if record == "tool"
            else f"an installed copy ({name} {version})"
        )
        return f"{what} came from {how}, and is not the repository's ({theirs}): {REMEDY}"
    if record == "differs":
        return f"{what} is not as the RECORD of {name} {version} says: install {name} again"
    return (
        f"{what} came from an editable install ({name} {version}), which no RECORD proves: install"
        f" a wheel of {name}"
    )


@dataclass(frozen=True, kw_only=True)
class ArmEnvironment:
    """The environment that was made for an arm.

    Attributes:
        digest: of every file that was installed in it, wherever from.
        python: version of its interpreter.
        implementation: such as `cpython`.
        named: packages that the scenario names, by normal name, with version and digest of its
            files.
        checkouts: those of them that were built from a commit.
    """

    digest: str
    python: str
    implementation: str
    named: Mapping[str, tuple[str, str]]
    checkouts: Mapping[str, Checkout] = field(default_factory=dict)


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
    if (reported.get("python"), reported.get("implementation")) != (
        made.python,
        made.implementation,
    ):
        there = f"{reported.get('implementation')} {reported.get('python')}"
        yield f"{arm}: a rank ran in {there}, not in Python {made.python}"
    packages = reported.get("packages")
    for name, (version, record) in made.named.items():
        package = packages.get(name) if isinstance(packages, dict) else None
        if not isinstance(package, dict) or (package.get("version"), package.get("record")) != (
            version,
            record,
        ):
            seen = package.get("version") if isinstance(package, dict) else "no such package"
            yield f"{arm}: {name} {version} was installed, a rank found {seen} or other files of it"
