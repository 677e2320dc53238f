"""Removing what ranks left behind, whatever it is: they may be hostile, or merely very busy.

Nothing is followed, nothing recurses, and two folders are open at a time: a folder inside a folder
is moved up to the top before it is looked into, so neither a path nor a stack grows with the depth
of what lies there. To be called when nobody is left who could put something else in the place of
what was looked at.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLACE_LIMIT = 200


def remove(path: Path) -> list[str]:
    """Remove what lies at a path, a folder with everything in it; nothing there is not an error.

    Returns:
        What would not go and why, in words; empty as a rule.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            if left := empty(path):
                return left
            path.rmdir()
        else:
            path.unlink()
    except FileNotFoundError:
        return []
    except OSError as error:
        return [_why(path.name, error)]
    return []


def empty(folder: Path) -> list[str]:
    """Remove everything in a folder, but not the folder.

    Returns:
        What would not go and why, in words; empty as a rule.

    Raises:
        OSError: it is not there, or it is not a folder (a link to one is none).
    """
    top = _open(str(folder))
    try:
        return _Top(top).clear()
    finally:
        os.close(top)


class _Top:
    """A folder that is being emptied."""

    def __init__(self, descriptor: int) -> None:
        self._top = descriptor
        self._prefix = f".{secrets.token_hex(8)}-"
        self._moved = 0
        # What was moved up, by its name here: where it lay, for the words.
        self._places: dict[str, str] = {}
        self._stuck: dict[str, str] = {}

    def clear(self) -> list[str]:
        """Round after round, until nothing but what will not go is left."""
        while entries := [entry for entry in _entries(self._top) if entry[0] not in self._stuck]:
            for name, is_folder in entries:
                place = self._places.pop(name, name)
                if why := (
                    self._clear(name, place)
                    if is_folder
                    else _tried(os.unlink, name, self._top, place)
                ):
                    self._stuck[name] = why
        return list(self._stuck.values())

    def _clear(self, name: str, place: str) -> str:
        """Remove a folder of the top.

        A folder in it that is not empty is moved up and waits for its turn.
        """
        why = ""
        try:
            inner = _open(name, self._top)
        except OSError as error:
            return _why(place, error)
        try:
            for child, is_folder in _entries(inner):
                below = _joined(place, child)
                if not is_folder:
                    why = _tried(os.unlink, child, inner, below) or why
                elif _tried(os.rmdir, child, inner, below):
                    why = self._move_up(child, inner, below) or why
        finally:
            os.close(inner)
        return why or _tried(os.rmdir, name, self._top, place)

    def _move_up(self, child: str, inner: int, place: str) -> str:
        self._moved += 1
        name = f"{self._prefix}{self._moved}"
        try:
            # Its entry for the folder above changes too, which takes the right to write into it.
            os.chmod(child, 0o700, dir_fd=inner)
            os.rename(child, name, src_dir_fd=inner, dst_dir_fd=self._top)
        except OSError as error:
            return _why(place, error)
        self._places[name] = place
        return ""


def _entries(folder: int) -> list[tuple[str, bool]]:
    """Names in a folder, and whether each is a folder and not a link to one."""
    with os.scandir(folder) as listing:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]


def _open(name: str, above: int | None = None) -> int:
    """Open a folder, never through a link, and make sure that what is in it may be removed."""
    try:
        descriptor = os.open(name, FLAGS, dir_fd=above)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=above)
        descriptor = os.open(name, FLAGS, dir_fd=above)
    # Of somebody else: what cannot be removed in it says so itself.
    with contextlib.suppress(PermissionError):
        os.fchmod(descriptor, 0o700)
    return descriptor


def _tried(do: Callable[..., None], name: str, folder: int, place: str) -> str:
    """Why something could not be done to a name, or empty."""
    try:
        do(name, dir_fd=folder)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return _why(place, error)
    return ""


def _joined(place: str, child: str) -> str:
    """The place of a child, in at most some hundred characters, however deep it lies."""
    whole = f"{place}/{child}"
    half = PLACE_LIMIT // 2
    return whole if len(whole) <= PLACE_LIMIT else f"{whole[:half]}...{whole[-half:]}"


def _why(place: str, error: OSError) -> str:
    """In plain characters: a name may hold anything."""
    return f"{ascii(place)[1:-1]}: {error.strerror}"
