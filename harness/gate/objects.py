"""What a gate believes before it has seen anything: files of the trusted revision, read from git's
objects.

Nothing is taken from a working tree: it is the commit's under test, or nobody knows whose. Nothing
of the repository runs (`harness.run.arms.code`), nothing is fetched, and a ref is named in
full, so that a tag or a local branch that somebody called `origin/main` is not mistaken for it.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.forms.git import NO_ANSWER, GitEntry, batch, contents, entries_of, git, refusal
from harness.forms.source import real_place
from harness.forms.text import printable

OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class NoTrustedRef(Exception):
    """Raised where the trusted revision to decide by is missing; the message says what to fetch."""


class NoCommit(Exception):
    """Missing repository, or missing commit under test."""


class Objects:
    """Objects of the repository that a folder lies in.

    Raises:
        NoCommit: without a repository, or without git.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        answered = self._run("rev-parse", "--is-shallow-repository", "--show-prefix")
        if answered.returncode:
            why = (
                refusal(answered.stderr)
                or "it is not in a git repository; run the gate inside a clone"
            )
            raise NoCommit(f"{real_place(folder)}: {why}")
        shallow, _, prefix = answered.stdout.partition(b"\n")
        self.is_shallow = shallow == b"true"
        self.prefix = os.fsdecode(prefix.strip(b"\n"))
        """The folder's path from the top of the working tree, empty or ending with a slash."""

    def trusted(self, ref: str) -> str:
        """Full id of the commit that a trusted ref names.

        `origin/main` means `refs/remotes/origin/main` and nothing else. A branch or a tag of this
        clone must be named in full (`refs/heads/main`, `refs/tags/v1`), a commit by its whole id.

        Raises:
            NoTrustedRef: it is not there, or the clone is shallow.
        """
        if self.is_shallow:
            raise NoTrustedRef(
                f"cannot resolve {printable(ref)} in a shallow clone; fetch the full history first"
                " (git fetch --unshallow origin; in GitHub Actions, fetch-depth: 0)"
            )
        full = ref if ref.startswith("refs/") or OBJECT.fullmatch(ref) else f"refs/remotes/{ref}"
        commit = self._commit(full)
        if commit is None:
            remote, _, branch = ref.partition("/")
            hint = (
                f"git fetch {remote} +refs/heads/{branch}:{full}"
                if full != ref and branch
                else "git fetch origin"
            )
            raise NoTrustedRef(
                f"{printable(full)} is not in this clone, so no policy can be trusted; fetch it"
                f" first ({printable(hint, limit=200)}), or choose another ref with --trusted-ref"
                " (for a local branch, give the full name, such as refs/heads/main)"
            )
        return commit

    def commit(self, name: str) -> str:
        """Full id of the commit under test.

        Raises:
            NoCommit: there is none of that name.
        """
        commit = self._commit(name)
        if commit is None:
            raise NoCommit(
                f"{printable(name)} is not a commit in this clone, or is ambiguous; fetch it, or"
                " pass the full id"
            )
        return commit

    def files(self, commit: str) -> dict[str, GitEntry]:
        """Every file of a commit, by its path from the top.

        Raises:
            NoCommit: its tree cannot be read.
        """
        listed = self._git("ls-tree", "-r", "-z", "--full-tree", commit)
        if listed is None:
            raise NoCommit(f"the files of {commit} cannot be listed (a partial clone?)")
        return entries_of(listed)

    def read(self, blobs: Sequence[str]) -> dict[str, bytes]:
        """Content of files of the trusted revision, by the ids of their content.

        Raises:
            NoCommit: one is not in this clone.
        """
        wanted = list(dict.fromkeys(blobs))
        content = (
            contents(self._git("cat-file", "--batch", given=batch(wanted)) or b"", wanted)
            if wanted
            else {}
        )
        if missing := [blob for blob in wanted if blob not in content]:
            raise NoCommit(
                f"{missing[0]} is not in this clone; if it is a partial clone, run git fetch"
                " --refetch --no-filter"
            )
        return content

    def contains(self, trusted: str, commit: str) -> bool:
        """Tell whether a commit is `trusted` itself or one of its ancestors.

        False for one that is not in this clone.
        """
        return self._git("merge-base", "--is-ancestor", commit, trusted) is not None

    def _commit(self, name: str) -> str | None:
        done = self._git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", quiet=True
        )
        return done.decode().strip() if done else None

    def _git(self, *arguments: str, given: bytes = b"", quiet: bool = False) -> bytes | None:
        """Return what git answers; None where it fails, or with `quiet`, where it has anything to
        say (an ambiguous name).
        """
        done = self._run(*arguments, given=given)
        return None if done.returncode or (quiet and done.stderr) else done.stdout

    def _run(self, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        done = git(*arguments, folder=self._folder, given=given)
        if done.returncode == NO_ANSWER:
            raise NoCommit(done.stderr.decode())
        return done


def blob_id(content: bytes, *, like: str) -> str:
    """Id that git gives to a file's content, in the repository whose ids look `like` this
    one.
    """
    digest = hashlib.sha256() if len(like) == 64 else hashlib.sha1(usedforsecurity=False)
    digest.update(b"blob %d\0" % len(content))
    digest.update(content)
    return digest.hexdigest()
