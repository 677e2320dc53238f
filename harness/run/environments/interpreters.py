"""Finding an interpreter of a version on this machine. Nothing is fetched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ANSWER_WITHIN = 20.0
QUESTION = (
    "import json, platform, sys, sysconfig; print(json.dumps([platform.python_version(),"
    " sys.implementation.name, sysconfig.get_platform(), sysconfig.get_config_var('SOABI') or '',"
    " sysconfig.get_path('stdlib')]))"
)
# Where the usual tools keep interpreters that are not in PATH: the variable that moves the folder,
# the folder, what to look for below it.
KEPT = (
    ("PYENV_ROOT", "~/.pyenv", "versions/{version}*/bin/python3"),
    ("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python", "cpython-{version}*/bin/python3"),
)


class NoInterpreter(Exception):
    """No interpreter of this version is on this machine; the message says which there are."""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that answered.

    Attributes:
        version: such as `3.13.2`.
        platform: what it was built for, with its ABI: packages for one platform do not fit another.
        stdlib: folder of its standard library.
    """

    path: Path
    version: str
    implementation: str
    platform: str
    stdlib: Path


def find(version: str | None) -> Interpreter:
    """Find an interpreter; None is the version that this one has.

    Raises:
        NoInterpreter: none of that version answers.
    """
    seen: dict[Path, Interpreter | None] = {}
    wanted = version or ".".join(map(str, sys.version_info[:3]))
    for place in _candidates(wanted):
        if place in seen:
            continue
        interpreter = seen[place] = ask(place)
        if interpreter is not None and (
            interpreter.version == wanted or interpreter.version.startswith(f"{wanted}.")
        ):
            return interpreter
    others = sorted(
        {interpreter.version for interpreter in seen.values() if interpreter is not None}
    )
    raise NoInterpreter(
        f"Python {wanted} is not on this machine ({', '.join(others) or 'none'} found)"
    )


def ask(python: Path) -> Interpreter | None:
    """Return what an interpreter says of itself, or None where it does not answer."""
    try:
        done = subprocess.run(
            [str(python), "-I", "-S", "-c", QUESTION],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_WITHIN,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        version, implementation, platform, abi, stdlib = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Interpreter(python, version, implementation, f"{platform} {abi}", Path(stdlib))


def _candidates(version: str) -> Iterator[Path]:
    # What a virtual environment was made from: one made from it again depends on nothing that
    # somebody may delete.
    yield Path(getattr(sys, "_base_executable", sys.executable))
    series = ".".join(version.split(".")[:2])
    for name in (f"python{series}", "python3", "python"):
        if (found := shutil.which(name)) is not None:
            yield Path(found)
    for variable, usual, pattern in KEPT:
        try:
            folder = Path(os.environ.get(variable) or usual).expanduser()
            yield from sorted(folder.glob(pattern.format(version=version)), reverse=True)
        except (OSError, RuntimeError):  # a folder that may not be read, the home of nobody
            continue
