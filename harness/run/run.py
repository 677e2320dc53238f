"""From a scenario file to a signed report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness import __version__
from harness.forms import manifest
from harness.forms.digest import sha256
from harness.forms.git import git
from harness.forms.source import real_place
from harness.plugins import PluginFailed, imported
from harness.record import sources
from harness.record.arms import compared
from harness.record.assemble import PATCH_PATH, assemble
from harness.record.facts import (
    ENVIRONMENT_FOLDER,
    FORMAT,
    PATH,
    REQUIREMENTS,
    SCENARIO_PATH,
    RoomFacts,
    RunFacts,
    SignerFacts,
)
from harness.record.model import PATH as RECORD_PATH
from harness.record.model import Contradiction, Record, Unknown
from harness.record.plugins import used
from harness.record.results import ResultsError, ResultsFolder
from harness.report.figures import figures
from harness.report.report import render
from harness.report.views import VIEWS, checked
from harness.run import inputs, over_machines
from harness.run.arms import library, staging
from harness.run.arms.distributions import search_path
from harness.run.arms.revision import RevisionError
from harness.run.environments import cache
from harness.run.environments.pip import EnvironmentProblem
from harness.run.farm.farm import FarmError, Where
from harness.run.interrupt import Interrupt, interruptible
from harness.run.making import make
from harness.run.material import Found, Material, beside, brought
from harness.run.over_machines import Hostfile
from harness.run.preparation import Preparation, prepare
from harness.run.progress import Plan, Progress
from harness.run.reference import NoReference
from harness.run.replay import RecordReplay
from harness.scenario import LoadedScenario, Problem, Scenario, ScenarioError, override
from harness.starters.ray import NoCluster
from harness.stats.cell_facts import CellFacts
from harness.trust import footer, statement
from harness.trust.key import Signer
from harness.trust.replay import CannotRender
from harness.trust.signers import ALLOWED_SIGNERS, name_of
from harness.trust.sshsig import NAMESPACE_REPORT
from harness.world.fork_server import ServerFailed
from harness.world.room import COMPILED, toolchains
from harness.world.world import Cancelled

QUOTES = "\"'"


class RunError(Exception):
    """A run that could not be made; the message is one line that says what, where and what to do."""


class Interrupted(RunError):
    """The run was interrupted. Its folder is marked unfinished, and none of its processes is left."""


class Slip(RunError):
    """A slip of the scenario that only its code shows; no trial was made, and nothing is left.

    Attributes:
        problems: what is wrong, each at its place in the file.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class RevisionsMissing(RunError):
    """The scenario leaves to the command line what its arms are, and nothing was given there: no trial was made."""

    def __init__(self) -> None:
        super().__init__(
            "SKIPPED: both arms are the same code with the same arguments until two revisions set them apart: run it "
            "with --candidate REV --control REV (--repo PATH where the code lies elsewhere), or give it the tag "
            "on-demand, and it runs only where it is named"
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
    *,
    results: Path,
    signer: Signer | None,
    jobs: int,
    material: Material | None = None,
    challenge: str | None = None,
    progress: Progress | None = None,
    on: Where | Hostfile | None = None,
) -> Finished:
    """Run a scenario and write its signed report.

    Args:
        loaded: the scenario.
        results: the folder of all results.
        signer: who signs; None leaves the report unsigned.
        jobs: worlds at the same time.
        material: for a run that reproduces another, what it is made of.
        challenge: signed into the report, for a gate that asks for it.
        progress: hears how far the run is.
        on: the cluster whose nodes make its trials, or the machines on which the ranks of each are; None is this one.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM.
        Slip: the entry cannot be called as the scenario says.
        RevisionsMissing: the scenario was loaded without the revisions of its arms.
        RunError: input, code or results folder cannot be used.
    """
    progress = progress or Progress()
    if isinstance(on, Hostfile) and (
        refused := over_machines.refusal(loaded.scenario, over_ray=on.cluster is not None)
    ):
        raise RunError(refused)
    folder = _begun(loaded, results)
    with _in_folder(folder, loaded, progress) as interrupt:
        begin = time.monotonic()
        scenario = loaded.scenario
        folder.write(SCENARIO_PATH, loaded.text)
        found = beside(loaded, folder) if material is None else brought(material, folder)
        resolved_inputs, staged, origins = found.inputs, found.arms, found.origins
        folder.write(sources.PATH, sources.listing(folder.digests))
        if found.patch:
            folder.write(PATCH_PATH, found.patch)
        preparation = _prepared(scenario, found, folder, progress, over=isinstance(on, Hostfile))
        if isinstance(on, Hostfile):
            over_machines.skip(preparation, on, faults=scenario.faults)
        skipped = preparation.skipped
        overrides = [_without_folders(given, folder=loaded.folder) for given in loaded.overrides]
        plan = Plan(
            candidate=scenario.trials.candidate,
            control=scenario.trials.control if "control" in staged else 0,
            cells=preparation.cells,
            skipped=skipped,
        )
        progress.planned(plan)
        made = make(
            loaded,
            found=found,
            preparation=preparation,
            folder=folder,
            overrides=overrides,
            plan=plan,
            jobs=jobs,
            on=on,
            interrupt=interrupt,
            progress=progress,
        )
        environments = preparation.environments
        _demand_unchanged(resolved_inputs)
        # Those of a reproduction may lie in a folder that is gone afterwards.
        inputs.remember(resolved_inputs.values() if material is None else ())
        for arm, own in environments.items():
            if preparation.runnable and not cache.is_unchanged(own):
                raise EnvironmentProblem(
                    f"the environment of {scenario.subject.named(arm)} changed while the run was going on; run it again"
                )
        facts = RunFacts(
            format=FORMAT,
            rankproof=__version__,
            id=folder.id,
            made=f"{folder.made:%Y-%m-%dT%H:%M:%SZ}",
            signer=_signs(signer, loaded.folder),
            seconds=round(time.monotonic() - begin, 1),
            jobs=made.jobs,
            start="warm" if made.trials.worlds.start == "warm" else "fresh",
            harness_pid=os.getpid(),
            server_pids=list(made.server_pids),
            server_seconds=round(made.server_seconds, 2),
            overrides=overrides,
            challenge=challenge,
            source=found.source,
            environment=preparation.machine,
            inputs=[resolved.facts for resolved in resolved_inputs.values()],
            arguments={name: dict(arm.arguments) for name, arm in staged.items()},
            revisions={name: arm.revision for name, arm in staged.items() if arm.revision is not None},
            environments={name: own.facts for name, own in environments.items()},
            reproduces=material.reproduces if material is not None else None,
            room=_room(scenario),
            plugins=used(scenario, views={name: VIEWS.plugins[name] for name in checked() if name in VIEWS.plugins}),
            imported=imported(),
            provenance={
                arm: origin.facts(
                    made.trials.loaded[arm].values(),
                    search_path(environments[arm].python if arm in environments else None),
                    sources.of_arm(folder.digests, arm),
                )
                for arm, origin in origins.items()
            },
            machines=made.machines,
            farm=made.farm,
            texts_left=library.keep(folder, made.trials.loaded, environments, of=made.differing, arms=compared(staged)),
            cells=[CellFacts(id=cell.id, skipped=skipped.get(cell.id), **made.of(cell)) for cell in preparation.cells],
        )
        folder.write(PATH, (facts.model_dump_json(indent=1) + "\n").encode())
        record = assemble(folder.read, folder.digests.keys())
        for path, picture in figures(record, folder.read).items():
            folder.write(path, picture)
        folder.write(RECORD_PATH, record.encode())
        return Finished(record=record, folder=_sign(record, folder, signer), signer=signer)


