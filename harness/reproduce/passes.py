"""The passes of one reproduction: with the report's seeds, with fresh ones, with one thing changed
at a time.

Which one difference makes a run end otherwise than the first? One change at a time is made, as
reprotest does for builds, of two kinds. What differs between the machines and is known to matter
gets the first run's value. What both runs had alike (threads, start, worlds at a time) gets another
one, because it decides how ranks meet in time. What cannot be changed here is named with the
reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.forms.digest import sha256
from harness.record import environment
from harness.record.facts import ChangeFacts, EnvironmentFacts
from harness.record.reproduced import (
    AFFINITY,
    JOBS,
    SEEDS,
    SETTING,
    START,
    VARIABLE,
    Here,
    ReproducedRun,
    SettingDifference,
    differences,
    is_shown,
    override,
)
from harness.reproduce.rerun import Prepared, another
from harness.reproduce.source import SourceError
from harness.run.plan import RunSettings
from harness.run.progress import Progress
from harness.run.run import Finished, Interrupted, RunError, run
from harness.scenario import Scenario
from harness.stats.profile import CellProfile, profile
from harness.stats.reproduction import ORDER, Answer, reproduction
from harness.trust.key import Signer
from harness.world.control.pool import is_linux
from harness.world.control.rank_environment import DEFAULTS, INHERITED

THREADS = f"{SETTING}OMP_NUM_THREADS"
# More worlds than this for each core measure the crowd.
WORLDS_PER_CORE = 4

Word = Literal[
    "flips it", "may flip it", "does not flip it", "cannot tell", "took no effect", "could not run"
]
# The answers that something here may explain. Where the counts exclude nothing, nothing needs an
# explanation yet.
WALKED: tuple[Answer, ...] = ("NOT REPRODUCED", "SAME VERDICT, DIFFERENT FAILURE")

OTHER_INTERPRETER = (
    "changing the interpreter changes every package; start rankproof with that interpreter"
)
OTHER_PACKAGES = (
    "an environment made for it would also change other packages; set it in the scenario"
    " (environment)"
)
CANNOT = {
    "nix": "enter that environment and reproduce in it",
    "python": OTHER_INTERPRETER,
    "implementation": OTHER_INTERPRETER,
    "system": "this machine has only one operating system",
    "machine": "this machine has only one kind of processor",
    "cpu": "this machine has only one kind of processor",
    "cores": "it belongs to the machine; the processors that may be used are varied as affinity",
    "gpu": "it needs the other run's GPU or driver",
    "memory": "it belongs to the machine",
    "variant": "it is installed, not set; enter that environment and reproduce in it",
    "lock_sha256": "it is installed, not set; enter that environment and reproduce in it",
    "rankproof": "another version of Rankproof also judges differently; reproduce with that"
    " version",
}


@dataclass(frozen=True, kw_only=True)
class OneChange:
    """One thing that is going to be changed.

    Attributes:
        what: as the record names it: `harness.record.facts.ChangeFacts`.
        before: its value in the pass beside it; None is a variable that is not there.
        after: the value it gets.
        why: where the new value comes from, in words.
        overrides: of the scenario.
        jobs: worlds at the same time, where that is what changes.
        variables: of this process, which ranks inherit; None takes one away.
        usable: how many of the usable processors stay usable.
    """

    what: str
    before: str | None
    after: str | None
    why: str
    overrides: tuple[str, ...] = ()
    jobs: int | None = None
    variables: dict[str, str | None] = field(default_factory=dict)
    usable: int | None = None

    @property
    def description(self) -> str:
        """In one line."""
        before, after = ("none" if value is None else value for value in (self.before, self.after))
        return f"{self.what}: {after} instead of {before} ({self.why})"

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Change this process, from which ranks inherit; the calling thread starts all of them."""
        kept = {name: os.environ.get(name) for name in self.variables}
        usable = os.sched_getaffinity(0) if self.usable is not None else set()
        try:
            _set(self.variables)
            # Of this thread alone, and so of the servers and ranks that it starts.
            if self.usable is not None:
                os.sched_setaffinity(0, sorted(usable)[: self.usable])
            yield
        finally:
            _set(kept)
            if usable:
                os.sched_setaffinity(0, usable)


@dataclass(frozen=True, kw_only=True)
class Left:
    """Difference that is not varied, and why."""

    what: str
    then: str
    now: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Walk:
    """What is going to be changed, one after the other, and what is not."""

    changes: Sequence[OneChange]
    left: Sequence[Left]
    rare: int


