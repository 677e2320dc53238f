"""Environment of a rank: an allow-list of variables, never what the shell happened to hold,
NVIDIA's driver for ranks of a Nix environment, and the compiled recorder of its ledger.

Variables that libraries read while they are imported must be set before that, so for a warm rank
they belong to the server it is forked from: setting them afterwards does nothing (torch keeps its
threads, the hub its endpoint).
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from harness.forms.digest import sha256
from harness.forms.variables import cache_folder
from harness.ledger import inside
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
    """Return whether a library reads this variable while it is imported."""
    return name in PLACES or name.startswith(IMPORT_TIME)


def server_environment(
    requested: Mapping[str, str], *, python: Path | None = None, shared_home: bool = False
) -> dict[str, str]:
    """Return the environment a server starts with: inherited by name, our defaults, the scenario's
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
    """Return what one rank gets for itself, beside what the scenario requests for all."""
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
    """Return what torchrun would set for a rank: libraries read it, some while a subject's module
    is imported.

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
    """Return what is left to be set in the rank after the fork."""
    return {name: value for name, value in requested.items() if not is_import_time(name)}


DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")
DRIVER_VARIABLE = "RANKPROOF_DRIVER"
NIXOS = Path("/run/opengl-driver/lib")
LDCONFIG = (Path("/sbin/ldconfig"), Path("/usr/sbin/ldconfig"))
LDCONFIG_WITHIN = 10.0


def is_driver_wanted() -> bool:
    """Return whether this harness runs in the Nix environment for NVIDIA machines."""
    return bool(os.environ.get("RANKPROOF_ENV")) and os.environ.get("RANKPROOF_VARIANT") == "cuda"


def find_driver(*, folder: Path = NIXOS, ldconfig: Sequence[Path] = LDCONFIG) -> dict[str, Path]:
    """Where the driver's libraries are: where RANKPROOF_DRIVER says, else NixOS' folder, else what
    the linker knows.

    Args:
        folder: where NixOS has them.
        ldconfig: where the program that lists what the system's linker knows may be.

    Returns:
        The file for each library that is there, from one place only: libraries of two drivers do
        not fit together.
    """
    if given := os.environ.get(DRIVER_VARIABLE):
        folder = Path(given)
    libraries = {name: folder / name for name in DRIVER_LIBRARIES if (folder / name).exists()}
    return libraries if libraries or given else _listed_by_ldconfig(ldconfig)


def with_driver(
    environment: Mapping[str, str], *, folder: Path, libraries: Mapping[str, Path]
) -> dict[str, str]:
    """Put the folder of the libraries, which `link_driver` makes, first on LD_LIBRARY_PATH.

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


def link_driver(folder: Path, libraries: Mapping[str, Path]) -> None:
    """Link the libraries into a new folder; none is made where there are none.

    Raises:
        OSError: the folder cannot be made.
    """
    if not libraries:
        return
    folder.mkdir()
    for name, target in libraries.items():
        (folder / name).symlink_to(target)


def _listed_by_ldconfig(programs: Sequence[Path]) -> dict[str, Path]:
    program = next((path for path in programs if path.exists()), None)
    if program is None:
        return {}
    try:
        done = subprocess.run(
            [program, "-p"],
            capture_output=True,
            text=True,
            timeout=LDCONFIG_WITHIN,
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
        if (
            library in DRIVER_LIBRARIES
            and ("x86-64" in kind or "AArch64" in kind)
            and Path(target).exists()
        ):
            libraries.setdefault(library, Path(target))
    return libraries


RECORDER_SOURCE = Path(str(inside.__file__)).with_name("recorder.c")
C_COMPILERS = ("cc", "gcc", "clang")
C_FLAGS = ("-O2", "-fPIC", "-shared")
COMPILED_WITHIN = 60.0


@functools.cache
def compiled_recorder() -> str:
    """Path of what was compiled, from the cache where it is there; empty where it cannot be."""
    headers = Path(sysconfig.get_path("include"))
    compiler = next(filter(None, map(shutil.which, C_COMPILERS)), None)
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        return ""
    # Releases of one minor version have one ABI, and other headers: what the code was compiled with
    # is in its name.
    state = b"\0".join(
        (RECORDER_SOURCE.read_bytes(), sys.version.encode(), " ".join(C_FLAGS).encode())
    )
    path = cache_folder("recorder") / f"recorder-{sha256(state)[:16]}{EXTENSION_SUFFIXES[0]}"
    if path.is_file():
        return str(path)
    if compiler is None or not (headers / "Python.h").is_file():
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            output = Path(folder, path.name)
            command = [compiler, *C_FLAGS, f"-I{headers}", "-o", str(output), str(RECORDER_SOURCE)]
            subprocess.run(
                command,
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=COMPILED_WITHIN,
            )
            # Whoever compiles at the same time makes the same.
            output.replace(path)
        return str(path)
    return ""
