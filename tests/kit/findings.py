"""`nox -s findings`: the script of each finding on the newest release there is.

A release is installed without its dependencies into a folder that goes before the environment's
own packages. What a finding's script says there is printed: STILL THERE, GONE, CANNOT TELL or
SKIPPED. A finding that is GONE gets the version in its scenario (`right`), and its bundle is made
again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.record.defect import AT_FAULT, MARK, RIGHT, said
from harness.record.model import Record
from harness.run.environments.make import lay_empty
from harness.run.environments.pip import EnvironmentProblem, find_interpreter
from harness.run.environments.releases import order, releases
from harness.world.hosts import loopback

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "findings"
SUFFIX = ".rankproof.tar.xz"
DEADLINE = 300.0
BESIDE = {"mlx": ("mlx-cpu",)}
"""Distributions that a library needs in its own version."""
TOO_LARGE = ("torch",)


@dataclass(frozen=True, kw_only=True)
class ScriptOfBundle:
    """A finding's script, and where it was seen.

    Attributes:
        name: of the bundle.
        library: with the defect.
        version: of the library in the run.
        right: first release without the defect, as the scenario states; None where none is known.
        script: its text.
    """

    name: str
    library: str
    version: str
    right: str | None
    script: bytes


def scripts(folder: Path = FOLDER) -> list[ScriptOfBundle]:
    """Read the script of every bundle."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with tarfile.open(path) as archive:
            files = {member.name: member for member in archive.getmembers()}
            record = Record.decode(_read(archive, files["run/results.json"]))
            if record.finding is None:
                continue
            finding = record.finding
            found.append(
                ScriptOfBundle(
                    name=path.name.removesuffix(SUFFIX),
                    library=finding.stated.library,
                    version=(finding.runs["control"].version or "").partition("+")[0],
                    right=finding.stated.right,
                    script=_read(archive, files[f"run/{finding.script}"]),
                )
            )
    return found


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def newest(library: str, place: Path) -> str:
    """Return the newest release of a library that pip finds; EnvironmentProblem where it cannot."""
    base = find_interpreter(None)
    if not (place / "bin").exists():
        lay_empty(place, base)
    python = place / "bin" / "python"
    fitting = [one.version for one in releases(python, library, base=base) if not one.why_not]
    return max(fitting, key=order, default="")


def again(one: ScriptOfBundle, version: str, place: Path) -> str:
    """Run a script with a release of its library, and say what it shows."""
    target = place / f"{one.library}-{version}"
    if not target.exists():
        wanted = [f"{name}=={version}" for name in (one.library, *BESIDE.get(one.library, ()))]
        made = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                target,
                *wanted,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            return f"CANNOT TELL: {made.stderr.strip().splitlines()[-1]}"
    script = place / f"{one.name}.py"
    script.write_bytes(one.script)
    try:
        ended = subprocess.run(
            loopback.alone([sys.executable, str(script)]),
            env={**os.environ, "PYTHONPATH": str(target)},
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
    except subprocess.TimeoutExpired:
        return f"CANNOT TELL: it did not end in {DEADLINE:.0f} s"
    says = said([*ended.stderr.strip().splitlines(), *ended.stdout.strip().splitlines()])
    word = "CANNOT TELL"
    if ended.returncode == AT_FAULT and says.startswith(MARK):
        word = "STILL THERE"
    elif ended.returncode == RIGHT:
        word = "GONE"
    return f"{word}: {says}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each finding; 1 where one is gone unexpectedly, or cannot be told."""
    parser = argparse.ArgumentParser(prog="nox -s findings --")
    parser.add_argument("names", nargs="*", help="bundles to look at (default: all)")
    options = parser.parse_args(arguments)
    found = [one for one in scripts() if not options.names or one.name in options.names]
    words = []
    with tempfile.TemporaryDirectory(prefix="rankproof-findings-") as text:
        place = Path(text)
        latest: dict[str, str] = {}
        for one in found:
            if one.library in TOO_LARGE:
                word = f"SKIPPED: another release of {one.library} is too large to download here"
            else:
                try:
                    if one.library not in latest:
                        latest[one.library] = newest(one.library, place / "empty")
                    version = latest[one.library]
                    if order(version) <= order(one.version):
                        word = f"SKIPPED: {one.library} {one.version} is the newest release"
                    else:
                        word = f"{again(one, version, place)} ({one.library} {version})"
                        if one.right is not None and word.startswith("GONE"):
                            word = f"MENDED, as required: {word}"
                except EnvironmentProblem as problem:
                    word = f"CANNOT TELL: {problem}"
            words.append(word)
            print(f"{one.name}: {word}", flush=True)
    return int(any(word.startswith(("GONE", "CANNOT TELL")) for word in words))


if __name__ == "__main__":
    sys.exit(main())
