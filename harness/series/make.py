"""Making a series: part by part, so that whatever kills it costs the part that was being made, and no other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from filelock import FileLock, Timeout

from harness import __version__
from harness.forms import manifest
from harness.forms.digest import sha256
from harness.forms.source import real_place
from harness.record.facts import SignerFacts, Source
from harness.record.model import PATH, RecordError
from harness.record.repository import describe
from harness.record.results import UNFINISHED, ResultsError, ResultsFolder
from harness.report.views import checked
from harness.reproduce.bundle import BundleError, bundle
from harness.run.plan import RunSettings
from harness.run.run import Interrupted, RunError, run
from harness.scenario import ScenarioError, load_scenario
from harness.series.series import F, Part, R, Series
from harness.trust import footer, statement
from harness.trust.key import Signer
from harness.trust.sshsig import NAMESPACE_REPORT

MAKING = "making"
# What a bundle says of this machine is what a report says; whoever sends a series to somebody looks at it first.
LET_OUT = ("home", "host", "secret", "user")


class SeriesError(Exception):
    """A series that could not be made, or gone on with; the message says what, where and what to do."""


@dataclass(frozen=True, kw_only=True)
class Finished(Generic[R]):
    """A series that was signed."""

    record: R
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Who makes a series, when, and of which code: what its facts say beside its own."""

    id: str
    made: str
    rankproof: str
    signer: SignerFacts | None
    source: Source


class Account(Generic[F]):
    """Hears how far a series is. This one keeps silent."""

    def planned(self, facts: F, *, there: int, folder: Path) -> None:
        """What is going to be made, how many parts are there already, and where."""

    def began(self, part: Part, number: int) -> None:
        """The part of this number, from 1, is being made."""

    def kept(self, part: Part, number: int, seconds: float) -> None:
        """It is there, whole, and stays."""


def begin(
    series: Series[F, R],
    facts_of: Callable[[Origin], F],
    *,
    results: Path,
    signer: Signer | None,
    jobs: int = 1,
    account: Account[F] | None = None,
) -> Finished[R]:
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
        Origin(
            id=folder.id,
            made=f"{folder.made:%Y-%m-%dT%H:%M:%SZ}",
            rankproof=__version__,
            signer=None if signer is None else SignerFacts(key=signer.identity(), name=None),
            source=describe(Path.cwd(), results=place),
        )
    )
    with _told():
        folder.write_whole(series.facts, (facts.model_dump_json(indent=1) + "\n").encode())
    return _go_on(series, folder, facts, signer=signer, jobs=jobs, account=account or Account())


