"""Verifications that are remembered: what was verified once is not verified again while nothing of
it changed.

What was found of a run is kept together with the name, size, inode and times of every file and
folder in it, and with who is accepted as a signer. The last change of a file's status cannot be set
from outside, so a file that was changed and given its old time back is noticed too. The memory is
in the reader's own cache, because a folder may come from anybody (docs/adr/0160).
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TypedDict

from harness import __version__
from harness.forms.manifest import DEEPEST, MOST_FILES
from harness.forms.variables import cache_folder
from harness.trust.signers import SignerPolicy, SignersMalformed, read

FORMAT = 1
# A file that is changed twice within the granularity of the file system's clock keeps its time, so
# what changed just now is not remembered yet.
SETTLED_AFTER_NS = 2 * 10**9
_WORD = 2**64 - 1


class RememberedVerification(TypedDict):
    """What is kept of one run.

    Attributes:
        names: everything in its folder, separated by NUL; empty for a bundle, which is one file.
        stamp: of all of it, in hex.
        found: what the caller wants to have back.
    """

    names: str
    stamp: str
    found: dict[str, object]


def names_in(folder: Path) -> list[str] | None:
    """Name the folder (as an empty string) and everything in it, without following links.

    Returns:
        The names relative to the folder, or None where it cannot be listed or holds more than a
        report may have.
    """
    names = [""]
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            with os.scandir(folder / prefix) as entries:
                for entry in entries:
                    name = prefix + entry.name
                    names.append(name)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{name}/")
        except OSError:
            return None
        if len(names) > 2 * MOST_FILES or prefix.count("/") > DEEPEST:
            return None
    return names


def stamp_of(place: Path, names: Sequence[str]) -> tuple[str, int] | None:
    """Digest of type, size, inode and times of everything that is named.

    A name that was added changes the time of its folder, which is named too.

    Returns:
        The digest in hex and the latest change in nanoseconds; None where something is not there.
    """
    numbers = array("Q")
    latest = 0
    try:
        folder = place.is_dir()
        # Names are looked up from an open folder: the way to it is walked once, and not for each.
        root = os.open(place if folder else place.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in names:
                asked = name or ("." if folder else place.name)
                status = os.stat(asked, dir_fd=root, follow_symlinks=False)
                changed = status.st_ctime_ns
                latest = max(latest, changed)
                numbers.extend(
                    (
                        status.st_dev & _WORD,
                        status.st_ino & _WORD,
                        status.st_mode,
                        status.st_size,
                        status.st_mtime_ns & _WORD,
                        changed & _WORD,
                    )
                )
        finally:
            os.close(root)
    except OSError:
        return None
    digest = blake2b(numbers.tobytes(), digest_size=20)
    digest.update("\0".join(names).encode(errors="surrogateescape"))
    return digest.hexdigest(), latest


def reader_digest(policy: SignerPolicy, *, now: datetime, environ: Mapping[str, str]) -> str:
    """Digest of what a verification rests on beside the run: who may sign, and this program.

    Args:
        policy: whose signature is accepted.
        now: lines of a list are valid for a time.
        environ: names the views of plug-ins that are checked too.
    """
    validity: list[bool] = []
    if policy.allowed is not None:
        with suppress(SignersMalformed):
            for line in read(policy.allowed):
                validity.append(line.after is None or now >= line.after)
                validity.append(line.before is None or now < line.before)
    parts = (
        FORMAT,
        __version__,
        _code_stamp(),
        policy.allowed,
        policy.fingerprints,
        policy.revoked,
        policy.own,
        str(policy.at),
        validity,
        environ.get("RANKPROOF_VIEWS", ""),
    )
    return sha256(repr(parts).encode()).hexdigest()


def _code_stamp() -> str:
    """Digest of the names, sizes and times of this program's modules, and of the times of the
    folders that packages are installed in: a checkout keeps its version while it changes, and a
    plug-in may come or go.
    """
    root = Path(__file__).parents[1]
    modules = [(str(path), path.stat()) for path in sorted(root.rglob("*.py"))]
    stamps = [(path, status.st_size, status.st_mtime_ns) for path, status in modules]
    for folder in sys.path:
        with suppress(OSError):
            stamps.append((folder, 0, Path(folder).stat().st_mtime_ns))
    return sha256(repr(stamps).encode()).hexdigest()


# File systems of this machine that keep the time of a change themselves. On tmpfs what is written
# through a memory map changes no time, and a server may state any.
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "overlay"})


def keeps_times(place: Path) -> bool:
    """Tell whether a place is on a file system on which every change leaves its time."""
    try:
        resolved = place.resolve()
        mounts = Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape")
        best = ("", "")
        for line in mounts.splitlines():
            before, _, after = line.partition(" - ")
            point = before.split()[4].encode().decode("unicode_escape")
            if resolved.is_relative_to(point) and len(point) >= len(best[0]):
                best = (point, after.split()[0])
        return best[1] in LOCAL
    except (OSError, ValueError, IndexError):
        return False


def write_back(place: Path, names: Sequence[str]) -> None:
    """Have the kernel write to the disk what a memory map of a file has changed: from then on the
    next change through the map leaves its time.

    Raises:
        OSError: a file cannot be opened or written back.
    """
    for name in names:
        path = place / name if name else place
        if path.is_symlink() or not path.is_file():
            continue
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class VerificationMemory:
    """Memory of the verifications of one results folder.

    Args:
        folder: the results folder.
        reader: digest of what they rest on; what was remembered under another is forgotten.
        cache: where memories are kept; by default the user's cache.
    """

    def __init__(self, folder: Path, *, reader: str, cache: Path | None = None) -> None:
        base = cache or cache_folder("view")
        name = sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
        self._file = base / f"{name}.json"
        self._reader = reader
        self._kept: dict[str, RememberedVerification] = {}
        self._used: dict[str, RememberedVerification] = {}
        self._load()

    def _load(self) -> None:
        # Whatever is wrong with the memory, the runs can be verified again.
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            status = self._file.lstat()
            if status.st_uid != os.getuid() or not stat.S_ISREG(status.st_mode):
                return
            kept = json.loads(self._file.read_bytes())
            if kept["reader"] == self._reader:
                for path, entry in kept["runs"].items():
                    if isinstance(entry["found"], dict):
                        self._kept[path] = {
                            "names": str(entry["names"]),
                            "stamp": str(entry["stamp"]),
                            "found": entry["found"],
                        }

    def recall(self, path: str, place: Path) -> dict[str, object] | None:
        """Return what was found of a run; None where it was changed since, or is new."""
        entry = self._kept.get(path)
        if entry is None:
            return None
        now = stamp_of(place, entry["names"].split("\0"))
        if now is None or now[0] != entry["stamp"]:
            return None
        self._used[path] = entry
        return entry["found"]

    # What was found, and the three moments by which it is known to be of one state.
    def remember(
        self,
        path: str,
        place: Path,
        *,
        names: Sequence[str],
        before: tuple[str, int] | None,
        after: tuple[str, int] | None,
        began_ns: int,
        found: dict[str, object],
    ) -> bool:
        """Keep what was found of a run, if nothing changed meanwhile or just before.

        Args:
            path: of the run, as it will be asked for.
            place: where it is.
            names: everything in it.
            before: its stamp before it was verified.
            after: its stamp afterwards.
            began_ns: when the verification began, in nanoseconds since the epoch.
            found: what `recall` will return.

        Returns:
            Whether it is kept.
        """
        if before is None or before != after or before[1] > began_ns - SETTLED_AFTER_NS:
            return False
        if not keeps_times(place):
            return False
        self._used[path] = {"names": "\0".join(names), "stamp": before[0], "found": found}
        return True

    def save(self) -> None:
        """Write the memory, whole or not at all; of two writers the last one stays.

        Raises:
            OSError: it cannot be written.
        """
        if self._used == self._kept:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = json.dumps({"reader": self._reader, "runs": self._used})
        write_whole(self._file, content.encode())


def write_whole(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file beside its place and rename it: nobody reads half of it, and two writers do not
    mix.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            os.fchmod(descriptor, mode)
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def timestamp(moment: datetime) -> str:
    """Write a time as `2026-01-31T12:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
