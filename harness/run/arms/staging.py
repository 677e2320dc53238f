"""Staging the arms: each gets a copy of the subject's code in the results folder.

So the code cannot change while the run goes on, and the evidence holds exactly what ran: ranks
import from a further copy, and record the digest of what they loaded.

Code comes from the folder as it stands, or, for an arm with `repo`, `rev` or `patch`, from a
repository's history. Where the subject itself lies beside the scenario and the code under test in
the repository, both are staged into one folder: the same subject over each arm's code.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.forms.digest import sha256
from harness.forms.git import GitEntry
from harness.forms.source import real_place
from harness.forms.strict_json import JSON
from harness.record.facts import PATCH_FOLDER, SOURCE_FOLDER, RevisionFacts
from harness.run.arms.code import (
    LINK,
    CodeUnreadable,
    GitRepository,
    RevisionError,
    TooMuchCode,
    apply_patch,
    below,
    demand_limits,
    has_any,
    has_module,
    is_code,
    paths_of_patch,
    read_files,
    read_folder,
)
from harness.run.inputs import leaves
from harness.scenario import Arm, Scenario
from harness.subjects import READY
from harness.world.control.program import is_staged

HEAD = "HEAD"
# A script, and what Linux and macOS execute.
EXECUTABLE = (b"#!", b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
# Where the code of a repository usually lies, tried in this order.
USUAL = ("", "src")


class ArmError(Exception):
    """An arm that cannot be staged; the message says what, where and what to do."""


class NotThere(ArmError):
    """A file that the scenario names is not among an arm's code: a slip of the scenario, at a place
    of it.
    """

    def __init__(
        self, place: tuple[str | int, ...], message: str, *, alternatives: Collection[str] = ()
    ) -> None:
        """Other files of the code are `alternatives`: code that is there is not written later."""
        super().__init__(f"{'.'.join(map(str, place))}: {message}")
        self.place = place
        self.message = message
        self.alternatives = sorted(alternatives)


@dataclass(frozen=True)
class StagedArm:
    """An arm ready to run: its folder, the arguments of its entry, what its code was laid out from,
    and its patch.
    """

    folder: Path
    arguments: Mapping[str, JSON]
    revision: RevisionFacts | None = None
    patch: bytes | None = None

    @property
    def files(self) -> list[str]:
        """Paths of its files, relative to its folder."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return [path.relative_to(self.folder).as_posix() for path in found]

    @property
    def packages(self) -> frozenset[str]:
        """Top-level modules and packages that the folder holds."""
        return frozenset(
            path.stem
            for path in self.folder.iterdir()
            if path.suffix == ".py" or (path / "__init__.py").is_file()
        )


@dataclass(frozen=True)
class _LaidOut:
    """A revision found, before it is known which of its folders is the code."""

    repository: GitRepository
    commit: str
    entries: Mapping[str, GitEntry]
    patch: bytes | None

    def paths(self) -> set[str]:
        named = paths_of_patch(self.patch, name="the patch") if self.patch is not None else ()
        return {*self.entries, *named}


class CodePlace(Protocol):
    """Where the code of arms is laid: a run's results folder, or a folder to compare it in."""

    path: Path

    def write(self, name: str, data: bytes) -> None:
        """Write a file, by its path from there."""


def stage_arms(
    scenario: Scenario, *, folder: Path, inputs: list[Path], results: CodePlace
) -> dict[str, StagedArm]:
    """Copy the code of every arm into the results folder, without the inputs of the scenario that
    lie in its folder.

    Raises:
        ArmError: a file that is not there or not readable, no entry module, more code than 20 MiB,
            a revision that cannot be had.
    """
    try:
        return _Staging(
            scenario, folder=real_place(folder), inputs=inputs, results=results
        ).stage_all()
    except (RevisionError, TooMuchCode, CodeUnreadable) as error:
        raise ArmError(str(error)) from None


