"""Proof that a rank ran the code that the scenario is about (rule 12). Pure.

A file of an installed package is proved by that package's RECORD, unless the repository under test
declares a distribution of this name, or holds what is imported by this name
(`harness.stats.counterparts`): then an installed copy may be any version of the very code that is
tested. Such a file, and one that no RECORD proves, is the repository's if its content is that of
the file at the corresponding path there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from harness.forms.digest import EMPTY
from harness.forms.distribution import normal
from harness.forms.model import Model, parse_json
from harness.forms.strict_json import JSON
from harness.history import History
from harness.stats.counterparts import (
    CODE,
    COMPILED,
    BuiltCheckout,
    Place,
    Source,
    top_of,
)

FOLDER = "evidence/loaded"
NAMED = re.compile(r"[0-9a-f]{64}")
TOOL = "rankproof"
# All that an editable install leaves among the packages: a file that leads the import system to the
# real ones.
REDIRECT = re.compile(r"(__editable__.*|_editable_.*|_.*_editable(_loader)?)\.py")
REMEDY = "set subject.path to the folder of the code, or install it from the commit"
STRANGER = "copy it into the folder of the subject, or set subject.path to its folder"


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
class CodeJudgement:
    """Outcome of judging the list of a rank.

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


class CodeSummary(Model):
    """Reports of the trials of a cell about the code that ran beside the arm's folder.

    Attributes:
        lists: per arm, the sha256 of every list of loaded files that a rank gave.
        children: programs that ranks started, by name; `fork` for a copy of the rank.
    """

    lists: dict[str, list[str]]
    children: list[str]