def unfinished(series: Series[F, R], path: Path) -> tuple[Path, F]:
    """The folder of a series that can be gone on with, and what it was going to do; nothing is written.

    Raises:
        SeriesError: nothing can be gone on with there, and why.
    """
    place = real_place(path)
    if not place.name.endswith(UNFINISHED) or place.parent.name != series.name:
        raise SeriesError(
            f"{path} is not the folder of an unfinished {series.name}: name one that ends with {UNFINISHED}"
        )
    try:
        facts = series.read((place / series.facts).read_bytes())
    except (OSError, RecordError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise SeriesError(
            f"{path} cannot be gone on with: what it was going to do is not there or not whole ({what}); begin another"
        ) from None
    if facts.rankproof != __version__ or series.is_of_other_code(facts):
        raise SeriesError(
            f"{path} was begun by other code than this: parts of two versions make no {series.name}. Go back to commit "
            f"{facts.source.commit or '(not known)'}, or begin another"
        )
    return place, facts


def resume(
    series: Series[F, R], path: Path, *, signer: Signer | None, jobs: int = 1, account: Account[F] | None = None
) -> Finished[R]:
    """Go on with a series that did not come to its end: with the parts that are missing.

    Raises:
        SeriesError: nothing can be gone on with there, and why.
    """
    place, facts = unfinished(series, path)
    key = None if facts.signer is None else facts.signer.key
    if key != (None if signer is None else signer.identity()):
        raise SeriesError(f"{path} was begun with {f'the key {key}' if key else 'no key'}: go on with the same")
    with _told():
        folder = ResultsFolder.reopen(place)
    return _go_on(series, folder, facts, signer=signer, jobs=jobs, account=account or Account())


def _go_on(
    series: Series[F, R], folder: ResultsFolder, facts: F, *, signer: Signer | None, jobs: int, account: Account[F]
) -> Finished[R]:
    """Make the parts that are missing, count, and sign. Two processes never do so at once."""
    lock = FileLock(folder.path.with_name(f".{facts.id}.lock"), timeout=0)
    again = f"go on with: rankproof {series.name} --resume {folder.path}"
    try:
        with lock, _told(again):
            making, parts = folder.path / MAKING, series.parts(facts)
            shutil.rmtree(making, ignore_errors=True)  # what a kill left half made
            for stray in (PATH, "UNFINISHED.txt"):
                (folder.path / stray).unlink(missing_ok=True)
            names = {part.path for part in parts}
            folder.take_in({series.facts, *names})  # what a kill left of pictures goes with whatever else lies there
            account.planned(facts, there=len(names & folder.digests.keys()), folder=folder.path)
            for number, part in enumerate(parts, 1):
                if part.path in folder.digests:
                    continue
                account.began(part, number)
                seconds = _make(series, part, folder, making, signer=signer, jobs=jobs)
                account.kept(part, number, seconds)
            shutil.rmtree(making, ignore_errors=True)
            record = series.assemble(folder.read, folder.digests.keys())
            for name, picture in series.figures(record).items():
                folder.write_whole(name, picture)
            folder.write_whole(PATH, record.encode())
            finished = Finished(record=record, folder=_sign(series, record, folder, signer))
    except Timeout:
        raise SeriesError(f"{folder.path} is being made by another process") from None
    Path(lock.lock_file).unlink(missing_ok=True)
    return finished


def _make(
    series: Series[F, R], part: Part, folder: ResultsFolder, making: Path, *, signer: Signer | None, jobs: int
) -> float:
    """Make one part in a folder of its own, and take it in at once, or not at all."""
    shutil.rmtree(making, ignore_errors=True)
    place = making / part.name
    place.mkdir(parents=True)
    for name, content in series.files(part).items():
        (place / name).write_bytes(content)
    finished = run(load_scenario(place), RunSettings(results=making / "results", signer=signer, jobs=jobs))
    for view in (*checked(), statement.NAME):  # made of what is signed, and larger than it
        (finished.folder / view).unlink(missing_ok=True)
    packed = making / f"{part.name}.tar.xz"
    bundle(finished.folder, packed, inputs_limit=0, allowed=LET_OUT, lock=False)
    folder.take(part.path, packed)
    shutil.rmtree(making, ignore_errors=True)
    return finished.record.run.seconds


def _sign(series: Series[F, R], record: R, folder: ResultsFolder, signer: Signer | None) -> Path:
    listing = manifest.encode(folder.digests)
    body = series.render(record, manifest_digest=sha256(listing))
    if signer is None:
        report = body + footer.unsigned_footer("no key was used")
    else:
        report = footer.attach(body, signer.sign(footer.signed_part(body), NAMESPACE_REPORT))
    return folder.finish(manifest=(manifest.NAME, listing), report=(statement.REPORT, report))


@contextmanager
def _told(again: str = "") -> Iterator[None]:
    """Whatever stops a series is told in one line, with what to do; its parts stay."""
    more = f". {again}" if again else ""
    try:
        yield
    except Interrupted:
        raise SeriesError(f"interrupted{more}") from None
    except ScenarioError as error:
        raise SeriesError(f"a part cannot run: {'; '.join(map(str, error.problems))}{more}") from None
    except (ResultsError, RunError, BundleError, RecordError) as error:
        raise SeriesError(f"{error}{more}") from None
    except Timeout:
        raise
    except OSError as error:
        raise SeriesError(f"{error}{more}") from error
