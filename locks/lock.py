"""Write every lock from pyproject.toml and torch-cpu.toml, and wheels.json from them; `nox -s lock`
runs this.

All locks come from one resolution, so a package has the same version on every variant, every
supported Python and in the development tools. Pins stay where they are until ``--upgrade`` moves
them. No address is written: which index or mirror serves the files is the business of whoever
installs, the hashes decide what is accepted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import wheels
from packaging.markers import Marker
from packaging.utils import canonicalize_name

LOCKS = Path(__file__).resolve().parent
PROJECT = LOCKS.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LINUX = (("linux", "x86_64"), ("linux", "aarch64"))
MAC = (("darwin", "arm64"),)
# What only an NVIDIA driver can use; three gigabytes that no CPU machine shall download.
CUDA_ONLY = ("cuda-", "nvidia-", "triton")


class LockError(Exception):
    """A lock could not be written; the message says which and what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lock:
    """One lock file: what goes in, and the platforms it is for."""

    name: str
    purpose: str
    platforms: tuple[tuple[str, str], ...]
    group: str | None = None
    """A dependency group of pyproject.toml instead of the package with all its extras."""
    extras: bool = True
    """Whether the package's extras go in beside its own dependencies."""
    mlx: str | None = None
    """The extra of mlx that this variant takes, in place of the one pyproject.toml names."""
    cuda: bool = True
    cpu_torch: bool = False

    @property
    def path(self) -> Path:
        return LOCKS / f"{self.name}.txt"


CORE = Lock(
    name="core", purpose="the package without its extras", platforms=LINUX + MAC, extras=False
)
CPU = Lock(
    name="cpu",
    purpose="Linux without a GPU: torch's CPU wheel",
    platforms=LINUX,
    mlx="cpu",
    cuda=False,
    cpu_torch=True,
)
CUDA = Lock(name="cuda", purpose="Linux with an NVIDIA driver", platforms=LINUX, mlx="cuda13")
METAL = Lock(name="metal", purpose="macOS on Apple silicon", platforms=MAC)
DEV = Lock(
    name="dev",
    purpose="the tools of `nox -s tests`, `lint` and `types`",
    platforms=LINUX + MAC,
    group="dev",
)
LOCK = Lock(name="lock", purpose="the tools of `nox -s lock`", platforms=LINUX + MAC, group="lock")
INTEROP = Lock(
    name="interop",
    purpose="the foreign readers of `nox -s interop`",
    platforms=LINUX + MAC,
    group="interop",
)
FARM = Lock(name="farm", purpose="Ray, for `nox -s farm`", platforms=LINUX + MAC, group="farm")
ALL = (CORE, CPU, CUDA, METAL, DEV, LOCK, INTEROP, FARM)


def environment(platform: tuple[str, str]) -> str:
    """A platform as a marker, bounded by the Pythons that torch has wheels for."""
    system, machine = platform
    newest = int(PYTHONS[-1].partition(".")[2])
    return (
        f"sys_platform == '{system}' and platform_machine == '{machine}' and python_version <"
        f" '3.{newest + 1}' and platform_python_implementation == 'CPython'"
    )


