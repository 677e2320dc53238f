"""The environments of arms: made once, kept in a cache, checked before and after every run.

    CACHE/<key>/stamp.json         written last, in one step: what is there, and the folder that holds it
    CACHE/<key>/<8 hex>/           the virtual environment
    CACHE/<key>/<8 hex>.files      sha256 of each of its files, as sha256sum writes them

The key is a digest of what was asked for. What was killed while it was made has no stamp, and whoever makes it next
clears it away; a lock per key lets one process make it while others wait.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from harness.forms.cache import cache_folder
from harness.forms.digest import fold, lines, sha256, sha256_of
from harness.forms.distribution import normal, wheel_digest
from harness.forms.model import Model
from harness.reason import Skip, SkipCode
from harness.record.arms import own_environments
from harness.record.facts import ArmEnvironmentFacts, Installed
from harness.run.environments import interpreters, pip
from harness.run.environments.interpreters import Interpreter, NoInterpreter
from harness.run.environments.pip import EnvironmentProblem, Unavailable
from harness.scenario import Environment, Scenario

VARIABLE = "RANKPROOF_ENVIRONMENTS"
STAMP = "stamp.json"
FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class ArmEnvironment:
    """An environment that is ready.

    Attributes:
        python: its interpreter.
        named: the packages that the scenario names, by normal name.
        facts: what is installed, for the record.
    """

    python: Path
    named: tuple[str, ...]
    facts: ArmEnvironmentFacts


@dataclass(frozen=True, kw_only=True)
class Cached:
    """An environment in the cache, for listings. `description` is None for what was never finished."""

    key: str
    folder: Path
    description: str | None
    bytes: int


class Stamp(Model):
    """What `stamp.json` holds.

    Attributes:
        folder: the environment's, below the key's.
        description: what it was made for, in words.
        bytes: size of its files.
        content: sha256 of the list of its files.
        seen: digest of names, sizes and kernel times of its files when they were last read.
    """

    format: int
    folder: str
    description: str
    bytes: int
    content: str
    seen: str
    facts: ArmEnvironmentFacts


def cache() -> Path:
    """Where environments are kept: RANKPROOF_ENVIRONMENTS, else below the user's cache folder."""
    return cache_folder("environments", variable=VARIABLE)


def provide(wanted: Environment, *, says: Callable[[str], None] = lambda _text: None) -> ArmEnvironment:
    """Find an environment in the cache, or make it; `says` hears what takes long, and what was wrong with the cache.

    Raises:
        Unavailable: no such interpreter, or a package that cannot be had here: the cells are SKIPPED.
        EnvironmentProblem: a version that does not exist, versions that exclude each other, no space, no right.
    """
    try:
        base = interpreters.find(wanted.python)
    except NoInterpreter as error:
        raise Unavailable(str(error), code=SkipCode.MACHINE_INTERPRETER) from None
    words = description(wanted, base)
    place = cache() / key(wanted, base)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with _locked(place, words=words, says=says):
            stamp = _whole(place, says=says)
            if stamp is None:
                says(f"making an environment with {words}")
                stamp = _make(place, wanted, base)
    except OSError as error:
        raise EnvironmentProblem(
            f"the environment with {words} cannot be kept in the cache: {error.strerror}"
        ) from None
    return ArmEnvironment(
        python=place / stamp.folder / "bin" / "python", named=tuple(sorted(wanted.packages)), facts=stamp.facts
    )


def of_arms(scenario: Scenario, *, says: Callable[[str], None]) -> tuple[dict[str, ArmEnvironment], Skip | None]:
    """The environments of the arms that have their own, and why one could not be had.

    Raises:
        EnvironmentProblem: one cannot be made as the scenario asks.
    """
    made: dict[str, ArmEnvironment] = {}
    for arm, wanted in own_environments(scenario).items():
        try:
            made[arm] = provide(wanted, says=says)
        except Unavailable as error:
            return {}, Skip(error.code, f"environment of the {arm}: {error}")
        except EnvironmentProblem as error:
            raise EnvironmentProblem(f"environment of the {arm}: {error}") from None
    return made, None


