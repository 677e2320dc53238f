"""What a repository holds of the code that ranks load beside what was staged: the distributions it
declares, its files.

The run asks it of the folder as it stands, or of an arm's revision, and keeps the answer in the
record. A gate asks the commit itself, and does not believe the record.
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import importlib.metadata
import json
import os
import posixpath
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlparse

from harness.forms.digest import sha256
from harness.forms.distribution import normal
from harness.forms.git import git, through_links
from harness.record.facts import SourceFacts
from harness.run.arms.code import (
    LINK,
    SUBMODULE,
    GitRepository,
    RevisionError,
    apply_patch,
    is_code,
    paths_of_patch,
)
from harness.run.arms.packages import (
    DECLARING,
    LARGEST,
    Place,
    Unnamed,
    installed,
    roots_of,
    unnamed,
)
from harness.run.arms.staging import StagedArm
from harness.scenario import Scenario
from harness.stats.counterparts import (
    Counterparts,
    InstalledCopy,
    counterpart,
    is_data,
    spread,
    top_of,
)
from harness.stats.provenance import TOOL, loaded, packages


@dataclass(frozen=True)
class Tree:
    """The files of a folder or a revision, by their path from the top.

    Attributes:
        paths: of the files that are known.
        read: gives the content of files, as far as they are there.
        ignored: whether `read` also knows of files that git ignores: a build writes its version
            beside its sources.
    """

    paths: Collection[str]
    read: Callable[[Collection[str]], Mapping[str, bytes]]
    ignored: bool = False

    @cached_property
    def declared(self) -> frozenset[str]:
        """Normal names of the distributions that its files declare."""
        stated = {name for path, text in self._metadata.items() for name in names_in(path, text)}
        return frozenset(stated | self.unnamed.cargo)

    @cached_property
    def unnamed(self) -> Unnamed:
        """Its projects whose name cannot be read."""
        code = [path for path in self.paths if is_code(path)]
        known = frozenset(code)

        def read(wanted: Collection[str]) -> Mapping[str, bytes]:
            return self.read([path for path in wanted if path in known])

        return unnamed(code, self._metadata, names_in=names_in, read=read)

    @cached_property
    def roots(self) -> Mapping[str, tuple[Place, ...]]:
        """Import name to the places of its files that hold it."""
        return roots_of([path for path in self.paths if is_code(path)], self._metadata).places

    @cached_property
    def _metadata(self) -> Mapping[str, bytes]:
        about = [
            path for path in self.paths if posixpath.basename(path) in DECLARING and is_code(path)
        ]
        return self.read(about)

    def is_own(self, copy: InstalledCopy, *, hidden: Collection[str] = ()) -> bool:
        """Return whether a distribution is this repository's by its name, or by the name that it is
        imported by.
        """
        if copy.name in self.declared or self.unnamed.may_have_built(copy):
            return True
        tops = {top_of(file) for file in copy.files}
        if not tops.isdisjoint(hidden):
            return True
        known = Counterparts(roots=self.roots, files=dict.fromkeys(self.paths, ""), installed=())
        return any(known.places(top, copy.files) for top in tops if top in self.roots)

    def compared(
        self, lists: Iterable[bytes], copies: Iterable[InstalledCopy]
    ) -> tuple[dict[str, list[Place]], dict[str, str]]:
        """Return what the files that ranks loaded, and those of installed distributions, have to
        equal.

        Returns:
            The roots of every name in question, and path to sha256 of the files.
        """
        lists = list(lists)
        names = {name for listing in lists for name in packages(listing)}
        wanted = {file for listing in lists for file, _ in loaded(listing)}
        files = set(wanted)
        for copy in copies:
            files.update(copy.files)
            names.update(top_of(file) for file in copy.files)
        roots = {name: list(self.roots[name]) for name in sorted(names & self.roots.keys())}
        exact = {
            counterpart(file, place) for file in files for place in roots.get(top_of(file), ())
        }
        data = {posixpath.basename(file) for file in files if is_data(file)}
        known = frozenset(self.paths)
        chosen = {path for path in exact if path in known}
        chosen |= {path for path in known if posixpath.basename(path) in data} if data else set()
        digests = {
            path: sha256(content) for path, content in self.read(sorted(map(str, chosen))).items()
        }
        return roots, dict(sorted({**self.digests(wanted), **digests}.items()))

    def digests(self, wanted: Iterable[str]) -> dict[str, str]:
        """Return the sha256 of every file whose path ends like a wanted one."""
        by_name: dict[str, list[str]] = {}
        for path in self.paths:
            by_name.setdefault(posixpath.basename(path), []).append(path)
        paths: set[str] = set()
        missing: list[str] = []
        tops: set[str] = set()
        for file in set(wanted):
            like = [
                path
                for path in by_name.get(posixpath.basename(file), ())
                if f"/{path}".endswith(f"/{file}")
            ]
            paths.update(like)
            tops.update(path.removesuffix(file) for path in like)
            missing += [] if like else [file]
        if self.ignored:
            paths.update(top + file for top in tops for file in missing)
        return {path: sha256(content) for path, content in sorted(self.read(paths).items())}


EMPTY = Tree((), lambda _: {})


class CodeOrigin(Protocol):
    """Where the code of an arm comes from, as far as it is not staged."""

    @property
    def declared(self) -> Collection[str]:
        """Normal names of the distributions that are the repository's own."""

    def own(self, folders: Sequence[Path], code: Collection[str]) -> frozenset[str]:
        """Normal names of the distributions in folders that are the repository's: ranks tell their
        files one by one.

        Args:
            folders: that an arm's packages are imported from.
            code: the files of the arm's folder.
        """

    def facts(
        self, lists: Iterable[bytes], folders: Sequence[Path], code: Collection[str]
    ) -> SourceFacts:
        """Return what the record keeps, after ranks have told what they had loaded."""


