"""From a scenario file to a signed report."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness import __version__
from harness.forms import manifest
from harness.forms.digest import sha256, sha256_of
from harness.forms.distribution import wheel_lines
from harness.forms.git import git
from harness.forms.regular_file import read_regular
from harness.forms.source import real_place
from harness.plugins import PluginFailed, imported
from harness.record.arms import compared
from harness.record.assemble import assemble
from harness.record.facts import (
    FORMAT,
    PATH,
    EnvironmentFacts,
    Reproduces,
    RoomFacts,
    RunFacts,
    SignerFacts,
)
from harness.record.libraries import (
    RECORD,
    TEXT_LIMIT,
    LoadedLibraries,
    chosen,
    paths_of,
    stated_records,
)
from harness.record.model import PATH as RECORD_PATH
from harness.record.model import Contradiction, Record, Unknown
from harness.record.plugins import used
from harness.record.results import ResultsError, ResultsFolder
from harness.report.appendix import files_of
from harness.report.report import render
from harness.report.view import VIEWS, checked
from harness.run import inputs
from harness.run.arms import staging
from harness.run.arms.code import RevisionError
from harness.run.arms.packages import search_path
from harness.run.arms.provenance import installed_folder
from harness.run.environments import cache
from harness.run.environments.cache import ReadyEnvironment
from harness.run.environments.pip import EnvironmentProblem
from harness.run.farm.farm import FarmError
from harness.run.machines import over_machines
from harness.run.plan import RunPlan, RunSettings, planned
from harness.run.preparation import Material
from harness.run.progress import Progress
from harness.run.reference import NoReference
from harness.run.replay import RecordReplay
from harness.run.script import ScriptMissing
from harness.run.trials import MadeTrials, make
from harness.run.worlds import Interrupt, interruptible
from harness.scenario import LoadedScenario, Problem, Scenario, ScenarioError
from harness.stats.outcome import CellFacts
from harness.trust import footer, statement
from harness.trust.key import Signer
from harness.trust.replay import CannotRender
from harness.trust.signers import ALLOWED_SIGNERS, name_of
from harness.trust.sshsig import NAMESPACE_REPORT
from harness.world.control.room import COMPILED, toolchains
from harness.world.control.server_handle import ServerFailed
from harness.world.control.world import Cancelled
from harness.world.starters.ray import NoCluster


class RunError(Exception):
    """A run that could not be made.

    The message is one line that says what, where and what to do.
    """


class Interrupted(RunError):
    """The run was interrupted. Its folder is marked unfinished, and none of its processes is
    left.
    """


class Slip(RunError):
    """A slip of the scenario that only its code shows; no trial was made, and nothing is left.

    Attributes:
        problems: what is wrong, each at its place in the file.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class RevisionsMissing(RunError):
    """The scenario leaves to the command line what its arms are, and nothing was given there: no
    trial was made.
    """

    def __init__(self) -> None:
        super().__init__(
            "SKIPPED: both arms have the same code and arguments. Run it with --candidate REV"
            " --control REV (and --repo PATH if the code is in another repository), or add the tag"
            " on-demand, so that it runs only when it is named"
        )


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run that ended: its record, its folder, and who signed."""

    record: Record
    folder: Path
    signer: Signer | None

    @property
    def report(self) -> Path:
        """Path of the report."""
        return self.folder / statement.REPORT


def run(
    loaded: LoadedScenario,
    settings: RunSettings,
    *,
    material: Material | None = None,
    progress: Progress | None = None,
) -> Finished:
    """Run a scenario and write its signed report.

    Args:
        loaded: the scenario.
        settings: where, by whose key and how many worlds at a time.
        material: for a run that reproduces another, what it is made of.
        progress: hears how far the run is.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM.
        Slip: the entry cannot be called as the scenario says.
        RevisionsMissing: the scenario was loaded without the revisions of its arms.
        RunError: input, code or results folder cannot be used.
    """
    progress = progress or Progress()
    hostfile = settings.hostfile
    if hostfile is not None:
        refused = over_machines.refusal(loaded.scenario, over_ray=hostfile.cluster is not None)
        if refused:
            raise RunError(refused)
    folder = _begun(loaded, settings.results)
    with _in_folder(folder, loaded, progress) as interrupt:
        begin = time.monotonic()
        plan = planned(loaded, settings, material=material, folder=folder, progress=progress)
        progress.planned(plan.counts())
        trials = make(plan, interrupt=interrupt, progress=progress)
        _demand_unchanged(plan)
        if material is None:
            # The inputs of a reproduction may be in a folder that is gone afterwards.
            inputs.remember(plan.ingredients.inputs.values())
        reproduces = material.reproduces if material is not None else None
        facts = _facts(plan, trials, reproduces=reproduces, seconds=time.monotonic() - begin)
        folder.write(PATH, (facts.model_dump_json(indent=1) + "\n").encode())
        record = assemble(folder.read, folder.digests.keys())
        for path, content in files_of(record, folder.read).items():
            folder.write(path, content)
        folder.write(RECORD_PATH, record.encode())
        return Finished(
            record=record, folder=_sign(record, folder, settings.signer), signer=settings.signer
        )


def _facts(
    plan: RunPlan, trials: MadeTrials, *, reproduces: Reproduces | None, seconds: float
) -> RunFacts:
    """Return what the record says of a run beside its trials' events."""
    scenario = plan.scenario
    folder = plan.folder
    ingredients = plan.ingredients
    environments = plan.preparation.environments
    skipped = plan.preparation.skipped
    loaded = trials.trials.loaded
    provenance = {}
    for arm, origin in ingredients.origins.items():
        environment = environments.get(arm)
        folders = search_path(environment.python if environment is not None else None)
        provenance[arm] = origin.facts(loaded[arm].values(), folders, plan.files(arm))
    return RunFacts(
        format=FORMAT,
        rankproof=__version__,
        id=folder.id,
        made=f"{folder.made:%Y-%m-%dT%H:%M:%SZ}",
        signer=_signs(plan.settings.signer, plan.loaded.folder),
        seconds=round(seconds, 1),
        jobs=trials.jobs,
        start="warm" if trials.trials.worlds.start == "warm" else "fresh",
        harness_pid=os.getpid(),
        server_pids=list(trials.server_pids),
        server_seconds=round(trials.server_seconds, 2),
        overrides=list(plan.overrides),
        challenge=plan.settings.challenge,
        source=ingredients.source,
        environment=plan.preparation.machine,
        inputs=[resolved.facts for resolved in ingredients.inputs.values()],
        arguments={name: dict(arm.arguments) for name, arm in ingredients.arms.items()},
        revisions={
            name: arm.revision for name, arm in ingredients.arms.items() if arm.revision is not None
        },
        environments={name: environment.facts for name, environment in environments.items()},
        reproduces=reproduces,
        room=_room(scenario),
        plugins=used(
            scenario,
            views={name: VIEWS.plugins[name] for name in checked() if name in VIEWS.plugins},
        ),
        imported=imported(),
        provenance=provenance,
        machines=trials.machines,
        farm=trials.farm,
        texts_left=keep_texts(
            folder,
            loaded,
            environments,
            plan.preparation.machine,
            of=plan.trials.differing,
            arms=compared(ingredients.arms),
        ),
        cells=[
            CellFacts(id=cell.id, skipped=skipped.get(cell.id), **trials.of(cell))
            for cell in plan.preparation.cells
        ],
    )


