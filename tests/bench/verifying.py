"""How long verify and gate take for a report with a thousand evidence files, as a user waits for
them.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CANDIDATE, CONTROL = 900, 95
SCENARIO = """
schema: 1
id: thousand
title: A thousand trials
question: Do the ranks say yes?
subject:
  path: ../../engine
  program: [sh, rank.sh, "{word}"]
  candidate: {with: {word: "yes"}}
  control:
    with: {word: "no"}
    must_fail: {check: said, ranks: every}
matrix: {ranks: [2]}
world: {deadline: 20s}
seed: "7"
checks:
  - {id: said, kind: equal, ranks: every, value: said.word, to: "yes"}
  - {id: ended, kind: exit, ranks: every, code: 0}
  - {id: nobody-left, kind: no-survivors}
"""
RANK = """echo '{"event": "ready"}' >&3; read -r answer <&4
echo "{\\"event\\": \\"said\\", \\"values\\": {\\"word\\": \\"$1\\"}}" >&3
"""
POLICY = """
schema: 1
signers: {roles: {ci: [ci]}}
programs: allowed
require: [{scenario: thousand}]
"""
PERSON = (
    "-c",
    "user.name=bench",
    "-c",
    "user.email=bench@example.org",
    "-c",
    "commit.gpgsign=false",
)


def make(folder: Path, *, candidate: int, control: int) -> tuple[Path, int]:
    """Make a repository with a policy, and run its scenario.

    Returns it and how many files the report has.
    """
    repo = folder / "repo"
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    for name, text in {
        ".gitignore": "/results/\n",
        ".rankproof/policy.yaml": POLICY,
        ".rankproof/allowed_signers": f'ci namespaces="report@rankproof" {public}\n',
        "scenarios/thousand/scenario.yaml": (
            SCENARIO + f"trials: {{candidate: {candidate}, control: {control}}}\n"
        ),
        "engine/rank.sh": RANK,
    }.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text)
    for arguments in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-qm", "x"],
        ["update-ref", "refs/remotes/origin/main"],
    ):
        head = ["HEAD"] if arguments[0] == "update-ref" else []
        subprocess.run(["git", *PERSON, "-C", str(repo), *arguments, *head], check=True)
    _call(repo, ["run", "scenarios/thousand", "--key", str(key)], environment(folder))
    report = next((repo / "results/thousand").glob("*/MANIFEST.sha256"))
    return repo, report.read_bytes().count(b"\n")


def environment(folder: Path) -> dict[str, str]:
    """This process's environment, with bytecode that is kept: users do not compile every time."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    root = str(Path(__file__).parents[2])
    return kept | {"PYTHONPATH": root, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def measure(
    folder: Path, *, rounds: int, candidate: int = CANDIDATE, control: int = CONTROL
) -> dict[str, Any]:
    """Processor and wall seconds of each command, children included: minimum, median, maximum over
    the rounds.
    """
    repo, files = make(folder, candidate=candidate, control=control)
    report = next((repo / "results/thousand").glob("*/report.md")).relative_to(repo)
    signers = ["--allowed-signers", ".rankproof/allowed_signers"]
    commands = {"verify": ["verify", str(report), *signers], "gate": ["gate", "results"]}
    env = environment(folder)
    for arguments in commands.values():
        _call(repo, arguments, env)
    found: dict[str, Any] = {"files": files}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, arguments in commands.items():
            taken[name].append(_call(repo, arguments, env))
    for name, times in taken.items():
        for what, seconds in zip(("processor", "wall"), zip(*times, strict=True), strict=True):
            found[f"{name}_{what}_seconds"] = [
                min(seconds),
                statistics.median(seconds),
                max(seconds),
            ]
    return found


def show(found: Mapping[str, Any]) -> None:
    """Print the same for people."""
    print(f"a report with {found['files']} files, from the command line to the answer")
    for name in ("verify", "gate"):
        for what in ("processor", "wall"):
            low, middle, high = found[f"{name}_{what}_seconds"]
            print(f"  {name + ', ' + what:<18} {middle:.3f} s (median; {low:.3f} to {high:.3f})")


def _call(repo: Path, arguments: Sequence[str], env: Mapping[str, str]) -> tuple[float, float]:
    return spent([sys.executable, "-m", "harness.cli", *arguments], cwd=repo, env=env)


def spent(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> tuple[float, float]:
    """Processor seconds of a command with its children, and wall seconds."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}"
        )
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall
