"""What a series is: signed runs made one after the other, counted together, and signed as one.

A matrix of faults is one, a search is another. What each of them asks and how it counts is its own;
how its parts are made, kept through a kill, gone on with and judged again is the same. A series is
made part by part, so that whatever kills it costs the part that was being made, and no other.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Generic, Protocol, Self, TypedDict, TypeVar

from filelock import FileLock, Timeout
from pydantic import Field

import harness
from harness.forms import manifest
from harness.forms.digest import fold, sha256
from harness.forms.model import Model
from harness.forms.source import real_place
from harness.record.facts import RepositoryFacts, SignerFacts
from harness.record.model import PATH, RecordError, read_model
from harness.record.repository import describe
from harness.record.results import UNFINISHED, ResultsError, ResultsFolder
from harness.report.view import checked
from harness.reproduce.bundle import BundleError, bundle
from harness.run.plan import RunSettings
from harness.run.run import Interrupted, RunError, run
from harness.scenario import ScenarioError, load_scenario
from harness.trust import footer, statement
from harness.trust.key import Signer
from harness.trust.sshsig import NAMESPACE_REPORT
from harness.world.machines import store

FOLDER = "evidence/parts"
SUFFIX = ".rankproof.tar.xz"
SCENARIO = "scenario.yaml"
MAKING = "making"
# What a bundle says of this machine is what a report says; whoever sends a series to somebody looks
# at it first.
LET_OUT = ("home", "host", "secret", "user")

Read = Callable[[str], bytes]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PartName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]


class SeriesError(Exception):
    """A series that could not be made, or gone on with.

    The message says what, where and what to do.
    """


class Nothing(Exception):
    """What a series was asked for is not there; the message says what there is."""


class PlannedPart(Protocol):
    """One signed run of a series."""

    @property
    def name(self) -> str:
        """Of the part, and of its file."""

    @property
    def scenario(self) -> str:
        """Sha256 of its scenario file."""

    @property
    def path(self) -> str:
        """Where its bundle lies in the series."""


class SeriesPart(Model):
    """The first key of every part."""

    name: PartName

    @property
    def path(self) -> str:
        """Where its bundle lies in the series."""
        return f"{FOLDER}/{self.name}{SUFFIX}"


class SeriesOrigin(TypedDict):
    """Who makes a series, when, and of which code: what its facts say beside its own."""

    rankproof: str
    id: str
    made: str
    signer: SignerFacts | None
    source: RepositoryFacts
    code: str


class SeriesFacts(Model):
    """What a series was going to do, written before its first part.

    Attributes:
        format: of these facts, and of the record.
        rankproof: version that began it.
        id: of the series.
        made: when it was begun, in UTC.
        signer: who signs it, and every part.
        source: the repository it was begun in.
        code: one digest of Rankproof's own files, as they were when it began; it goes on with no
            other.
    """

    format: int
    rankproof: str
    id: str
    made: str
    signer: SignerFacts | None
    source: RepositoryFacts
    code: Digest

    kind: ClassVar[str]
    """What the series is called in messages."""


class SeriesRecord(Model):
    """What came out of a series: `results.json`."""

    format: int
    facts: SeriesFacts

    def encode(self) -> bytes:
        """Encode the record in the one way it is written."""
        return (
            json.dumps(self.model_dump(mode="json"), ensure_ascii=True, indent=1).encode() + b"\n"
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read it. Raises RecordError."""
        return read_model(cls, data, name=PATH)


F = TypeVar("F", bound=SeriesFacts)
R = TypeVar("R", bound=SeriesRecord)


class Series(Generic[F, R]):
    """One kind of series.

    Attributes:
        name: of its command, and of its folder in the results.
        path: of its facts in its folder.
        figure: path of the picture of its record; empty where there is none.
        facts: the model of its facts.
        record: the model of its record.
    """

    name: str
    path: str
    figure: str = ""
    facts: type[F]
    record: type[R]

    def parts(self, facts: F) -> Sequence[PlannedPart]:
        """Its parts, in the order in which they are made."""
        raise NotImplementedError

    def is_of_other_code(self, facts: F) -> bool:
        """Return whether other code than this began it."""
        return facts.code != code()

    def files(self, part: PlannedPart) -> Mapping[str, bytes]:
        """Return the folder of the scenario that is run for a part."""
        raise NotImplementedError

    @contextmanager
    def making(self) -> Iterator[None]:
        """Hold what all parts are made with."""
        yield

    def make(
        self,
        part: PlannedPart,
        _facts: F,
        folder: ResultsFolder,
        *,
        signer: Signer | None,
        jobs: int,
    ) -> float:
        """Make one part, and take it in at once, or not at all; returns how long it took."""
        return _make(self, part, folder, signer=signer, jobs=jobs)

    def assemble(self, read: Read, names: Collection[str]) -> R:
        """Count its parts. Raises RecordError."""
        raise NotImplementedError

    def draw(self, record: R) -> bytes:
        """Return the picture of its record."""
        raise NotImplementedError

    def render(self, record: R, *, manifest_digest: str) -> bytes:
        """Return the body of `report.md`; `manifest_digest` is the sha256 of the manifest, 64 hex
        digits.
        """
        raise NotImplementedError

    def other_plan(self, facts: F) -> str:
        """How its plan differs from what this version would make of the same question.

        Empty where it does not.
        """
        raise NotImplementedError

    def on_trust(self, _facts: F) -> str:
        """Return what its evidence does not hold, so that nobody can work it out again.

        Empty where it holds everything.
        """
        return ""

    def read(self, data: bytes) -> F:
        """Read its facts. Raises RecordError."""
        return read_model(self.facts, data, name=self.path)


