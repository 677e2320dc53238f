"""Text that names files, without the folders of the machine it was written on: it goes into evidence."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import tempfile
from pathlib import Path

import harness
from harness.world.names import hide
from harness.world.room import Room, base

ROOT = str(Path(harness.__file__).resolve().parent.parent)
QUOTED = re.compile(r'File "([^"\n]*)"')


def shorten(text: str, *, folder: Path | None = None, python: Path | None = None, room: Room | None = None) -> str:
    """Name files relative to where they belong: the arm's folder, this project, site-packages, the standard library.

    Args:
        text: stacks, tracebacks, the last words of a server.
        folder: the arm's folder, where there is one.
        python: the interpreter of the arm's own environment, where it has one.
        room: whose home and temporary folder stand in the text as the user's do.

    Returns:
        The text; a quoted file that belongs nowhere keeps its name only, and the home folder, the user and the host are
        not named.
    """
    for place, word in _places(folder, python, room):
        text = text.replace(place + os.sep, word)
    homes = room.homes if room is not None else ()
    return hide(QUOTED.sub(lambda found: f'File "{_name(found[1])}"', text), homes)


def _name(file: str) -> str:
    return Path(file).name if file.startswith(os.sep) else file


def _places(folder: Path | None, python: Path | None, room: Room | None) -> list[tuple[str, str]]:
    """Folders and what stands for them, the longest first."""
    known = sysconfig.get_paths()
    places = dict.fromkeys((*sys.path, *(known[name] for name in ("purelib", "platlib", "stdlib", "platstdlib"))), "")
    places |= {sys.prefix: "", sys.base_prefix: "", ROOT: "", str(folder or ""): ""}
    places |= {tempfile.gettempdir(): "", str(base()): "", str(Path.home()): "~/"}
    if room is not None:
        places |= {str(room.temporary): "", str(room.home): "~/"}
    if python is not None:
        own = python.parent.parent
        places |= dict.fromkeys(map(str, (own, *own.glob("lib/python*/site-packages"))), "")
    everywhere: dict[str, str] = {}
    for place, word in places.items():
        for spelled in (place, os.path.realpath(place) if place else ""):
            # faulthandler writes what is not ASCII as escapes
            for text in (spelled, spelled.encode("ascii", "backslashreplace").decode("ascii")):
                if len(text) > 1 and text.startswith(os.sep):
                    everywhere[text] = word
    return sorted(everywhere.items(), key=lambda entry: len(entry[0]), reverse=True)
