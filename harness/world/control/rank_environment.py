"""The environment of a rank: an allow-list, never what the shell happened to hold.

Variables that libraries read while they are imported must be set before that, so for a warm rank
they belong to the server it is forked from: setting them afterwards does nothing (torch keeps its
threads, the hub its endpoint).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from harness.world.control.room import following

INHERITED = ("PATH", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CXX", "CC")
# Inherited too where ranks have no room of their own.
HOMES = ("HOME", "TMPDIR")
PLACES = frozenset({"HOME", "TMPDIR", "TMP", "TEMP"})
IMPORT_TIME = (
    *(
        "XDG_",
        "OMP_",
        "OPENBLAS_",
        "MKL_",
        "HF_",
        "TRANSFORMERS_",
        "TORCH_",
        "PYTORCH_",
        "MLX_",
        "PYTHON",
    ),
    *("TOKENIZERS_", "CUDA_", "LD_"),
)
# One thread each: a fork server must be single-threaded, and more ranks than cores with many
# threads each only queue.
DEFAULTS = {
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Where a scenario or a reference asks for more, one that waits leaves its core to the others:
    # it spun for so long that two threads on a busy machine took five times the CPU time.
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    # Nothing is downloaded by a rank unless its scenario says so.
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}


def is_import_time(name: str) -> bool:
    """Whether a library reads this variable while it is imported."""
    return name in PLACES or name.startswith(IMPORT_TIME)


def server_environment(
    requested: Mapping[str, str], *, python: Path | None = None, shared_home: bool = False
) -> dict[str, str]:
    """The environment a server starts with: inherited by name, our defaults, the scenario's
    import-time variables.

    Args:
        requested: the scenario's variables.
        python: the interpreter of an arm's own environment: what a rank of it starts as `python` is
            that one too.
        shared_home: whether home and temporary folder are the user's own; else they are those of
            the server's room.
    """
    names = (*INHERITED, *HOMES) if shared_home else INHERITED
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    if python is not None:
        inherited["PATH"] = os.pathsep.join([str(python.parent), inherited.get("PATH", os.defpath)])
    defaults = dict(DEFAULTS)
    if "OMP_NUM_THREADS" in requested:
        # torch takes MKL's number over OpenMP's: with our default it would never have the threads
        # that were asked for.
        del defaults["MKL_NUM_THREADS"]
    return (
        inherited
        | defaults
        | {name: value for name, value in requested.items() if is_import_time(name)}
    )


def own_environment(
    variables: Mapping[str, str], *, requested: Mapping[str, str]
) -> dict[str, str]:
    """What one rank gets for itself, beside what the scenario requests for all."""
    chosen = dict(variables)
    if "OMP_NUM_THREADS" in chosen and "MKL_NUM_THREADS" not in {**requested, **chosen}:
        # As above: our default for MKL would undo it, and a variable cannot be taken away from one
        # rank.
        chosen["MKL_NUM_THREADS"] = chosen["OMP_NUM_THREADS"]
    # Those of the room are set, and would undo it.
    return {
        name: value for name, value in following(chosen).items() if name not in requested
    } | chosen


def launcher_environment(
    *,
    rank: int,
    size: int,
    port: int,
    local: tuple[int, int] | None = None,
    master: str = "127.0.0.1",
) -> dict[str, str]:
    """What torchrun would set for a rank: libraries read it, some while a subject's module is
    imported.

    transformers splits nothing where WORLD_SIZE is missing, and says nothing of it.

    Args:
        rank: 0 <= rank < size.
        size: world size.
        port: leased for this world; rank 0 may listen there, as with `init_method="env://"`.
        local: which of the ranks on its host it is, and how many there are; None where all are on
            one.
        master: the address of the host of rank 0.

    Source: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
    """
    local_rank, local_size = local or (rank, size)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(local_size),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(port),
    }


def rank_environment(requested: Mapping[str, str]) -> dict[str, str]:
    """What is left to be set in the rank after the fork."""
    return {name: value for name, value in requested.items() if not is_import_time(name)}
