"""What a rank runs in, as it finds it itself: so that ranks that should be alike can be held
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
    """The interpreter's, those of loaded distributions, and digests of what no distribution
    brought.
    """
    found = {"python": sys.version.split()[0]}
    for names in packages["installed"].values():
        found |= {
            name: version for name, _, version in (one.partition(" ") for one in names.split(", "))
        }
    for one in packages["others"]:
        name = one["distribution"] or one["package"]
        found[f"{name} (files)"] = f"{one['version'] or ''} {fold(one['files'])}".strip()
    return found


def libraries() -> dict[str, str]:
    """Native libraries, by file name. One name in two folders has its digests joined.

    A file that is gone has none.
    """
    try:
        lines = MAPS.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    paths = sorted({parts[5] for line in lines if len(parts := line.split(maxsplit=5)) == 6})
    found: dict[str, str] = {}
    for path in paths:
        name = Path(path).name
        if path.startswith(os.sep) and (name.endswith(".so") or ".so." in name):
            found[name] = " ".join(filter(None, [found.get(name), _digest(path)]))
    return found


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
    """The digest of a file; of one that is large, of its beginning and its end, where its tables
    lie, and its size.
    """
    with path.open("rb") as file:
        ends = file.read(SAMPLE)
        if size > 2 * SAMPLE:
            file.seek(-SAMPLE, os.SEEK_END)
        return sha256(b"%d " % size + ends + file.read())[:SHORT]


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, but for what every rank has its own of."""
    return {
        name: f"sha256:{sha256(os.fsencode(value))[:SHORT]}" if os.sep in value else value
        for name, value in environ.items()
        if name not in OF_ONE_RANK
    }


def threads() -> dict[str, int]:
    """How many cores it may run on, and how many threads torch computes with."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = {"cores": len(affinity(0)) if affinity is not None else os.cpu_count() or 0}
    if (torch := sys.modules.get("torch")) is not None:
        found |= {
            "torch": torch.get_num_threads(),
            "torch.interop": torch.get_num_interop_threads(),
        }
    return found


def numerics() -> dict[str, str]:
    """What decides how numbers are computed where nobody says it."""
    found: dict[str, str] = {}
    if (torch := sys.modules.get("torch")) is not None:
        found |= {
            "torch.dtype": str(torch.get_default_dtype()),
            "torch.float32-matmul-precision": str(torch.get_float32_matmul_precision()),
            "torch.deterministic": str(torch.are_deterministic_algorithms_enabled()),
        }
    if (mlx := sys.modules.get("mlx.core")) is not None:
        found["mlx.device"] = str(mlx.default_device())
    return found


def clock_offset() -> int:
    """Wall clock minus monotonic clock, in nanoseconds: the reading of several that took the
    shortest time.
    """
    best: tuple[int, int] | None = None
    for _ in range(READINGS):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = after - before, wall - (before + after) // 2
    assert best is not None
    return best[1]
