"""Making a matrix: part by part, so that whatever kills it costs the part that was being made, and no other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from harness import __version__
from harness.forms import manifest
from harness.forms.digest import sha256
from harness.forms.source import real_place
from harness.matrix import figure, plan
from harness.matrix.facts import FORMAT, MatrixFacts, PartFacts
from harness.matrix.facts import PATH as FACTS
from harness.matrix.record import MatrixRecord, assemble, read_facts
from harness.matrix.report import render
from harness.record.facts import SignerFacts
from harness.record.model import PATH, RecordError
from harness.record.repository import describe
from harness.record.results import UNFINISHED, ResultsError, ResultsFolder
from harness.report.views import checked
from harness.reproduce.bundle import BundleError, bundle
from harness.run.run import Interrupted, RunError, run
from harness.scenario import ScenarioError, load_scenario
from harness.trust import footer, statement
from harness.trust.key import Signer
from harness.trust.sshsig import NAMESPACE_REPORT

NAME = "matrix"
MAKING = "making"
# What a bundle says of this machine is what a report says; whoever sends a matrix to somebody looks at it first.
LET_OUT = ("home", "host", "secret", "user")


class MatrixError(Exception):
    """A matrix that could not be made, or gone on with; the message says what, where and what to do."""


@dataclass(frozen=True, kw_only=True)
class FinishedMatrix:
    """A matrix that was signed."""

    record: MatrixRecord
    folder: Path


class Account:
    """Hears how far a matrix is. This one keeps silent."""

    def planned(self, facts: MatrixFacts, *, there: int, folder: Path) -> None:
        """What is going to be made, how many parts are there already, and where."""

    def began(self, part: PartFacts, number: int) -> None:
        """The part of this number, from 1, is being made."""

    def kept(self, part: PartFacts, number: int, seconds: float) -> None:
        """It is there, whole, and stays."""


def begin(
    *,
    results: Path,
    signer: Signer | None,
    seeds: int,
    only: Sequence[str] = (),
    backends: Sequence[str] = (),
    sample: bool = False,
    jobs: int = 1,
    account: Account | None = None,
) -> FinishedMatrix:
    """Make a matrix.

    Raises:
        plan.Nothing: what was asked for is not there.
        MatrixError: it could not be made; its folder says how far it came, and can be gone on with.
    """
    planned = plan.planned(only=only, backends=backends, sample=sample, seeds=seeds, seed=plan.SEED)
    place = real_place(results)
    try:
        folder = ResultsFolder(place, NAME)
    except ResultsError as error:
        raise MatrixError(str(error)) from None
    facts = MatrixFacts(
        format=FORMAT,
        rankproof=__version__,
        id=folder.id,
        made=f"{folder.made:%Y-%m-%dT%H:%M:%SZ}",
        signer=None if signer is None else SignerFacts(key=signer.identity(), name=None),
        source=describe(Path.cwd(), results=place),
        code=plan.code(),
        seeds=seeds,
        seed=plan.SEED,
        sample=sample,
        only=list(only),
        backends=list(backends),
        **planned,
    )
    with _told():
        folder.write_whole(FACTS, (facts.model_dump_json(indent=1) + "\n").encode())
    return _go_on(folder, facts, signer=signer, jobs=jobs, account=account or Account())


def resume(path: Path, *, signer: Signer | None, jobs: int = 1, account: Account | None = None) -> FinishedMatrix:
    """Go on with a matrix that did not come to its end: with the parts that are missing.

    Raises:
        MatrixError: nothing can be gone on with there, and why.
    """
    place = real_place(path)
    if not place.name.endswith(UNFINISHED) or place.parent.name != NAME:
        raise MatrixError(f"{path} is not the folder of an unfinished matrix: name one that ends with {UNFINISHED}")
    try:
        facts = read_facts((place / FACTS).read_bytes())
    except (OSError, RecordError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise MatrixError(
            f"{path} cannot be gone on with: what it was going to do is not there or not whole ({what}); begin another"
        ) from None
    if facts.rankproof != __version__ or facts.code != plan.code():
        raise MatrixError(
            f"{path} was begun by other code than this: parts of two versions make no matrix. Go back to commit "
            f"{facts.source.commit or '(not known)'}, or begin another"
        )
    key = None if facts.signer is None else facts.signer.key
    if key != (None if signer is None else signer.identity()):
        raise MatrixError(f"{path} was begun with {f'the key {key}' if key else 'no key'}: go on with the same")
    with _told():
        folder = ResultsFolder.reopen(place)
    return _go_on(folder, facts, signer=signer, jobs=jobs, account=account or Account())


def _go_on(
    folder: ResultsFolder, facts: MatrixFacts, *, signer: Signer | None, jobs: int, account: Account
) -> FinishedMatrix:
    """Make the parts that are missing, count, and sign. Two processes never do so at once."""
    lock = FileLock(folder.path.with_name(f".{facts.id}.lock"), timeout=0)
    again = f"go on with: rankproof matrix --resume {folder.path}"
    try:
        with lock, _told(again):
            making = folder.path / MAKING
            shutil.rmtree(making, ignore_errors=True)  # what a kill left half made
            for stray in (PATH, figure.PATH, "UNFINISHED.txt"):
                (folder.path / stray).unlink(missing_ok=True)
            names = {part.path for part in facts.parts}
            folder.take_in({FACTS, *names})
            account.planned(facts, there=len(names & folder.digests.keys()), folder=folder.path)
            for number, part in enumerate(facts.parts, 1):
                if part.path in folder.digests:
                    continue
                account.began(part, number)
                seconds = _make(part, folder, making, signer=signer, jobs=jobs)
                account.kept(part, number, seconds)
            shutil.rmtree(making, ignore_errors=True)
            record = assemble(folder.read, folder.digests.keys())
            folder.write_whole(figure.PATH, figure.draw(record))
            folder.write_whole(PATH, record.encode())
            finished = FinishedMatrix(record=record, folder=_sign(record, folder, signer))
    except Timeout:
        raise MatrixError(f"{folder.path} is being made by another process") from None
    Path(lock.lock_file).unlink(missing_ok=True)
    return finished


def _make(part: PartFacts, folder: ResultsFolder, making: Path, *, signer: Signer | None, jobs: int) -> float:
    """Make one part in a folder of its own, and take it in at once, or not at all."""
    shutil.rmtree(making, ignore_errors=True)
    place = making / part.name
    place.mkdir(parents=True)
    case = plan.case_of(part)
    assert case is not None
    (place / "scenario.yaml").write_bytes(case.scenario(part.backend, trials=part.trials, seed=part.seed))
    (place / case.ground.file).write_bytes(plan.subject(case.ground.file))
    finished = run(load_scenario(place), results=making / "results", signer=signer, jobs=jobs)
    for view in (*checked(), statement.NAME):  # made of what is signed, and larger than it
        (finished.folder / view).unlink(missing_ok=True)
    packed = making / f"{part.name}.tar.xz"
    bundle(finished.folder, packed, inputs_limit=0, allowed=LET_OUT, lock=False)
    folder.take(part.path, packed)
    shutil.rmtree(making, ignore_errors=True)
    return finished.record.run.seconds


def _sign(record: MatrixRecord, folder: ResultsFolder, signer: Signer | None) -> Path:
    listing = manifest.encode(folder.digests)
    body = render(record, manifest_digest=sha256(listing))
    if signer is None:
        report = body + footer.unsigned_footer("no key was used")
    else:
        report = footer.attach(body, signer.sign(footer.signed_part(body), NAMESPACE_REPORT))
    return folder.finish(manifest=(manifest.NAME, listing), report=(statement.REPORT, report))


@contextmanager
def _told(again: str = "") -> Iterator[None]:
    """Whatever stops a matrix is told in one line, with what to do; its parts stay."""
    more = f". {again}" if again else ""
    try:
        yield
    except Interrupted:
        raise MatrixError(f"interrupted{more}") from None
    except ScenarioError as error:
        raise MatrixError(f"a case cannot run: {'; '.join(map(str, error.problems))}{more}") from None
    except (ResultsError, RunError, BundleError, RecordError) as error:
        raise MatrixError(f"{error}{more}") from None
    except Timeout:
        raise
    except OSError as error:
        raise MatrixError(f"{error}{more}") from error
