"""Git repository a scenario lies in, read without changing it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from harness.forms.git import git, refusal
from harness.record.facts import RepositoryFacts
from harness.record.results import is_of_runs

PATCH_LIMIT = 1024 * 1024


def describe(
    folder: Path, *, results: Path | None = None, file: str | None = None
) -> RepositoryFacts:
    """Say which commit `folder` is at, and whether the tree was changed since.

    What git does not tell stays unknown.

    What git ignores does not make a tree dirty, nor does what runs left in `results`, the folder of
    all results: only untracked files that lie there as a run's do, so that nothing else can hide in
    it. `file` is the name of the scenario's file in the folder.
    """
    done = git("rev-parse", "HEAD", folder=folder)
    commit = _answer(done)
    if commit is None:
        return RepositoryFacts(
            commit=None,
            tree=None,
            dirty=None,
            untracked=None,
            origin=None,
            scenario=None,
            why_unknown=refusal(done.stderr) or "git reports no commit for this folder",
        )
    lines = _changes(folder, results)
    origin = _git(folder, "config", "--get", "remote.origin.url")
    return RepositoryFacts(
        commit=commit,
        tree=_git(folder, "rev-parse", "HEAD^{tree}"),
        dirty=None if lines is None else bool(lines),
        untracked=None if lines is None else sum(line.startswith("??") for line in lines),
        origin=without_credentials(origin) if origin else None,
        scenario=(_git(folder, "rev-parse", "--show-prefix") or "").rstrip("/") or None,
        file=file,
        why_unknown="git did not report whether the tree was changed" if lines is None else "",
    )


def _changes(folder: Path, results: Path | None) -> list[str] | None:
    """Return what differs from the commit in the whole tree, without what runs left; None where git
    does not tell.
    """
    changes = _git(
        folder,
        "status",
        "--porcelain",
        "-z",
        "--untracked-files=all",
        "--no-renames",
        whole_tree=True,
    )
    if changes is None:
        return None
    lines = changes.split("\0")[:-1]
    top = _git(folder, "rev-parse", "--show-toplevel")
    if not lines or results is None or top is None:
        return lines
    inside = os.path.relpath(os.path.realpath(results), os.path.realpath(top))
    beginning = "" if inside == "." else f"{inside}/"
    return [
        line
        for line in lines
        if not (
            line.startswith(f"?? {beginning}") and is_of_runs(line.removeprefix(f"?? {beginning}"))
        )
    ]


def status(folder: Path) -> list[str] | None:
    """Return what differs from the commit in the tree that `folder` is the top of, one line of `git
    status` each.

    None where git does not tell, or where the folder lies inside somebody else's tree.
    """
    if _git(folder, "rev-parse", "--show-prefix") != "":
        return None
    changes = _git(
        folder, "status", "--porcelain", "--untracked-files=all", "--no-renames", whole_tree=True
    )
    return None if changes is None else changes.splitlines()


def with_files(source: RepositoryFacts, folder: Path, files: Iterable[str]) -> RepositoryFacts:
    """Call a tree changed in which git overlooks a file that ran: one that it ignores, or was told
    to assume unchanged.

    Args:
        source: the facts of the repository, as `describe` gave them.
        folder: of the scenario.
        files: paths of the files that ran, relative to the folder.
    """
    names = sorted(set(files))
    if source.commit is None or source.dirty is not False or not names:
        return source
    top = _git(folder, "rev-parse", "--show-toplevel")
    prefix = _git(folder, "rev-parse", "--show-prefix")
    listed = _git(folder, "ls-tree", "-r", "-z", source.commit, "--", ".")
    if top is None or prefix is None or listed is None:
        return source
    # It takes paths from the top, by which attributes are found too.
    given = "".join(f"{prefix}{name}\n" for name in names).encode("utf-8", "surrogateescape")
    hashed = _answer(git("hash-object", "--stdin-paths", folder=Path(top), given=given))
    if hashed is None:
        return source
    entries = (entry.partition("\t") for entry in listed.split("\0")[:-1])
    held = {name: head.split(" ")[2] for head, _, name in entries}
    blobs = zip(names, hashed.splitlines(), strict=False)
    if all(held.get(name) == blob for name, blob in blobs):
        return source
    return source.model_copy(update={"dirty": True})


def patch(folder: Path) -> bytes | None:
    """Return the changes of tracked files since the commit, or None where there are none, or more
    than 1 MiB of them.
    """
    text = _git(
        folder,
        "diff",
        "HEAD",
        "--binary",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        whole_tree=True,
    )
    if not text:
        return None
    data = text.encode("utf-8", "surrogateescape") + b"\n"
    return data if len(data) <= PATCH_LIMIT else None


def without_credentials(address: str) -> str | None:
    """Return a remote's address without user, password, query and the name of a home folder.

    A local path, and a program with its arguments in place of an address, are nobody's business and
    become None.
    """
    if "::" in address.partition("/")[0] or re.match(r"[A-Za-z]:[\\/]", address):
        return None
    address = re.split(r"[?#]", address, maxsplit=1)[0]
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", address):
        scheme, rest = address.split("://", 1)
        place = re.sub(r"^[^/]*@", "", rest)
        # An @ that is left may be a path's, or end a password that nobody escaped.
        return (
            None
            if scheme.lower() == "file" or "@" in place
            else f"{scheme}://{_without_home(place)}"
        )
    if match := re.match(r"(?:[^/]*@)?([\w.-]+:.+)", address):
        return _without_home(match[1])
    return None


def _without_home(place: str) -> str:
    return re.sub(r"([/:])(?:(?:home|Users)/|~)[^/]+(?=/|$)", r"\1~", place)


def _git(folder: Path, *arguments: str, whole_tree: bool = False) -> str | None:
    return _answer(git(*arguments, *(("--", ":/") if whole_tree else ()), folder=folder))


def _answer(done: subprocess.CompletedProcess[bytes]) -> str | None:
    return None if done.returncode else done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")
