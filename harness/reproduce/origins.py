"""Where the code of a reproduction comes from, as far as it is not staged: a report, or a repository."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
from harness.run.arms.revision import GitRepository, RevisionError


def recorded(copy: ReportCopy) -> dict[str, Origin]:
    """What the report says of each arm."""
    said = copy.record.run.provenance
    return {name: Recorded(said[name]) for name in copy.record.arms}


def standing_at(copy: ReportCopy, folder: Path) -> dict[str, Origin]:
    """The checkout that a folder lies in, as it stands, or its revisions for the arms that are one."""
    return _living(copy, folder, standing(folder))


def committed(copy: ReportCopy, repository: Path, commit: str, *, changes: bytes | None) -> dict[str, Origin]:
    """A commit of a repository, with the changes its tree had, or its revisions for the arms that are one.

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
    found, installed = recorded(copy), installed_from(folder)
    for name, arm in copy.record.arms.items():
        if arm.revision is None:
            found[name] = Living(tree, installed)
            continue
        try:
            own = revision(GitRepository(folder, given=folder.name), arm.revision.commit)
            if arm.revision.patch is not None:
                own = patched(own, copy.read(f"{PATCH_FOLDER}/{name}.patch"), to=arm.revision.commit)
            found[name] = Living(own, installed)
        except RevisionError:
            continue
    return found
