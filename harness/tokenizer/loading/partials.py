"""Folders of what is being fetched, or was by a process that has ended: nobody reads them, and one may go on there."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import time
from pathlib import Path

from harness.forms.digest import sha256
from harness.forms.regular_file import read_regular
from harness.tokenizer.loading.transfer import writing

OF = "of"
"""Beside the files of such a folder: which snapshot it is a part of."""
ABANDONED = 24 * 3600.0
"""Seconds after which nobody goes on from one."""
PARTIAL = ".partial-"
_NOBODY = "nobody"


def name(root: Path) -> Path:
    """A new name for a folder of this process."""
    return root / f"{PARTIAL}{_here()}-{os.getpid()}-{secrets.token_hex(4)}"


def own(root: Path, place: Path) -> Path:
    """A folder of this process's own to fetch into: one that was left behind for this snapshot, or a new one.

    A rename makes it this process's own, so that of two only one goes on from it, with locks or without.

    Args:
        root: of the cache.
        place: where the snapshot will lie.

    Raises:
        CacheFailed: the cache cannot be written.
    """
    made = name(root)
    of = place.relative_to(root).as_posix()
    with writing(root):
        taken = False
        for folder in left(root):
            what = _of(folder)
            if what == of and not taken:
                with contextlib.suppress(FileNotFoundError):
                    folder.rename(made)
                    taken = True
            elif what is None or what == of or _age(folder) > ABANDONED:
                shutil.rmtree(folder, ignore_errors=True)
        (made / "files").mkdir(parents=True, exist_ok=True)
        (made / OF).write_text(of, encoding="utf-8")
    return made


def leave(partial: Path) -> None:
    """Let whoever fetches this next go on from here, whether this process lives or not; nothing is left of nothing."""
    if any(path.is_file() for path in (partial / "files").rglob("*")):
        with contextlib.suppress(OSError):
            partial.rename(partial.parent / f"{PARTIAL}{_NOBODY}-0-{secrets.token_hex(4)}")


def left(root: Path) -> list[Path]:
    """The folders in which nobody works any more.

    Raises:
        OSError: the cache cannot be read.
    """
    return sorted(path for path in root.iterdir() if path.name.startswith(PARTIAL) and _is_left(path))


def _is_left(partial: Path) -> bool:
    """Whether nobody works in it: its process has ended; another machine's, or container's, only after a day."""
    import psutil

    here, _, rest = partial.name.removeprefix(PARTIAL).partition("-")
    pid = rest.partition("-")[0]
    if here == _NOBODY:
        return True
    if here == _here() and pid.isdecimal():
        return not psutil.pid_exists(int(pid))
    return _age(partial) > ABANDONED


def _age(folder: Path) -> float:
    """Seconds since anything in a folder was written; 0 where that cannot be said."""
    try:
        newest = max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:
        return 0.0
    return time.time() - newest


def _of(partial: Path) -> str | None:
    """Which snapshot it is a part of; None where it does not say."""
    try:
        return read_regular(partial / OF, limit=4096, follow=False).decode()
    except (OSError, ValueError):
        return None


def remove_others(folder: Path, paths: set[str]) -> None:
    """Leave nothing in a folder but these files: what else an earlier process fetched there is not promised now."""
    with writing(folder):
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_symlink() or not path.is_dir():
                if path.relative_to(folder).as_posix() not in paths or path.is_symlink():
                    path.unlink()
            elif not any(path.iterdir()):
                path.rmdir()


def _here() -> str:
    """Names the pid space this process lives in: the same pid elsewhere, or after a restart, is somebody else."""
    parts = [socket.gethostname()]
    for where in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with contextlib.suppress(OSError):
            place = Path(where)
            parts.append(str(place.readlink()) if place.is_symlink() else place.read_text(encoding="ascii"))
    return sha256("\n".join(parts).encode())[:12]
