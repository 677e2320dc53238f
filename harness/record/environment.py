"""Capturing where a run takes place and what is installed there.

No torch and no GPU library is imported for it, and no Nix is started: its shell leaves all that is
said of it in variables.

* `RANKPROOF_ENV`: the environment's store path.
* `RANKPROOF_NIX`: a file with the digests of flake.lock and of the nixpkgs that was used.
* `RANKPROOF_SHELL`: the shell's derivation path. `RANKPROOF_SOURCE`: the code's store path, under
  `nix run`.

Start files are what an interpreter may read or run at its start, before anybody's code: `.pth`
files and the two customize modules. A `.pth` file imports what its lines that begin with `import`
name, so it can change what judges a run.
"""

from __future__ import annotations

import contextlib
import email
import functools
import importlib.machinery
import importlib.metadata
import json
import os
import platform
import shutil
import site
import subprocess
import sys
import zipimport
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness.forms.digest import sha256
from harness.forms.distribution import wheel_digest
from harness.record.facts import EnvironmentFacts, NixFacts, PackageFacts, StartFile
from harness.record.repository import status
from harness.world.control import rank_environment
from harness.world.control.names import ROOT, hide

# Exact names and prefixes: a deny-list on words like "token" hides TOKENIZERS_PARALLELISM and
# misses the next secret.
VARIABLES = (
    "LANG",
    "LC_ALL",
    "TZ",
    "CUBLAS_WORKSPACE_CONFIG",
    "HF_HUB_OFFLINE",
    "CI",
    "RANKPROOF_VARIANT",
)
PREFIXES = ("OMP_", "MKL_", "OPENBLAS_", "TOKENIZERS_", "NCCL_", "GLOO_", "MLX_", "PYTHONHASHSEED")
VALUE_LIMIT = 200
MADE = "rankproof-environment.json"
ANSWER_WITHIN = 10.0


def capture() -> EnvironmentFacts:
    """Describe this machine and this interpreter's packages."""
    stamp = _made()
    variables = {
        name: hide(value)[:VALUE_LIMIT]
        for name, value in sorted(os.environ.items())
        if name in VARIABLES or name.startswith(PREFIXES)
    }
    return EnvironmentFacts(
        python=platform.python_version(),
        implementation=platform.python_implementation(),
        system=platform.system(),
        release=platform.release(),
        machine=platform.machine(),
        cpu=_cpu(),
        cores=os.cpu_count() or 0,
        affinity=(
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 0
        ),
        memory=memory(),
        host=_host(),
        variant=stamp.get("variant") or os.environ.get("RANKPROOF_VARIANT"),
        lock=stamp.get("lock"),
        lock_sha256=stamp.get("lock_sha256"),
        nix=describe_nix(wheels_sha256=stamp.get("wheels_sha256")),
        gpu=_gpu(),
        openssh=_first_line(["ssh", "-V"]),
        variables=variables,
        other_variables=len(os.environ) - len(variables),
        packages=packages(),
        start_files=start_files_here(),
    )


@cache
def is_for_cpu() -> bool:
    """Return whether this environment is the variant without a GPU.

    Where nobody says, whether no NVIDIA driver answers.
    """
    variant = _made().get("variant") or os.environ.get("RANKPROOF_VARIANT")
    return variant == "cpu" if variant else sys.platform == "linux" and _gpu() is None


def _gpu() -> str | None:
    return _first_line(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])


def memory() -> int:
    """Main memory in bytes; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


def _made() -> dict[str, str]:
    """How nox or Nix made this environment: variant, lock and its sha256, from the note it left.

    Empty without one.
    """
    try:
        stamp = json.loads((Path(sys.prefix) / MADE).read_text())
    except (OSError, ValueError):
        return {}
    return {key: str(value) for key, value in stamp.items()} if isinstance(stamp, dict) else {}


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _host() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
    return sha256(f"rankproof host {boot}".encode())[:12]


def _first_line(command: list[str]) -> str | None:
    """First line that a program prints, or None where it is not there or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_WITHIN,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = (done.stdout.strip() or done.stderr.strip()) if done.returncode == 0 else ""
    return text.splitlines()[0][:VALUE_LIMIT] if text else None


def packages() -> list[PackageFacts]:
    """Every distribution of this interpreter, by name."""
    by_name: dict[str, PackageFacts] = {}
    for distribution in importlib.metadata.distributions():
        # Of an old egg-info file the empty name is the file itself. The description, behind the
        # first empty line, is left out: `distribution.metadata` parses it too, which takes longer
        # than all the rest.
        text = (
            distribution.read_text("METADATA")
            or distribution.read_text("PKG-INFO")
            or distribution.read_text("")
        )
        name, version = _name_and_version((text or "").partition("\n\n")[0])
        if not name or name in by_name:
            continue
        record = distribution.read_text("RECORD")
        digest = _wheel_digest(record) if record and not _is_editable(distribution) else None
        by_name[name] = PackageFacts(name=name, version=version, record=digest)
    return [by_name[name] for name in sorted(by_name, key=str.lower)]


@functools.lru_cache(maxsize=1024)
def _name_and_version(fields: str) -> tuple[Any, Any]:
    message = email.message_from_string(fields)
    return message["Name"], message["Version"]


# By the text itself, which is read each time.
_wheel_digest = functools.lru_cache(maxsize=1024)(wheel_digest)


def _is_editable(distribution: importlib.metadata.Distribution) -> bool:
    """Return whether it only leads to a folder of the machine: its RECORD lists that way, and none
    of its files.
    """
    try:
        return (
            json.loads(distribution.read_text("direct_url.json") or "null")["dir_info"]["editable"]
            is True
        )
    except (ValueError, KeyError, TypeError, OSError):
        return False


