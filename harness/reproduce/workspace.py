"""Where the code of a reproduction comes from: a report, or a commit of a repository.

A commit is laid out in a folder of our own: no checkout, no hook, no filter, no worktree.
The folder is a repository itself, which borrows the objects of the other: revisions are found in it
as in the clone that a run was made in, and nothing is written into the user's `.git`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from harness.forms.git import git
from harness.record.facts import PATCH_FOLDER
from harness.reproduce.report_copy import ReportCopy
from harness.run.arms.provenance import (
    Living,
    Origin,
    Recorded,
    Tree,
    installed_from,
    patched,
    revision,
    standing,
)
from harness.run.arms.revision import (
    LINK,
    SUBMODULE,
    GitRepository,
    RevisionError,
    apply_patch,
    paths_of_patch,
)

LARGEST = 2048 * 2**20


def lay_out(repository: Path, commit: str, target: Path, *, changes: bytes | None) -> Path:
    """Lay out a commit, by its full id, with the changes its tree had, in a folder that is not
    there yet.

    Returns:
        The top of the laid-out tree.

    Raises:
        RevisionError: the commit is not there, its tree is larger than 2 GiB, or the patch does not
            apply.
    """
    source = GitRepository(repository, given=str(repository))
    source.commit(commit)
    entries = {
        path: entry
        for path, entry in source.entries(commit).items()
        if entry.mode not in (LINK, SUBMODULE)
    }
    if sum(entry.size for entry in entries.values()) > LARGEST:
        raise RevisionError(
            f"the tree of commit {commit[:12]} has more than {LARGEST // 2**30} GiB"
        )
    _borrow(repository, commit, target)
    source.lay_out(entries, target)  # the comparison finds what is not there
    if changes is not None:
        _change(target, changes, commit=commit)
    return target


def _borrow(repository: Path, commit: str, target: Path) -> None:
    objects = _ask(repository, "rev-parse", "--git-path", "objects")
    kind = _ask(repository, "rev-parse", "--show-object-format")
    # No template: it may hold hooks.
    done = git("init", "--quiet", "--template=", f"--object-format={kind}", str(target))
    if done.returncode:
        raise RevisionError(
            f"no repository could be made in {target}:"
            f" {done.stderr.decode(errors='replace').strip()}"
        )
    own = target / ".git"
    (own / "objects" / "info").mkdir(parents=True, exist_ok=True)
    (own / "objects" / "info" / "alternates").write_text(f"{(repository / objects).resolve()}\n")
    (own / "HEAD").write_text(f"{commit}\n")
    done = git("read-tree", commit, folder=target)
    if done.returncode:
        raise RevisionError(
            f"commit {commit[:12]} cannot be read: {done.stderr.decode(errors='replace').strip()}"
        )


def _ask(repository: Path, *words: str) -> str:
    done = git(*words, folder=repository)
    if done.returncode:
        raise RevisionError(f"git {words[0]} failed in {repository}")
    return os.fsdecode(done.stdout.removesuffix(b"\n"))


def _change(target: Path, changes: bytes, *, commit: str) -> None:
    named = paths_of_patch(changes, name="the patch of the run")
    before = {path: (target / path).read_bytes() for path in named if (target / path).is_file()}
    after = apply_patch(before, changes, name="the patch of the run", to=f"commit {commit[:12]}")
    for path in before.keys() - after.keys():
        (target / path).unlink()
    for path, data in after.items():
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


# -- where the code comes from, as far as it is not staged: a report, or a repository --------------


def recorded(copy: ReportCopy) -> dict[str, Origin]:
    """What the report says of each arm."""
    said = copy.record.run.provenance
    return {name: Recorded(said[name]) for name in copy.record.arms}


def standing_at(copy: ReportCopy, folder: Path) -> dict[str, Origin]:
    """The checkout that a folder lies in, as it stands, or its revisions for the arms that are
    one.
    """
    return _living(copy, folder, standing(folder))


def committed(
    copy: ReportCopy, repository: Path, commit: str, *, changes: bytes | None
) -> dict[str, Origin]:
    """A commit of a repository, with the changes its tree had, or its revisions for the arms that
    are one.

    Raises:
        RevisionError: the commit is not there, or the changes do not apply to it.
    """
    tree = revision(GitRepository(repository, given=repository.name), commit)
    return _living(copy, repository, tree if changes is None else patched(tree, changes, to=commit))


def with_candidate(kept: Mapping[str, Origin], tree: Tree, folder: Path) -> dict[str, Origin]:
    """The same, with the candidate from elsewhere."""
    return {**kept, "candidate": Living(tree, installed_from(folder))}


def _living(copy: ReportCopy, folder: Path, tree: Tree) -> dict[str, Origin]:
    """Of an arm whose revision is not here, what the report says."""
    origins = recorded(copy)
    installed = installed_from(folder)
    for name, arm in copy.record.arms.items():
        if arm.revision is None:
            origins[name] = Living(tree, installed)
            continue
        try:
            code = revision(GitRepository(folder, given=folder.name), arm.revision.commit)
            if arm.revision.patch is not None:
                code = patched(
                    code, copy.read(f"{PATCH_FOLDER}/{name}.patch"), to=arm.revision.commit
                )
            origins[name] = Living(code, installed)
        except RevisionError:
            continue
    return origins
