"""One trial of each arm in one cell, to be looked at: nothing is kept, and nothing signed.

The trials are made and judged as those of a run are, in a results folder that is gone afterwards.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from harness.checks import Finding
from harness.forms.distribution import missing
from harness.forms.strict_json import JSON
from harness.forms.text import plural
from harness.history import ARTEFACT_FOUND, History
from harness.ledger.call import NotALedger
from harness.ledger.file import ARTEFACT, parse
from harness.ledger.outside.account import in_words
from harness.numeric.arrays import ArrayFile, spread
from harness.record.artefacts import PER_TRIAL, path_of
from harness.record.results import ResultsError, ResultsFolder
from harness.run import inputs
from harness.run.arms import staging
from harness.run.arms.code import RevisionError
from harness.run.arms.entry import slips
from harness.run.environments import supply
from harness.run.environments.pip import EnvironmentProblem
from harness.run.plan import TrialPlan
from harness.run.preparation import prepare
from harness.run.progress import MadeTrial, Progress
from harness.run.reference import NoReference
from harness.run.run import Interrupted, RevisionsMissing, RunError, Slip
from harness.run.trials import TrialMaker
from harness.run.worlds import interruptible
from harness.scenario import Cell, LoadedScenario, ScenarioError, cells
from harness.stats import outcome
from harness.stats.arm_code import ArmCode
from harness.stats.outcome import Arm, Trial, trial_folder
from harness.stats.reference import doubts, read_reference
from harness.world.control.pool import PortLease, ServerPool
from harness.world.control.server_handle import ServerFailed
from harness.world.control.world import Cancelled

BYTES_SHOWN = 32
CALLS_SHOWN = 3


class NoSuchCell(RunError):
    """The scenario has no cell of that id."""


@dataclass(frozen=True)
class TriedArtefact:
    """What a rank kept.

    Attributes:
        values: of the event that tells of it.
        summary: what it holds, in a few words; empty where it is not an artefact.
    """

    values: Mapping[str, JSON]
    summary: str


@dataclass(frozen=True, kw_only=True)
class TriedArm:
    """One trial.

    Attributes:
        arm: which.
        trial: as it was judged, with every finding.
        history: its events.
        logs: rank to what it printed.
        stacks: rank to where it stood when it was stopped.
        kept: rank to its artefacts.
        seconds: from handing it to its world until it was judged.
    """

    arm: Arm
    trial: Trial
    findings: Sequence[Finding]
    history: History
    logs: Mapping[int, bytes]
    stacks: Mapping[int, bytes]
    kept: Mapping[int, Sequence[TriedArtefact]]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TriedCell:
    """What was tried.

    Attributes:
        cell: None where none can run here.
        skipped: cell id to why it cannot.
        arms: the trials; the control's is missing where there is none.
        reference: what the reference kept, of a comparison rank 0 of a; None where there is none.
        cells: how many cells a run would make.
        jobs: how many worlds it would have at a time.
        seconds: what a run would take, if every trial took as long as these.
    """

    cell: Cell | None
    skipped: Mapping[str, str]
    arms: Sequence[TriedArm] = ()
    reference: Sequence[TriedArtefact] | None = None
    cells: int = 0
    jobs: int = 1
    seconds: float = 0.0


class _Clock(Progress):
    """How long each trial takes, from handing it to its world until it is judged."""

    def __init__(self) -> None:
        self.begun = 0.0
        self.seconds: dict[Arm, float] = {}

    def ended(self, trial: MadeTrial) -> None:
        now = time.monotonic()
        self.seconds[trial.arm] = now - self.begun
        self.begun = now


# More than 40 statements: everything that a run does, in its order, for one trial of each arm.
def attempt(
    loaded: LoadedScenario, *, cell: str | None, jobs: int, progress: Progress
) -> TriedCell:
    """Make one trial of each arm.

    Args:
        loaded: the scenario.
        cell: id of the cell; None takes the first one that can run here and in which the control
            must fail, or the first one where it must in none.
        jobs: worlds at the same time, of the run whose time is estimated.
        progress: hears what takes long before the trials.

    Raises:
        NoSuchCell: it has no such cell; the message names those there are.
        Slip: the entry cannot be called as the scenario says.
        RevisionsMissing: the scenario was loaded without the revisions of its arms.
        Interrupted: by Ctrl-C or SIGTERM.
        RunError: input, code or environment cannot be used.
    """
    if loaded.lacks_revisions:
        raise RevisionsMissing
    with (
        _told(loaded),
        tempfile.TemporaryDirectory(prefix="rankproof-try-") as root,
        interruptible() as interrupt,
    ):
        folder = ResultsFolder(Path(root), loaded.scenario.id)
        scenario = loaded.scenario
        ids = [candidate.id for candidate in cells(scenario)]
        if cell is not None and cell not in ids:
            raise NoSuchCell(f"cell {cell} does not exist; the cells are {'; '.join(ids)}")
        given = inputs.of_scenario(scenario, folder=loaded.folder)
        paths = [resolved.path for resolved in given.values()]
        staged = staging.stage_arms(scenario, folder=loaded.folder, inputs=paths, results=folder)
        supplies = supply.of_scenario(scenario, folder=loaded.folder)
        preparation = prepare(
            scenario, arms=staged, inputs=given, supplies=supplies, progress=progress
        )
        skipped = {name: str(why) for name, why in preparation.skipped.items()}
        runnable = preparation.runnable
        chosen = next((candidate for candidate in runnable if cell in (None, candidate.id)), None)
        control = scenario.subject.control
        if cell is None and control is not None:
            fails = (one for one in runnable if control.must_fail.applies(one.values))
            chosen = next(fails, chosen)
        if chosen is None:
            return TriedCell(cell=None, skipped=skipped)
        once = {"candidate": 1, "control": 1, "max_voids": 0}
        single = scenario.model_copy(update={"trials": scenario.trials.model_copy(update=once)})
        clock = _Clock()
        with ServerPool(cancel=interrupt.descriptor) as pool, PortLease() as ports:
            plan = TrialPlan(
                scenario=single,
                preparation=preparation,
                results=folder,
                recipes=dict.fromkeys(staged, ""),  # nothing of this is signed
                watches=False,
            )
            trials = TrialMaker(
                plan,
                pool=pool,
                interrupt=interrupt,
                progress=clock,
                hub_port=ports.take(1)[0] if scenario.hub is not None else None,
            )
            trials.worlds.start_servers(lanes=1)
            if wrong := slips(loaded, staged, [chosen], look=trials.worlds.look):
                raise Slip(wrong)
            clock.begun = time.monotonic()
            trials.make([chosen], jobs=1)
            servers = pool.seconds
        seconds = clock.seconds
        alone = 1 if scenario.measure or scenario.hub or scenario.services else jobs
        planned = {"candidate": scenario.trials.candidate, "control": scenario.trials.control}
        per_cell = sum(planned[arm] * spent for arm, spent in seconds.items())
        runs = [history for _, history in read_reference(scenario, chosen, read=folder.read)[0]]
        for doubt in doubts(scenario, runs) if runs else ():
            progress.says(str(doubt))
        reference = runs[0] if runs else None
        return TriedCell(
            cell=chosen,
            skipped=skipped,
            arms=[
                _judged(
                    loaded, chosen, arm, folder, seconds[arm], reference, code=staged[arm].folder
                )
                for arm in get_args(Arm)
                if arm in seconds
            ],
            reference=None if reference is None else _kept(reference, 0, folder),
            cells=len(runnable),
            jobs=alone,
            seconds=servers + len(runnable) * per_cell / alone,
        )


@contextmanager
def _told(loaded: LoadedScenario) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, Cancelled):
        raise Interrupted("interrupted: nothing was kept") from None
    except staging.NotThere as error:
        raise Slip([loaded.problem(error.place, error.message)]) from None
    except ScenarioError as error:
        raise Slip(error.problems) from None
    except (
        ResultsError,
        inputs.InputError,
        staging.ArmError,
        RevisionError,
        EnvironmentProblem,
        NoReference,
        ServerFailed,
        OSError,
    ) as error:
        raise RunError(str(error)) from None


# One trial and what it is judged with: every one of them is another for each arm.
def _judged(
    loaded: LoadedScenario,
    cell: Cell,
    arm: Arm,
    folder: ResultsFolder,
    seconds: float,
    reference: History | None,
    *,
    code: Path,
) -> TriedArm:
    scenario = loaded.scenario
    place = trial_folder(cell.slug, arm, 0)
    history = outcome.read_history(scenario, cell, arm, 0, read=folder.read, reference=reference)
    files = {path.relative_to(code).as_posix(): "" for path in code.rglob("*") if path.is_file()}
    # Where a hang is stated by its line, the line is looked up.
    line_of = ArmCode(files=files, arguments={}, source=str(code)).lines(
        lambda path: Path(path).read_bytes()
    )
    trial, findings = outcome.judge(scenario, cell, arm, 0, history, line_of=line_of)

    def left(ending: str) -> dict[int, bytes]:
        names = {rank: f"{place}/rank-{rank}.{ending}" for rank in range(cell.ranks)}
        return {rank: folder.read(name) for rank, name in names.items() if name in folder.digests}

    return TriedArm(
        arm=arm,
        trial=trial,
        findings=findings,
        history=history,
        logs=left("log"),
        stacks=left("stacks.txt"),
        kept={rank: _kept(history, rank, folder) for rank in range(cell.ranks)},
        seconds=seconds,
    )


def _kept(history: History, rank: int, folder: ResultsFolder) -> list[TriedArtefact]:
    events = [seen.event.values for seen in history.noted(ARTEFACT_FOUND, rank)]
    return [
        TriedArtefact(values, _holds(values, folder) if "artefact" in values else "")
        for values in events
    ]


def _holds(values: Mapping[str, JSON], folder: ResultsFolder) -> str:
    """Return what an artefact holds: of an array between which values its elements lie, of bytes
    how they begin.
    """
    if not values.get("stored"):
        return f"not read: the trial kept more than {PER_TRIAL >> 20} MiB"
    path = path_of(values)
    content = folder.read(path)
    if values["artefact"] == ARTEFACT:
        return _calls(content)
    if "dtype" not in values:
        return repr(content[:BYTES_SHOWN]) + (" ..." if len(content) > BYTES_SHOWN else "")
    if lacks := missing("numpy"):
        return f"not read: {lacks}"
    extent = spread(ArrayFile(path, content))
    parts = ["" if extent.least is None else f"{extent.least:.6g} to {extent.most:.6g}"]
    parts += [
        f"{many} {what}"
        for many, what in ((extent.nans, "NaN"), (extent.infinities, "infinite"))
        if many
    ]
    return ", ".join(filter(None, parts)) or "empty"


def _calls(content: bytes) -> str:
    """Return what a rank's ledger holds: how many calls it made, and the last of them."""
    try:
        ledger = parse(content)
    except NotALedger as error:
        return f"not a ledger: {error}"
    last = "; ".join(in_words(call.values()) for call in ledger.calls[-CALLS_SHOWN:])
    return (
        plural(ledger.made, "call")
        + (f", the last: {last}" if last else "")
        + (f"; {ledger.why}" * bool(ledger.why))
    )