@dataclass(frozen=True)
class Living:
    """A repository that is here; `installed` are distributions that were installed from a folder of
    it.
    """

    tree: Tree
    installed: frozenset[str] = frozenset()

    @property
    def declared(self) -> frozenset[str]:
        return self.tree.declared | self.installed

    def own(self, folders: Sequence[Path], code: Collection[str]) -> frozenset[str]:
        hidden = spread(code)
        names = {*self.tree.roots, *self.declared, *hidden}
        copies = installed(
            folders, names=None if self.tree.unnamed.unread else names, wanted=lambda _: False
        )
        return self.declared | {
            copy.name for copy in copies if self.tree.is_own(copy, hidden=hidden)
        }

    def facts(
        self, lists: Iterable[bytes], folders: Sequence[Path], code: Collection[str]
    ) -> SourceFacts:
        lists = list(lists)
        hidden = spread(code)
        loaded_names = {name for listing in lists for name in packages(listing)}
        asked = (
            loaded_names if self.tree.unnamed.unread else loaded_names & {*self.tree.roots, *hidden}
        )
        names = asked | self.declared
        copies = installed(
            folders,
            names=names,
            wanted=lambda copy: copy.name in self.declared or self.tree.is_own(copy, hidden=hidden),
        )
        roots, files = self.tree.compared(lists, copies)
        declared = self.declared | {
            copy.name for copy in copies if self.tree.unnamed.may_have_built(copy)
        }
        return SourceFacts(
            declared=sorted(declared), files=files, roots=_listed(roots), installed=copies
        )


def _listed(roots: Mapping[str, Sequence[Place]]) -> dict[str, list[list[str]]]:
    return {name: [[prefix, folder] for prefix, folder in places] for name, places in roots.items()}


@dataclass(frozen=True)
class Recorded:
    """What a report says of a repository that may not be here.

    The Rankproof that runs is compared apart.
    """

    said: SourceFacts

    @property
    def declared(self) -> frozenset[str]:
        return frozenset(self.said.declared) - {TOOL}

    def own(self, folders: Sequence[Path], code: Collection[str]) -> frozenset[str]:
        names = {*(self.said.roots or ()), *self.declared, *spread(code)}
        return self.declared | {
            copy.name for copy in installed(folders, names=names, wanted=lambda _: False)
        }

    def facts(
        self, lists: Iterable[bytes], folders: Sequence[Path], code: Collection[str]
    ) -> SourceFacts:
        roots = self.said.roots or {}
        loaded_names = {name for listing in lists for name in packages(listing)}
        names = (loaded_names & {*roots, *spread(code)}) | self.declared
        copies = installed(folders, names=names, wanted=lambda _: True)
        return self.said.model_copy(
            update={"declared": sorted(self.declared), "roots": roots, "installed": copies}
        )


def origins(
    scenario: Scenario, folder: Path, staged: Mapping[str, StagedArm]
) -> dict[str, CodeOrigin]:
    """Where the code of each arm of a scenario in a folder comes from.

    Raises:
        RevisionError: a repository cannot be read, or a patch does not apply.
    """
    here = Living(standing(folder), installed_from(folder))
    arms: dict[str, CodeOrigin] = {}
    for name, arm in staged.items():
        arms[name] = here
        if arm.revision is not None:
            stated = scenario.subject.arms[name]
            place = (
                folder
                if stated.repo is None
                else (folder / Path(stated.repo).expanduser()).resolve()
            )
            repository = GitRepository(
                place, given=arm.revision.repo or "the scenario's repository"
            )
            tree = revision(repository, arm.revision.commit)
            if stated.patch is not None:
                tree = patched(tree, (folder / stated.patch).read_bytes(), to=arm.revision.commit)
            installed = here.installed
            if stated.repo is not None:
                # What runs the ranks is under test only where the code's own repository is that of
                # Rankproof.
                installed = (installed - {TOOL}) | installed_from(place)
            arms[name] = Living(tree, installed)
    return arms