class _Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, data: bytes) -> None:
        """Write a file, by its path from there."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


@contextmanager
def previewed(scenario: Scenario, *, folder: Path) -> Iterator[dict[str, StagedArm]]:
    """Lay the arms out as a run from this folder would, in a folder that is gone afterwards.

    Raises:
        ArmError: as for `stage_arms`.
    """
    inputs = [folder / given.path for given in scenario.inputs.values() if given.path is not None]
    with tempfile.TemporaryDirectory(prefix="rankproof-source-") as text:
        yield stage_arms(scenario, folder=folder, inputs=inputs, results=_Folder(Path(text)))


def lay(name: str, code: Mapping[str, bytes], *, results: CodePlace, is_program: bool) -> Path:
    """Write the code of an arm into the results folder, and return its folder."""
    place = results.path / SOURCE_FOLDER / name
    place.mkdir(parents=True, exist_ok=True)
    for path, data in code.items():
        results.write(f"{SOURCE_FOLDER}/{name}/{path}", data)
        # Told by its content: git and the evidence keep no rights but this one, and not everywhere.
        if is_program and data.startswith(EXECUTABLE):
            (place / path).chmod(0o755)
    return place


class _Staging:
    def __init__(
        self, scenario: Scenario, *, folder: Path, inputs: list[Path], results: CodePlace
    ) -> None:
        subject = scenario.subject
        self._scenario = scenario
        self._subject = subject
        self._folder = folder
        self._inputs = [real_place(path) for path in inputs]
        self._results = results
        self._module = subject.function.partition(":")[0]
        self._holds_subject: Callable[[Iterable[str]], bool] = (
            has_module(self._module) if subject.program is None else has_any(subject.program)
        )

    def _of_services(self) -> dict[str, bytes]:
        """Files beside the scenario that a command line of a service names."""
        words = {
            word
            for arm in self._scenario.subject.arms
            for service in self._scenario.services_of(arm).values()
            for word in service.program
        }
        return {
            word: (self._folder / word).read_bytes()
            for word in sorted(words)
            if is_staged(word, self._folder)
        }

    def stage_all(self) -> dict[str, StagedArm]:
        if self._subject.use is not None:
            # Laid out like any other code: the evidence holds it, and ranks load it from there.
            code = {**self._of_services(), **READY[self._subject.use].files()}
            return {
                name: StagedArm(
                    lay(name, code, results=self._results, is_program=False),
                    arguments=dict(arm.with_),
                )
                for name, arm in self._subject.arms.items()
            }
        revisions = {
            name: self._find(name, arm)
            for name, arm in self._subject.arms.items()
            if arm.is_laid_out
        }
        base = self._base(revisions)
        is_program = self._subject.program is not None
        staged = {}
        for name, arm in self._subject.arms.items():
            revision = None
            if (laid_out := revisions.get(name)) is not None:
                code = self._read(name, laid_out, base)
                revision = self._facts(arm, laid_out, base)
            else:
                code = self._as_it_stands(base, [each.repository for each in revisions.values()])
            if base is not None or self._subject.path != ".":
                code = self._with_the_subject(code, at=self._place(base, revisions.values()))
            if self._subject.program is not None:
                self._demand_a_file(code, self._subject.program)
            else:
                module = self._module_file(code, arm, of=as_in(self._subject.named(name), revision))
                if arm.file is not None:
                    code[module] = self._replacement(name, arm.file)
            code = self._with_what_is_beside(code)
            place = lay(name, code, results=self._results, is_program=is_program)
            patched = laid_out.patch if laid_out is not None else None
            staged[name] = StagedArm(
                folder=place, arguments=dict(arm.with_), revision=revision, patch=patched
            )
        return staged

    # -- from a repository ---------------------------------------------------------------------

    def _find(self, name: str, arm: Arm) -> _LaidOut:
        place = self._folder if arm.repo is None else real_place(arm.repo, folder=self._folder)
        shown = (
            "the scenario's repository"
            if arm.repo is None
            else shown_repo(arm.repo, folder=self._folder)
        )
        repository = GitRepository(place, given=shown)
        try:
            commit = repository.commit(arm.rev or HEAD)
        except RevisionError as error:
            if arm.repo is not None:
                raise
            raise RevisionError(f"{error}; to use another repository, pass --repo PATH") from None
        text = None
        if arm.patch is not None:
            try:
                text = (self._folder / arm.patch).read_bytes()
            except OSError as error:
                raise ArmError(
                    f"{self._subject.named(name)}'s patch {arm.patch} cannot be read:"
                    f" {error.strerror}"
                ) from None
            self._results.write(f"{PATCH_FOLDER}/{name}.patch", text)
        return _LaidOut(repository, commit, repository.entries(commit), text)

    def _base(self, revisions: Mapping[str, _LaidOut]) -> str | None:
        """Which folder of the revisions is the code, from their top; None where no arm is a
        revision.

        One folder for all arms, the first that holds the subject in every revision: arms that
        differ in which folder was staged would differ in everything.
        """
        if not revisions:
            return None
        root = next(iter(revisions.values())).repository.root
        given = self._subject.path
        code = real_place(given, folder=self._folder)
        here = (
            code.relative_to(root).as_posix()
            if root is not None and code.is_relative_to(root)
            else given
        )
        places = ["" if here in ("", ".") else os.path.normpath(here)]
        if given == ".":
            places = list(dict.fromkeys([*places, *USUAL]))
        if places[0].startswith(("..", "/")):
            raise ArmError(
                f"subject.path: {given} is outside the repository; set it to one of the"
                " repository's folders"
            )
        paths = [laid_out.paths() for laid_out in revisions.values()]
        for place in places:
            beginning = f"{place}/" if place else ""
            cut = [
                {path[len(beginning) :] for path in some if path.startswith(beginning)}
                for some in paths
            ]
            here_is_fine = all(self._holds_subject(some) for some in cut)
            # Where the scenario's own folder is the same for all arms, what they differ in lies
            # elsewhere.
            if here_is_fine and (given != "." or place in USUAL or self._differ(revisions, place)):
                return place
            if given != "." and not all(cut):
                raise ArmError(
                    f"subject.path: {given} must be a folder in the repository at every revision"
                )
        if given != ".":
            return places[0]
        in_src = all(
            any(has_package(path) for path in some if path.startswith("src/")) for some in paths
        )
        return "src" if in_src else ""

    def _differ(self, revisions: Mapping[str, _LaidOut], place: str) -> bool:
        repositories = [laid_out.repository for laid_out in revisions.values()]
        code = [
            (
                self._read(name, revisions[name], place)
                if name in revisions
                else self._as_it_stands(place, repositories)
            )
            for name in self._subject.arms
        ]
        return len(code) == 1 or any(files != code[0] for files in code)

    def _read(self, name: str, laid_out: _LaidOut, base: str | None) -> dict[str, bytes]:
        base = base or ""
        beginning = f"{base}/" if base else ""
        named = (
            paths_of_patch(laid_out.patch, name=f"{self._subject.named(name)}'s patch")
            if laid_out.patch is not None
            else set()
        )
        left_out = self._inputs_below(laid_out.repository.root)
        wanted = {
            path: entry
            for path, entry in laid_out.entries.items()
            if path in named
            or (
                path.startswith(beginning)
                and is_code(path[len(beginning) :])
                and entry.mode != LINK
                and not _is_below(path, left_out)
            )
        }
        demand_limits(
            {path: entry.size for path, entry in wanted.items()}, name=base or "the repository"
        )
        files = laid_out.repository.read(wanted)
        if laid_out.patch is not None:
            to = f"commit {laid_out.commit[:12]}"
            files = apply_patch(
                files, laid_out.patch, name=f"{self._subject.named(name)}'s patch", to=to
            )
        return {path: data for path, data in below(files, base).items() if is_code(path)}

    def _inputs_below(self, root: Path | None) -> list[str]:
        if root is None:
            return []
        inside = [path for path in self._inputs if path.is_relative_to(root)]
        return [path.relative_to(root).as_posix() for path in inside]

    def _facts(self, arm: Arm, laid_out: _LaidOut, base: str | None) -> RevisionFacts:
        return RevisionFacts(
            repo=None if arm.repo is None else shown_repo(arm.repo, folder=self._folder),
            rev=arm.rev or HEAD,
            commit=laid_out.commit,
            tree=laid_out.repository.tree(laid_out.commit),
            patch=None if laid_out.patch is None else sha256(laid_out.patch),
            folder=base or "",
        )

    # -- from the folder as it stands ----------------------------------------------------------

    def _as_it_stands(
        self, base: str | None, repositories: Sequence[GitRepository]
    ) -> dict[str, bytes]:
        """Return the working tree; beside a revision, the same folder of it, with what git knows or
        would add.
        """
        root = repositories[0].root if repositories else None
        code = real_place(self._subject.path, folder=self._folder)
        if base is not None and root is not None and code.is_relative_to(root):
            beginning = f"{base}/" if base else ""
            left_out = self._inputs_below(root)
            listed = [
                path[len(beginning) :]
                for path in repositories[0].working_files()
                if path.startswith(beginning) and not _is_below(path, left_out)
            ]
            return read_files(root / base, listed)
        if base is not None and self._subject.path == ".":
            raise ArmError(
                "one arm is a revision of a repository that does not contain the scenario, so the"
                " other arm needs a rev too"
            )
        if not code.is_dir():
            message = f"{self._subject.path} is not a folder (looked in {self._folder.name})"
            raise NotThere(("subject", "path"), message)
        return read_folder(code, leave_out=self._inputs)

    def _place(self, base: str | None, revisions: Iterable[_LaidOut]) -> str:
        """Where the scenario's folder lies below the code's, or empty."""
        root = next((laid_out.repository.root for laid_out in revisions), None)
        if root is None or not self._folder.is_relative_to(top := root / (base or "")):
            return ""
        return self._folder.relative_to(top).as_posix()

    def _with_the_subject(self, code: dict[str, bytes], *, at: str) -> dict[str, bytes]:
        """Lay the scenario's own files over the code, where only they hold the subject.

        For an entry, only the .py files.
        """
        if self._holds_subject(code):
            return code
        # The scenario may be committed at one revision and not at another: that is not a difference
        # between the arms.
        code = {
            path: data
            for path, data in code.items()
            if at in ("", ".") or not path.startswith(f"{at}/")
        }
        files = {
            path: data
            for path, data in read_folder(self._folder, leave_out=self._inputs).items()
            if (
                path.endswith(".py")
                if self._subject.program is None
                else not path.endswith((".yaml", ".patch"))
            )
        }
        if not self._holds_subject(files):
            return code
        if both := sorted(path for path in files if code.get(path, files[path]) != files[path]):
            raise ArmError(
                f"{both[0]} is both next to the scenario and in the code under test, and the two"
                " differ; rename the scenario's copy"
            )
        return files | code

    def _with_what_is_beside(self, code: dict[str, bytes]) -> dict[str, bytes]:
        """Lay the code of a ready subject beside the arm's, where the scenario names one for its
        entry to import.
        """
        lent = READY[self._subject.beside].files() if self._subject.beside is not None else {}
        if both := sorted(path for path in lent if code.get(path, lent[path]) != lent[path]):
            raise ArmError(
                f"{both[0]} belongs both to the code under test and to the code of"
                f" {self._subject.beside} (subject.beside), and the two differ; set subject.path to a"
                " subfolder that does not contain this file, or remove subject.beside"
            )
        return code | lent

    def _module_file(self, files: Mapping[str, bytes], arm: Arm, *, of: str) -> str:
        """Return the file that the entry's module is loaded from; `of` names the arm where its code
        is not what lies here.
        """
        place = self._module.replace(".", "/")
        for candidate in (f"{place}.py", f"{place}/__init__.py"):
            if candidate in files:
                return candidate
        if arm.file is not None:
            return f"{place}.py"
        raise NotThere(
            ("subject", "entry"),
            f"{self._subject.entry} is not in the subject's folder{of}, which has no {place}.py;"
            " move the module into this folder, because the run tests only the code in it",
            alternatives=[path for path in files if path.endswith(".py")],
        )

    def _demand_a_file(self, files: Mapping[str, bytes], words: Sequence[str]) -> None:
        if not self._holds_subject(files):
            raise NotThere(
                ("subject", "program"),
                f"the command {' '.join(words)!r} does not name a file in the subject's folder; run"
                " a program from that folder, because a program from elsewhere does not test the"
                " subject",
                alternatives=files,
            )

    def _replacement(self, name: str, file: str) -> bytes:
        try:
            return (self._folder / file).read_bytes()
        except OSError as error:
            message = (
                f"{file} cannot be read ({error.strerror}); choose a readable file in the"
                " scenario's folder"
            )
            others = [path.name for path in self._folder.glob("*.py")]
            raise NotThere(
                (*self._subject.place(name), "file"), message, alternatives=others
            ) from None


def _is_below(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def as_in(name: str, revision: RevisionFacts | None) -> str:
    """Which arm is meant (`the candidate`), where its code was laid out from a revision."""
    if revision is None:
        return ""
    patched = ", patched" if revision.patch is not None else ""
    return f" in {name}'s revision ({revision.rev}, commit {revision.commit[:12]}{patched})"


def has_package(path: str) -> bool:
    """Return whether a file below `src/` is a module or a package's beginning at the top of it."""
    inside = path.removeprefix("src/").split("/")
    return inside[-1].endswith(".py") and (len(inside) == 1 or inside[1:] == ["__init__.py"])


def shown_repo(repo: str, *, folder: Path) -> str:
    """Return a repository as the record names it: of a path that leaves the scenario's folder, only
    the last part.
    """
    return f"./{real_place(repo, folder=folder).name}" if leaves(repo) else repo
