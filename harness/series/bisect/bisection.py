"""A bisect as it is made: versions found, environments held, steps run and kept, and the answer."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from filelock import FileLock, Timeout

from harness.forms.text import plural
from harness.record.facts import installed
from harness.record.model import PATH, Record, RecordError
from harness.run.environments import cache
from harness.run.environments.make import MIB, EnvironmentPlan, amount, lay_empty, plan
from harness.run.environments.pip import (
    EnvironmentProblem,
    Interpreter,
    NoInterpreter,
    find_interpreter,
)
from harness.run.environments.releases import HeldEnvironment, Release, hold, order, releases
from harness.run.environments.supply import of_scenario
from harness.run.plan import RunSettings
from harness.run.progress import Progress
from harness.run.replay import RecordReplay
from harness.run.run import Interrupted, RunError, run
from harness.scenario import LoadedScenario, ScenarioError, load_scenario
from harness.scenario.environment import bare, listing, satisfies
from harness.series.bisect.aim import Aim, aim, identity
from harness.series.bisect.answer import answer
from harness.series.bisect.judged import Side, StepFacts, facts_of, word_of
from harness.series.bisect.record import BisectRecord, KeptStep
from harness.series.bisect.walk import Word, walk
from harness.trust import statement
from harness.trust.folder import verify_folder
from harness.trust.signers import SignerPolicy

FOLDER = "bisect"
LOCK = "bisect.lock"
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._, -]+\])?")
LIMIT = 330 * MIB
UNPACKED = 5.2
"""An environment's bytes for each byte of its wheels, compiled modules included.

