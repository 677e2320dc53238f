"""The signed report in docs/sample: made with a key that is thrown away, and checked (`nox -s
sample`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.reproduce.bundle import LeakNeedles
from harness.world.control import names

PROJECT = Path(__file__).resolve().parents[2]
SAMPLE = PROJECT / "docs" / "sample"
SCENARIO = "late-rank"
# Nine clean trials bound the failure rate by 28 %: with more of them the evidence would be too much
# to keep here.
FEWER = (
    "--set",
    "trials.candidate=9",
    "--set",
    "trials.control=3",
    "--set",
    "trials.accept.failure_rate_below=30%",
)
SIGNER = "sample@example.org"
MOST_BYTES = 300_000
# What looks like a folder of some machine; the report itself speaks of `/tmp/name`.
FOLDER = re.compile(
    rb"(?<![\w./])/(?:home|Users|root|tmp|private|var|work|opt|mnt|srv|builds?)/(?!name\b)[\w.-]+"
)
MAKE = "make it again: nox -s sample"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the sample, or with `--check` say whether the one that lies there verifies; 0, or 1 with
    what is wrong.
    """
    parser = argparse.ArgumentParser(prog="nox -s sample --")
    parser.add_argument(
        "--check", action="store_true", help="make nothing: check what lies in docs/sample"
    )
    if not parser.parse_args(arguments).check and (wrong := make(SAMPLE)):
        print(wrong, file=sys.stderr)
        return 1
    problems = list(check(SAMPLE))
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        size = sum(file.stat().st_size for file in SAMPLE.rglob("*") if file.is_file())
        print(
            f"{os.path.relpath(SAMPLE / SCENARIO)}: verified, {size} bytes, names no machine and"
            " nobody"
        )
    return 1 if problems else 0


def make(place: Path) -> str:
    """Run the scenario and put its report into the place; why not, or nothing."""
    with tempfile.TemporaryDirectory(prefix="rankproof-sample-") as text:
        temporary = Path(text)
        key = temporary / "key"
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)]
        subprocess.run(keygen, check=True, stdin=subprocess.DEVNULL)
        # Nobody's remote: where this clone was taken from is not what the sample is about.
        config = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "remote.origin.url",
            "GIT_CONFIG_VALUE_0": "",
        }
        results = temporary / "results"
        command = [
            sys.executable,
            "-m",
            "harness.cli",
            "run",
            f"scenarios/{SCENARIO}",
            *FEWER,
            "--jobs",
            "1",
        ]
        done = subprocess.run(
            [*command, "--key", str(key), "--results", str(results)],
            cwd=PROJECT,
            env={**os.environ, **config, "HOME": str(temporary)},
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            return (
                f"scenarios/{SCENARIO} did not PASS: nothing was changed in"
                f" {os.path.relpath(place)}"
            )
        run = (results / "latest").resolve()
        if json.loads((run / "evidence" / "run.json").read_text())["source"]["dirty"]:
            return (
                "a sample is made of a commit: commit or stash what was changed, and run this again"
            )
        shutil.rmtree(place / SCENARIO, ignore_errors=True)
        shutil.copytree(run, place / SCENARIO)
        public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
        line = f'{SIGNER} namespaces="report@rankproof,attestation@rankproof" {public}\n'
        (place / "allowed_signers").write_text(
            f"# The key of this sample; its private half was thrown away.\n{line}"
        )
    return ""


def check(place: Path) -> Iterator[str]:
    """What is wrong with a sample: it does not verify, is too large, or names a machine or
    somebody.
    """
    report = place / SCENARIO / "report.md"
    command = [sys.executable, "-m", "harness.cli", "verify", str(report)]
    done = subprocess.run(
        [*command, "--allowed-signers", str(place / "allowed_signers")],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        yield f"{done.stdout}{done.stderr}{os.path.relpath(report)} is not verified: {MAKE}"
    files = sorted(file for file in place.rglob("*") if file.is_file())
    size = sum(file.stat().st_size for file in files)
    if size > MOST_BYTES:
        largest = max(files, key=lambda file: file.stat().st_size, default=place)
        yield (
            f"{size} bytes, at most {MOST_BYTES} belong into the repository; the largest is"
            f" {largest.name}"
        )
    needles = LeakNeedles(environ={})
    here = [
        re.compile(names.folder_of(str(one)).encode())
        for one in {PROJECT, Path.cwd(), Path(sys.prefix)}
    ]
    for file in files:
        name, data = file.relative_to(place).as_posix(), file.read_bytes()
        for leak in needles.look(name, data):
            yield f"{name}:{leak.line}: {leak.what}"
        for pattern in (FOLDER, *here):
            if found := pattern.search(data):
                yield f"{name}: names the folder {found[0].decode(errors='replace')}"


if __name__ == "__main__":
    sys.exit(main())