def resolve(
    dependencies: list[str],
    platforms: tuple[tuple[str, str], ...],
    *,
    overrides: list[str],
    excludes: list[str],
    pins: str,
    hashes: bool,
    keep: bool,
) -> str:
    """Run uv once, in a folder of its own, and return the requirement lines.

    Args:
        dependencies: What to resolve.
        platforms: Where the result has to hold.
        overrides: Requirements that replace whatever anybody asks for under that name.
        excludes: Packages that nobody gets.
        pins: Requirement lines: binding, or with ``keep`` preferred where nothing speaks against
            them.
        hashes: Whether each line carries the sha256 of every file of that release.
        keep: See ``pins``.

    Raises:
        LockError: uv is missing or found no solution.
    """
    uv = shutil.which(
        "uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    )
    if uv is None:
        msg = (
            "uv is not installed beside this Python. Run `nox -s lock`, which installs it from"
            " locks/lock.txt."
        )
        raise LockError(msg)
    with tempfile.TemporaryDirectory(prefix="rankproof-lock-") as name:
        folder = Path(name)
        strings = json.dumps  # a JSON list of plain strings is a TOML list too
        (folder / "pyproject.toml").write_text(
            '[project]\nname = "lock"\nversion = "0"\nrequires-python ='
            f' ">={PYTHONS[0]}"\ndependencies = {strings(dependencies)}\n[tool.uv]\nenvironments ='
            f" {strings([environment(platform) for platform in platforms])}\noverride-dependencies"
            f" = {strings(overrides)}\nexclude-dependencies = {strings(excludes)}\n"
        )
        (folder / ("out.txt" if keep else "pins.txt")).write_text(pins)
        command = [
            uv, "pip", "compile", "pyproject.toml", "--output-file", "out.txt", "--quiet", "--universal",
            "--python", sys.executable, "--python-version", PYTHONS[0], "--no-python-downloads",
            # The same version on every Python, so that all package tables agree.
            "--fork-strategy", "fewest",
            # Building a source archive would fetch a build backend that nobody pinned.
            "--only-binary", ":all:",
            "--no-annotate", "--no-header",
        ]  # fmt: skip
        command += ["--generate-hashes"] if hashes else []
        command += [] if keep else ["--constraints", "pins.txt"]
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            msg = f"uv found no solution for {', '.join(dependencies)}:\n{done.stderr.strip()}"
            raise LockError(msg)
        return (folder / "out.txt").read_text()


def blocks(text: str) -> list[tuple[str, str, list[str]]]:
    """Split requirement lines into (name==version, marker, hashes)."""
    requirements: list[tuple[str, str, list[str]]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        requirement, *digests = re.split(r"\s+--hash=sha256:", line.strip())
        pin, _, marker = requirement.partition(";")
        requirements.append((pin.strip(), marker.strip(), [digest.strip() for digest in digests]))
    return requirements


def needed(marker: str, platforms: tuple[tuple[str, str], ...]) -> str | None:
    """The marker as far as it says something on these platforms: "" if it always holds, None if it
    never does.
    """
    if not marker:
        return ""
    answers = {
        Marker(marker).evaluate(
            {
                "implementation_name": "cpython",
                "os_name": "posix",
                "platform_machine": machine,
                "platform_python_implementation": "CPython",
                "platform_system": {"linux": "Linux", "darwin": "Darwin"}[system],
                "python_full_version": f"{python}.0",
                "python_version": python,
                "sys_platform": system,
            }
        )
        for system, machine in platforms
        for python in PYTHONS
    }
    if answers == {True}:
        return ""
    return marker if True in answers else None


def render(lock: Lock, text: str, torch: dict[str, object]) -> str:
    """The lock file's text: header, then one block per package."""
    lines = [
        f"# {lock.purpose}. Python {PYTHONS[0]} to {PYTHONS[-1]}.",
        "# Written by `nox -s lock`: change pyproject.toml and run that again.",
    ]
    if lock.cpu_torch:
        lines.append(
            "# torch: only the wheels of torch-cpu.toml, so that pip takes nothing else; it names"
            " the Pythons."
        )
    for block in blocks(text):
        pin, marker, digests = block
        kept = needed(marker, lock.platforms)
        if kept is None:
            continue
        name = pin.partition("==")[0]
        if lock.cpu_torch and canonicalize_name(name) == "torch":
            wheels = torch["wheel"]
            assert isinstance(wheels, list)
            pin, digests = f"torch=={torch['version']}", [wheel["sha256"] for wheel in wheels]
        if not digests:
            msg = (
                f"locks/{lock.name}.txt: the index gives no sha256 for {pin}. Use an index that"
                " publishes hashes."
            )
            raise LockError(msg)
        head = f"{pin} ; {kept}" if kept else pin
        lines.append(
            " \\\n".join([head, *(f"    --hash=sha256:{digest}" for digest in sorted(digests))])
        )
    return "\n".join(lines) + "\n"


def write(*, upgrade: bool) -> list[Path]:
    """Resolve once for everything, then each lock from those pins.

    Returns the files that changed.
    """
    pyproject = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    torch = tomllib.loads((LOCKS / "torch-cpu.toml").read_text())
    core: list[str] = pyproject["project"]["dependencies"]
    extras = pyproject["project"]["optional-dependencies"]
    groups: dict[str, list[str]] = pyproject["dependency-groups"]
    # Every extra by its requirements: `all` only names the others.
    whole = [*core, *(line for name, lines in extras.items() if name != "all" for line in lines)]
    whole.append(f"torch=={torch['version'].partition('+')[0]}")

    before = "" if upgrade else "".join(lock.path.read_text() for lock in ALL if lock.path.exists())
    seen = {pin for pin, _, _ in blocks(before)} - {f"torch=={torch['version']}"}
    everything = resolve(
        [*whole, *groups["dev"], *groups["lock"], *groups["interop"], *groups["farm"]],
        LINUX + MAC,
        overrides=["mlx; sys_platform == 'darwin'", "mlx[cpu,cuda13]; sys_platform == 'linux'"],
        excludes=[],
        pins="".join(f"{pin}\n" for pin in sorted(seen)),
        hashes=False,
        keep=True,
    )
    names = {canonicalize_name(pin.partition("==")[0]) for pin, _, _ in blocks(everything)}
    cuda_only = sorted(str(name) for name in names if name.startswith(CUDA_ONLY))

    written = {}
    for lock in ALL:
        own = whole if lock.extras else core
        text = resolve(
            own if lock.group is None else groups[lock.group],
            lock.platforms,
            overrides=[f"mlx[{lock.mlx}]"] if lock.mlx else [],
            excludes=[] if lock.cuda else cuda_only,
            pins=everything,
            hashes=True,
            keep=False,
        )
        written[lock.path] = render(lock, text, torch)
    texts = {path.stem: text for path, text in written.items()}
    written[LOCKS / "wheels.json"] = wheels.render(wheels.table(texts, torch, python=wheels.PYTHON))
    # Nothing is written unless everything was found: half a set of locks would not agree with
    # itself.
    changed = [
        path for path, text in written.items() if not path.exists() or path.read_text() != text
    ]
    for path in changed:
        path.write_text(written[path])
    return changed


def write_wheels(*, python: str, path: Path) -> list[Path]:
    """Only the table of wheels, for another Python, from the locks as they are.

    They serve every Python.
    """
    torch = tomllib.loads((LOCKS / "torch-cpu.toml").read_text())
    texts = {lock.name: lock.path.read_text() for lock in ALL}
    path.write_text(wheels.render(wheels.table(texts, torch, python=python)))
    return [path]


def main() -> int:
    """Parse, write, say which files changed."""
    parser = argparse.ArgumentParser(prog="nox -s lock --", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--upgrade", action="store_true", help="move every pin to the newest release that fits"
    )
    parser.add_argument(
        "--wheels", metavar="FILE", type=Path, help="write only a table of wheels, into this file"
    )
    parser.add_argument(
        "--python", default=wheels.PYTHON, choices=PYTHONS, help="the Python of that table"
    )
    options = parser.parse_args()
    try:
        if options.wheels:
            changed = write_wheels(python=options.python, path=options.wheels)
        else:
            changed = write(upgrade=options.upgrade)
    except (LockError, wheels.WheelError) as error:
        print(error, file=sys.stderr)
        return 1
    shown = [
        path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path for path in changed
    ]
    print("\n".join(f"wrote {path}" for path in shown) or "every lock is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
