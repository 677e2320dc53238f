"""Files of an environment: of which distribution they are, and whether they are as its RECORD says.

Read by hand, not with `importlib.metadata`: a rank that starts anew pays for every import.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import sys
import sysconfig
import zipimport
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

import harness
from harness.forms.distribution import normal, wheel_digest

# How an installer lays a package out; anywhere else only a folder of `sys.path` can hold
# distributions.
PACKAGES = ("site-packages", "dist-packages")
SUFFIXES = (".py", ".so", ".pyd")
UNREADABLE = "unreadable: "
# Lines of a RECORD: there are tens of thousands in an environment, of which few are quoted.
ROW = re.compile(r'^([^",\n]+\.(?:py|so|pyd)),sha256=([\w-]+)', re.MULTILINE)
QUOTED = re.compile(r'^".*$', re.MULTILINE)
# Loaded by the interpreter's own start, before anybody's code: a distribution's hook, or nobody's.
AT_START = frozenset({"sitecustomize", "usercustomize", "_virtualenv", "_distutils_hack"})
_LIBRARIES = {
    os.path.dirname(os.__file__),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")),
}
STANDARD = tuple(
    {f"{place}{os.sep}" for path in _LIBRARIES for place in (path, os.path.realpath(path))}
)
OWN = tuple(
    {
        f"{place}{os.sep}"
        for root in (sys.prefix, sys.base_prefix)
        for place in (root, os.path.realpath(root))
    }
)
# The Rankproof that runs, wherever it was loaded from.
TOOL = os.path.dirname(harness.__file__ or "") + os.sep


class InventoryEntry(NamedTuple):
    """File that was loaded.

    Attributes:
        file: its path below the folder that it was imported from, without the machine's folders.
        sha256: of its content, in hex; a word where it cannot be read.
        record: `as` its distribution's RECORD says; `differs` from it; or it stands in none:
            `tool`, of the Rankproof that runs; `start`, which the interpreter's own start loaded;
            `made`, written since the ranks' server started; else `absent`.
        distribution: its normal name (PEP 503), of an editable install too, or None.
    """

    file: str
    sha256: str
    record: str
    distribution: str | None = None
    version: str | None = None


class Inventory:
    """Files that were looked up. What a warm server has looked up, its ranks inherit."""

    def __init__(self) -> None:
        # Folder to path in it to what each RECORD there says of it, a line "distribution version
        # sha256" each: as text, because the collector looks at every list and tuple, and there
        # would be ten thousand.
        self._places: dict[str, dict[str, str]] = {}
        self._entries: dict[str, InventoryEntry] = {}
        self._editable: dict[str, tuple[str, str]] = {}

    def entry(self, path: str, *, begun: int = 0) -> InventoryEntry:
        """Look a file up, once."""
        if (known := self._entries.get(path)) is None:
            known = self._entries[path] = self.look(path, begun=begun)
        return known

    def look(self, path: str, *, begun: int) -> InventoryEntry:
        """Look a file up as it is now.

        Args:
            path: as the import system names it.
            begun: when the ranks' server started, in nanoseconds since 1970; 0 takes no file for
                made since.
        """
        sha256, changed = digest(path)
        place, file = self._place_of(path)
        stated = self._read(place).get(file) if place else None
        if stated:
            recorded = ""
            if not sha256.startswith(UNREADABLE):
                recorded = base64.urlsafe_b64encode(bytes.fromhex(sha256)).rstrip(b"=").decode()
            rows = [line.split(" ") for line in stated.split("\n")]
            right = next((row for row in rows if row[2] == recorded), None)
            name, version, _ = right or rows[0]
            return InventoryEntry(file, sha256, "as" if right else "differs", name, version)
        if path.startswith(TOOL):
            file = f"harness/{path[len(TOOL) :]}"
            return InventoryEntry(file, sha256, "tool", "rankproof", harness.__version__)
        if re.split(r"[./]", file, maxsplit=1)[0] in AT_START and path.startswith(OWN):
            return InventoryEntry(file, sha256, "start")
        for folder in sys.path:
            self._read(folder)
        for folder, (name, version) in self._editable.items():
            if path.startswith(folder):
                return InventoryEntry(file, sha256, "absent", name, version)
        return InventoryEntry(file, sha256, "made" if 0 < begun <= changed else "absent")

    def _place_of(self, path: str) -> tuple[str, str]:
        """Find the folder around a file that packages are installed in, and the path from there.

        The folder is empty where there is none.
        """
        known = set(sys.path)
        folder = os.path.dirname(path)
        while len(folder) > 1:
            if folder in known or folder.endswith(PACKAGES):
                return folder, path[len(folder) + 1 :]
            folder = os.path.dirname(folder)
        return "", from_package(path)

    def _read(self, folder: str) -> dict[str, str]:
        """Read every RECORD of a folder, and its editable installs."""
        if (known := self._places.get(folder)) is not None:
            return known
        place = self._places[folder] = {}
        try:
            infos = [entry for entry in os.scandir(folder) if entry.name.endswith(".dist-info")]
        except OSError:
            return place
        for info in sorted(infos, key=lambda entry: entry.name):
            name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
            name = normal(name)
            for file, recorded in _rows(Path(info.path, "RECORD")):
                line = f"{name} {version} {recorded}"
                place[file] = f"{place[file]}\n{line}" if file in place else line
            if (root := _editable(Path(info.path, "direct_url.json"))) is not None:
                for path in (root, os.path.realpath(root)):
                    self._editable[path + os.sep] = (name, version)
        return place


def _rows(record: Path) -> list[tuple[str, str]]:
    """List the modules of a RECORD, each with its sha256 there (urlsafe base64).

    A compiled copy is there without a digest, so it is left out.
    """
    try:
        text = record.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    rows = ROW.findall(text)
    for line in QUOTED.findall(text) if '"' in text else ():
        file, recorded, *_ = [*next(csv.reader([line])), ""]
        if file.endswith(SUFFIXES) and recorded.startswith("sha256="):
            rows.append((file, recorded.removeprefix("sha256=")))
    return rows


def _editable(about: Path) -> str | None:
    """Return the folder that an editable install leads to."""
    try:
        origin = json.loads(about.read_bytes())
        if origin["dir_info"]["editable"] is not True:
            return None
        return unquote(urlparse(origin["url"]).path)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def data_of(path: str, entry: InventoryEntry, *, most: int) -> list[InventoryEntry]:
    """List the data in the package of a file, which nothing imports: of an editable install, say.

    Args:
        path: of the file.
        entry: of the file.
        most: files that are read. The others have a word in place of their digest.
    """
    package, slash, _ = entry.file.partition("/")
    if (
        not slash
        or entry.record not in ("absent", "as")
        or not path.endswith(f"{os.sep}{entry.file}")
    ):
        return []
    top = path[: -len(entry.file)]
    data: list[InventoryEntry] = []
    for place in _files_below(os.path.join(top, package)):
        name = os.path.basename(place)
        if name.endswith((*SUFFIXES, ".pyc")) or name.startswith("."):
            continue
        sha256 = digest(place)[0] if len(data) < most else "unread: too many files"
        data.append(entry._replace(file=place[len(top) :], sha256=sha256))
    return data


def _files_below(folder: str) -> Iterator[str]:
    """Yield the paths of the files of a folder in order.

    An archive is a folder here, too: the import system names it as if it were one.
    """
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name != "__pycache__" and not name.startswith(".")
        )
        yield from (os.path.join(place, name) for name in sorted(names))
    archive = os.path.dirname(folder)
    while len(archive) > 1 and not os.path.exists(archive):
        archive = os.path.dirname(archive)
    if os.path.isfile(archive):
        import zipfile  # hardly any rank loads from an archive, and every one would pay

        with zipfile.ZipFile(archive) as opened:
            below = (
                os.path.join(archive, name)
                for name in sorted(opened.namelist())
                if not name.endswith("/")
            )
            yield from [place for place in below if place.startswith(folder + os.sep)]


def is_standard(path: str) -> bool:
    """Return True if a file is in the interpreter's standard library, and in no package below."""
    return any(
        path.startswith(root) and path[len(root) :].partition(os.sep)[0] not in PACKAGES
        for root in STANDARD
    )


