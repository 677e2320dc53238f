"""What a repository holds of the code that ranks load beside what was staged: the distributions it declares, its files.

The run asks it of the folder as it stands, or of an arm's revision, and keeps the answer in the record. A gate asks the
commit itself, and does not believe the record.
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
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlparse

from harness.forms.digest import sha256
from harness.forms.distribution import normal
from harness.forms.git import git
from harness.record.facts import SourceFacts
from harness.run.arms import patch as patches
from harness.run.arms.files import is_code
from harness.run.arms.revision import LINK, SUBMODULE, GitRepository, RevisionError
from harness.run.arms.staging import StagedArm
from harness.scenario import Scenario
from harness.stats.provenance import TOOL, loaded

DECLARING = ("pyproject.toml", "setup.cfg", "setup.py")
# A file that declares something is short; a larger one is something else's.
LARGEST = 2**20


@dataclass(frozen=True)
class Tree:
    """The files of a folder or a revision, by their path from the top.

    Attributes:
        paths: of the files that are known.
        read: gives the content of files, as far as they are there.
        ignored: whether `read` also knows of files that git ignores: a build writes its version beside its sources.
    """

    paths: Collection[str]
    read: Callable[[Collection[str]], Mapping[str, bytes]]
    ignored: bool = False

    @cached_property
    def declared(self) -> frozenset[str]:
        """Normal names of the distributions that its files declare."""
        about = [path for path in self.paths if posixpath.basename(path) in DECLARING and is_code(path)]
        return frozenset(name for path, text in self.read(about).items() for name in names_in(path, text))

    def digests(self, wanted: Iterable[str]) -> dict[str, str]:
        """The sha256 of every file whose path ends like a wanted one."""
        by_name: dict[str, list[str]] = {}
        for path in self.paths:
            by_name.setdefault(posixpath.basename(path), []).append(path)
        paths: set[str] = set()
        missing: list[str] = []
        tops: set[str] = set()
        for file in set(wanted):
            like = [path for path in by_name.get(posixpath.basename(file), ()) if f"/{path}".endswith(f"/{file}")]
            paths.update(like)
            tops.update(path.removesuffix(file) for path in like)
            missing += [] if like else [file]
        if self.ignored:
            paths.update(top + file for top in tops for file in missing)
        return {path: sha256(content) for path, content in sorted(self.read(paths).items())}


EMPTY = Tree((), lambda _: {})


class Origin(Protocol):
    """Where the code of an arm comes from, as far as it is not staged."""

    @property
    def declared(self) -> Collection[str]:
        """Normal names of the distributions that are the repository's own."""

    def facts(self, lists: Iterable[bytes]) -> SourceFacts:
        """What the record keeps, after ranks have told what they had loaded."""


@dataclass(frozen=True)
class Living:
    """A repository that is here; `installed` are distributions that were installed from a folder of it."""

    tree: Tree
    installed: frozenset[str] = frozenset()

    @property
    def declared(self) -> frozenset[str]:
        return self.tree.declared | self.installed

    def facts(self, lists: Iterable[bytes]) -> SourceFacts:
        wanted = {file for listing in lists for file, _ in loaded(listing)}
        return SourceFacts(declared=sorted(self.declared), files=self.tree.digests(wanted))


@dataclass(frozen=True)
class Recorded:
    """What a report says of a repository that may not be here. The Rankproof that runs is compared apart."""

    said: SourceFacts

    @property
    def declared(self) -> frozenset[str]:
        return frozenset(self.said.declared) - {TOOL}

    def facts(self, lists: Iterable[bytes]) -> SourceFacts:
        del lists
        return self.said.model_copy(update={"declared": sorted(self.declared)})


def origins(scenario: Scenario, folder: Path, staged: Mapping[str, StagedArm]) -> dict[str, Origin]:
    """Where the code of each arm of a scenario in a folder comes from.

    Raises:
        RevisionError: a repository cannot be read, or a patch does not apply.
    """
    here = Living(standing(folder), installed_from(folder))
    arms: dict[str, Origin] = {}
    for name, arm in staged.items():
        arms[name] = here
        if arm.revision is not None:
            own = scenario.subject.arms[name]
            place = folder if own.repo is None else (folder / Path(own.repo).expanduser()).resolve()
            repository = GitRepository(place, given=arm.revision.repo or "the scenario's repository")
            tree = revision(repository, arm.revision.commit)
            if own.patch is not None:
                tree = patched(tree, (folder / own.patch).read_bytes(), to=arm.revision.commit)
            installed = here.installed
            if own.repo is not None:
                # What runs the ranks is under test only where the code's own repository is that of Rankproof.
                installed = (installed - {TOOL}) | installed_from(place)
            arms[name] = Living(tree, installed)
    return arms


