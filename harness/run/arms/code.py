"""The code of an arm as it is read: which files of a folder or a tree it is and how many there may
be, and a revision of the user's repository, with a patch applied, without changing anything there.

Files of a revision are taken as git stores them (`ls-tree`, `cat-file`), not checked out: a
checkout runs the smudge filters that the repository's configuration names, and hooks, and converts
line ends by the machine it runs on. So no program of the user's runs, `.git` stays as it is byte
for byte, no index is needed, and a commit gives the same bytes everywhere. A patch is applied in a
folder of its own, outside of any repository.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from harness.forms.git import GitEntry, batch, complaint, contents, entries_of, git
from harness.forms.problem import closest
from harness.forms.text import printable

T = TypeVar("T")
BYTES_LIMIT = 20 * 1024 * 1024
FILES_LIMIT = 2_000
IGNORED = {
    "__pycache__",
    ".git",
    ".nox",
    ".venv",
    "node_modules",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    "results",
}


class TooMuchCode(Exception):
    """More files or bytes than an arm may have; the message says what to do."""


class CodeUnreadable(Exception):
    """A file that belongs to an arm cannot be read; the message says which."""


def is_code(path: str) -> bool:
    """Return whether a file, by its path from the top of the code, belongs to an arm."""
    *folders, name = path.split("/")
    return (
        not any(folder in IGNORED or folder.startswith(".") for folder in folders)
        and not name.startswith(".")
        and not name.endswith(".pyc")
    )


def read_folder(root: Path, *, leave_out: Iterable[Path]) -> dict[str, bytes]:
    """Read the code of a folder: regular files only, never through a link.

    Raises:
        TooMuchCode: more than 20 MiB or 2000 files.
        CodeUnreadable: one cannot be read.
    """
    left_out = set(leave_out)
    paths = []
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        inside = here.relative_to(root)
        folders[:] = [
            name
            for name in folders
            if is_code((inside / name / "x").as_posix()) and here / name not in left_out
        ]
        paths += [(inside / name).as_posix() for name in names if here / name not in left_out]
        if len(paths) > 10 * FILES_LIMIT:
            break
    return read_files(root, paths)


def read_files(root: Path, paths: Iterable[str]) -> dict[str, bytes]:
    """Read those of the files that are code and regular.

    Raises:
        TooMuchCode: more than 20 MiB or 2000 files.
        CodeUnreadable: one cannot be read.
    """
    sizes = {}
    for path in sorted(paths):
        try:
            status = (root / path).lstat()
        except (FileNotFoundError, NotADirectoryError):  # tracked by git, and removed
            continue
        if is_code(path) and stat.S_ISREG(status.st_mode):
            sizes[path] = status.st_size
    demand_limits(sizes, name=root.name)
    return {path: _read(root, path) for path in sizes}


def _read(root: Path, path: str) -> bytes:
    try:
        return (root / path).read_bytes()
    except OSError as error:
        raise CodeUnreadable(
            f"subject.path: {path} cannot be read ({error.strerror}); make it readable or move it,"
            " because every file in this folder is part of the arm's code"
        ) from None


def demand_limits(sizes: Mapping[str, int], *, name: str) -> None:
    """Refuse more than 20 MiB or 2000 files.

    Raises:
        TooMuchCode: there are more.
    """
    if sum(sizes.values()) > BYTES_LIMIT or len(sizes) > FILES_LIMIT:
        raise TooMuchCode(
            f"subject.path: {name} contains more than {BYTES_LIMIT // 2**20} MiB or {FILES_LIMIT}"
            " files of code; set it to the folder that contains only the code, and list data in"
            " inputs"
        )


def below(files: Mapping[str, T], folder: str) -> dict[str, T]:
    """Return the files below a folder, by their path from there; an empty folder is the top."""
    beginning = f"{folder}/" if folder else ""
    return {
        path[len(beginning) :]: file for path, file in files.items() if path.startswith(beginning)
    }


def has_module(module: str) -> Callable[[Iterable[str]], bool]:
    """Return a predicate: whether paths hold the file of a module, given as dotted words."""
    place = module.replace(".", "/")
    return has_any((f"{place}.py", f"{place}/__init__.py"))


def has_any(names: Iterable[str]) -> Callable[[Iterable[str]], bool]:
    """Return a predicate: whether paths hold a file of one of these names."""
    wanted = set(names)
    return lambda paths: not wanted.isdisjoint(paths)


LFS = b"version https://git-lfs.github.com/spec/v1\n"
SUBMODULE = "160000"
LINK = "120000"
EXECUTABLE = "100755"
BATCH = 64 * 2**20
"""Bytes of files that are held at a time."""


class RevisionError(Exception):
    """A repository or revision that cannot be used; the message says what, where and what to do."""


class GitRepository:
    """A git repository: with a working tree, bare, shallow, or a linked worktree.

    Attributes:
        root: the top of its working tree, or None where it has none.
    """

    def __init__(self, path: Path, *, given: str) -> None:
        """Find it from a folder in it; `given` is what the scenario or the command line calls it,
        for messages.

        Raises:
            RevisionError: the folder is not there, no repository, or no git.
        """
        self._given = given
        if not path.is_dir():
            raise RevisionError(
                f"repo {given} is not a folder (a path is relative to the scenario's folder)"
            )
        self._path = path
        inside = self._ask("rev-parse", "--is-inside-work-tree")
        if inside is None:
            why = complaint(self._run("rev-parse", "--git-dir").stderr).replace(f"{path}", given)
            raise RevisionError(f"repo {given} cannot be used: {why}")
        self.root: Path | None = None
        if inside == b"true\n" and (top := self._ask("rev-parse", "--show-toplevel")) is not None:
            self.root = Path(os.fsdecode(top.removesuffix(b"\n"))).resolve()

    def commit(self, rev: str) -> str:
        """Resolve a revision to the full id of its commit.

        Raises:
            RevisionError: there is none of that name, or more than one.
        """
        done = self._run("rev-parse", "--verify", "--end-of-options", f"{rev}^{{commit}}")
        said = done.stderr.decode(errors="replace")
        shown = printable(rev)
        if twice := re.search(r"refname '(.+?)' is ambiguous", said):
            same = [ref for ref in self._refs() if ref.split("/", 2)[-1] == twice[1]]
            raise RevisionError(
                f"rev {shown} is ambiguous in {self._given}; write"
                f" {' or '.join(same) or 'the full id of the commit'}"
            )
        if "is ambiguous" in said:
            raise RevisionError(
                f"rev {shown} is ambiguous in {self._given}, because several object ids begin with"
                " it; use more digits of the id"
            )
        if done.returncode:
            names = [ref.split("/", 2)[-1] for ref in self._refs()]
            meant = closest(rev, names)
            hint = f"; did you mean {printable(meant)}?" if meant else ""
            if self._ask("rev-parse", "--is-shallow-repository") == b"true\n":
                hint += " (it is a shallow clone; fetch older commits before the run)"
            raise RevisionError(f"rev {shown} is not a commit in {self._given}{hint}")
        return done.stdout.decode().strip()

    def tree(self, commit: str) -> str:
        """Return the id of a commit's tree."""
        return self._demand("rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()

    def entries(self, commit: str) -> dict[str, GitEntry]:
        """Every file of a commit, by its path from the top."""
        return entries_of(self._demand("ls-tree", "-r", "-z", "-l", "--full-tree", commit))

    def read(self, entries: Mapping[str, GitEntry]) -> dict[str, bytes]:
        """Return the content of files, as git stores it.

        Raises:
            RevisionError: a submodule, a pointer of git-lfs, an object that is not in this
                repository, or a name that would lead elsewhere or cannot be written down.
        """
        for path, entry in entries.items():
            if not path.isprintable() or any(
                part.lower() in ("", ".", "..", ".git") for part in path.split("/")
            ):
                raise RevisionError(
                    f"{self._given} contains a file that cannot be checked out:"
                    f" {os.fsencode(path)!r}"
                )
            if entry.mode == SUBMODULE:
                raise RevisionError(
                    f"{path} is a submodule of {self._given}, so its code is in a different"
                    " repository; set subject.path to a folder without it, or use the submodule as"
                    " the repo"
                )
        blobs = [entry.blob for entry in entries.values()]
        content = contents(self._demand("cat-file", "--batch", given=batch(blobs)), blobs)
        for path, entry in entries.items():
            if entry.blob not in content:
                raise RevisionError(
                    f"{path} is not in this clone of {self._given} (a partial clone?). Runs do"
                    " not fetch objects, so fetch it first"
                )
            if content[entry.blob].startswith(LFS):
                raise RevisionError(
                    f"{path} in {self._given} is a Git LFS pointer without its content; list data"
                    " in inputs, or set subject.path to a folder without it"
                )
        return {path: content[entry.blob] for path, entry in entries.items()}

    def read_there(self, entries: Mapping[str, GitEntry]) -> dict[str, bytes]:
        """As `read`, without the files that cannot be had: a pointer of git-lfs, an object that is
        not here.
        """
        try:
            return self.read(entries)
        except RevisionError:
            content: dict[str, bytes] = {}
            for path, entry in entries.items():
                with contextlib.suppress(RevisionError):
                    content |= self.read({path: entry})
            return content

    def lay_out(self, entries: Mapping[str, GitEntry], target: Path) -> list[str]:
        """Write files into a folder, as far as they can be had.

        Links stay links where they lead to one of them.

        Returns:
            Those that cannot be had, by path: pointers of git-lfs, and objects that are not in this
            repository.

        Raises:
            RevisionError: git does not give them.
        """
        left = set(entries)
        for some in _batches(entries):
            for path, data in self.read_there(some).items():
                left.discard(path)
                place = target / path
                place.parent.mkdir(parents=True, exist_ok=True)
                if some[path].mode != LINK:
                    place.write_bytes(data)
                    place.chmod(0o755 if some[path].mode == EXECUTABLE else 0o644)
                elif (
                    posixpath.normpath(posixpath.join(posixpath.dirname(path), os.fsdecode(data)))
                    in entries
                ):
                    place.symlink_to(os.fsdecode(data))
        return sorted(left)

    def is_changed(self) -> bool:
        """Return whether its working tree holds what the commit that is checked out does not,
        ignored files aside.
        """
        return bool(self._ask("status", "--porcelain", "--untracked-files=normal", "--no-renames"))

    def working_files(self) -> list[str]:
        """Files of the working tree, by their path from the top: tracked ones, and those git would
        not ignore.
        """
        listed = self._demand(
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "--full-name",
            "--",
            ":/",
        )
        return sorted({os.fsdecode(name) for name in listed.split(b"\0")[:-1]})

    def _refs(self) -> list[str]:
        return (
            self._demand("for-each-ref", "--format=%(refname)")
            .decode(errors="replace")
            .splitlines()
        )

    def _ask(self, *arguments: str) -> bytes | None:
        done = self._run(*arguments)
        return done.stdout if done.returncode == 0 else None

    def _demand(self, *arguments: str, given: bytes = b"") -> bytes:
        done = self._run(*arguments, given=given)
        if b"promisor remote" in done.stderr:
            raise RevisionError(
                f"{self._given} is a partial clone that lacks objects of this revision. Runs do not"
                " fetch objects, so fetch them first: git fetch --refetch --no-filter"
            )
        if done.returncode:
            raise RevisionError(
                f"git {arguments[0]} failed in {self._given}: {complaint(done.stderr)}"
            )
        return done.stdout

    def _run(self, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return git(*arguments, folder=self._path, given=given)


def _batches(entries: Mapping[str, GitEntry]) -> Iterator[dict[str, GitEntry]]:
    some: dict[str, GitEntry] = {}
    size = 0
    for path, entry in entries.items():
        if some and size + entry.size > BATCH:
            yield some
            some = {}
            size = 0
        some[path] = entry
        size += entry.size
    if some:
        yield some


# What git would read of the user's or the system's configuration says nothing about this patch.
ALONE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}


def paths_of_patch(patch: bytes, *, name: str) -> set[str]:
    """Paths that a patch reads or writes, from the top of its tree.

    Raises:
        RevisionError: it is not a patch.
    """
    with tempfile.TemporaryDirectory(prefix="rankproof-patch-") as folder:
        done = _git_apply(Path(folder).resolve(), patch, "--numstat", "-z")
    if done.returncode:
        raise RevisionError(f"{name} is not a patch that git can read: {_reason(done.stderr)}")
    paths: set[str] = set()
    fields = iter(done.stdout.decode("utf-8", "surrogateescape").split("\0"))
    for field in fields:
        if not field:
            continue
        path = field.split("\t", 2)[2]
        # A rename has an empty name, and its two names follow.
        paths |= {path} if path else {next(fields), next(fields)}
    return paths


def apply_patch(
    files: Mapping[str, bytes], patch: bytes, *, name: str, to: str
) -> dict[str, bytes]:
    """Apply a patch to files, and return what they are then.

    Args:
        files: path to content; at least those that the patch touches.
        patch: as `git diff` or `git format-patch` writes it.
        name: of the patch, for messages.
        to: what it is applied to, for messages.

    Raises:
        RevisionError: it does not apply; the message names the file and the hunk.
    """
    with tempfile.TemporaryDirectory(prefix="rankproof-patch-") as text:
        folder = Path(text).resolve()
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        done = _git_apply(folder, patch, "--whitespace=nowarn")
        if done.returncode:
            raise RevisionError(f"{name} does not apply to {to}: {_hunk(done.stderr, patch)}")
        # A patch may have made links: they are neither read nor followed.
        paths = [Path(here, name) for here, _, names in os.walk(folder) for name in names]
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(paths)
            if stat.S_ISREG(path.lstat().st_mode)
        }


def _git_apply(folder: Path, patch: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    # The temporary folder may lie inside a repository: its parent is as far up as git may look.
    alone = {**ALONE, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    return git("apply", *options, "-", given=patch, folder=folder, variables=alone)


def _hunk(said: bytes, patch: bytes) -> str:
    """Return the hunk that git stumbled over, as the patch writes it."""
    match = re.search(rb"patch failed: (.*):(\d+)", said)
    if match is None:
        return _reason(said)
    file = match[1].decode(errors="replace")
    line = match[2].decode()
    in_file = patch.partition(b"+++ b/" + match[1])[2] or patch
    header = re.search(rb"^@@ -" + match[2] + rb"[ ,].*?@@", in_file, re.MULTILINE)
    hunk = f", hunk {header[0].decode(errors='replace')}" if header else ""
    return f"{printable(file)} line {line}{hunk}"


def _reason(said: bytes) -> str:
    lines = [
        line.removeprefix("error: ") for line in said.decode(errors="replace").strip().splitlines()
    ]
    return printable("; ".join(lines), limit=300) or "git gave no reason"