def from_package(path: str) -> str:
    """Return a file's path from the folder above its outermost package; without one, its name."""
    folder, name = os.path.split(path)
    parts = [name]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.append(name)
    return "/".join(reversed(parts))


def digest(path: str) -> tuple[str, int]:
    """Return the sha256 of a file in hex and when it last changed, in nanoseconds since 1970.

    The file may be in an archive. One that cannot be read has a word in place of its digest.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            changed = os.fstat(file.fileno()).st_ctime_ns
            return hashlib.sha256(file.read()).hexdigest(), changed
    except NotADirectoryError:
        return _archived(path)
    except OSError as error:
        return f"{UNREADABLE}{error.strerror}", 0


def _archived(path: str) -> tuple[str, int]:
    """Return the same of a module in a zip or an egg."""
    archive = path
    while len(archive) > 1 and not os.path.isfile(archive):
        archive = os.path.dirname(archive)
    try:
        content = zipimport.zipimporter(archive).get_data(path)
        return hashlib.sha256(content).hexdigest(), os.stat(archive).st_ctime_ns
    except (OSError, ImportError):
        return f"{UNREADABLE}no file", 0


def describe(distributions: Iterable[str]) -> dict[str, Any]:
    """Describe this interpreter.

    Args:
        distributions: names of the packages to look for.

    Returns:
        JSON object: `python` (version), `implementation`, `apart` (whether it is a virtual
        environment), `packages`: name to `version` and `record`, the `wheel_digest` of its RECORD;
        None for a package that is not there.
    """
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "apart": sys.prefix != sys.base_prefix,
        "packages": {name: _package(name) for name in distributions},
    }


def _package(name: str) -> dict[str, str | None] | None:
    # A third of what a fresh rank imports, and most ranks are asked for no package.
    import importlib.metadata

    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    record = distribution.read_text("RECORD")
    return {
        "version": distribution.version,
        "record": None if record is None else wheel_digest(record),
    }
