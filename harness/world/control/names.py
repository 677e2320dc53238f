"""Names of a machine and of who uses it: the home folder, the user, the host.

They have no business in evidence, whether they are those of this machine or of another, which
reports its own.

What ranks print and how they fail is text for readers: there, all of them are replaced. What ranks
report is judged, so there only the home folder is: a user called like a word of the prompt must not
change a verdict.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import harness
from harness.forms.strict_json import JSON
from harness.world.control.room import Room, base

ROOT = str(Path(harness.__file__).resolve().parent.parent)
QUOTED = re.compile(r'File "([^"\n]*)"')
SHORTEST = 3
# Names that tell nothing of anybody.
EVERYBODYS = {
    *(
        "root",
        "user",
        "users",
        "admin",
        "nobody",
        "guest",
        "home",
        "test",
        "tester",
        "dev",
        "developer",
        "app",
        "main",
    ),
    *(
        "runner",
        "ubuntu",
        "debian",
        "fedora",
        "docker",
        "build",
        "builder",
        "nixbld",
        "vagrant",
        "ec2-user",
        "worker",
    ),
    *(
        "jenkins",
        "gitlab-runner",
        "circleci",
        "node",
        "python",
        "rank",
        "localhost",
        "local",
        "host",
        "server",
    ),
}


def homes() -> Sequence[str]:
    """Return the home folder, in every way it may be written, the longest first."""
    return _homes(str(Path.home()), os.getuid())


@lru_cache(maxsize=8)
def _homes(home: str, user: int) -> Sequence[str]:
    # Kept: every path that a rank reports is looked at.
    spelled = {home}
    with suppress(KeyError):  # a user without an entry, as in some containers
        spelled.add(pwd.getpwuid(user).pw_dir)
    spelled |= {os.path.realpath(place) for place in spelled}
    return sorted(
        (place for place in spelled if len(place) > 1 and place.startswith(os.sep)),
        key=len,
        reverse=True,
    )


def users() -> set[str]:
    """Return what the user is called."""
    names = {os.environ.get(name, "") for name in ("LOGNAME", "USER", "LNAME", "USERNAME")}
    with suppress(KeyError):
        names.add(pwd.getpwuid(os.getuid()).pw_name)
    return _telling(names)


def hosts() -> set[str]:
    """Return what the machine is called."""
    name = socket.gethostname()
    return _telling({name, name.partition(".")[0], os.environ.get("HOSTNAME", "")})


def hide(text: str, also: Sequence[str] = ()) -> str:
    """Replace the home folder, the user's name and the host's, where they stand as words of their
    own.

    Args:
        text: for readers.
        also: further home folders, such as a room's.
    """
    text = hide_home(text, also)
    for names, word in ((hosts(), "<host>"), (users(), "<user>")):
        for name in sorted(names, key=len, reverse=True):
            if name in text:
                text = re.sub(word_of(name), word, text)
    return text


def hide_home(text: str, also: Sequence[str] = ()) -> str:
    """Replace the home folder, and further ones, by `~`."""
    return _hide_folders(text, (*also, *homes()))


def _hide_folders(text: str, folders: Iterable[str]) -> str:
    for place in folders:
        if place in text:
            text = re.sub(folder_of(place), "~", text)
    return text


def hide_home_in(value: JSON, also: Sequence[str] = ()) -> JSON:
    """Hide the home folder, and further ones, in every text of a JSON value, keys included.

    What holds none is returned as it is.
    """
    return _each_path(value, lambda text: hide_home(text, also))


def _each_path(value: JSON, change: Callable[[str], str]) -> JSON:
    """Change every text of a JSON value that may hold a path, keys included."""
    if isinstance(value, str):
        return change(value) if os.sep in value else value
    if isinstance(value, list):
        return [_each_path(item, change) for item in value]
    if isinstance(value, dict):
        return {
            change(key) if os.sep in key else key: _each_path(item, change)
            for key, item in value.items()
        }
    return value


def word_of(name: str) -> str:
    """Return a pattern: the name, and not a part of another word."""
    return rf"(?<!\w){re.escape(name)}(?!\w)"


def folder_of(place: str) -> str:
    """Return a pattern: the folder, and not one whose name only begins like it."""
    return rf"{re.escape(place)}(?![\w.-])"


def _telling(names: Iterable[str]) -> set[str]:
    return {name for name in names if len(name) >= SHORTEST and name.lower() not in EVERYBODYS}


def shorten(
    text: str, *, folder: Path | None = None, python: Path | None = None, room: Room | None = None
) -> str:
    """Name files relative to where they belong: the arm's folder, this project, site-packages, the
    standard library.

    Args:
        text: stacks, tracebacks, the last words of a server.
        folder: the arm's folder, where there is one.
        python: the interpreter of the arm's own environment, where it has one.
        room: whose home and temporary folder stand in the text as the user's do.

    Returns:
        The text; a quoted file that belongs nowhere keeps its name only, and the home folder, the
        user and the host are not named.
    """
    homes = room.homes if room is not None else ()
    return hide(_relative(text, _places(folder, python, room)), homes)


def _relative(text: str, places: Iterable[tuple[str, str]]) -> str:
    """Name files relative to their places; a quoted one that is in none keeps its name only."""
    for place, word in places:
        text = text.replace(place + os.sep, word)
    return QUOTED.sub(
        lambda match: f'File "{Path(match[1]).name}"' if match[1].startswith(os.sep) else match[0],
        text,
    )


def _places(folder: Path | None, python: Path | None, room: Room | None) -> list[tuple[str, str]]:
    """Folders and what stands for them, the longest first."""
    known = sysconfig.get_paths()
    places = dict.fromkeys(
        (*sys.path, *(known[name] for name in ("purelib", "platlib", "stdlib", "platstdlib"))), ""
    )
    places |= {sys.prefix: "", sys.base_prefix: "", ROOT: "", str(folder or ""): ""}
    places |= {tempfile.gettempdir(): "", str(base()): "", str(Path.home()): "~/"}
    if room is not None:
        places |= {str(room.temporary): "", str(room.home): "~/"}
    if python is not None:
        environment = python.parent.parent
        places |= dict.fromkeys(
            map(str, (environment, *environment.glob("lib/python*/site-packages"))), ""
        )
    everywhere: dict[str, str] = {}
    for place, word in places.items():
        for spelled in (place, os.path.realpath(place) if place else ""):
            # faulthandler writes what is not ASCII as escapes
            for text in (spelled, spelled.encode("ascii", "backslashreplace").decode("ascii")):
                if len(text) > 1 and text.startswith(os.sep):
                    everywhere[text] = word
    return sorted(everywhere.items(), key=lambda entry: len(entry[0]), reverse=True)


def telling(*, folder: Path, room: Room | None) -> dict[str, JSON]:
    """Return the names of this machine, for `Elsewhere`, which shortens texts that come from it."""
    names = [[name, "<host>"] for name in hosts()] + [[name, "<user>"] for name in users()]
    return {
        "places": [[place, word] for place, word in _places(folder, None, room)],
        "homes": [*(room.homes if room is not None else ()), *homes()],
        "words": list[JSON](names),
        "root": ROOT,
    }


MOST_NAMES = 256
LONGEST_NAME = 1024
STAND_INS = frozenset({"", "~/", "<host>", "<user>"})


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """Names of one machine, the longest first.

    Attributes:
        code: the folder there that its ranks import from.
        root: where Rankproof lies there.
        places: folders, each with what stands for it.
        homes: home folders.
        words: names, each with what stands for it.
    """

    code: Path
    root: str
    places: tuple[tuple[str, str], ...]
    homes: tuple[str, ...]
    words: tuple[tuple[str, str], ...]

    @classmethod
    def from_message(cls, message: Mapping[str, Any], *, code: str) -> Elsewhere:
        """As a machine tells them.

        Raises:
            ValueError: these are not such names.
        """
        places = message["places"]
        homes = message["homes"]
        words = message["words"]
        root = message["root"]
        pairs = [*places, *words]
        texts = [root, code, *homes, *(name for name, _ in pairs)]
        if (
            len(texts) > MOST_NAMES
            or not all(isinstance(text, str) and 1 < len(text) <= LONGEST_NAME for text in texts)
            or not all(word in STAND_INS for _, word in pairs)
        ):
            raise ValueError("its names are malformed")
        return cls(
            code=Path(code),
            root=root,
            places=tuple((place, word) for place, word in places),
            homes=tuple(homes),
            words=tuple(
                sorted(((name, word) for name, word in words), key=lambda pair: -len(pair[0]))
            ),
        )

    def as_here(self, text: str) -> str:
        """Return a text in which Rankproof's own files are where they are on this machine."""
        return text.replace(self.root + os.sep, ROOT + os.sep)

    def shorten(self, text: str) -> str:
        """As `shorten`, for a text of that machine."""
        text = _hide_folders(_relative(text, self.places), self.homes)
        for name, word in self.words:
            if name in text:
                text = re.sub(word_of(name), word, text)
        return text

    def hide_home_in(self, value: JSON) -> JSON:
        """As `hide_home_in`, for a value of that machine."""
        return _each_path(value, lambda text: _hide_folders(text, self.homes))