def walk(scenario: Scenario, reproduced: ReproducedRun, here: Here) -> Walk:
    """Find what can be changed in the scenario as it runs here, and what else differs from the
    first run.
    """
    changes: list[OneChange] = []
    left: list[Left] = []
    rare = 0
    for difference in differences(scenario.needs, reproduced, here):
        if difference.group == "rarely matters":
            rare += 1
            continue
        outcome = _towards(difference, scenario, reproduced, here.environment, jobs=here.jobs)
        if isinstance(outcome, OneChange):
            changes.append(outcome)
        else:
            left.append(
                Left(what=difference.what, then=difference.then, now=difference.now, reason=outcome)
            )
    differing = {change.what for change in changes} | {difference.what for difference in left}
    settings = _settings(scenario, here.environment, start=here.start, jobs=here.jobs)
    changes += [setting for setting in settings if setting.what not in differing]
    backends = scenario.matrix.axes["backend"]
    if len(backends) > 1:
        names = ", ".join(map(str, backends))
        left.append(
            Left(what="backend", then=names, now=names, reason="each is already a cell of the run")
        )
    return Walk(changes=changes, left=left, rare=rare)


def word(*, shown: bool, answer: Answer, against: Answer) -> Word:
    """Return what a change did.

    Args:
        shown: whether its run shows that it took effect.
        answer: of its run to the first run.
        against: of its run to the pass beside it, which differs in this one thing.
    """
    if not shown:
        return "took no effect"
    if answer == "REPRODUCED":
        return "flips it" if against in WALKED else "may flip it"
    return "cannot tell" if answer == "CANNOT TELL" else "does not flip it"


def _towards(
    difference: SettingDifference,
    scenario: Scenario,
    reproduced: ReproducedRun,
    here: EnvironmentFacts,
    *,
    jobs: int,
) -> OneChange | str:
    """Change that gives a difference the first run's value, or why there is none."""
    as_then = "as in the first run"
    if difference.what.startswith(VARIABLE):
        return _variable(difference.what.removeprefix(VARIABLE), scenario, reproduced, here)
    if difference.what == AFFINITY:
        wanted = reproduced.environment.affinity
        if not hasattr(os, "sched_setaffinity"):
            return "this system does not let a process choose its processors"
        if not 0 < wanted < here.affinity:
            return (
                "fewer processors can be used on this machine"
                if wanted > 0
                else "runs do not record it"
            )
        return OneChange(
            what=AFFINITY, before=difference.now, after=difference.then, why=as_then, usable=wanted
        )
    if difference.what == START:
        if reproduced.start == "warm":
            return "ranks cannot start warm on this machine, or not with this scenario"
        return OneChange(
            what=START,
            before=difference.now,
            after=difference.then,
            why=as_then,
            overrides=(override(START, difference.then),),
        )
    if difference.what == JOBS:
        if reproduced.jobs < 1:
            return "runs do not record it"
        if reproduced.jobs > WORLDS_PER_CORE * max(1, here.affinity):
            return (
                f"more than {WORLDS_PER_CORE} worlds for each usable processor would measure only"
                " the load"
            )
        return OneChange(
            what=JOBS, before=str(jobs), after=difference.then, why=as_then, jobs=reproduced.jobs
        )
    if difference.what.startswith("package "):
        return OTHER_PACKAGES
    return CANNOT.get(difference.what, "this machine cannot change it")


def _variable(
    name: str, scenario: Scenario, reproduced: ReproducedRun, here: EnvironmentFacts
) -> OneChange | str:
    if name in scenario.world.env:
        return f"the scenario sets it for its ranks, to {scenario.world.env[name]}"
    if name not in INHERITED:
        have = f"they have {DEFAULTS[name]}" if name in DEFAULTS else "they do not have it"
        return f"ranks do not inherit it: {have}"
    before = here.variables.get(name)
    after = reproduced.environment.variables.get(name)
    # A report that was trusted although it was refused may say anything.
    if after is not None and not (after.isascii() and after.isprintable()):
        return "its value in the run is not plain text"
    return OneChange(
        what=f"{VARIABLE}{name}",
        before=before,
        after=after,
        why="as in the first run",
        variables={name: after},
    )


def _settings(
    scenario: Scenario, here: EnvironmentFacts, *, start: str, jobs: int
) -> Iterator[OneChange]:
    """Yield what both runs had alike and decides how ranks meet in time."""
    alike = "it was the same in both runs"
    threads = scenario.world.env.get("OMP_NUM_THREADS", DEFAULTS["OMP_NUM_THREADS"])
    other = str(max(2, here.affinity)) if threads == "1" else "1"
    yield OneChange(
        what=THREADS, before=threads, after=other, why=alike, overrides=(override(THREADS, other),)
    )
    if start == "warm":
        yield OneChange(
            what=START,
            before="warm",
            after="fresh",
            why=alike,
            overrides=(override(START, "fresh"),),
        )
    elif scenario.world.start == "fresh" and scenario.subject.program is None and is_linux():
        yield OneChange(
            what=START,
            before="fresh",
            after="warm",
            why=alike,
            overrides=(override(START, "warm"),),
        )
    # What is measured side by side is each other, and a hub has one world at a time.
    if not scenario.measure and scenario.hub is None:
        worlds = 1 if jobs > 1 else 2
        yield OneChange(what=JOBS, before=str(jobs), after=str(worlds), why=alike, jobs=worlds)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# -- the passes of one reproduction, each a run with a signed report of its own --------------------


Seeds = Literal[
    "THE SEEDS DECIDE", "NO SIGN THAT THE SEEDS DECIDE", "CANNOT TELL WHETHER THE SEEDS DECIDE"
]


