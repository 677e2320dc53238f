"""Capturing where a run takes place and what is installed there.

No torch, no GPU library is imported for it.
"""

from __future__ import annotations

import email
import functools
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from harness.forms.digest import sha256
from harness.forms.distribution import wheel_digest
from harness.record import nix, start_files
from harness.record.facts import Environment, Package
from harness.world.control.names import hide

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


def capture() -> Environment:
    """Describe this machine and this interpreter's packages."""
    made = _made()
    variables = {
        name: hide(value)[:VALUE_LIMIT]
        for name, value in sorted(os.environ.items())
        if name in VARIABLES or name.startswith(PREFIXES)
    }
    return Environment(
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
        variant=made.get("variant") or os.environ.get("RANKPROOF_VARIANT"),
        lock=made.get("lock"),
        lock_sha256=made.get("lock_sha256"),
        nix=nix.describe(wheels_sha256=made.get("wheels_sha256")),
        gpu=_gpu(),
        openssh=_first_line(["ssh", "-V"]),
        variables=variables,
        other_variables=len(os.environ) - len(variables),
        packages=packages(),
        start_files=start_files.of_this_interpreter(),
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


def packages() -> list[Package]:
    """Every distribution of this interpreter, by name."""
    by_name: dict[str, Package] = {}
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
        by_name[name] = Package(name=name, version=version, record=digest)
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
