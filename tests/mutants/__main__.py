"""Put one slip after the other into the judging code and count which ones the tests see: `nox -s
mutants`.

A mutant is killed by a test that fails, or that does not end; the same test has to pass without the
change, before all mutants and after them. The tests of a mutant are those that reach its line; a
line that no test reaches leaves its mutants alive. What stays alive is named, and is either a test
to write or a line of `equivalents.txt` with the reason why no input tells the two apart.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutants.mutation import Mutant, mutants, paths
from tests.mutants.trial import (
    HEAVY,
    LONGEST,
    PATIENCE,
    ROOT,
    Collected,
    Order,
    Session,
    imported,
    is_in_functions,
    sessions,
)

EQUIVALENTS = Path(__file__).with_name("equivalents.txt")
MODULES = [
    "harness/stats/tally.py",
    "harness/stats/verdict.py",
    "harness/stats/arm_code.py",
    "harness/stats/cell_keepers.py",
    "harness/stats/hang.py",
    "harness/stats/teeth.py",
    "harness/stats/provenance.py",
    "harness/stats/counterparts.py",
    "harness/stats/ends.py",
    "harness/stats/stated.py",
    "harness/world/control/hang.py",
    "harness/world/control/stillness.py",
    "harness/world/control/waits.py",
    "harness/world/control/doubts.py",
    "harness/faults/proof.py",
    "harness/gate/rules.py",
    "harness/trust",
]
# The longest first, because several run at a time.
TESTS = [
    "tests/world",
    "tests/faults",
    "tests/gate",
    "tests/trust",
    "tests/stats",
    "tests/record",
    "tests/checks",
]
MOST_ALIVE = 0.05
MOST_EQUIVALENT = 0.03
# Of the tests that reach a line, first those of the module's room, then the quickest: so many, and
# so many seconds of them.
MOST_TESTS = 200
MOST_SECONDS = LONGEST / 3

Lines = Mapping[str, Mapping[str, Sequence[int]]]


@dataclass(frozen=True)
class Reached:
    """Which tests reach which lines.

    Attributes:
        lines: test to file to the lines of it, the quickest test first.
        seconds: how long each test takes.
    """

    lines: Lines
    seconds: Mapping[str, float]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant's line; of a constant of the module, its whole module."""
        file = str(ROOT / mutant.path)
        chosen: list[str] = []
        left = MOST_SECONDS
        room = f"tests/{Path(mutant.path).parts[1]}/"
        # The sort is stable: within a room the quickest stay first.
        for name, lines in sorted(
            self.lines.items(), key=lambda test: not test[0].startswith(room)
        ):
            there = lines.get(file, ())
            if mutant.line in there or (mutant.name == "module" and there):
                left -= self.seconds[name]
                if chosen and (left < 0 or len(chosen) == MOST_TESTS):
                    break
                chosen.append(name)
        return chosen


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        word: `killed`; `alive`; `unreached`, where no test comes by; `unsure`, where its tests do
            not pass without the change either.
        why: the test that killed it, or how the session ended that no test did.
    """

    mutant: Mutant
    word: str
    why: str = ""


def reached(modules: Sequence[Path], tests: Sequence[str], *, jobs: int) -> Reached:
    """Of each test that passes, which lines of the modules it reaches.

    Raises:
        SystemExit: the tests do not run.
    """
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda room: _reached(modules, room), tests))
    lines = {name: own for one in found for name, own in one["lines"].items()}
    seconds = {name: took for one in found for name, took in one["seconds"].items()}
    for name in sorted(lines.keys() - seconds.keys()):
        print(f"does not pass, or is skipped, and kills nothing: {name}", flush=True)
    quickest_first = sorted(lines.keys() & seconds.keys(), key=lambda name: (seconds[name], name))
    return Reached({name: lines[name] for name in quickest_first}, seconds)


def _reached(modules: Sequence[Path], room: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "coverage.json"
        files = json.dumps([str(path) for path in modules])
        command = [sys.executable, "-m", "tests.mutants.coverage", str(out), files]
        done = subprocess.run(
            [*command, "-m", "not whole", room],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if not out.exists():
            said = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            raise SystemExit(f"the tests of {room} do not run:\n{said}")
        found: dict[str, Any] = json.loads(out.read_text())
        return found


@cache
def unchanged(path: str) -> Mutant:
    """A module without a change, written as its mutants are: without its comments and line ends."""
    source = ast.unparse(ast.parse((ROOT / path).read_bytes()))
    return Mutant(
        path=path,
        name="module",
        line=1,
        before="the module",
        after="the same",
        number=1,
        source=source,
    )


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where mutants are tried.

    Attributes:
        found: which tests reach what.
        perform: runs one session.
        jobs: how many run at a time.
    """

    found: Reached
    perform: Callable[[Order, Path], dict[str, object]]
    jobs: int

    def control(self, path: str, tests: Collection[str]) -> set[str]:
        """Run tests on a module as it is, in the way that mutants run.

        Returns:
            Those that do not pass: they kill no mutant of it.

        Raises:
            SystemExit: a session without a change does not end, or does not use the module.
        """
        ordered = sorted(tests)
        parts = [ordered[at : at + MOST_TESTS] for at in range(0, len(ordered), MOST_TESTS)]
        orders = [Order(unchanged(path), part, longest=PATIENCE, stops=False) for part in parts]
        bad: set[str] = set()
        for one in sessions(orders, self.perform, jobs=self.jobs):
            if not one.is_plain or not one.is_loaded:
                raise SystemExit(
                    f"{path} without a change: the tests end with {one.code} after "
                    f"{one.seconds:.0f} s, so no mutant of it can be judged"
                )
            bad |= set(one.tests) - set(one.passed) | set(one.failed)
        return bad

    def run(self, path: str, chosen: Sequence[Mutant]) -> list[Outcome]:
        """What becomes of each mutant of one module."""
        begun = time.monotonic()
        tests = {mutant.key: self.found.tests_of(mutant) for mutant in chosen}
        used = {name for names in tests.values() for name in names}
        bad = self.control(path, used)
        took = time.monotonic() - begun
        passed = len(used) - len(bad)
        print(
            f"{path}: {passed} of {len(used)} tests pass without a change, {took:.0f} s", flush=True
        )
        for name in sorted(bad):
            print(f"fails on {path} without a change, and kills none of its mutants: {name}")
        left = {key: [name for name in names if name not in bad] for key, names in tests.items()}
        kills: Counter[str] = Counter()

        def orders() -> Iterator[Order]:
            for mutant in chosen:
                if names := left[mutant.key]:
                    # What has killed before comes first, then the quickest: most mutants die young.
                    yield Order(mutant, sorted(names, key=lambda name: -kills[name]))

        def hear(one: Session) -> None:
            kills.update(one.failed[:1])
            word = _outcome(one).word
            print(
                f"{word:9} {one.seconds:5.1f} s ({one.cpu:.1f} s CPU)  {one.mutant.key}", flush=True
            )

        ended = sessions(orders(), self.perform, jobs=self.jobs, heard=hear)
        unreached = [Outcome(mutant, "unreached") for mutant in chosen if not left[mutant.key]]
        return [*unreached, *self._without_accidents(path, ended)]

    def _without_accidents(self, path: str, ended: Sequence[Session]) -> Iterator[Outcome]:
        """Try what killed once more, without the change; what does not pass there killed nobody."""
        odd = [one for one in ended if not one.is_plain]
        same = unchanged(path)
        again = [Order(replace(same, number=number), one.tests) for number, one in enumerate(odd)]
        accidents = {
            odd[one.mutant.number].mutant.key
            for one in sessions(again, self.perform, jobs=self.jobs)
            if one.code != 0
        }
        bad = self.control(path, {one.failed[0] for one in ended if one.is_plain and one.failed})
        for one in ended:
            outcome = _outcome(one)
            is_accident = one.mutant.key in accidents or outcome.why in bad
            yield replace(outcome, word="unsure") if is_accident else outcome