@dataclass(frozen=True, kw_only=True)
class ChangeOutcome:
    """What became of a change.

    Attributes:
        word: what it did.
        answer: of its run to the first run; empty without a run.
        report: of its run.
        why: why it has no run; empty where there is one, or where somebody broke in before.
    """

    change: OneChange
    word: Word | Literal["not run"]
    answer: Answer | Literal[""] = ""
    report: Path | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Makes the passes of a reproduction, each a run with a signed report of its own.

    Attributes:
        results: the folder of all results.
        signer: who signs their reports, or None.
        jobs: worlds at the same time.
        progress: makes what hears of one run.
    """

    prepared: Prepared
    results: Path
    signer: Signer | None
    jobs: int
    progress: Callable[[], Progress] = Progress

    def usual(self) -> Finished:
        """Pass that is asked for first.

        Raises:
            Interrupted, RunError: it could not be made; the other passes raise them too.
        """
        return self._run(self.prepared, jobs=self.jobs)

    def fresh(self, first: Finished, *, root: str) -> Finished:
        """Return a second pass, with seeds that are derived from another root."""
        change = ChangeFacts(
            what=SEEDS, before=self.prepared.loaded.scenario.seed, after=root, beside=_digest(first)
        )
        return self._run(another(self.prepared, change, [override(SEEDS, root)]), jobs=self.jobs)

    def walk(self, first: Finished | None = None) -> Walk:
        """Changes that can be made one by one.

        Before the first pass, those that are to be expected.
        """
        scenario = self.prepared.loaded.scenario
        if first is not None:
            start = first.record.run.start
            jobs = first.record.run.jobs
        else:
            start = self.prepared.start
            jobs = 1 if scenario.measure or scenario.hub else self.jobs
        here = Here(environment=environment.capture(), start=start, jobs=jobs)
        return walk(scenario, self.prepared.reproduced, here)

    def vary(self, first: Finished, changes: Iterable[OneChange]) -> Iterator[ChangeOutcome]:
        """Pass for each change, as far as it can be made.

        Raises:
            Interrupted: somebody broke in.
        """
        changes = list(changes)
        for change in changes:
            try:
                yield self._changed(first, change, tests=len(changes))
            except Interrupted:
                raise
            except (RunError, SourceError) as error:
                yield ChangeOutcome(change=change, word="could not run", why=str(error))

    def _changed(self, first: Finished, change: OneChange, *, tests: int) -> ChangeOutcome:
        facts = ChangeFacts(
            what=change.what, before=change.before, after=change.after, beside=_digest(first)
        )
        with change.in_force():
            prepared = another(self.prepared, facts, change.overrides)
            finished = self._run(prepared, jobs=change.jobs or first.record.run.jobs)
        against = between(self.prepared.loaded.scenario, first, finished, tests=tests)
        what = word(
            shown=is_shown(facts, finished.record.run), answer=answer(finished), against=against
        )
        return ChangeOutcome(
            change=change, word=what, answer=answer(finished), report=finished.report
        )

    def _run(self, prepared: Prepared, *, jobs: int) -> Finished:
        return run(
            prepared.loaded,
            RunSettings(results=self.results, signer=self.signer, jobs=jobs),
            material=prepared.material,
            progress=self.progress(),
        )


def answer(finished: Finished) -> Answer:
    """Answer of a pass to the report that it reproduces."""
    assert finished.record.comparison is not None
    return finished.record.comparison.result.answer


def why_not_varied(answer: Answer) -> str:
    """Why nothing is varied after an answer; empty where something is."""
    if answer in WALKED:
        return ""
    if answer == "REPRODUCED":
        return "there is nothing to explain"
    return "no difference in the results has been shown yet"


def between(scenario: Scenario, first: Finished, second: Finished, *, tests: int = 1) -> Answer:
    """Tell whether one pass of a reproduction reproduces another, by the rules for any two runs.

    `tests` is how many such comparisons are made; they share the level.
    """
    return reproduction(
        scenario, _cells(scenario, first), _cells(scenario, second), tests=tests
    ).answer


def seeds_word(answer: Answer) -> Seeds:
    """Tell whether the verdict hangs on the seeds, from how the two passes compare."""
    if answer == "REPRODUCED":
        return "NO SIGN THAT THE SEEDS DECIDE"
    return "CANNOT TELL WHETHER THE SEEDS DECIDE" if answer == "CANNOT TELL" else "THE SEEDS DECIDE"


def joint(answers: Iterable[Answer]) -> Answer:
    """Answer of several passes together: what refutes goes before what cannot tell, that before
    REPRODUCED.
    """
    return min(answers, key=ORDER.index)


def _digest(finished: Finished) -> str:
    return f"sha256:{sha256(finished.report.read_bytes())}"


def _cells(scenario: Scenario, finished: Finished) -> list[CellProfile]:
    return profile(
        scenario,
        finished.record.judgement.cells,
        read=lambda name: (finished.folder / name).read_bytes(),
    )