def is_unchanged(made: ArmEnvironment) -> bool:
    """Whether an environment is what it was: asked after a run, whose ranks could have written to it."""
    folder = made.python.parent.parent
    try:
        stamp = _read(folder.parent)
        return stamp is not None and stamp.folder == folder.name and _same(folder, stamp) is not None
    except OSError:
        return False


def key(wanted: Environment, base: Interpreter) -> str:
    """The name of an environment in the cache."""
    request = {
        "format": FORMAT,
        "python": [base.version, base.implementation, base.platform, str(base.path.resolve())],
        "packages": dict(sorted(wanted.packages.items())),
    }
    return sha256(json.dumps(request, sort_keys=True).encode())[:32]


def description(wanted: Environment, base: Interpreter) -> str:
    """An environment in words."""
    return ", ".join([f"Python {base.version}", *(f"{name} {version}" for name, version in wanted.packages.items())])


def cached() -> list[Cached]:
    """Everything in the cache."""
    environments = []
    with contextlib.suppress(OSError):
        for folder in sorted(path for path in cache().iterdir() if path.is_dir()):
            stamp = _read(folder)
            size = stamp.bytes if stamp is not None else sum(path.lstat().st_size for path in folder.rglob("*"))
            environments.append(
                Cached(key=folder.name, folder=folder, description=stamp.description if stamp else None, bytes=size)
            )
    return environments


def remove(environment: Cached) -> bool:
    """Take an environment out of the cache; False where somebody makes it just now."""
    try:
        with FileLock(_lock(environment.folder), timeout=0):
            (environment.folder / STAMP).unlink(missing_ok=True)
            shutil.rmtree(environment.folder)
    except Timeout:
        return False
    return True


# -- making ----------------------------------------------------------------------------------------------------------


def _lock(place: Path) -> str:
    # Beside the folder and left there: a lock that is removed with what it guards guards nothing.
    return str(place.with_suffix(".lock"))