def code() -> str:
    """One digest of Rankproof's own modules: parts of two versions make no series."""
    top = Path(harness.__file__).resolve().parent
    # Links are followed: in a checkout harness/_integrity is one.
    return fold(
        {
            name: sha256(path.read_bytes())
            for name, path in store.files_of(top).items()
            if name.endswith(".py")
        }
    )


# -- making one ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FinishedSeries(Generic[R]):
    """A series that was signed."""

    record: R
    folder: Path


class SeriesProgress(Generic[F]):
    """Hears how far a series is. This one keeps silent."""

    def planned(self, facts: F, *, there: int, folder: Path) -> None:
        """Hear what is going to be made, how many parts are there already, and where."""

    def began(self, part: PlannedPart, number: int) -> None:
        """Hear that the part of this number, from 1, is being made."""

    def kept(self, part: PlannedPart, number: int, seconds: float) -> None:
        """Hear that the part is there, whole, and stays."""


def begin(
    series: Series[F, R],
    facts_of: Callable[[SeriesOrigin], F],
    *,
    results: Path,
    signer: Signer | None,
    jobs: int = 1,
    account: SeriesProgress[F] | None = None,
) -> FinishedSeries[R]:
    """Make a series.

    Args:
        series: its kind.
        facts_of: makes what it is going to do.
        results: folder of all results.
        signer: who signs it.
        jobs: worlds at the same time.
        account: hears how far it is.

    Raises:
        SeriesError: it could not be made; its folder says how far it came, and can be gone on with.
    """
    place = real_place(results)
    try:
        folder = ResultsFolder(place, series.name)
    except ResultsError as error:
        raise SeriesError(str(error)) from None
    facts = facts_of(
        SeriesOrigin(
            rankproof=harness.__version__,
            id=folder.id,
            made=f"{folder.made:%Y-%m-%dT%H:%M:%SZ}",
            signer=None if signer is None else SignerFacts(key=signer.identity(), name=None),
            source=describe(Path.cwd(), results=place),
            code=code(),
        )
    )
    with _explained():
        folder.write_whole(series.path, (facts.model_dump_json(indent=1) + "\n").encode())
    return _go_on(
        series, folder, facts, signer=signer, jobs=jobs, account=account or SeriesProgress()
    )