def standing(folder: Path) -> Tree:
    """Return the repository that a folder lies in, as it stands, with what is not committed.

    Empty where there is none.
    """
    try:
        repository = GitRepository(folder, given=folder.name)
        if (top := repository.root) is None:
            return EMPTY
        paths = repository.working_files()
    except RevisionError:
        return EMPTY
    links = {path: str((top / path).readlink()) for path in paths if (top / path).is_symlink()}
    paths = sorted(through_links({path: path for path in paths if path not in links}, links))

    def read(wanted: Collection[str]) -> dict[str, bytes]:
        content = {}
        for path in wanted:
            with contextlib.suppress(OSError):  # what cannot be read is nobody's code
                if (top / path).is_file() and not (top / path).is_symlink():
                    content[path] = (top / path).read_bytes()
        return content

    return Tree(paths, read, ignored=True)


def revision(repository: GitRepository, commit: str) -> Tree:
    """Return a commit of a repository."""
    listed = repository.entries(commit)
    links = {path: entry for path, entry in listed.items() if entry.mode == LINK}
    targets = {path: os.fsdecode(text) for path, text in repository.read_there(links).items()}
    entries = through_links(
        {path: entry for path, entry in listed.items() if entry.mode not in (LINK, SUBMODULE)},
        targets,
    )

    def read(wanted: Collection[str]) -> dict[str, bytes]:
        return repository.read_there({path: entries[path] for path in wanted})

    return Tree(entries, read)


def patched(tree: Tree, patch: bytes, *, to: str) -> Tree:
    """Return a tree with a patch applied.

    Raises:
        RevisionError: it does not apply.
    """
    touched = paths_of_patch(patch, name="the patch")
    before = tree.read(touched.intersection(tree.paths))
    changed = apply_patch(before, patch, name="the patch", to=f"commit {to[:12]}")
    untouched = [path for path in tree.paths if path not in touched]

    def read(wanted: Collection[str]) -> dict[str, bytes]:
        content = {path: changed[path] for path in wanted if path in changed}
        return content | dict(tree.read([path for path in wanted if path not in touched]))

    return Tree([*untouched, *changed], read)


def installed_from(folder: Path) -> frozenset[str]:
    """Normal names of the distributions of this interpreter that were installed from a folder of
    the repository.

    Or from one of its other working trees, which may stand at any commit.
    """
    if (repository := _repository_of(folder)) is None:
        return frozenset()
    names = set()
    for distribution in importlib.metadata.distributions():
        place = installed_folder(distribution)
        if place is not None and place.is_dir() and _repository_of(place) == repository:
            names.add(normal(distribution.metadata["Name"] or ""))
    return frozenset(names)


def _repository_of(folder: Path) -> bytes | None:
    """Return the folder of the repository itself, which all of its working trees share."""
    done = git("rev-parse", "--path-format=absolute", "--git-common-dir", folder=folder)
    return os.path.realpath(done.stdout.strip()) if done.returncode == 0 else None


def installed_folder(distribution: importlib.metadata.Distribution) -> Path | None:
    """Return the folder that a distribution was installed from, or None where it was none."""
    try:
        address = urlparse(json.loads(distribution.read_text("direct_url.json") or "null")["url"])
    except (ValueError, KeyError, TypeError, OSError):
        return None
    return Path(unquote(address.path)) if address.scheme == "file" else None


# --- what declares a distribution
# -------------------------------------------------------------------------------------


def names_in(path: str, text: bytes) -> set[str]:
    """Normal names of the distributions that a pyproject.toml, setup.cfg or setup.py declares.

    Nothing of it is executed: a name that setup.py works out is none of them.
    """
    if len(text) > LARGEST:
        return set()
    try:
        content = text.decode("utf-8")
        names = {"pyproject.toml": _of_project, "setup.cfg": _of_config, "setup.py": _of_script}[
            posixpath.basename(path)
        ](content)
        return {normal(name) for name in names if isinstance(name, str) and name.strip()}
    except (ValueError, SyntaxError, configparser.Error, RecursionError, MemoryError):
        return set()


def _of_project(content: str) -> list[object]:
    document = tomllib.loads(content)
    project = document.get("project")
    tool = document.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    flit = tool.get("flit") if isinstance(tool, dict) else None
    metadata = flit.get("metadata") if isinstance(flit, dict) else None
    tables = [table for table in (project, poetry, metadata) if isinstance(table, dict)]
    return [table.get(key) for table in tables for key in ("name", "dist-name")]


def _of_config(content: str) -> list[object]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(content)
    return [parser.get("metadata", "name", fallback=None)]


def _of_script(content: str) -> list[object]:
    """Return what a call gives as `name`: a text, or a name that a text is assigned to somewhere in
    the file.
    """
    tree = ast.parse(content)
    texts: dict[str, list[object]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    texts.setdefault(target.id, []).append(node.value.value)
    names: list[object] = []
    for node in ast.walk(tree):
        for given in node.keywords if isinstance(node, ast.Call) else ():
            if given.arg == "name" and isinstance(given.value, ast.Constant):
                names.append(given.value.value)
            elif given.arg == "name" and isinstance(given.value, ast.Name):
                names += texts.get(given.value.id, [])
        for key, value in (
            zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
        ):
            if (
                isinstance(key, ast.Constant)
                and key.value == "name"
                and isinstance(value, ast.Constant)
            ):
                names.append(value.value)
    return names
