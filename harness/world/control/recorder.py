"""Compile the recorder of a rank's ledger, `harness/ledger/inside/recorder.c`, once per interpreter
and source.

Where there is no compiler, or no header of Python's, the ranks' ledgers are written by Python
alone, and say so.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from harness.forms.digest import sha256
from harness.forms.variables import cache_folder
from harness.ledger import inside

SOURCE = Path(str(inside.__file__)).with_name("recorder.c")
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O2", "-fPIC", "-shared")
WITHIN = 60.0


@functools.cache
def compiled() -> str:
    """Path of what was compiled, from the cache where it is there; empty where it cannot be."""
    headers = Path(sysconfig.get_path("include"))
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        return ""
    # Releases of one minor version have one ABI, and other headers: what the code was compiled with
    # is in its name.
    state = b"\0".join((SOURCE.read_bytes(), sys.version.encode(), " ".join(FLAGS).encode()))
    path = cache_folder("recorder") / f"recorder-{sha256(state)[:16]}{EXTENSION_SUFFIXES[0]}"
    if path.is_file():
        return str(path)
    if found is None or not (headers / "Python.h").is_file():
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder, path.name)
            command = [found, *FLAGS, f"-I{headers}", "-o", str(made), str(SOURCE)]
            subprocess.run(
                command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=WITHIN
            )
            # Whoever compiles at the same time makes the same.
            made.replace(path)
        return str(path)
    return ""