def unfinished(series: Series[F, R], path: Path) -> tuple[Path, F]:
    """Return the folder of a series that can be gone on with, and what it was going to do.

    Nothing is written.

    Raises:
        SeriesError: nothing can be gone on with there, and why.
    """
    place = real_place(path)
    if not place.name.endswith(UNFINISHED) or place.parent.name != series.name:
        raise SeriesError(
            f"{path} is not the folder of an unfinished `rankproof lab {series.name}`; pass a folder"
            f" whose name ends with {UNFINISHED}"
        )
    try:
        facts = series.read((place / series.path).read_bytes())
    except (OSError, RecordError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise SeriesError(
            f"{path} cannot be resumed, because its plan is missing or damaged ({what}); run"
            f" `rankproof lab {series.name}` without --resume"
        ) from None
    if facts.rankproof != harness.__version__ or series.is_of_other_code(facts):
        raise SeriesError(
            f"{path} was started with a different version of the code, and parts of two versions"
            f" cannot be combined. Go back to commit {facts.source.commit or '(not known)'}, or"
            f" run `rankproof lab {series.name}` without --resume"
        )
    return place, facts


def resume(
    series: Series[F, R],
    path: Path,
    *,
    signer: Signer | None,
    jobs: int = 1,
    account: SeriesProgress[F] | None = None,
) -> FinishedSeries[R]:
    """Go on with a series that did not come to its end: with the parts that are missing.

    Raises:
        SeriesError: nothing can be gone on with there, and why.
    """
    place, facts = unfinished(series, path)
    key = None if facts.signer is None else facts.signer.key
    if key != (None if signer is None else signer.identity()):
        raise SeriesError(
            f"{path} was started with {f'the key {key}' if key else 'no key'}; resume it in the"
            " same way"
        )
    with _explained():
        folder = ResultsFolder.reopen(place)
    return _go_on(
        series, folder, facts, signer=signer, jobs=jobs, account=account or SeriesProgress()
    )


def _go_on(
    series: Series[F, R],
    folder: ResultsFolder,
    facts: F,
    *,
    signer: Signer | None,
    jobs: int,
    account: SeriesProgress[F],
) -> FinishedSeries[R]:
    """Make the parts that are missing, count, and sign."""
    # Beside the folder, whose name changes at the end. Nobody waits: two processes never make one
    # series, and the second is refused at once.
    lock = FileLock(folder.path.with_name(f".{facts.id}.lock"), timeout=0)
    again = f"continue with: rankproof lab {series.name} --resume {folder.path}"
    try:
        with lock, _explained(again):
            making = folder.path / MAKING
            parts = series.parts(facts)
            shutil.rmtree(making, ignore_errors=True)  # what a kill left half made
            for stray in (PATH, "UNFINISHED.txt"):
                (folder.path / stray).unlink(missing_ok=True)
            names = {part.path for part in parts}
            # What a kill left of pictures goes with whatever else lies there.
            folder.take_in({series.path, *names})
            account.planned(facts, there=len(names & folder.digests.keys()), folder=folder.path)
            with series.making():
                for number, part in enumerate(parts, 1):
                    if part.path in folder.digests:
                        continue
                    account.began(part, number)
                    seconds = series.make(part, facts, folder, signer=signer, jobs=jobs)
                    account.kept(part, number, seconds)
            shutil.rmtree(making, ignore_errors=True)
            record = series.assemble(folder.read, folder.digests.keys())
            if series.figure:
                folder.write_whole(series.figure, series.draw(record))
            folder.write_whole(PATH, record.encode())
            finished = FinishedSeries(record=record, folder=sign(series, record, folder, signer))
    except Timeout:
        raise SeriesError(f"{folder.path} is being written by another process") from None
    Path(lock.lock_file).unlink(missing_ok=True)
    return finished


def _make(
    series: Series[F, R],
    part: PlannedPart,
    folder: ResultsFolder,
    *,
    signer: Signer | None,
    jobs: int,
) -> float:
    """Make one part in a folder of its own, and take it in at once, or not at all.

    Returns how long it took.
    """
    making = folder.path / MAKING
    shutil.rmtree(making, ignore_errors=True)
    place = making / part.name
    place.mkdir(parents=True)
    for name, content in series.files(part).items():
        (place / name).write_bytes(content)
    finished = run(
        load_scenario(place), RunSettings(results=making / "results", signer=signer, jobs=jobs)
    )
    for view in (*checked(), statement.NAME):  # made of what is signed, and larger than it
        (finished.folder / view).unlink(missing_ok=True)
    packed = making / f"{part.name}.tar.xz"
    bundle(finished.folder, packed, inputs_limit=0, allowed=LET_OUT, lock=False)
    folder.take(part.path, packed)
    shutil.rmtree(making, ignore_errors=True)
    return finished.record.run.seconds


def sign(series: Series[F, R], record: R, folder: ResultsFolder, signer: Signer | None) -> Path:
    """Write manifest and report, sign it, and name the folder; returns the folder."""
    listing = manifest.encode(folder.digests)
    body = series.render(record, manifest_digest=sha256(listing))
    if signer is None:
        report = body + footer.unsigned_footer("no key was used")
    else:
        report = footer.attach(body, signer.sign(footer.signed_part(body), NAMESPACE_REPORT))
    return folder.finish(manifest=(manifest.NAME, listing), report=(statement.REPORT, report))


@contextmanager
def _explained(again: str = "") -> Iterator[None]:
    """Explain in one line whatever stops a series, with what to do; its parts stay."""
    more = f". {again}" if again else ""
    try:
        yield
    except Interrupted:
        raise SeriesError(f"interrupted{more}") from None
    except ScenarioError as error:
        raise SeriesError(
            f"a part cannot run: {'; '.join(map(str, error.problems))}{more}"
        ) from None
    except (ResultsError, RunError, BundleError, RecordError) as error:
        raise SeriesError(f"{error}{more}") from None
    except Timeout:
        raise
    except OSError as error:
        raise SeriesError(f"{error}{more}") from error