def _begun(loaded: LoadedScenario, results: Path) -> ResultsFolder:
    """The folder of a run that can be made."""
    if loaded.lacks_revisions:
        raise RevisionsMissing
    try:
        return ResultsFolder(real_place(results), loaded.scenario.id)
    except ResultsError as error:
        raise RunError(str(error)) from None


def _prepared(
    scenario: Scenario, found: Found, folder: ResultsFolder, progress: Progress, *, over: bool
) -> Preparation:
    """Make the environments; what they were made from beside an index becomes evidence."""
    for arm, one in found.supplies.items():
        if one.text is not None:
            folder.write(f"{ENVIRONMENT_FOLDER}/{arm}/{REQUIREMENTS}", one.text)
    made = prepare(
        scenario, arms=found.arms, inputs=found.inputs, supplies=found.supplies, progress=progress, over=over
    )
    for arm, own in made.environments.items():
        for wheel in own.wheels:
            folder.write(f"{ENVIRONMENT_FOLDER}/{arm}/{wheel.name}", wheel.read_bytes())
    return made


@contextmanager
def _in_folder(folder: ResultsFolder, loaded: LoadedScenario, progress: Progress) -> Iterator[Interrupt]:
    """Whatever ends a run early leaves no folder, or one that says so, and is told in one line."""
    try:
        with interruptible() as interrupt:
            yield interrupt
    except (KeyboardInterrupt, Cancelled):
        folder.abandon("The run was interrupted.")
        raise Interrupted(f"interrupted: {folder.path} is marked unfinished, nothing was signed") from None
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
    ) as error:
        folder.abandon(str(error))
        raise RunError(str(error)) from None
    except Contradiction as error:
        why = f"the evidence of this run cannot be true ({error.word}): {error}"
        folder.abandon(why)
        todo = "Did the subject write into its event channel itself? Is the clock coarser than a microsecond?"
        raise RunError(f"{why}. Nothing was signed. {todo}") from None
    except OSError as error:
        folder.abandon(str(error))
        raise RunError(f"the run could not go on: {error}. Nothing was signed") from error
    finally:
        progress.done()


