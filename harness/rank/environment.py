"""Surroundings of a rank, as it finds them itself, so that ranks that should be alike can be held
against each other.

Told where a check asks for it, as the subject begins and as it ends. Standard library only; of
torch and MLX it asks what is loaded already.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from harness.forms.digest import fold, sha256

# What a launcher sets for each rank of its own.
OF_ONE_RANK = frozenset({"RANK", "LOCAL_RANK", "MLX_RANK", "MLX_HOSTFILE"})
MAPS = Path("/proc/self/maps")
READINGS = 9
# Of a library of half a gigabyte every rank would read all, twice in each trial.
SAMPLE = 4 * 1024 * 1024
# Digits of a digest: it is compared with its like, and nobody is kept from making two alike.
SHORT = 16

_digests: dict[tuple[str, int, int, int], str] = {}


def environment(at: Literal["begin", "end"], packages: Mapping[str, Any]) -> dict[str, Any]:
    """Describe it.

    Args:
        at: the moment.
        packages: what `Loaded.packages` gave.

    Returns:
        JSON object of `at` and, each an object by name: `versions` (of the interpreter and of
        packages), `libraries` (digests of native libraries that are mapped; Linux), `variables`
        (values; of one that holds a path its sha256, for paths are the machine's own), `threads`
        (cores that it may run on, threads of torch's pools), `numerics` (dtype and precision that
        torch takes by default, MLX's device), `clock` (nanoseconds by which the wall clock, as
        Python tells it, is ahead of the monotonic one).
    """
    return {
        "at": at,
        "versions": versions(packages),
        "libraries": libraries(),
        "variables": variables(os.environ),
        "threads": threads(),
        "numerics": numerics(),
        "clock": {"offset": clock_offset()},
    }


def versions(packages: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the interpreter and of loaded distributions, and digests of files that
    no distribution brought.
    """
    known = {"python": sys.version.split()[0]}
    for releases in packages["installed"].values():
        known |= dict(release.split(" ", 1) for release in releases.split(", "))
    for other in packages["others"]:
        name = other["distribution"] or other["package"]
        known[f"{name} (files)"] = f"{other['version'] or ''} {fold(other['files'])}".strip()
    return known


def libraries() -> dict[str, str]:
    """Return digests of native libraries by file name, joined where two folders have one name.

    A file that is gone has a word in place of its digest.
    """
    try:
        lines = MAPS.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    paths = sorted({parts[5] for line in lines if len(parts := line.split(maxsplit=5)) == 6})
    digests: dict[str, str] = {}
    for path in paths:
        name = Path(path).name
        if path.startswith(os.sep) and (name.endswith(".so") or ".so." in name):
            digests[name] = " ".join(filter(None, [digests.get(name), _digest(path)]))
    return digests


def _digest(path: str) -> str:
    try:
        state = Path(path).stat()
        key = (path, state.st_ino, state.st_size, state.st_mtime_ns)
        if key not in _digests:
            _digests[key] = _sampled(Path(path), state.st_size)
        return _digests[key]
    except OSError:
        return "gone"


def _sampled(path: Path, size: int) -> str:
    """Digest a file; of a large one only its size, beginning and end, where its tables are."""
    with path.open("rb") as file:
        ends = file.read(SAMPLE)
        if size > 2 * SAMPLE:
            file.seek(-SAMPLE, os.SEEK_END)
        return sha256(b"%d " % size + ends + file.read())[:SHORT]


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables that differ between ranks by design."""
    return {
        name: f"sha256:{sha256(os.fsencode(value))[:SHORT]}" if os.sep in value else value
        for name, value in environ.items()
        if name not in OF_ONE_RANK
    }


def threads() -> dict[str, int]:
    """Return how many cores it may run on, and how many threads torch computes with."""
    affinity = getattr(os, "sched_getaffinity", None)
    counts = {"cores": len(affinity(0)) if affinity is not None else os.cpu_count() or 0}
    if (torch := sys.modules.get("torch")) is not None:
        counts["torch"] = torch.get_num_threads()
        counts["torch.interop"] = torch.get_num_interop_threads()
    return counts


def numerics() -> dict[str, str]:
    """Return the defaults by which torch and MLX compute."""
    defaults: dict[str, str] = {}
    if (torch := sys.modules.get("torch")) is not None:
        defaults |= {
            "torch.dtype": str(torch.get_default_dtype()),
            "torch.float32-matmul-precision": str(torch.get_float32_matmul_precision()),
            "torch.deterministic": str(torch.are_deterministic_algorithms_enabled()),
        }
    if (mlx := sys.modules.get("mlx.core")) is not None:
        defaults["mlx.device"] = str(mlx.default_device())
    return defaults


def clock_offset() -> int:
    """Return wall clock minus monotonic clock in nanoseconds, from the quickest of some
    readings.
    """
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(READINGS)]
    before, wall, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return wall - (before + after) // 2