def standing(folder: Path) -> Tree:
    """The repository that a folder lies in, as it stands, with what is not committed; empty where there is none."""
    try:
        repository = GitRepository(folder, given=folder.name)
        if (top := repository.root) is None:
            return EMPTY
        paths = repository.working_files()
    except RevisionError:
        return EMPTY

    def read(wanted: Collection[str]) -> dict[str, bytes]:
        content = {}
        for path in wanted:
            with contextlib.suppress(OSError):  # what cannot be read is nobody's code
                if (top / path).is_file() and not (top / path).is_symlink():
                    content[path] = (top / path).read_bytes()
        return content

    return Tree(paths, read, ignored=True)


def revision(repository: GitRepository, commit: str) -> Tree:
    """A commit of a repository."""
    entries = {path: entry for path, entry in repository.entries(commit).items() if entry.mode not in (LINK, SUBMODULE)}

    def read(wanted: Collection[str]) -> dict[str, bytes]:
        return repository.read_there({path: entries[path] for path in wanted})

    return Tree(entries, read)


def patched(tree: Tree, patch: bytes, *, to: str) -> Tree:
    """A tree with a patch applied.

    Raises:
        RevisionError: it does not apply.
    """
    touched = patches.touched(patch, name="the patch")
    before = tree.read(touched.intersection(tree.paths))
    changed = patches.apply(before, patch, name="the patch", to=f"commit {to[:12]}")
    untouched = [path for path in tree.paths if path not in touched]

    def read(wanted: Collection[str]) -> dict[str, bytes]:
        own = {path: changed[path] for path in wanted if path in changed}
        return own | dict(tree.read([path for path in wanted if path not in touched]))

    return Tree([*untouched, *changed], read)


def installed_from(folder: Path) -> frozenset[str]:
    """Normal names of the distributions of this interpreter that were installed from a folder of the repository.

    Or from one of its other working trees, which may stand at any commit.
    """
    if (own := _repository_of(folder)) is None:
        return frozenset()
    names = set()
    for distribution in importlib.metadata.distributions():
        place = installed_folder(distribution)
        if place is not None and place.is_dir() and _repository_of(place) == own:
            names.add(normal(distribution.metadata["Name"] or ""))
    return frozenset(names)


def _repository_of(folder: Path) -> bytes | None:
    """The folder of the repository itself, which all of its working trees share."""
    done = git("rev-parse", "--path-format=absolute", "--git-common-dir", folder=folder)
    return os.path.realpath(done.stdout.strip()) if done.returncode == 0 else None


def installed_folder(distribution: importlib.metadata.Distribution) -> Path | None:
    """The folder that a distribution was installed from, or None where it was none."""
    try:
        address = urlparse(json.loads(distribution.read_text("direct_url.json") or "null")["url"])
    except (ValueError, KeyError, TypeError, OSError):
        return None
    return Path(unquote(address.path)) if address.scheme == "file" else None


# --- what declares a distribution -------------------------------------------------------------------------------------


def names_in(path: str, text: bytes) -> set[str]:
    """Normal names of the distributions that a pyproject.toml, setup.cfg or setup.py declares.

    Nothing of it is executed: a name that setup.py works out is not names.
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
    project, tool = document.get("project"), document.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    flit = tool.get("flit") if isinstance(tool, dict) else None
    metadata = flit.get("metadata") if isinstance(flit, dict) else None
    tables = [one for one in (project, poetry, metadata) if isinstance(one, dict)]
    return [one.get(key) for one in tables for key in ("name", "dist-name")]


def _of_config(content: str) -> list[object]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(content)
    return [parser.get("metadata", "name", fallback=None)]


def _of_script(content: str) -> list[object]:
    """What a call gives as `name`: a text, or a name that a text is assigned to somewhere in the file."""
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
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and key.value == "name" and isinstance(value, ast.Constant):
                names.append(value.value)
    return names