@dataclass
class Ran:
    """Gathers that, history by history; `beside` as in `CodeJudgement`."""

    read: Callable[[str], bytes]
    names: Collection[str]
    lists: dict[str, set[str]] = field(default_factory=dict)
    children: set[str] = field(default_factory=set)
    beside: set[str] = field(default_factory=set)
    _known: dict[tuple[str, str], CodeJudgement] = field(default_factory=dict)

    def summary(self) -> CodeSummary:
        """For the record."""
        return CodeSummary(
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
                unproved.add(f"{arm}: a rank did not report at its end what it had loaded")
            for seen in said:
                children = seen.event.values.get("children")
                self.children.update(map(str, children if isinstance(children, list) else ()))
                unproved |= self._list(arm, source, seen.event.values.get("packages"))
        return unproved

    def _list(self, arm: str, source: Source, digest: JSON) -> frozenset[str]:
        if not isinstance(digest, str) or not NAMED.fullmatch(digest):
            return frozenset({f"{arm}: a rank did not report what it had loaded"})
        self.lists.setdefault(arm, set()).add(digest)
        if (loaded := self._known.get((arm, digest))) is None:
            path = path_of(digest)
            loaded = judge(self.read(path) if path in self.names else b"", source)
            self._known[arm, digest] = loaded
            self.beside |= loaded.beside
        return frozenset(f"{arm}: {why}" for why in loaded.unproven)


class LoadedPackage(Model):
    """Files of one package that a rank loaded, of those that are told one by one.

    Attributes:
        package: the name that they are imported by.
        distribution: its normal name; None for files of no distribution.
        record: how these files are by its RECORD, see `harness.rank.inventory.InventoryEntry`.
        files: path to sha256.
    """

    package: str
    distribution: str | None
    version: str | None
    record: str
    files: dict[str, str]

    @property
    def release(self) -> str:
        """Name and version."""
        return f"{self.distribution} {self.version}"


class LoadedList(Model):
    """List of what a rank had loaded beside its arm's folder, as `harness.rank.loaded` writes it.

    Attributes:
        installed: import name to distributions, each with its version, whose files are as their
            RECORD says.
        others: whatever else, and what the repository declares.
        more: how many of these files are left out for length.
        in_full: those of `installed` that differ between the arms.
        left_out: how many of these files are left out for length.
    """

    installed: dict[str, str]
    others: list[LoadedPackage]
    more: int = 0
    in_full: list[LoadedPackage] = Field(default_factory=list)
    left_out: Annotated[int, Field(ge=0)] = 0

    @property
    def releases(self) -> list[tuple[str, str]]:
        """Import name, and distribution with version, of each of `installed`."""
        return [
            (package, release)
            for package, releases in self.installed.items()
            for release in releases.split(", ")
        ]


def judge(listing: bytes, source: Source) -> CodeJudgement:
    """Judge the list of what a rank had loaded beside its arm's folder."""
    try:
        loaded = parse_json(LoadedList, listing)
    except ValueError:
        why = "the list of what a rank had loaded cannot be read"
        return CodeJudgement(unproven=frozenset({why}), beside=frozenset())
    made: dict[str, str] = {}
    beside: set[str] = set()
    unproven = {
        *_silent(loaded, source),
        *_untold(loaded, source),
        *_not_the_repositorys(loaded, source, made),
    }
    for other in loaded.others:
        unproven.update(_changed(other, source))
        failed, accepted = _judge(other, source)
        if failed:
            unproven.add(_words(other, failed, source))
        beside.update(f"{file} (sha256 {other.files[file]}{why})" for file, why in accepted.items())
    if loaded.more:
        unproven.add(f"{loaded.more} more files that a rank loaded are not listed")
    return CodeJudgement(
        unproven=frozenset(unproven), beside=frozenset(beside), made=frozenset(made.items())
    )


def _read(listing: bytes) -> LoadedList:
    """Read a list; one that cannot be read is empty, because `judge` refuses its trial."""
    try:
        return parse_json(LoadedList, listing)
    except ValueError:
        return LoadedList(installed={}, others=[])


def packages(listing: bytes) -> set[str]:
    """Return the import names of a list; none where it cannot be read."""
    known = _read(listing)
    return {*known.installed, *(other.package for other in known.others)}


def loaded(listing: bytes) -> list[tuple[str, str]]:
    """Return the files in question of a list, each with its sha256: those that the repository has
    to be asked for; none where it cannot be read.
    """
    return [file for other in _read(listing).others for file in other.files.items()]


def releases(listing: bytes) -> Iterator[tuple[str, str]]:
    """Yield the distributions of a list whose files are as their RECORD says, and Rankproof: normal
    name and version of each; none where it cannot be read.
    """
    known = _read(listing)
    for _, release in known.releases:
        name, _, version = release.rpartition(" ")
        yield normal(name), version
    for other in known.others:
        if other.record in ("as", "tool") and other.distribution is not None:
            yield normal(other.distribution), str(other.version)


def told(listing: bytes) -> tuple[list[tuple[str, str, str]], int]:
    """Return what a list tells file by file of distributions; of what cannot be read nothing.

    Returns:
        Distribution, file and sha256 of each; and how many files of those told in full are left out
        for length.
    """
    known = _read(listing)
    files = [
        (other.distribution, file, sha256)
        for other in (*known.others, *known.in_full)
        if other.distribution is not None
        for file, sha256 in other.files.items()
    ]
    return files, known.left_out


def _silent(loaded: LoadedList, source: Source) -> Iterator[str]:
    """Yield distributions of the repository's that were told like any package: their files would
    have to be compared.
    """
    for package, name in loaded.releases:
        distribution = normal(name.rpartition(" ")[0])
        if distribution in source.checkouts:
            yield f"{package} was built from a checkout ({name}), but its files were not reported"
        elif (
            distribution in source.declared
            and not source.installed
            and distribution not in source.named
        ):
            yield (
                f"{package} came from an installed copy ({name}), whose files were not reported:"
                f" {REMEDY}"
            )


def _untold(loaded: LoadedList, source: Source) -> Iterator[str]:
    """Yield distributions that differ between the arms and whose files the list does not hold in
    full, and others whose files it holds.
    """
    in_full = {(other.package, other.release) for other in loaded.in_full}
    releases = set(loaded.releases)
    for package, name in sorted(in_full - releases):
        yield f"files of {name} were reported for {package}, which came from elsewhere"
    for package, name in sorted(releases - in_full):
        if normal(name.rpartition(" ")[0]) in source.differing and not loaded.left_out:
            yield f"a rank did not report which files of {name} it loaded for {package}"


def _came(loaded: LoadedList) -> list[tuple[str, str, str]]:
    """Return what was loaded from installed distributions: import name, distribution and version of
    each.
    """
    came = {
        (package, normal(release.rpartition(" ")[0]), release.rpartition(" ")[2])
        for package, release in loaded.releases
    }
    came |= {
        (other.package, other.distribution, str(other.version))
        for other in loaded.others
        if other.distribution is not None and other.record in ("as", "differs")
    }
    return sorted(came)


def _not_the_repositorys(
    loaded: LoadedList, source: Source, built: dict[str, str]
) -> Iterator[str]:
    """Yield installed distributions that are the repository's by their import names, and are not as
    it has them; note in `built` what its build wrote.
    """
    known = source.counterparts
    if source.installed:
        return
    for package, name, version in _came(loaded):
        is_tool = name == TOOL and TOOL not in source.declared
        if name in source.named or name in source.checkouts or is_tool:
            continue
        is_known = package in known.roots or package in known.hidden or name in source.declared
        if not is_known:
            continue
        what = f"the installed {name} {version}"
        copy = known.distribution(name, version)
        if copy is None:
            yield f"{package} came from {what}, whose files were not reported: {REMEDY}"
            continue
        if package in known.hidden and copy.hides(package):
            yield (
                f"{package} of the arm's folder is hidden by {what}: rename it, or give it an"
                " __init__.py"
            )
        places = known.places(package, copy.files)
        if not copy.has_code_of(package):
            continue  # an editable install: its files are told one by one
        if not places:
            if name in source.declared:
                yield (
                    f"{package} came from {what}, but its place in the repository is unknown:"
                    f" {REMEDY}"
                )
            continue
        believed = {*source.inputs, *source.plugins}
        files = {file: sha256 for file, sha256 in copy.files.items() if sha256 not in believed}
        if odd := [*known.differing(files, places, package), *known.data(copy)]:
            more = f", and {len(odd) - 1} more" if len(odd) > 1 else ""
            yield f"in {what}, {odd[0]} in the repository{more}: {REMEDY}"
        built |= known.made(copy.files, places, package) | known.data_made(copy)


def _changed(other: LoadedPackage, source: Source) -> Iterator[str]:
    """Yield files that a rank loaded with another content than their distribution had at the run's
    end.
    """
    copy = source.counterparts.distribution(other.distribution, other.version)
    for file, sha256 in other.files.items() if copy is not None else ():
        if copy is not None and copy.files.get(file, "") not in ("", sha256):
            yield f"{file} of {copy.name} {copy.version} has changed since a rank loaded it"


def _judge(other: LoadedPackage, source: Source) -> tuple[list[str], dict[str, str]]:
    """Return the files of one package that are not proved, and those that need no proof, with
    why.
    """
    record = other.record
    distribution = other.distribution
    files = other.files
    if distribution is not None and (built := source.checkouts.get(distribution)) is not None:
        return _built(distribution, built, files)
    places = _places_of(other, source)
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
                accepted[file] = ", data next to loaded files"
            case "start":
                accepted[file] = ", loaded at interpreter startup"
            # Written while the run went on, by what it ran. Of a file of the repository it would be
            # another version.
            case "made" if not source.like(file):
                accepted[file] = ", written during the run"
            # Whoever packages for conda or Nix links such a file anew.
            case "differs" if file.endswith(COMPILED) and not declared:
                accepted[file] = f", which differs from the RECORD of {distribution}"
            case _:
                failed.append(file)
    return sorted(failed), accepted


def _places_of(other: LoadedPackage, source: Source) -> list[Place]:
    """Return the places in the repository of which the files of one package are copies, where its
    import name has any.
    """
    known = source.counterparts
    is_tool = other.record == "tool" and TOOL not in source.declared
    if other.distribution in source.named or is_tool:
        return []
    package = other.package
    copy = known.distribution(other.distribution, other.version)
    if copy is not None and copy.has_code_of(package):
        return known.places(package, copy.files)
    return known.places(package, other.files)


def _held(
    file: str, sha256: str, other: LoadedPackage, places: Collection[Place], source: Source
) -> str | None:
    """Say whose a file is: empty for the repository's, words where only its build wrote it, None
    for neither.
    """
    known = source.counterparts
    package = top_of(file)
    if not places:
        # Of a distribution that the repository declares, a copy in any of its folders proves
        # nothing.
        unmapped = other.distribution in source.declared
        return "" if source.holds_alone(file, sha256) and not unmapped else None
    if list(known.differing({file: sha256}, places, package)):
        return None
    if not known.made({file: sha256}, places, package):
        return ""
    if other.record == "differs":
        return None
    return f", made by the build of {other.distribution or package}"


def _built(
    distribution: str, built: BuiltCheckout, files: Mapping[str, str]
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


def _words(other: LoadedPackage, failed: list[str], source: Source) -> str:
    """Return why files of a package are not proved, by the first of them."""
    name = other.distribution
    release = other.release
    what = failed[0] + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")
    theirs = "a different file" if source.like(failed[0]) else "no such file"
    if name is None:
        return f"{what} came from outside, but the repository has {theirs}: {STRANGER}"
    if (built := source.checkouts.get(name)) is not None:
        if other.files[failed[0]] not in built.wheel:
            return f"{what} is not in the wheel that was built from {release}"
        return (
            f"{what} differs from commit {built.commit[:12]}, because the build of {release}"
            " changed it; commit the built file, or name a release"
        )
    if name in source.declared:
        is_tool = other.record == "tool"
        how = "the running Rankproof" if is_tool else f"an installed copy ({release})"
        return f"{what} came from {how}, but the repository has {theirs}: {REMEDY}"
    if other.record == "differs":
        return f"{what} differs from the RECORD of {release}; reinstall {name}"
    return (
        f"{what} came from an editable install ({release}), which no RECORD proves: install"
        f" a wheel of {name}"
    )
