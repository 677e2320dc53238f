"""Running git so that it only reads, and runs no program of a repository's.

Standard library only.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import subprocess
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from harness.forms.text import printable

T = TypeVar("T")
ANSWER_WITHIN = 120.0
NO_ANSWER = 127
"""Exit status where git is missing, or does not answer in time.

As a shell has it for a missing command.
"""

# Nothing is fetched, no hook or monitor of the repository's runs, and two refs of one name are
# never passed over.
SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.warnAmbiguousRefs=true",
    "protocol.allow=never",
)
# A run may be started from a hook, whose GIT_DIR and GIT_INDEX_FILE speak of another repository.
KEPT = ("GIT_CONFIG", "GIT_CEILING_DIRECTORIES", "GIT_EXEC_PATH")
OURS = {
    # The index of a repository that is only described stays as it is.
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    # With a replaced object, a commit's id would no longer say what ran.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def git(
    *arguments: str,
    folder: Path | None = None,
    given: bytes = b"",
    environ: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run git to its end, whatever its exit status; `NO_ANSWER` with a reason on stderr where it
    could not.

    Args:
        arguments: the command and its arguments.
        folder: where it runs; by default here.
        given: its input.
        environ: what to take the environment from; by default this process's.
        variables: what to set besides.
    """
    place = () if folder is None else ("-C", str(folder))
    command = [
        "git",
        *(word for setting in SETTINGS for word in ("-c", setting)),
        *place,
        *arguments,
    ]
    kept = {
        name: value
        for name, value in (os.environ if environ is None else environ).items()
        if not name.startswith("GIT_") or name.startswith(KEPT)
    }
    try:
        return subprocess.run(
            command,
            input=given,
            capture_output=True,
            timeout=ANSWER_WITHIN,
            check=False,
            env={**kept, **OURS, **(variables or {})},
        )
    except FileNotFoundError:
        why = "git is not installed; install git"
    except OSError as error:
        why = f"git cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        why = f"git did not finish within {ANSWER_WITHIN:.0f} s"
    return subprocess.CompletedProcess(command, NO_ANSWER, b"", why.encode())


@dataclass(frozen=True)
class GitEntry:
    """File of a commit. `size` is in bytes; 0 where it was not asked for, and for a submodule."""

    mode: str
    blob: str
    size: int


def entries_of(listing: bytes) -> dict[str, GitEntry]:
    """Return what `git ls-tree -r -z` lists, with `-l` or without.

    A file's size is 0 where it is not said.
    """
    entries = {}
    for line in listing.split(b"\0")[:-1]:
        about, _, name = line.partition(b"\t")
        mode, _, blob, *more = about.decode().split()
        # A submodule has no size, and neither has what a partial clone left behind.
        size = int(more[0]) if more and more[0].isdecimal() else 0
        entries[os.fsdecode(name)] = GitEntry(mode, blob, size)
    return entries


MOST_LINKED = 100_000
"""Files that links of a tree may add: a hostile tree has many links to many files."""


def through_links(files: Mapping[str, T], links: Mapping[str, str]) -> dict[str, T]:
    """Add files of a tree by the paths that lead to them through its links.

    A build copies what a link leads to, so an installed file may have such a path. A link that
    leads out of the tree, or to another link, adds nothing.

    Args:
        files: by their path from the top.
        links: path of each link to where it leads, as it is written.
    """
    found = dict(files)
    paths = sorted(files)
    for link, target in sorted(links.items()):
        place = posixpath.normpath(posixpath.join(posixpath.dirname(link), target))
        if place in files:
            found.setdefault(link, files[place])
        begin = bisect_left(paths, f"{place}/")
        for path in itertools.islice(paths, begin, None):
            if not path.startswith(f"{place}/") or len(found) - len(files) >= MOST_LINKED:
                break
            found.setdefault(link + path[len(place) :], files[path])
    return found


def batch(blobs: Sequence[str]) -> bytes:
    """Return what `git cat-file --batch` is given, to say the content of blobs."""
    return "".join(f"{blob}\n" for blob in blobs).encode()


def contents(answer: bytes, blobs: Sequence[str]) -> dict[str, bytes]:
    """Return what it answers to a `batch`: the content of each blob that is there, by its id."""
    by_id = {}
    for blob in blobs:
        head, _, answer = answer.partition(b"\n")
        words = head.split()
        if len(words) == 3:
            size = int(words[2])
            content = answer[:size]
            answer = answer[size + 1 :]
            if words[1] == b"blob":
                by_id[blob] = content
    return by_id


def complaint(stderr: bytes) -> str:
    """Return what git's last line says went wrong, or what to do where it refuses the whole
    repository.
    """
    if why := refusal(stderr):
        return why
    lines = stderr.decode(errors="replace").strip().splitlines()
    if not lines:
        return "git gave no reason"
    return printable(lines[-1].removeprefix("fatal: "), limit=300)


def refusal(stderr: bytes) -> str:
    """Say why git says nothing at all of a repository that is there, and what to do, by its
    complaint in the C locale.

    Names no folder: a record holds none of this machine's. Empty where the complaint is about
    something else.
    """
    if b"dubious ownership" not in stderr and b"unsafe repository" not in stderr:
        return ""
    return (
        "git refuses the repository because its folder belongs to another user (dubious"
        " ownership): chown the folder, or, if you trust its contents, run git config --global"
        " --add safe.directory FOLDER"
    )