NIX_SOURCES = (
    "flake.nix",
    "flake.lock",
    "nix/",
    "locks/",
    "harness/",
    "scenarios/",
    "pyproject.toml",
    "noxfile.py",
)
NIX_SHOWN = 20


def describe_nix(*, wheels_sha256: str | None, project: Path = Path(ROOT)) -> NixFacts | None:
    """Describe the Nix environment, or None where this interpreter is not of one.

    A variable alone makes no Nix environment: this interpreter must be the one in it, and Nix must
    have built it.

    Args:
        wheels_sha256: of the table of wheels that the environment says it was built from.
        project: the folder of the flake.
    """
    given = os.environ.get("RANKPROOF_ENV")
    if not given or wheels_sha256 is None or not _is_of(Path(given)):
        return None
    facts = _facts_of_shell()
    source = os.environ.get("RANKPROOF_SOURCE") or None
    changes = None if source else status(project)
    tree = {"flake.lock": facts.get("flake_lock_sha256"), "locks/wheels.json": wheels_sha256}
    return NixFacts(
        environment=given,
        shell=os.environ.get("RANKPROOF_SHELL") or None,
        flake_lock_sha256=facts.get("flake_lock_sha256"),
        wheels_sha256=wheels_sha256,
        nixpkgs=facts.get("nixpkgs"),
        as_locked=(
            facts["nixpkgs"] == facts["flake_lock_nixpkgs"]
            if {"nixpkgs", "flake_lock_nixpkgs"} <= set(facts)
            else None
        ),
        source=source,
        stale=(
            []
            if source
            else [name for name, was in tree.items() if was and _sha256(project / name) != was]
        ),
        changed=(
            None
            if changes is None
            else [line[3:] for line in changes if not line.startswith("??")][:NIX_SHOWN]
        ),
        untracked=(
            None
            if changes is None
            else [name for name in _new(changes) if name.startswith(NIX_SOURCES)][:NIX_SHOWN]
        ),
        driver=(
            sorted(path.resolve().name for path in rank_environment.find_driver().values())
            if rank_environment.is_driver_wanted()
            else []
        ),
    )


def _is_of(folder: Path) -> bool:
    try:
        return Path(sys.prefix).samefile(folder)
    except OSError:
        return False


def _facts_of_shell() -> dict[str, str]:
    try:
        shell = json.loads(Path(os.environ["RANKPROOF_NIX"]).read_text())
    except (KeyError, OSError, ValueError):
        return {}
    return (
        {key: value for key, value in shell.items() if isinstance(value, str)}
        if isinstance(shell, dict)
        else {}
    )


def _new(changes: list[str]) -> list[str]:
    return [line[3:].strip('"') for line in changes if line.startswith("??")]


def _sha256(path: Path) -> str | None:
    try:
        return sha256(path.read_bytes())
    except OSError:
        return None


CUSTOMIZE = ("sitecustomize", "usercustomize")


def start_files_here() -> list[StartFile]:
    """Those of the interpreter that runs this.

    A `.pth` file may add a folder whose own `.pth` files are read too, so every folder that modules
    come from is looked at. A customize module that took itself away from the loaded ones is found
    where it lies.
    """
    folders = [
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    ]
    places = [Path(folder) for folder in (*folders, *sys.path) if folder]
    names = CUSTOMIZE if site.ENABLE_USER_SITE else CUSTOMIZE[:1]
    loaded = [getattr(sys.modules.get(name), "__file__", None) for name in CUSTOMIZE]
    return _start_files(
        [*_start_paths(places, names), *(Path(file) for file in loaded if isinstance(file, str))]
    )


def start_files_of(folder: Path, stdlib: Path) -> list[StartFile]:
    """Those of a virtual environment that nothing is shared with but the standard library.

    They are looked for and not asked for: what runs at the start could change the answer.

    Args:
        folder: of the environment.
        stdlib: of the interpreter that it was made from.
    """
    return _start_files(
        _start_paths([stdlib, *sorted(folder.glob("lib/python*/site-packages"))], CUSTOMIZE[:1])
    )


def _start_paths(places: Sequence[Path], names: Sequence[str]) -> Iterator[Path]:
    # The importer remembers what a folder held: a file that was put there since would not be seen.
    importlib.machinery.PathFinder.invalidate_caches()
    for place in places:
        if place.is_dir():
            yield from place.glob("*.pth")
    for name in names:
        spec = importlib.machinery.PathFinder.find_spec(name, [str(place) for place in places])
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin)


def _start_files(files: Sequence[Path] | Iterator[Path]) -> list[StartFile]:
    real = {file.resolve(): file for file in files}
    contents = [
        (file, content) for file in real.values() if (content := _start_content(file)) is not None
    ]
    described = {
        StartFile(name=_start_name(file), sha256=sha256(content)) for file, content in contents
    }
    return sorted(described, key=lambda start: (start.name, start.sha256))


def _start_content(file: Path) -> bytes | None:
    """Return what a file holds, of one in an archive too, which is named as if the archive were a
    folder; None of no file.
    """
    if file.is_file():
        return file.read_bytes()
    archive = next((place for place in file.parents if place.is_file()), None)
    if archive is not None:
        with contextlib.suppress(OSError, ImportError):
            return zipimport.zipimporter(str(archive)).get_data(str(file))
    return None


def _start_name(file: Path) -> str:
    """Its name; of a package, with its folder's."""
    return f"{file.parent.name}/{file.name}" if file.stem == "__init__" else file.name