def _begun(loaded: LoadedScenario, results: Path) -> ResultsFolder:
    """Return the folder of a run that can be made."""
    if loaded.lacks_revisions:
        raise RevisionsMissing
    try:
        return ResultsFolder(real_place(results), loaded.scenario.id)
    except ResultsError as error:
        raise RunError(str(error)) from None


@contextmanager
def _in_folder(
    folder: ResultsFolder, loaded: LoadedScenario, progress: Progress
) -> Iterator[Interrupt]:
    """Whatever ends a run early leaves no folder, or one that says so, and is told in one line."""
    try:
        with interruptible() as interrupt:
            yield interrupt
    except (KeyboardInterrupt, Cancelled):
        folder.abandon("The run was interrupted.")
        raise Interrupted(
            f"interrupted: {folder.path} is marked unfinished, and nothing was signed"
        ) from None
    except staging.NotThere as error:
        folder.discard()
        raise Slip([loaded.problem(error.place, error.message)]) from None
    except ScenarioError as error:
        folder.discard()
        raise Slip(error.problems) from None
    except Slip:
        folder.discard()
        raise
    except (
        ResultsError,
        inputs.InputError,
        staging.ArmError,
        RevisionError,
        EnvironmentProblem,
        NoReference,
        ServerFailed,
        PluginFailed,
        CannotRender,
        Unknown,
        FarmError,
        NoCluster,
        ScriptMissing,
    ) as error:
        folder.abandon(str(error))
        raise RunError(str(error)) from None
    except Contradiction as error:
        why = f"the evidence of this run contradicts itself ({error.word}): {error}"
        folder.abandon(why)
        todo = (
            "Did the subject write into its event channel itself? Is the clock coarser than a"
            " microsecond?"
        )
        raise RunError(f"{why}. Nothing was signed. {todo}") from None
    except OSError as error:
        folder.abandon(str(error))
        raise RunError(f"the run could not continue: {error}. Nothing was signed") from error
    finally:
        progress.done()


def _signs(signer: Signer | None, folder: Path) -> SignerFacts | None:
    """Which key signs, and whom the repository that is run lists it for."""
    if signer is None:
        return None
    key = signer.identity()
    name = None
    top = git("rev-parse", "--show-toplevel", folder=folder)
    if top.returncode == 0:
        with suppress(OSError):
            place = Path(os.fsdecode(top.stdout.removesuffix(b"\n")))
            name = name_of((place / ALLOWED_SIGNERS).read_bytes(), key)
    return SignerFacts(key=key, name=name)