Measured with mlx-lm 0.31.1: 38 wheels.
"""
TORCH = (
    "torch cannot be bisected, because an environment with torch takes about 1 GiB, and a bisect"
    f" keeps two of at most {LIMIT // MIB} MiB. Try single releases of torch in an arm's"
    " environment"
)


class BisectError(Exception):
    """A bisect that cannot begin; the message says what, where and what to do."""


@dataclass(frozen=True, kw_only=True)
class BisectQuestion:
    """What is asked.

    Attributes:
        path: of the scenario.
        package: as it was typed.
        between: two versions, in any order.
        overrides: of the scenario.
        every: whether every version is tried.
        limit: bytes that an environment may take.
    """

    path: Path
    package: str
    between: tuple[str, str]
    overrides: tuple[str, ...] = ()
    every: bool = False
    limit: int = LIMIT


@dataclass(frozen=True, kw_only=True)
class FinishedBisect:
    """What is known at the end. `exact` says that every version at the border was told."""

    record: BisectRecord
    folder: Path
    exact: bool


def bisect(
    question: BisectQuestion,
    settings: RunSettings,
    *,
    says: Callable[[str], None],
    progress: Callable[[], Progress] = Progress,
) -> FinishedBisect:
    """Find where the answer of a scenario changes.

    Args:
        question: what is asked.
        settings: of each run; `results` is the folder of all results.
        says: hears what is going to be done, in lines.
        progress: makes what hears of one run.

    Raises:
        ScenarioError, RevisionError, ArmError: the scenario cannot be bisected.
        BisectError: the package or a version cannot.
        EnvironmentProblem: pip cannot tell what there is.
        Interrupted: by Ctrl-C; the same command goes on from there.
    """
    loaded = load_scenario(question.path, overrides=question.overrides)
    if _PACKAGE.fullmatch(question.package) is None:
        raise BisectError(
            f"--package {question.package}: this is not the name of a package; use a name such as"
            " mlx-lm or mlx[cpu]"
        )
    if bare(question.package) == "torch":
        raise BisectError(TORCH)
    aimed = aim(loaded, question.package)
    common = identity(loaded, aimed.written)
    folder = settings.results / FOLDER / f"{loaded.scenario.id}-{common[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        base = find_interpreter(aimed.wanted.python)
        with (
            # Nobody waits: two processes never make one bisect.
            FileLock(folder / LOCK, timeout=0),
            tempfile.TemporaryDirectory(prefix="rankproof-bisect-") as text,
        ):
            lay_empty(Path(text, "environment"), base)
            making = Bisection(
                question=question,
                loaded=loaded,
                settings=settings,
                aim=aimed,
                folder=folder,
                base=base,
                python=Path(text, "environment", "bin", "python"),
                says=says,
                progress=progress,
            )
            return making.make(common)
    except NoInterpreter as error:
        raise BisectError(str(error)) from None
    except Timeout:
        raise BisectError(
            f"{folder} is in use by another process; wait for it to finish, then try again"
        ) from None


@dataclass(kw_only=True)
class Bisection:
    """One bisect while it is made.

    Attributes:
        python: interpreter of an empty environment, for which pip chooses.
        facts: what the run of each version shows.
    """

    question: BisectQuestion
    loaded: LoadedScenario
    settings: RunSettings
    aim: Aim
    folder: Path
    base: Interpreter
    python: Path
    says: Callable[[str], None]
    progress: Callable[[], Progress]
    facts: dict[str, StepFacts] = field(default_factory=dict)
    steps: dict[str, KeptStep] = field(default_factory=dict)
    versions: Sequence[str] = ()
    _own: EnvironmentPlan | None = None
    _known: BisectRecord | None = None
    _kept_keys: frozenset[str] = frozenset()

    def make(self, common: str) -> FinishedBisect:
        """Try versions until the border is known; `common` is the identity of all steps."""
        package = self.aim.package
        found = releases(self.python, package, base=self.base)
        self.versions, left_out = _between(package, found, self.question.between)
        self._own = plan(self.python, self.aim.wanted, self.aim.supply, {}, base=self.base)
        own = {one.name: one.version for one in self._own.chosen}
        if "torch" in own:
            raise BisectError(TORCH)
        earlier = BisectRecord.read(self.folder)
        companions = {name: given for name, given in own.items() if name != package}
        if earlier is not None and earlier.identity == common:
            companions = earlier.companions
        else:
            earlier = None
        self._known = BisectRecord(
            format=1,
            id=self.loaded.scenario.id,
            scenario=self.loaded.sha256,
            identity=common,
            overrides=list(self.loaded.overrides),
            package=package,
            companions=companions,
            left_out=left_out,
            between=[self.versions[0], self.versions[-1]],
            versions=list(self.versions),
        )
        self._kept_keys = frozenset(one.key for one in cache.cached()) | self._control_key()
        self._say_plan()
        for step in earlier.steps if earlier is not None else ():
            self._take_again(step)
        walk(self.versions, lambda: self._words, self._try, every=self.question.every)
        return self._finish()

    # -- one version -------------------------------------------------------------------------------

    @property
    def _record(self) -> BisectRecord:
        assert self._known is not None
        return self._known

    @property
    def _words(self) -> dict[str, Word]:
        return {version: self._word(version)[0] for version in self.facts}

    def _word(self, version: str) -> tuple[Word, str]:
        ends = [self.facts.get(end) for end in (self.versions[-1], self.versions[0])]
        fault = next((end for end in ends if end is not None and end.failed), None)
        confidence = self.loaded.scenario.trials.accept.confidence
        return word_of(self.facts[version], fault, confidence=confidence)

    def _try(self, version: str) -> None:
        """Run the scenario with a version, and keep what came out at once."""
        step, facts = self._step(version)
        self.facts[version] = facts
        self.steps[version] = step
        self._write()
        step = self.steps[version]
        trials = f", {step.failed} of {step.counted} trials failed" if step.counted else ""
        why = f": {step.why}" if step.why else ""
        self.says(f"  {version}: {step.word}{trials}{why}")

    def _step(self, version: str) -> tuple[KeptStep, StepFacts]:
        kept = KeptStep(version=version, word="CANNOT TELL")
        try:
            held = hold(
                self.python,
                self.aim.written,
                version,
                like=self.aim.wanted,
                companions=self._record.companions,
                base=self.base,
            )
        except EnvironmentProblem as error:
            return kept, _untold(str(error))
        kept = kept.model_copy(
            update={"moved": dict(held.moved), "download": held.plan.known_bytes}
        )
        size = held.plan.known_bytes * UNPACKED
        if size > self.question.limit:
            why = (
                f"its environment would take about {size / MIB:.0f} MiB, above the limit of"
                f" {self.question.limit // MIB} MiB (--limit)"
            )
            return kept, _untold(why)
        side, overrides = self._how(held)
        self._say_step(version, held, side=side)
        try:
            return self._run(kept, side=side, overrides=overrides)
        except Interrupted:
            raise
        except (RunError, ScenarioError, RecordError) as error:
            return kept, _untold(str(error).splitlines()[0])

    def _how(self, held: HeldEnvironment) -> tuple[Side, tuple[str, ...]]:
        """Return which arm runs a version, and what is overridden for it beside the question's.

        Both arms would be alike where the candidate got the control's version. The scenario as it
        stands shows that version: as its control.
        """
        chosen = _versions(held.plan)
        if chosen == self._of_control:
            return "control", ()
        assert self._own is not None
        if chosen == _versions(self._own):
            return "candidate", ()
        given = held.wanted.model_dump(mode="json", exclude_none=True)
        return "candidate", (f"{self.aim.key}={json.dumps(given)}",)

    @cached_property
    def _of_control(self) -> dict[str, str] | None:
        """Versions in the control's own environment, where the arms are otherwise alike."""
        if self.aim.control is None or not self.aim.alike:
            return None
        wanted, supply = self.aim.control
        try:
            return _versions(plan(self.python, wanted, supply, {}, base=self.base))
        except EnvironmentProblem as error:
            self.says(f"  the control's environment cannot be chosen: {error}")
            return None

    def _run(
        self, kept: KeptStep, *, side: Side, overrides: tuple[str, ...]
    ) -> tuple[KeptStep, StepFacts]:
        kept = kept.model_copy(update={"side": side, "as_it_stands": not overrides})
        # The scenario as it stands may show two versions, one with each arm.
        for step in self.steps.values():
            if step.run and step.as_it_stands and kept.as_it_stands:
                return self._judged(kept, (self.folder / step.run).resolve())
        made: set[str] = set()
        try:
            loaded = load_scenario(
                self.question.path, overrides=(*self.question.overrides, *overrides)
            )
            made = _keys(loaded) - self._kept_keys
            finished = run(
                loaded,
                dataclasses.replace(self.settings, results=self.folder),
                progress=self.progress(),
            )
        finally:
            disk = _clear(made)
        update = {"disk": disk, "seconds": finished.record.run.seconds}
        return self._judged(kept.model_copy(update=update), finished.folder.resolve())

    def _judged(self, kept: KeptStep, folder: Path) -> tuple[KeptStep, StepFacts]:
        """Judge a run that ended, from its record and evidence. Raises RecordError, OSError."""
        record = Record.decode((folder / PATH).read_bytes())
        ran = installed(record.run, kept.side)[1].get(self.aim.package, "")
        was_skipped = all(cell.verdict == "SKIPPED" for cell in record.judgement.cells)
        is_of_version = was_skipped or satisfies(ran, kept.version)
        if record.scenario.sha256 != self.loaded.sha256 or not is_of_version:
            raise RecordError(
                f"it ran a different scenario or version ({self.aim.package}"
                f" {ran or 'not installed'})"
            )
        facts = facts_of(
            self.loaded.scenario,
            record,
            side=kept.side,
            release=(self.aim.package, kept.version),
            read=lambda name: (folder / name).read_bytes(),
        )
        return kept.model_copy(
            update={"run": str(folder.relative_to(self.folder.resolve()))}
        ), facts

    def _take_again(self, step: KeptStep) -> None:
        """Take a step of an earlier bisect, where its run is there and can be verified.

        What never ended, or was skipped, is tried again.
        """
        folder = (self.folder / step.run).resolve()
        if not step.run or not folder.is_relative_to(self.folder.resolve()) or not folder.is_dir():
            return
        if self.settings.signer is not None:
            found = verify_folder(
                folder / statement.REPORT,
                policy=SignerPolicy(fingerprints=(self.settings.signer.identity(),)),
                replay=RecordReplay(),
            )
            if not found.ok:
                self.says(f"  {step.version}: its run is not accepted ({found.word}); run again")
                return
        try:
            again, facts = self._judged(step, folder)
        except (RecordError, OSError) as error:
            self.says(f"  {step.version}: its run cannot be read ({error}); run again")
            return
        if not facts.cells:
            return  # skipped: the package may be there now
        self.steps[step.version] = again
        self.facts[step.version] = facts
        verified = "" if self.settings.signer is not None else ", not verified without a key"
        self.says(f"  {step.version}: {self._words[step.version]}, from an earlier run{verified}")

    # -- what is said and kept ---------------------------------------------------------------------

    def _control_key(self) -> frozenset[str]:
        """Return the key of the environment that the control keeps from step to step."""
        return frozenset(_keys(self.loaded, "control") if self.aim.control is not None else ())

    def _say_plan(self) -> None:
        record = self._record
        assert self._own is not None
        many = len(self.versions)
        steps = many if self.question.every else 2 + math.ceil(math.log2(max(1, many - 1)))
        self.says(
            f"{record.package} {self.versions[0]} to {self.versions[-1]} in {record.id}:"
            f" {plural(many, 'version')}, at most {plural(min(many, steps), 'step')} unless some"
            " are inconclusive"
        )
        if record.left_out:
            out = [f"{version} ({why})" for version, why in record.left_out.items()]
            self.says(f"  left out: {listing(out, most=8)}")
        disk = amount(int(self._own.known_bytes * UNPACKED))
        self.says(
            f"  each environment: {self._own}; about {disk} on disk, two at a time at most."
            " pip downloads only the files that are not in its cache"
        )
        self.says(f"  kept in: {self.folder}")

    def _say_step(self, version: str, held: HeldEnvironment, *, side: Side) -> None:
        moved = [
            f"{name} {now or 'not installed'} instead of {before or 'none'}"
            for name, (before, now) in held.moved.items()
        ]
        self.says(
            f"  {version}{' (the control)' if side == 'control' else ''}: download"
            f" {amount(held.plan.known_bytes)} at most, {len(held.plan.chosen)} packages,"
            f" {f'also changed: {listing(moved, most=8)}' if moved else 'nothing else changed'}"
            " ..."
        )

    def _write(self) -> None:
        """Write what is known, every word by what the faulty end shows now."""
        for version, step in self.steps.items():
            facts = self.facts[version]
            word, why = self._word(version)
            update = {"word": word, "why": why, "counted": facts.counted, "failed": facts.failures}
            self.steps[version] = step.model_copy(update=update)
        steps = [self.steps[version] for version in sorted(self.steps, key=order)]
        self._known = self._record.model_copy(update={"steps": steps})
        self._known.write(self.folder)

    def _finish(self) -> FinishedBisect:
        self._write()
        text, exact = answer(self._record)
        self._known = self._record.model_copy(update={"answer": text})
        self._known.write(self.folder)
        return FinishedBisect(record=self._known, folder=self.folder, exact=exact)


