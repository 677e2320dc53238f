"""NVIDIA's driver for ranks of a Nix environment: its programs do not look where the system keeps
its libraries.

Only what the driver itself consists of is handed over, as links in a folder of its own. The
system's whole library folder on LD_LIBRARY_PATH would mix its C library with Nix's, and no program
would start.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

WANTED = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")
GIVEN = "RANKPROOF_DRIVER"
NIXOS = Path("/run/opengl-driver/lib")
LDCONFIG = (Path("/sbin/ldconfig"), Path("/usr/sbin/ldconfig"))
ANSWER_WITHIN = 10.0


def is_wanted() -> bool:
    """Whether this harness runs in the Nix environment for NVIDIA machines."""
    return bool(os.environ.get("RANKPROOF_ENV")) and os.environ.get("RANKPROOF_VARIANT") == "cuda"


def find(*, folder: Path = NIXOS, ldconfig: Sequence[Path] = LDCONFIG) -> dict[str, Path]:
    """Where the driver's libraries are: where RANKPROOF_DRIVER says, else NixOS' folder, else what
    the linker knows.

    Args:
        folder: where NixOS has them.
        ldconfig: where the program that lists what the system's linker knows may be.

    Returns:
        The file for each library that is there, from one place only: libraries of two drivers do
        not fit together.
    """
    if given := os.environ.get(GIVEN):
        folder = Path(given)
    libraries = {name: folder / name for name in WANTED if (folder / name).exists()}
    return libraries if libraries or given else _listed(ldconfig)


def hand_over(
    environment: Mapping[str, str], *, folder: Path, libraries: Mapping[str, Path]
) -> dict[str, str]:
    """Put the folder of the libraries, which `link` makes, first on LD_LIBRARY_PATH.

    Args:
        environment: of the ranks.
        folder: of links to them alone.
        libraries: name to file.

    Returns:
        The environment with that folder; unchanged where there are no libraries.
    """
    if not libraries:
        return dict(environment)
    path = os.pathsep.join([str(folder), *filter(None, [environment.get("LD_LIBRARY_PATH")])])
    return {**environment, "LD_LIBRARY_PATH": path}


def link(folder: Path, libraries: Mapping[str, Path]) -> None:
    """Link the libraries into a new folder; none is made where there are none.

    Raises:
        OSError: the folder cannot be made.
    """
    if not libraries:
        return
    folder.mkdir()
    for name, target in libraries.items():
        (folder / name).symlink_to(target)


def _listed(programs: Sequence[Path]) -> dict[str, Path]:
    program = next((path for path in programs if path.exists()), None)
    if program is None:
        return {}
    try:
        done = subprocess.run(
            [program, "-p"],
            capture_output=True,
            text=True,
            timeout=ANSWER_WITHIN,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    libraries: dict[str, Path] = {}
    for line in done.stdout.splitlines():
        # "	libcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1"; a 32-bit one
        # says plain (libc6).
        name, _, target = line.strip().partition(" => ")
        library, _, kind = name.partition(" ")
        if library in WANTED and ("x86-64" in kind or "AArch64" in kind) and Path(target).exists():
            libraries.setdefault(library, Path(target))
    return libraries