def run(
    chosen: Sequence[Mutant], found: Reached, rooms: Sequence[str], *, jobs: int
) -> list[Outcome]:
    """What becomes of each mutant, module by module."""
    outcomes: list[Outcome] = []
    once: dict[str, list[Mutant]] = {}
    often: dict[str, list[Mutant]] = {}
    for mutant in chosen:
        is_quick = is_in_functions(mutant, unchanged(mutant.path))
        (often if is_quick else once).setdefault(mutant.path, []).append(mutant)
    for name in HEAVY:
        importlib.import_module(name)
    # First what needs a process that has imported nothing of ours yet.
    bench = Bench(found=found, perform=imported, jobs=jobs)
    for path, own in once.items():
        outcomes += bench.run(path, own)

    def work(collected: Collected) -> None:
        bench = Bench(found=found, perform=collected.perform, jobs=jobs)
        for path, own in often.items():
            outcomes.extend(bench.run(path, own))

    Collected(work).collect(rooms)
    return outcomes


def _outcome(one: Session) -> Outcome:
    """What a session shows, if its tests pass without the change."""
    if one.is_plain and not one.is_loaded:
        return Outcome(one.mutant, "unreached")
    if one.is_plain:
        return (
            Outcome(one.mutant, "killed", one.failed[0])
            if one.failed
            else Outcome(one.mutant, "alive")
        )
    how = "it does not end" if one.is_over else f"the session ends with {one.code}"
    return Outcome(one.mutant, "killed", how)


