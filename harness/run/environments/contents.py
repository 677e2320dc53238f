"""The files of a folder that must stay as it is: what is seen of them at a glance, their digests, which one changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from harness.forms.digest import sha256, sha256_of


def seen(folder: Path) -> str:
    """One digest of names, sizes and kernel times: cheap, and another where a file was written to."""
    digest = hashlib.sha256()
    statuses = sorted((str(path.relative_to(folder)), path.lstat()) for path in _files(folder))
    for name, status in statuses:
        text = f"{status.st_ino} {status.st_size} {status.st_mode} {status.st_ctime_ns} {name}\n"
        digest.update(text.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def digests(folder: Path) -> dict[str, str]:
    """Sha256 of each file by its name in the folder; of a link, that of its target's name."""
    found = {}
    for path in _files(folder):
        own = sha256(os.fsencode(path.readlink())) if path.is_symlink() else sha256_of(path)
        found[str(path.relative_to(folder))] = own
    return found


def changed(folder: Path, listing: Path) -> str:
    """Which file is not as a list of digests, written by sha256sum's rules, says: the first, and how many more."""
    try:
        lines = listing.read_bytes().decode("utf-8", "surrogateescape").splitlines()
        before = {line[66:]: line[:64] for line in lines}
        now = digests(folder)
    except OSError:
        return "its list of files is gone"
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}" if names else "its list of files"


def _files(folder: Path) -> Iterator[Path]:
    for top, folders, files in os.walk(folder):
        for name in (*files, *folders):
            path = Path(top, name)
            if name in files or path.is_symlink():
                yield path
