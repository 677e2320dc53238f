"""Applying a patch to files that were laid out: in a folder of its own, outside of any
repository.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness.forms.git import git
from harness.forms.text import printable
from harness.run.arms.revision import RevisionError

# What git would read of the user's or the system's configuration says nothing about this patch.
ALONE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}


def touched(patch: bytes, *, name: str) -> set[str]:
    """Paths that a patch reads or writes, from the top of its tree.

    Raises:
        RevisionError: it is not a patch.
    """
    with tempfile.TemporaryDirectory(prefix="rankproof-patch-") as folder:
        done = _apply(Path(folder).resolve(), patch, "--numstat", "-z")
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


def apply(files: Mapping[str, bytes], patch: bytes, *, name: str, to: str) -> dict[str, bytes]:
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
        done = _apply(folder, patch, "--whitespace=nowarn")
        if done.returncode:
            raise RevisionError(f"{name} does not apply to {to}: {_where(done.stderr, patch)}")
        # A patch may have made links: they are neither read nor followed.
        paths = [Path(here, name) for here, _, names in os.walk(folder) for name in names]
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(paths)
            if stat.S_ISREG(path.lstat().st_mode)
        }


def _apply(folder: Path, patch: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    # The temporary folder may lie inside a repository: its parent is as far up as git may look.
    alone = {**ALONE, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    return git("apply", *options, "-", given=patch, folder=folder, variables=alone)


def _where(said: bytes, patch: bytes) -> str:
    """The hunk that git stumbled over, as the patch writes it."""
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
    return printable("; ".join(lines), limit=300) or "git does not say why"
