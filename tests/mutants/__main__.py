"""Put one slip after the other into the judging code and count which ones the tests see: `nox -s mutants`.

A mutant is killed by a test that fails, or that does not end. The tests of a mutant are those that reach its line; a
line that no test reaches leaves its mutants alive. What stays alive is named, and is either a test to write or a line
of `equivalents.txt` with the reason why no input tells the two apart.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.util
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutants.mutation import Mutant, mutants, paths

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENTS = Path(__file__).with_name("equivalents.txt")
MODULES = [
    "harness/stats/tally.py",
    "harness/stats/verdict.py",
    "harness/stats/hang.py",
    "harness/stats/provenance.py",
    "harness/stats/ends.py",
    "harness/stats/stated.py",
    "harness/world/stillness.py",
    "harness/faults/proof.py",
    "harness/gate/rules.py",
    "harness/trust",
]
TESTS = ["tests/stats", "tests/trust", "tests/gate", "tests/record", "tests/faults", "tests/world", "tests/checks"]
MOST_ALIVE = 0.05
MOST_EQUIVALENT = 0.03
LONGEST = 60.0
MOST_TESTS = 200
# Imported before the forks, because each mutant would pay for it again; nothing of ours is, or it could not be mutated,
# and not hypothesis, whose asserts pytest rewrites when it imports it.
HEAVY = ("pydantic", "yaml", "numpy", "xxhash", "filelock", "psutil", "scipy.stats", "xml.dom.minidom")


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from the source of a mutant."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = mutant.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Find the mutated module, and no other."""
        del path, target
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, ROOT / self._mutant.path, loader=self)

    def create_module(self, spec: object) -> None:
        """Leave it to the import system."""

    def exec_module(self, module: object) -> None:
        """Run the mutant's source under the name of the file that it stands for."""
        code = compile(self._mutant.source, str(ROOT / self._mutant.path), "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - the mutant is made here, from a file of this repository


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `killed`, `alive` or `unreached`, by how many tests and in how many seconds."""

    mutant: Mutant
    word: str
    tests: int
    seconds: float


def reached(modules: Sequence[Path], tests: Sequence[str]) -> dict[str, dict[str, list[int]]]:
    """Of each test that passes, which lines of the modules it reaches.

    Raises:
        SystemExit: the tests do not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "coverage.json"
        command = [
            sys.executable,
            "-m",
            "tests.mutants.coverage",
            str(out),
            json.dumps([str(path) for path in modules]),
        ]
        done = subprocess.run(
            [*command, "-m", "not whole", *tests], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if not out.exists():
            raise SystemExit(f"the tests do not run:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        found = json.loads(out.read_text())
    seconds = found["seconds"]
    quickest_first = sorted((name for name in found["lines"] if name in seconds), key=lambda name: seconds[name])
    return {name: found["lines"][name] for name in quickest_first}


def tests_of(mutant: Mutant, lines: dict[str, dict[str, list[int]]]) -> list[str]:
    """The tests that reach a mutant's line, the quickest first; of a constant of the module, its whole module."""
    file = str(ROOT / mutant.path)
    if mutant.name == "module":
        return [name for name, own in lines.items() if file in own][:MOST_TESTS]
    return [name for name, own in lines.items() if mutant.line in own.get(file, ())][:MOST_TESTS]


def start(mutant: Mutant, tests: list[str]) -> int:
    """Run the tests with the mutant in a process of its own; its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        sys.meta_path.insert(0, Mutated(mutant))
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", *tests])
        os._exit(int(code))
    except BaseException:  # noqa: BLE001 - a mutant that cannot be imported ends here, and is killed
        os._exit(99)


def control(files: Sequence[Path], lines: dict[str, dict[str, list[int]]], *, jobs: int) -> None:
    """Run every module as it is, in the way that mutants run: where that is killed, no death shows anything.

    Raises:
        SystemExit: a module without a change does not live.
    """
    same = [
        Mutant(
            path=path.relative_to(ROOT).as_posix(),
            name="module",
            line=1,
            before="the module",
            after="the same",
            number=1,
            source=path.read_text(encoding="utf-8"),
        )
        for path in files
    ]
    for one in run(same, lines, jobs=jobs):
        if one.word == "killed":
            raise SystemExit(f"{one.mutant.path} without a change fails its tests: no mutant of it can be judged")


def run(chosen: Sequence[Mutant], lines: dict[str, dict[str, list[int]]], *, jobs: int) -> list[Outcome]:
    """What becomes of each mutant, several at a time."""
    for name in HEAVY:
        importlib.import_module(name)
    outcomes: list[Outcome] = []
    running: dict[int, tuple[int, Mutant, int, float]] = {}
    left = list(reversed(chosen))
    while left or running:
        while left and len(running) < jobs:
            mutant = left.pop()
            tests = tests_of(mutant, lines)
            if not tests:
                outcomes.append(Outcome(mutant, "unreached", 0, 0.0))
                continue
            pid = start(mutant, tests)
            running[os.pidfd_open(pid)] = (pid, mutant, len(tests), time.monotonic())
        ended, _, _ = select.select(list(running), [], [], 1.0)
        for descriptor in list(running):
            pid, mutant, count, begun = running[descriptor]
            took = time.monotonic() - begun
            if descriptor not in ended and took < LONGEST:
                continue
            if descriptor not in ended:
                os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            os.close(descriptor)
            del running[descriptor]
            word = "alive" if status == 0 else "killed"
            outcomes.append(Outcome(mutant, word, count, took))
            print(f"{word:9} {took:5.1f} s  {mutant.key}", flush=True)
    return outcomes


def equivalents() -> dict[str, str]:
    """The mutants that no input tells from the code, each with the reason."""
    found = {}
    for line in EQUIVALENTS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            key, _, reason = line.partition("  # ")
            if not reason:
                raise SystemExit(f"{EQUIVALENTS.name}: {line!r} has no reason; end the line with '  # why'")
            found[key] = reason
    return found


def main() -> int:
    """Make the mutants, run them, and name those that live."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", default=MODULES, help="files or folders (default: what judges)")
    parser.add_argument("--count", type=int, help="so many mutants, chosen by the seed (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="of the choice (default: 1)")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="tests that may kill")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    files = list(paths(ROOT, chosen.modules))
    every = [mutant for path in files for mutant in mutants(path, root=ROOT)]
    known = equivalents()
    known = {key: why for key, why in known.items() if any(key.startswith(path) for path in chosen.modules)}
    if gone := known.keys() - {mutant.key for mutant in every}:
        raise SystemExit(f"{EQUIVALENTS.name} names what is no mutant: {min(gone)}; remove the line")
    tried = [mutant for mutant in every if mutant.key not in known]
    if chosen.count is not None and chosen.count < len(tried):
        tried = random.Random(chosen.seed).sample(tried, chosen.count)
    print(f"{len(every)} mutants, {len(known)} of them equivalent, {len(tried)} are tried", flush=True)
    lines = reached(files, chosen.tests)
    control(files, lines, jobs=chosen.jobs)
    outcomes = run(tried, lines, jobs=chosen.jobs)
    alive = [one for one in outcomes if one.word != "killed"]
    print(f"\n{len(alive)} of {len(outcomes)} mutants live:")
    for one in sorted(alive, key=lambda one: one.mutant.key):
        print(f"  {one.word:9} line {one.mutant.line:4}  {one.mutant.key}")
    share = len(alive) / max(1, len(outcomes))
    print(f"{share:.1%} live, at most {MOST_ALIVE:.0%} may; {len(known)} of {len(every)} are called equivalent")
    if len(known) > MOST_EQUIVALENT * len(every):
        print(f"more than {MOST_EQUIVALENT:.0%} are called equivalent: write tests instead")
        return 1
    return int(share > MOST_ALIVE)


if __name__ == "__main__":
    sys.exit(main())
