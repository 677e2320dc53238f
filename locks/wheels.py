"""Which wheel of each pinned release Nix fetches: locks/wheels.json, written by `nox -s lock` from
the .txt locks.

The .txt locks say which versions and which bytes are accepted, for pip and for Nix alike. This file
only adds what pip works out by itself while it installs: the one file of a release that fits a
system. It holds file names and sha256, never an address.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import canonicalize_name, parse_wheel_filename

PYTHON = "3.13"
# mlx's wheels for Linux ask for glibc 2.35 and those for macOS for 14.0. The oldest machine that
# can run them decides, so that everybody gets the same files.
GLIBC = (2, 35)
MACOS = (14, 0)
LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
# Nix's name of a system, the marker values of it, and its variants.
SYSTEMS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "x86_64-linux": ("linux", "x86_64", ("cpu", "cuda")),
    "aarch64-linux": ("linux", "aarch64", ("cpu", "cuda")),
    "aarch64-darwin": ("darwin", "arm64", ("metal",)),
}
TOOLS = "dev"
"""The lock that every variant's environment takes along, so that `nox -s tests` works inside it."""


class WheelError(Exception):
    """No wheel of a release fits a system, or the index has other bytes than the lock.

    Says which and what to do.
    """


def pins(text: str) -> Iterator[tuple[Requirement, set[str]]]:
    """The requirements of a .txt lock with their sha256."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            requirement, *digests = line.split(" --hash=sha256:")
            yield Requirement(requirement.strip()), {digest.strip() for digest in digests}


def wanted(text: str, *, system: str, python: str) -> dict[str, tuple[Requirement, set[str]]]:
    """What a lock asks for on this system and Python, by canonical name."""
    platform, machine, _ = SYSTEMS[system]
    where = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[platform],
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": platform,
    }
    return {
        canonicalize_name(requirement.name): (requirement, digests)
        for requirement, digests in pins(text)
        if requirement.marker is None or requirement.marker.evaluate(where)
    }


def tags(*, system: str, python: str) -> list[Tag]:
    """What this system and Python accept, in pip's order: the first is the best."""
    platform, machine, _ = SYSTEMS[system]
    if platform == "darwin":
        platforms = list(mac_platforms(MACOS, machine))
    else:
        platforms = []
        for minor in range(GLIBC[1], 4, -1):
            platforms.append(f"manylinux_2_{minor}_{machine}")
            if (2, minor) in LEGACY:
                platforms.append(f"{LEGACY[2, minor]}_{machine}")
        platforms.append(f"linux_{machine}")
    major, minor = map(int, python.split("."))
    version = (major, minor)
    return [
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, interpreter=f"cp{major}{minor}", platforms=platforms),
    ]


def offered(requirements: list[str]) -> dict[str, dict[str, str]]:
    """Every wheel that the index has of these exact releases: canonical name to file name to
    sha256.

    Raises:
        WheelError: uv is missing, or the index does not have one of them.
    """
    uv = shutil.which(
        "uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    )
    if uv is None:
        msg = (
            "uv is not installed beside this Python. Run `nox -s lock`, which installs it from"
            " locks/lock.txt."
        )
        raise WheelError(msg)
    with tempfile.TemporaryDirectory(prefix="rankproof-wheels-") as name:
        folder = Path(name)
        (folder / "pins.in").write_text("".join(f"{line}\n" for line in sorted(requirements)))
        # The answer is read and thrown away: it holds addresses.
        command = [
            uv, "pip", "compile", "pins.in", "--output-file", "pylock.toml", "--format", "pylock.toml", "--quiet",
            "--universal", "--no-deps", "--python", sys.executable, "--python-version", "3.11", "--no-python-downloads",
            "--only-binary", ":all:", "--no-annotate", "--no-header",
        ]  # fmt: skip
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            msg = (
                f"the index does not have every release that the locks pin:\n{done.stderr.strip()}"
            )
            raise WheelError(msg)
        answer = tomllib.loads((folder / "pylock.toml").read_text())
    releases: dict[str, dict[str, str]] = {}
    for package in answer["packages"]:
        files = releases.setdefault(canonicalize_name(package["name"]), {})
        for wheel in package.get("wheels", ()):
            place = wheel.get("name") or unquote(
                (wheel.get("url") or wheel["path"]).rpartition("/")[2]
            )
            files[place] = wheel["hashes"]["sha256"]
    return releases


def choose(
    files: dict[str, str], accepted: set[str], order: dict[Tag, int]
) -> tuple[str, str] | None:
    """The best file that fits and that the lock accepts, with its sha256."""
    fitting = []
    for file, digest in files.items():
        _, _, build, of = parse_wheel_filename(file)
        ranks = [order[tag] for tag in of if tag in order]
        if ranks and digest in accepted:
            fitting.append(
                (
                    min(ranks),
                    [-part if isinstance(part, int) else 0 for part in build],
                    file,
                    digest,
                )
            )
    return min(fitting)[2:] if fitting else None


def table(locks: dict[str, str], torch_cpu: dict[str, object], *, python: str) -> dict[str, object]:
    """What wheels.json holds.

    Args:
        locks: the text of each .txt lock by its name.
        torch_cpu: what torch-cpu.toml holds.
        python: the Python that Nix takes, "3.13".

    Raises:
        WheelError: a release has no file for a system.
    """
    used = sorted(
        {variant for _, _, variants in SYSTEMS.values() for variant in variants} | {TOOLS}
    )
    cpu = f"torch=={torch_cpu['version']}"
    requirements = {
        f"{requirement.name}{requirement.specifier}"
        for name in used
        for requirement, _ in pins(locks[name])
        if f"{requirement.name}{requirement.specifier}" != cpu
    }
    index = offered(sorted(requirements))
    known = torch_cpu["wheel"]
    assert isinstance(known, list)

    systems: dict[str, dict[str, dict[str, str]]] = {}
    for system, (_, machine, variants) in SYSTEMS.items():
        order = {
            tag: number
            for number, tag in reversed(list(enumerate(tags(system=system, python=python))))
        }
        for variant in variants:
            required = wanted(locks[TOOLS], system=system, python=python)
            required |= wanted(locks[variant], system=system, python=python)
            chosen: dict[str, str] = {}
            for name, (requirement, digests) in sorted(required.items()):
                files = index.get(name, {})
                if f"{requirement.name}{requirement.specifier}" == cpu:
                    files = {
                        w["file"]: w["sha256"]
                        for w in known
                        if (w["machine"], w["python"]) == (machine, python)
                    }
                if (best := choose(files, digests, order)) is None:
                    msg = (
                        f"locks/{variant}.txt: none of the wheels of {requirement} whose sha256 it"
                        f" accepts is for {system} and Python {python}. Pin a release that has one,"
                        " or run `nox -s lock -- --upgrade`."
                    )
                    raise WheelError(msg)
                chosen[best[0]] = best[1]
            systems.setdefault(system, {})[variant] = chosen
    return {
        "written_by": "nox -s lock",
        "python": python,
        "locks": {name: hashlib.sha256(locks[name].encode()).hexdigest() for name in used},
        "systems": systems,
    }


def render(content: dict[str, object]) -> str:
    """The file's text: one wheel a line, so that a difference can be read."""
    return json.dumps(content, indent=2) + "\n"
