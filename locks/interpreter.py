"""Which variant and which Python an environment is made for: what the machine has, and what the
locks have wheels for.

For the noxfile, which says `session.error` in one voice.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nox

VARIANTS = ("cpu", "cuda", "metal")
PYTHONS = ("3.11", "3.13", "3.12", "3.14")  # that the locks serve; the first one found is taken

INSIDE = """
import json, platform, sys, sysconfig
print(json.dumps({
    "path": sys.executable,
    "version": "%d.%d" % sys.version_info[:2],
    "machine": platform.machine(),
    "usable": platform.python_implementation() == "CPython" and not sysconfig.get_config_var("Py_GIL_DISABLED"),
}))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python that was started and answered."""

    path: str
    version: str
    machine: str
    usable: bool
    """CPython with its lock: what the wheels are for."""


def nvidia_answers() -> bool:
    """Whether an NVIDIA driver is loaded or answers.

    A machine without one must never download CUDA.
    """
    if Path("/proc/driver/nvidia/version").exists():
        return True
    try:
        command = ["nvidia-smi", "--list-gpus"]
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def choose_variant(session: nox.Session) -> str:
    """`cuda` only where an NVIDIA driver answers, `metal` on a Mac, else `cpu`; RANKPROOF_VARIANT
    overrides.
    """
    system, machine = platform.system(), platform.machine()
    given = os.environ.get("RANKPROOF_VARIANT", "")
    if given and given not in VARIANTS:
        session.error(
            f"RANKPROOF_VARIANT is {given!r}; it can be {', '.join(VARIANTS)}, or unset to look at"
            " the machine",
        )
    if system == "Darwin" and machine == "arm64":
        fitting = ["metal"]
    elif system == "Linux" and machine in {"x86_64", "aarch64"}:
        fitting = ["cpu", "cuda"]
    else:
        session.error(
            f"No lock serves {system} on {machine}: Linux on x86_64 or aarch64, or macOS on Apple"
            " silicon"
        )
    if given and given not in fitting:
        session.error(
            f"RANKPROOF_VARIANT={given} is not for {system} on {machine}; here it can be"
            f" {' or '.join(fitting)}",
        )
    return given or ("cuda" if system == "Linux" and nvidia_answers() else fitting[0])


def interpreter_at(path: str) -> Interpreter | None:
    """Start a Python and let it say what it is; None if it does not run (a version manager's empty
    shim, say).
    """
    try:
        done = subprocess.run(
            [path, "-c", INSIDE], capture_output=True, text=True, timeout=20, check=True
        )
        return Interpreter(**json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return None


def places(versions: tuple[str, ...]) -> Iterator[str]:
    """Where a Python may be: the one that runs nox, on PATH, among uv's.

    Each looked up only if it comes to that.
    """
    yield sys.executable
    for version in versions:
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            if folder and (path := shutil.which(f"python{version}", path=folder)):
                yield path
    if uv := shutil.which("uv"):
        for version in versions:
            command = [uv, "python", "find", "--no-python-downloads", "--no-project", version]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                yield done.stdout.strip()


def choose_python(session: nox.Session, variant: str, torch_cpu: dict[str, Any]) -> Interpreter:
    """The Python to build on: one that the variant has wheels for."""
    forced = session.python if isinstance(session.python, str) else None
    versions: tuple[str, ...] = PYTHONS
    if variant == "cpu":
        known = [
            wheel["python"]
            for wheel in torch_cpu["wheel"]
            if wheel["machine"] == platform.machine()
        ]
        versions = tuple(version for version in PYTHONS if version in known)
    wanted = tuple(version for version in versions if forced in {None, version})
    fitting = {(platform.machine(), version) for version in wanted}
    for path in places(wanted) if wanted else ():
        interpreter = interpreter_at(path)
        if (
            interpreter
            and interpreter.usable
            and (interpreter.machine, interpreter.version) in fitting
        ):
            return interpreter

    having = [f"python{version}" for version in sorted(versions)]
    where = f"{platform.system()} on {platform.machine()}"
    if forced in versions:
        reason = f"No python{forced} that runs was found on PATH."
    elif forced:
        reason = f"No torch wheel for Python {forced} is known for {variant} on {where}."
    else:
        running = f"{sys.version_info[0]}.{sys.version_info[1]}"
        reason = (
            f"No torch wheel for Python {running}, which runs nox, is known for {variant} on"
            f" {where}, and neither {' nor '.join(having)} that runs was found on PATH."
        )
    # nox puts a full stop behind a message, so the command to copy does not end it.
    session.error(
        f"{reason}\nThere are wheels for {' and '.join(having)}. Let uv bring one:\n"
        f"    uvx --python {versions[0]} nox -s {session.name.partition('-')[0]}\n"
        f"or install one and run nox again; `nox -P {versions[0]} -s …` chooses one that is on PATH"
    )
