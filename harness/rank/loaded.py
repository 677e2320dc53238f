"""Proof of which code ran (rule 12): file and sha256 of every module loaded from the arm's folder."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

MODULE_LIMIT = 500


def newest() -> str:
    """Name of the module that was loaded last: what comes after it in `sys.modules` was loaded later."""
    return next(reversed(sys.modules))


def loaded_from(folder: str, *, after: str) -> list[dict[str, str]]:
    """List the modules that were loaded from `folder`, as `{module, file, sha256}` with the file relative to it.

    Args:
        folder: the arm's folder.
        after: what `newest` said before the subject. A warm rank shares thousands of modules with its server, and only
            looking at one copies its page: the walk stops where the subject's modules end.
    """
    root = os.path.realpath(folder) + os.sep
    beginnings = tuple({root, folder.rstrip(os.sep) + os.sep})
    found: list[dict[str, str]] = []
    for name in since(after):
        file = getattr(sys.modules.get(name), "__file__", None)
        if not isinstance(file, str) or not file.startswith(beginnings):
            continue
        file = os.path.realpath(file)
        if not file.startswith(root):
            continue
        try:
            digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        except OSError as error:
            digest = f"unreadable: {error.strerror}"
        found.append({"module": name, "file": file[len(root) :], "sha256": digest})
    return sorted(found, key=lambda module: module["module"])[:MODULE_LIMIT]


def loaded_elsewhere(folder: str, *, after: str | None) -> list[dict[str, str]]:
    """List modules that the subject brought in from neither the arm's folder nor the environment's own packages.

    An editable install or a path put on `sys.path` by hand: its code is not in the evidence, so at least its digest is.

    Args:
        folder: the arm's folder.
        after: what `newest` said before the subject; None looks at every module, what a warm server has loaded too.
    """
    own = [os.path.realpath(place) for place in (folder, sys.prefix, sys.base_prefix, *_packages())]
    known = tuple(place + os.sep for place in own)
    found: list[dict[str, str]] = []
    names = list(sys.modules) if after is None else since(after) if after in sys.modules else []
    # Resolving every path of a thousand modules takes longer than all the rest of a warm rank.
    plainly = tuple(place + os.sep for place in (folder, sys.prefix, *_packages())) if after is None else ()
    for name in names:
        given = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(given, str) and given.startswith(plainly) and "/../" not in given:
            continue
        file = file_of(sys.modules.get(name))
        if file is None or file.startswith(known) or name.partition(".")[0] == "harness":
            continue
        try:
            digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        except OSError as error:
            digest = f"unreadable: {error.strerror}"
        found.append({"module": name, "file": Path(file).name, "sha256": digest})
    return sorted(found, key=lambda module: module["module"])[:MODULE_LIMIT]


def _packages() -> list[str]:
    paths = sysconfig.get_paths()
    return [paths[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")]


def since(marker: str) -> list[str]:
    """Names of the modules that were loaded after the marker, the newest first; all where it is not there any more."""
    if marker not in sys.modules:
        return list(reversed(sys.modules))
    return list(itertools.takewhile(lambda name: name != marker, reversed(sys.modules)))


def file_of(module: ModuleType | None) -> str | None:
    """Real path of the file a module came from, or None for a built-in or a namespace."""
    file = getattr(module, "__file__", None)
    return os.path.realpath(file) if isinstance(file, str) else None