@contextlib.contextmanager
def _locked(place: Path, *, words: str, says: Callable[[str], None]) -> Iterator[None]:
    lock = FileLock(_lock(place))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        says(f"another process makes an environment with {words}: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _make(place: Path, wanted: Environment, base: Interpreter) -> Stamp:
    """Make it, and write the stamp. What does not get that far leaves nothing."""
    for old in place.iterdir():
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink()
    folder = place / secrets.token_hex(4)
    listing = folder.with_suffix(".files")
    try:
        _venv(folder, base)
        resolved = []
        if wanted.packages:
            report = folder / "report.json"
            resolved = pip.install(folder / "bin" / "python", wanted.packages, base=base, report=report)
            report.unlink()  # it holds addresses
        facts = _facts(folder, wanted, base, resolved)
        files = _digests(folder)
        listing.write_bytes(lines(files))
        stamp = Stamp(
            format=FORMAT,
            folder=folder.name,
            description=description(wanted, base),
            bytes=sum((folder / name).lstat().st_size for name in files),
            content=fold(files),
            seen=_seen(folder),
            facts=facts,
        )
        _write(place, stamp)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        listing.unlink(missing_ok=True)
        raise
    return stamp


def _venv(folder: Path, base: Interpreter) -> None:
    """A virtual environment without pip: what is not asked for is not there."""
    done = subprocess.run(
        [str(base.path), "-I", "-m", "venv", "--without-pip", str(folder)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        if "No space left" in done.stderr:
            raise pip.problem(done.stderr, requirements=[], python=base.version)
        message = f"Python {base.version} makes no virtual environment: {pip.scrubbed(words)}"
        raise Unavailable(message, code=SkipCode.MACHINE_INTERPRETER)


def _facts(folder: Path, wanted: Environment, base: Interpreter, resolved: list[pip.Resolved]) -> ArmEnvironmentFacts:
    facts = ArmEnvironmentFacts(
        python=base.version, implementation=base.implementation, packages=_installed(folder, resolved)
    )
    if not wanted.is_met_by(python=facts.python, packages=facts.versions):
        raise EnvironmentProblem(f"pip did not install what was asked for: {description(wanted, base)}")
    return facts


def _installed(folder: Path, resolved: list[pip.Resolved]) -> list[Installed]:
    """Everything that is installed, each with the digest of its wheel and of its RECORD."""
    places = [str(path) for path in folder.glob("lib/python*/site-packages")]
    records: dict[str, tuple[str, str | None]] = {}
    for distribution in importlib.metadata.distributions(path=places):
        records[normal(distribution.metadata["Name"])] = (distribution.version, distribution.read_text("RECORD"))
    if {name: version for name, (version, _) in records.items()} != {one.name: one.version for one in resolved}:
        raise EnvironmentProblem(
            "pip's report names other packages than are installed: is its configuration elsewhere?"
        )
    packages = []
    for package in resolved:
        _, record = records[package.name]
        if record is None:
            raise EnvironmentProblem(f"{package.name} {package.version} has no RECORD: its files are unknown")
        packages.append(
            Installed(name=package.name, version=package.version, wheel=package.wheel, record=wheel_digest(record))
        )
    return packages


# -- keeping ---------------------------------------------------------------------------------------------------------


def _read(place: Path) -> Stamp | None:
    try:
        stamp = Stamp.model_validate_json((place / STAMP).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    # A name of ours, and no way out of the folder.
    return stamp if stamp.format == FORMAT and stamp.folder.isalnum() else None


def _write(place: Path, stamp: Stamp) -> None:
    draft = place / f"{STAMP}.{secrets.token_hex(4)}"
    try:
        draft.write_text(stamp.model_dump_json(indent=1) + "\n")
        draft.replace(place / STAMP)
    finally:
        draft.unlink(missing_ok=True)


def _whole(place: Path, *, says: Callable[[str], None]) -> Stamp | None:
    """What is in the cache, where every file is as it was when it was made; else None, and why is said."""
    if (stamp := _read(place)) is None:
        if any(place.iterdir()):
            says("an environment in the cache was never finished: it is made again")
        return None
    seen = _same(place / stamp.folder, stamp)
    if seen is None:
        name = _changed_file(place / stamp.folder)
        says(f"an environment in the cache has changed since it was made ({name}): it is made again")
        return None
    if seen != stamp.seen:
        stamp = stamp.model_copy(update={"seen": seen})
        _write(place, stamp)
    return stamp


def _same(folder: Path, stamp: Stamp) -> str | None:
    """What is seen of an environment now, or None where its content is another.

    Names, sizes and kernel times first, which is cheap; only where they differ every file is read. A copied cache has
    other times and the same content.
    """
    if not folder.is_dir():
        return None
    seen = _seen(folder)
    if seen == stamp.seen or fold(_digests(folder)) == stamp.content:
        return seen
    return None


def _changed_file(folder: Path) -> str:
    try:
        lines = folder.with_suffix(".files").read_bytes().decode("utf-8", "surrogateescape").splitlines()
        before = {line[66:]: line[:64] for line in lines}
        now = _digests(folder)
    except OSError:
        return "its list of files is gone"
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return (
        f"{changed[0]}{f' and {len(changed) - 1} more' if len(changed) > 1 else ''}" if changed else "its list of files"
    )


def _files(folder: Path) -> Iterator[Path]:
    for top, folders, files in os.walk(folder):
        for name in (*files, *folders):
            path = Path(top, name)
            if name in files or path.is_symlink():
                yield path


def _seen(folder: Path) -> str:
    digest = hashlib.sha256()
    statuses = sorted((str(path.relative_to(folder)), path.lstat()) for path in _files(folder))
    for name, status in statuses:
        text = f"{status.st_ino} {status.st_size} {status.st_mode} {status.st_ctime_ns} {name}\n"
        digest.update(text.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _digests(folder: Path) -> dict[str, str]:
    """Sha256 of each file by its name in the folder; of a link, that of its target's name."""
    digests = {}
    for path in _files(folder):
        own = sha256(os.fsencode(path.readlink())) if path.is_symlink() else sha256_of(path)
        digests[str(path.relative_to(folder))] = own
    return digests