def _untold(why: str) -> StepFacts:
    return StepFacts(cells={}, failed=None, why=why)


def _versions(chosen: EnvironmentPlan) -> dict[str, str]:
    return {one.name: one.version for one in chosen.chosen}


def _between(
    package: str, found: Sequence[Release], ends: tuple[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the versions to try between two ends, oldest first, and those left out with why.

    Raises:
        BisectError: an end is not among them, or both are one.
    """
    known = {release.version: release for release in found}
    named: list[str] = []
    for end in ends:
        match = next((version for version in known if satisfies(version, end)), None)
        if match is None:
            near = sorted(known, key=order)[-8:]
            raise BisectError(
                f"--between: pip finds no {package} {end}; the newest versions are"
                f" {', '.join(near)}"
            )
        if known[match].why_not:
            raise BisectError(
                f"--between: {package} {end} cannot be tried ({known[match].why_not}); choose"
                " another version"
            )
        named.append(match)
    first, last = sorted(named, key=order)
    if first == last:
        raise BisectError("--between: both versions are the same; pass two different versions")
    inside = [one for one in found if order(first) <= order(one.version) <= order(last)]
    return (
        [one.version for one in inside if not one.why_not],
        {one.version: one.why_not for one in inside if one.why_not},
    )


def _keys(loaded: LoadedScenario, *arms: str) -> set[str]:
    """Return the names in the cache of the environments of a scenario's arms."""
    supplies = of_scenario(loaded.scenario, folder=loaded.folder)
    return {
        cache.key(wanted, supplies[arm], find_interpreter(wanted.python))
        for arm, wanted in loaded.scenario.subject.environments.items()
        if arm in arms or not arms
    }


def _clear(keys: Collection[str]) -> int | None:
    """Remove the environments of these names from the cache; return how large the largest was."""
    there = [one for one in cache.cached() if one.key in keys]
    for one in there:
        cache.remove(one)
    return max((one.bytes for one in there), default=None)