def equivalents() -> dict[str, str]:
    """The mutants that no input tells from the code, each with the reason."""
    found = {}
    for line in EQUIVALENTS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            key, _, reason = line.partition("  # ")
            if not reason:
                raise SystemExit(
                    f"{EQUIVALENTS.name}: {line!r} has no reason; end the line with '  # why'"
                )
            found[key] = reason
    return found


def main() -> int:
    """Make the mutants, run them, and name those that live."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument(
        "modules", nargs="*", default=MODULES, help="files or folders (default: what judges)"
    )
    parser.add_argument(
        "--count", type=int, help="so many mutants, chosen by the seed (default: all)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the choice (default: 1)")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="tests that may kill")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    begun = time.monotonic()
    files = list(paths(ROOT, chosen.modules))
    every = [mutant for path in files for mutant in mutants(path, root=ROOT)]
    known = equivalents()
    known = {
        key: why
        for key, why in known.items()
        if any(key.startswith(path) for path in chosen.modules)
    }
    if gone := known.keys() - {mutant.key for mutant in every}:
        raise SystemExit(
            f"{EQUIVALENTS.name} names what is no mutant: {min(gone)}; remove the line"
        )
    tried = [mutant for mutant in every if mutant.key not in known]
    if chosen.count is not None and chosen.count < len(tried):
        tried = random.Random(chosen.seed).sample(tried, chosen.count)
    print(
        f"{len(every)} mutants, {len(known)} of them equivalent, {len(tried)} are tried", flush=True
    )
    found = reached(files, chosen.tests, jobs=chosen.jobs)
    print(f"{len(found.lines)} tests pass, {time.monotonic() - begun:.0f} s", flush=True)
    outcomes = run(tried, found, chosen.tests, jobs=chosen.jobs)
    alive = [one for one in outcomes if one.word != "killed"]
    print(f"\n{len(alive)} of {len(outcomes)} mutants live:")
    for one in sorted(alive, key=lambda one: one.mutant.key):
        print(f"  {one.word:9} line {one.mutant.line:4}  {one.mutant.key}")
    hows = Counter(
        one.why if "::" not in one.why else "a test" for one in outcomes if one.word == "killed"
    )
    print(f"killed by: {', '.join(f'{how} ({count})' for how, count in hows.most_common())}")
    share = len(alive) / max(1, len(outcomes))
    print(
        f"{share:.1%} live, at most {MOST_ALIVE:.0%} may; {len(known)} of {len(every)} are called"
        " equivalent"
    )
    print(f"{(time.monotonic() - begun) / 60:.0f} minutes")
    if len(known) > MOST_EQUIVALENT * len(every):
        print(f"more than {MOST_EQUIVALENT:.0%} are called equivalent: write tests instead")
        return 1
    return int(share > MOST_ALIVE)


if __name__ == "__main__":
    sys.exit(main())
