"""The passes of one reproduction: with the report's seeds, with fresh ones, with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.forms.digest import sha256
from harness.record import environment
from harness.record.facts import ChangeFacts
from harness.record.reproduced import SEEDS, Here, is_shown, override
from harness.reproduce.rerun import Prepared, another
from harness.reproduce.source import SourceError
from harness.reproduce.vary import WALKED, Change, Walk, Word, walk, word
from harness.run.plan import RunSettings
from harness.run.progress import Progress
from harness.run.run import Finished, Interrupted, RunError, run
from harness.scenario import Scenario
from harness.stats.profile import CellProfile, profile
from harness.stats.reproduction import ORDER, Answer, reproduction
from harness.trust.key import Signer

Seeds = Literal["THE SEEDS DECIDE", "NO SIGN THAT THE SEEDS DECIDE", "CANNOT TELL WHETHER THE SEEDS DECIDE"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a change.

    Attributes:
        word: what it did.
        answer: of its run to the first run; empty without a run.
        report: of its run.
        why: why it has no run; empty where there is one, or where somebody broke in before.
    """

    change: Change
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
        """The pass that is asked for first.

        Raises:
            Interrupted, RunError: it could not be made; the other passes raise them too.
        """
        return self._run(self.prepared, jobs=self.jobs)

    def fresh(self, first: Finished, *, root: str) -> Finished:
        """A second pass, with seeds that are derived from another root."""
        change = ChangeFacts(what=SEEDS, before=self.prepared.loaded.scenario.seed, after=root, beside=_digest(first))
        return self._run(another(self.prepared, change, [override(SEEDS, root)]), jobs=self.jobs)

    def walk(self, first: Finished | None = None) -> Walk:
        """The changes that can be made one by one; before the first pass, those that are to be expected."""
        scenario = self.prepared.loaded.scenario
        if first is not None:
            start, jobs = first.record.run.start, first.record.run.jobs
        else:
            start, jobs = self.prepared.start, 1 if scenario.measure or scenario.hub else self.jobs
        here = Here(environment=environment.capture(), start=start, jobs=jobs)
        return walk(scenario, self.prepared.reproduced, here)

    def vary(self, first: Finished, changes: Iterable[Change]) -> Iterator[Outcome]:
        """A pass for each change, as far as it can be made.

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
                yield Outcome(change=change, word="could not run", why=str(error))

    def _changed(self, first: Finished, change: Change, *, tests: int) -> Outcome:
        facts = ChangeFacts(what=change.what, before=change.before, after=change.after, beside=_digest(first))
        with change.in_force():
            prepared = another(self.prepared, facts, change.overrides)
            finished = self._run(prepared, jobs=change.jobs or first.record.run.jobs)
        against = between(self.prepared.loaded.scenario, first, finished, tests=tests)
        what = word(shown=is_shown(facts, finished.record.run), answer=answer(finished), against=against)
        return Outcome(change=change, word=what, answer=answer(finished), report=finished.report)

    def _run(self, prepared: Prepared, *, jobs: int) -> Finished:
        return run(
            prepared.loaded,
            RunSettings(results=self.results, signer=self.signer, jobs=jobs),
            material=prepared.material,
            progress=self.progress(),
        )


def answer(finished: Finished) -> Answer:
    """The answer of a pass to the report that it reproduces."""
    assert finished.record.comparison is not None
    return finished.record.comparison.result.answer


def why_not_varied(answer: Answer) -> str:
    """Why nothing is varied after an answer; empty where something is."""
    if answer in WALKED:
        return ""
    return "nothing is to be explained" if answer == "REPRODUCED" else "nothing is excluded yet"


def between(scenario: Scenario, one: Finished, other: Finished, *, tests: int = 1) -> Answer:
    """Whether one pass of a reproduction reproduces another, by the rules for any two runs.

    `tests` is how many such comparisons are made; they share the level.
    """
    return reproduction(scenario, _cells(scenario, one), _cells(scenario, other), tests=tests).answer


def seeds_word(answer: Answer) -> Seeds:
    """Whether the verdict hangs on the seeds, from how the two passes compare."""
    if answer == "REPRODUCED":
        return "NO SIGN THAT THE SEEDS DECIDE"
    return "CANNOT TELL WHETHER THE SEEDS DECIDE" if answer == "CANNOT TELL" else "THE SEEDS DECIDE"


def joint(answers: Iterable[Answer]) -> Answer:
    """The answer of several passes together: what refutes goes before what cannot tell, that before REPRODUCED."""
    return min(answers, key=ORDER.index)


def _digest(finished: Finished) -> str:
    return f"sha256:{sha256(finished.report.read_bytes())}"


def _cells(scenario: Scenario, finished: Finished) -> list[CellProfile]:
    return profile(scenario, finished.record.judgement.cells, read=lambda name: (finished.folder / name).read_bytes())
