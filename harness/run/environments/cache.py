"""The environments of arms: made once, kept in a cache, checked before and after every run.

    CACHE/<key>/stamp.json         written last, in one step: what is there, and in which folder
    CACHE/<key>/<8 hex>/           the virtual environment
    CACHE/<key>/<8 hex>.files      sha256 of each of its files, as sha256sum writes them

The key is a digest of what was asked for. What was killed while it was made has no stamp, and
whoever makes it next clears it away; a lock per key lets one process make it while others wait.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from harness.forms.digest import fold, lines, sha256, sha256_of
from harness.forms.model import Model
from harness.forms.variables import cache_folder
from harness.reason import Skip, SkipCode
from harness.record.environment import start_files_of
from harness.record.facts import ArmEnvironmentFacts
from harness.run.environments.make import WHEELS, EnvironmentPlan, Says, for_cpu, make, preview
from harness.run.environments.pip import (
    EnvironmentProblem,
    Interpreter,
    NoInterpreter,
    Unavailable,
    find_interpreter,
)
from harness.run.environments.supply import NOTHING, Supply, named_as_now
from harness.scenario import Environment, Scenario
from harness.scenario.environment import bare

VARIABLE = "RANKPROOF_ENVIRONMENTS"
STAMP = "stamp.json"
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class ReadyEnvironment:
    """An environment that is ready.

    Attributes:
        python: its interpreter.
        named: the packages that the scenario or its file of requirements names, by normal name.
        facts: what is installed, for the record.
        requirements: that file; None where there is none.
        wheels: what was built from checkouts.
    """

    python: Path
    named: tuple[str, ...]
    facts: ArmEnvironmentFacts
    requirements: bytes | None = None
    wheels: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cached:
    """An environment in the cache, for listings.

    `description` is None for what was never finished.
    """

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


def provide(
    wanted: Environment, supply: Supply = NOTHING, *, says: Says = lambda _text: None
) -> ReadyEnvironment:
    """Find an environment in the cache, or make it.

    Args:
        wanted: what the scenario asks for.
        supply: the file of requirements and the checkouts that it names.
        says: hears what takes long, what will be installed, and what was wrong with the cache.

    Raises:
        Unavailable: no such interpreter, or a package that cannot be had here: the cells are
            SKIPPED.
        EnvironmentProblem: a version that does not exist, versions that exclude each other, no
            space, no right.
    """
    base = _base(wanted)
    words = description(wanted, supply, base)
    place = cache() / key(wanted, supply, base)
    for source in supply.checkouts.values():
        if source.caution:
            says(source.caution)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with _locked(place, words=words, says=says):
            stamp = _whole(place, says=says)
            if stamp is None:
                says(f"making an environment with {words}")
                stamp = _make(place, wanted, supply, base, says=says)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write the environment with {words} to the cache: {error.strerror}"
        ) from None
    folder = place / stamp.folder
    facts = stamp.facts.model_copy(
        update={
            "checkouts": named_as_now(stamp.facts.checkouts, supply.checkouts),
            # Looked for anew: the interpreter that it was made from is not part of what the stamp
            # holds.
            "start_files": start_files_of(folder, base.stdlib),
        }
    )
    named = {*wanted.versions, *wanted.checkouts, *(line.name for line in supply.requirements)}
    return ReadyEnvironment(
        python=folder / "bin" / "python",
        named=tuple(sorted(named & facts.versions.keys())),
        facts=facts,
        requirements=supply.text,
        wheels=tuple(folder / WHEELS / checkout.wheel for checkout in facts.checkouts.values()),
    )


def planned(wanted: Environment, supply: Supply, *, says: Says) -> str | EnvironmentPlan | None:
    """Return what `provide` would do: install this, or nothing but an interpreter (None).

    Or in words what is there already.

    Raises:
        Unavailable, EnvironmentProblem: as for `provide`.
    """
    base = _base(wanted)
    with contextlib.suppress(OSError):
        if _whole(cache() / key(wanted, supply, base), says=says) is not None:
            return f"{description(wanted, supply, base)}: already in the cache"
    return preview(wanted, supply, base=base, says=says)


def _base(wanted: Environment) -> Interpreter:
    try:
        return find_interpreter(wanted.python)
    except NoInterpreter as error:
        raise Unavailable(str(error), code=SkipCode.MACHINE_INTERPRETER) from None


def of_arms(
    scenario: Scenario, supplies: Mapping[str, Supply], *, says: Says
) -> tuple[dict[str, ReadyEnvironment], Skip | None]:
    """Return the environments of the arms that have their own, and why one could not be had.

    Raises:
        EnvironmentProblem: one cannot be made as the scenario asks.
    """
    environments: dict[str, ReadyEnvironment] = {}
    for arm, wanted in scenario.subject.environments.items():
        try:
            environments[arm] = provide(wanted, supplies[arm], says=says)
        except Unavailable as error:
            return {}, Skip(error.code, f"environment of {scenario.subject.named(arm)}: {error}")
        except EnvironmentProblem as error:
            raise EnvironmentProblem(
                f"environment of {scenario.subject.named(arm)}: {error}"
            ) from None
    return environments, None


def is_unchanged(environment: ReadyEnvironment) -> bool:
    """Return whether an environment is what it was: asked after a run, whose ranks could have
    written to it.
    """
    folder = environment.python.parent.parent
    try:
        stamp = _read(folder.parent)
        return (
            stamp is not None and stamp.folder == folder.name and _same(folder, stamp) is not None
        )
    except OSError:
        return False


def key(wanted: Environment, supply: Supply, base: Interpreter) -> str:
    """Return the name of an environment in the cache: a file of requirements and a checkout by what
    they hold.
    """
    request = {
        "format": FORMAT,
        "python": [base.version, base.implementation, base.platform, str(base.path.resolve())],
        "packages": dict(
            sorted(
                (name, given) for name, given in wanted.packages.items() if isinstance(given, str)
            )
        ),
        "checkouts": {
            name: supply.checkouts[bare(name)].key
            for name, given in sorted(wanted.packages.items())
            if not isinstance(given, str)
        },
        "requirements": supply.digest,
        "cpu": for_cpu(wanted),
    }
    return sha256(json.dumps(request, sort_keys=True).encode())[:32]


def description(wanted: Environment, supply: Supply, base: Interpreter) -> str:
    """Return an environment in words."""
    words = [f"Python {base.version}"]
    for name, given in wanted.packages.items():
        commit = "" if isinstance(given, str) else supply.checkouts[bare(name)].facts.commit[:12]
        words.append(f"{name} {given}" if isinstance(given, str) else f"{name} at commit {commit}")
    return ", ".join(
        words + ([f"the packages of {wanted.requirements}"] if wanted.requirements else [])
    )


def cached() -> list[Cached]:
    """Everything in the cache."""
    environments = []
    with contextlib.suppress(OSError):
        for folder in sorted(path for path in cache().iterdir() if path.is_dir()):
            stamp = _read(folder)
            size = (
                stamp.bytes
                if stamp is not None
                else sum(path.lstat().st_size for path in folder.rglob("*"))
            )
            environments.append(
                Cached(
                    key=folder.name,
                    folder=folder,
                    description=stamp.description if stamp else None,
                    bytes=size,
                )
            )
    return environments


def remove(environment: Cached) -> bool:
    """Take an environment out of the cache; False where somebody makes it just now."""
    try:
        # Who makes it holds this lock for minutes: it is not waited for.
        with FileLock(_lock(environment.folder), timeout=0):
            (environment.folder / STAMP).unlink(missing_ok=True)
            shutil.rmtree(environment.folder)
    except Timeout:
        return False
    return True


# -- making ------------------------------------------------------------------------------------


def _lock(place: Path) -> str:
    # Beside the folder and left there: a lock that is removed with what it guards guards nothing.
    return str(place.with_suffix(".lock"))


@contextlib.contextmanager
def _locked(place: Path, *, words: str, says: Says) -> Iterator[None]:
    # One process makes an environment, and the others take what it made. First without waiting, so
    # that whoever has to wait says why.
    lock = FileLock(_lock(place))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        says(f"waiting for another process that is making the environment with {words}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _make(
    place: Path, wanted: Environment, supply: Supply, base: Interpreter, *, says: Says
) -> Stamp:
    """Make it, and write the stamp. What does not get that far leaves nothing."""
    for old in place.iterdir():
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink()
    folder = place / secrets.token_hex(4)
    listing = folder.with_suffix(".files")
    try:
        facts = make(folder, wanted, supply, base=base, says=says)
        files = digests(folder)
        listing.write_bytes(lines(files))
        stamp = Stamp(
            format=FORMAT,
            folder=folder.name,
            description=description(wanted, supply, base),
            bytes=sum((folder / name).lstat().st_size for name in files),
            content=fold(files),
            seen=seen(folder),
            facts=facts,
        )
        _write(place, stamp)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        listing.unlink(missing_ok=True)
        raise
    return stamp


# -- keeping -----------------------------------------------------------------------------------


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


def _whole(place: Path, *, says: Says) -> Stamp | None:
    """Return what is in the cache, where every file is as it was when it was made.

    Else None, and why is said.
    """
    if (stamp := _read(place)) is None:
        if any(place.iterdir()):
            says("an environment in the cache was never finished; making it again")
        return None
    folder = place / stamp.folder
    now = _same(folder, stamp)
    if now is None:
        name = changed(folder, folder.with_suffix(".files"))
        says(f"an environment in the cache has changed since it was made ({name}); making it again")
        return None
    if now != stamp.seen:
        stamp = stamp.model_copy(update={"seen": now})
        _write(place, stamp)
    return stamp


def _same(folder: Path, stamp: Stamp) -> str | None:
    """Return what is seen of an environment now, or None where its content is another.

    Names, sizes and kernel times first, which is cheap; only where they differ every file is read.
    A copied cache has other times and the same content.
    """
    if not folder.is_dir():
        return None
    now = seen(folder)
    if now == stamp.seen or fold(digests(folder)) == stamp.content:
        return now
    return None


def seen(folder: Path) -> str:
    """One digest of names, sizes and kernel times: cheap, and another where a file was written
    to.
    """
    digest = hashlib.sha256()
    statuses = sorted((str(path.relative_to(folder)), path.lstat()) for path in _files(folder))
    for name, status in statuses:
        text = f"{status.st_ino} {status.st_size} {status.st_mode} {status.st_ctime_ns} {name}\n"
        digest.update(text.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def digests(folder: Path) -> dict[str, str]:
    """Sha256 of each file by its name in the folder; of a link, that of its target's name."""
    by_path = {}
    for path in _files(folder):
        digest = sha256(os.fsencode(path.readlink())) if path.is_symlink() else sha256_of(path)
        by_path[str(path.relative_to(folder))] = digest
    return by_path


def changed(folder: Path, listing: Path) -> str:
    """Which file is not as a list of digests, written by sha256sum's rules, says: the first, and
    how many more.
    """
    try:
        lines = listing.read_bytes().decode("utf-8", "surrogateescape").splitlines()
        before = {line[66:]: line[:64] for line in lines}
        now = digests(folder)
    except OSError:
        return "its list of files is missing"
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if not names:
        return "its list of files"
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


def _files(folder: Path) -> Iterator[Path]:
    for top, folders, files in os.walk(folder):
        for name in (*files, *folders):
            path = Path(top, name)
            if name in files or path.is_symlink():
                yield path