def _room(scenario: Scenario) -> RoomFacts:
    home = scenario.world.home_is
    if home == "shared":
        return RoomFacts(home=home, kept=[], compiled=[])
    return RoomFacts(home=home, kept=sorted(toolchains()), compiled=list(COMPILED))


def _sign(record: Record, folder: ResultsFolder, key: Signer | None) -> Path:
    """No cycles: evidence, record, manifest, signed report, statement.

    Views follow from record and manifest.
    """
    listing = manifest.encode(folder.digests)
    digest = sha256(listing)
    body = render(record, manifest_digest=digest)
    replay = RecordReplay(record)
    views = {name: draw(folder.read, digest) for name, draw in replay.views.items()}
    if key is None:
        report = body + footer.unsigned_footer("no key was used")
    else:
        report = footer.attach(body, key.sign(footer.signed_part(body), NAMESPACE_REPORT))
        stated = replay.rebuild(folder.read, sha256(report), digest)
        views[statement.NAME] = statement.attest(stated, key)
    return folder.finish(
        manifest=(manifest.NAME, listing), report=(statement.REPORT, report), beside=views.items()
    )


def _demand_unchanged(plan: RunPlan) -> None:
    """Refuse a run in which an input or an environment changed while ranks read it: it belongs to
    no trial.

    Raises:
        InputError, EnvironmentProblem: it did.
    """
    for name, resolved in plan.ingredients.inputs.items():
        if inputs.digests(resolved.path, name=name) != resolved.facts.files:
            raise inputs.InputError(
                f"input {name}: {resolved.facts.given} changed during the run; run it again"
            )
    for arm, environment in plan.preparation.environments.items():
        if plan.runnable and not cache.is_unchanged(environment):
            changed = plan.scenario.subject.named(arm)
            raise EnvironmentProblem(
                f"the environment of {changed} changed during the run; run it again"
            )


def keep_texts(
    results: ResultsFolder,
    lists: Mapping[str, Mapping[str, bytes]],
    environments: Mapping[str, ReadyEnvironment],
    machine: EnvironmentFacts,
    *,
    of: Collection[str],
    arms: tuple[str, str],
) -> dict[str, int | None]:
    """Write the texts of the modules that ranks of both arms loaded with different content, and the
    RECORDs of their distributions, as far as there is room.

    Args:
        results: where to.
        lists: per arm, what its ranks had loaded, by digest.
        environments: those of the arms that have their own.
        machine: the harness' environment.
        of: normal names of the distributions in question.
        arms: those that the report compares.

    Returns:
        Of those that were not kept, sha256 to size in bytes; None where no file of that content was
        found.
    """
    loaded = LoadedLibraries(arms)
    for arm, by_digest in lists.items():
        for listing in by_digest.values():
            loaded.add(arm, listing, of=of)
    own = {arm: environment.facts for arm, environment in environments.items()}
    pairs = {**dict(loaded.pairs()), **stated_records(of, own, machine, arms=arms)}
    texts: dict[str, bytes | None] = {}
    sizes: dict[str, int | None] = {}
    for (distribution, file), digests in pairs.items():
        for arm, digest in zip(arms, digests, strict=True):
            if texts.get(digest) is None:
                folders = _imported_from(environments.get(arm), distribution)
                find = _find_record if file == RECORD else _find_module
                name = distribution if file == RECORD else file
                sizes[digest], texts[digest] = find(folders, name, digest)
    kept = chosen(pairs.values(), sizes)
    paths = paths_of(pairs)
    for digest in sorted(kept):
        results.write(paths[digest], texts[digest] or b"")
    return {digest: sizes[digest] for digest in sorted(sizes.keys() - kept)}


def _imported_from(environment: ReadyEnvironment | None, distribution: str) -> Iterator[Path]:
    """Where an arm's ranks may have imported a distribution from."""
    if environment is not None:
        yield from environment.python.parent.parent.glob("lib*/python*/site-packages")
        return
    yield from map(Path, filter(None, sys.path))
    with suppress(importlib.metadata.PackageNotFoundError):
        if (folder := installed_folder(importlib.metadata.distribution(distribution))) is not None:
            yield from (folder, folder / "src")


def _find_module(
    folders: Iterator[Path], file: str, digest: str
) -> tuple[int | None, bytes | None]:
    """Size and text of a module with this content: without the text where it is too large; None
    where it is gone.
    """
    for folder in folders:
        with suppress(OSError, ValueError):
            if (path := folder / file).is_file() and sha256_of(path) == digest:
                size = path.stat().st_size
                return size, read_regular(path, limit=TEXT_LIMIT) if size <= TEXT_LIMIT else None
    return None, None


def _find_record(
    folders: Iterator[Path], distribution: str, digest: str
) -> tuple[int | None, bytes | None]:
    """Size and lines of a RECORD with this digest; None where it is gone."""
    places = [str(folder) for folder in folders]
    for found in importlib.metadata.distributions(name=distribution, path=places):
        lines = wheel_lines(found.read_text("RECORD") or "")
        if sha256(lines) == digest:
            return len(lines), lines
    return None, None