def _signs(signer: Signer | None, folder: Path) -> SignerFacts | None:
    """Which key signs, and whom the repository that is run lists it for."""
    if signer is None:
        return None
    key, name = signer.identity(), None
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
    """No cycles: evidence, record, manifest, signed report, statement; views follow from record and manifest."""
    listing = manifest.encode(folder.digests)
    digest = sha256(listing)
    body = render(record, manifest_digest=digest)
    replay = RecordReplay(record)
    beside = {name: draw(folder.read, digest) for name, draw in replay.views.items()}
    if key is None:
        report = body + footer.unsigned_footer("no key was used")
    else:
        report = footer.attach(body, key.sign(footer.signed_part(body), NAMESPACE_REPORT))
        stated = replay.rebuild(folder.read, sha256(report), digest)
        beside[statement.NAME] = statement.attest(stated, key)
    return folder.finish(manifest=(manifest.NAME, listing), report=(statement.REPORT, report), beside=beside.items())


def _without_folders(given: str, *, folder: Path) -> str:
    """An override as the record keeps it: of a path that leaves the scenario's folder, only the last part.

    The path says nothing on another machine; the input's digest, and the commit's id, do.
    """
    key, _, value = given.partition("=")
    if override.is_repo(key):
        return f"{key}={staging.shown_repo(value.strip(QUOTES), folder=folder)}"
    if key.startswith("inputs.") and inputs.leaves(value):
        return f"{key}=./{Path(value).name}"
    return given


def _demand_unchanged(used_inputs: dict[str, inputs.ResolvedInput]) -> None:
    """An input that changed while ranks read it belongs to no trial."""
    for name, resolved in used_inputs.items():
        if inputs.digests(resolved.path, name=name) != resolved.facts.files:
            raise inputs.InputError(
                f"input {name}: {resolved.facts.given} changed while the run was going on; run it again"
            )
