"""What goes into a bundle: the run's folder as it was signed, the inputs it was given, the lock it
ran under.

The scenario, the code of both arms, the patch of a changed tree and the arms' own patches are
evidence of the run and need no place of their own.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from harness import __version__
from harness.forms import manifest
from harness.forms.digest import sha256, sha256_of
from harness.forms.distribution import missing
from harness.forms.source import real_place
from harness.record.facts import PATH as RUN_PATH
from harness.record.facts import InputFacts, RunFacts
from harness.record.model import RecordError, read_model
from harness.report.view import checked
from harness.reproduce.archive import FORMAT, ArchiveError, CarriedInput, Index, Member, pack
from harness.run.inputs import InputError, digests, leaves, remembered
from harness.trust import statement
from harness.trust.folder import (
    LARGEST_FILE,
    LARGEST_MANIFEST,
    LARGEST_REPORT,
    Folder,
    UnreadableFile,
)
from harness.trust.statement import REPORT
from harness.world.control import names

# -- a last look: does what is about to leave the machine name its user, or hold a secret? ---------

# Nothing of the kind should be there: ranks get an allow-list of variables, evidence is written
# without folders, users and hosts. But a scenario, a patch and the code of a subject are whatever
# their author wrote.

Kind = Literal["home", "host", "secret", "user"]
KINDS: tuple[str, ...] = get_args(Kind)
# Only to look for values, never to choose what is recorded: that is an allow-list.
SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|AUTH(?!OR)|COOKIE"
    r"|_PAT\b"
)
SHORTEST = 8
# A key lies in the copied code where `subject.path` took in more than was meant; a line of a patch
# begins with a mark.
PRIVATE_KEY = r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----\r?\n[-+ ]?[A-Za-z0-9+/=]{16}"


@dataclass(frozen=True)
class Leak:
    """Place that names something of this machine.

    What it is stands in the kind, and is not repeated.
    """

    path: str
    line: int
    kind: Kind
    what: str


class LeakNeedles:
    """What must not leave, as patterns over bytes."""

    def __init__(
        self, *, allowed: Iterable[str] = (), environ: Mapping[str, str] | None = None
    ) -> None:
        """Gather them, but for kinds that may leave.

        Secrets from `environ`, by default this process's environment.
        """
        words: list[tuple[Kind, str, str]] = [
            ("home", names.folder_of(place), "the path of the home folder")
            for place in names.homes()
        ]
        words += [
            ("user", names.word_of(name), "the user's name") for name in sorted(names.users())
        ]
        words += [
            ("host", names.word_of(name), "the name of this machine")
            for name in sorted(names.hosts())
        ]
        words.append(("secret", PRIVATE_KEY, "a private key"))
        for name, value in sorted((os.environ if environ is None else environ).items()):
            is_path = value.startswith(os.sep) and Path(value).exists()
            if SECRET.search(name.upper()) and len(value) >= SHORTEST and not is_path:
                words.append(("secret", re.escape(value), f"the value of {name}"))
        self._patterns: Sequence[tuple[Kind, re.Pattern[bytes], str]] = [
            (kind, re.compile(pattern.encode("utf-8", "surrogateescape")), what)
            for kind, pattern, what in words
            if kind not in allowed
        ]

    def look(self, path: str, data: bytes) -> list[Leak]:
        """Return the first place of each kind in a file, its name included."""
        leaks = []
        for kind, pattern, what in self._patterns:
            if pattern.search(os.fsencode(path)):
                leaks.append(Leak(path, 0, kind, what))
            elif (hit := pattern.search(data)) is not None:
                leaks.append(Leak(path, data.count(b"\n", 0, hit.start()) + 1, kind, what))
        return leaks


# -- what goes in ----------------------------------------------------------------------------------

# Views and statements that lie beside the report and that no manifest lists. Each is made from what
# is signed.
BESIDE = (statement.NAME, *checked())
INPUTS_LIMIT = 64 * 2**20
SUFFIX = ".rankproof.tar.xz"


class BundleError(Exception):
    """Run that cannot be bundled; the message says what, where and what to do."""


class Leaks(BundleError):
    """The bundle would say what must not leave this machine.

    Attributes:
        leaks: where.
    """

    def __init__(self, leaks: list[Leak]) -> None:
        super().__init__(f"{len(leaks)} places contain private data about this machine or its user")
        self.leaks = leaks


@dataclass(frozen=True)
class Bundled:
    """Bundle that was written."""

    path: Path
    sha256: str
    index: Index


@dataclass
class _Content:
    """Members that were gathered: bytes, or the path of an input."""

    held: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)

    def open(self, path: str) -> BinaryIO:
        return self.files[path].open("rb") if path in self.files else io.BytesIO(self.held[path])


def bundle(
    run: Path,
    out: Path,
    *,
    inputs: Mapping[str, Path] | None = None,
    inputs_limit: int = INPUTS_LIMIT,
    allowed: Collection[str] = (),
    lock: bool = True,
) -> Bundled:
    """Write a bundle of a finished run.

    Args:
        run: its folder, or the report in it.
        out: the file to write; must not be there.
        inputs: where inputs lie, by name, for those that are not found where the scenario says.
        inputs_limit: most bytes of inputs that are carried; a larger one is named by its digest
            only.
        allowed: kinds of leaks that are let out: home, host, secret, user.
        lock: carry the lock that the run was made under.

    Raises:
        BundleError: it is not a finished run, a file was changed since it was signed, or the file
            cannot be written.
        Leaks: it would name this machine or its user, or hold a secret of this shell.
    """
    place = run.parent if run.is_file() else run
    content = _Content()
    _take_run(place, content)
    carried: list[CarriedInput] = []
    # A series and a conformance have no inputs, and no lock of a run.
    if f"run/{RUN_PATH}" in content.held:
        try:
            facts = read_model(RunFacts, content.held[f"run/{RUN_PATH}"], name=RUN_PATH)
        except RecordError as error:
            raise BundleError(
                f"{place} contains a run that this version cannot read: {error}"
            ) from None
        carried = _take_inputs(facts, content, given=inputs or {}, limit=inputs_limit)
        if lock:
            _take_lock(facts, content)
    elif inputs:
        raise BundleError(f"{place} has no inputs; leave --input out")
    members = [
        _member(path, content) for path in sorted((*content.held, *content.files), key=str.encode)
    ]
    needles = LeakNeedles(allowed=allowed)
    if leaks := [
        leak
        for member in members
        for leak in needles.look(member.path, _bytes(content, member.path))
    ]:
        raise Leaks(leaks)
    report = sha256(content.held[f"run/{REPORT}"])
    index = Index(
        bundle=FORMAT, rankproof=__version__, report=report, inputs=carried, members=members
    )
    return Bundled(out, _write(out, index, content), index)


def usual_name(run: Path) -> str:
    """Return what a bundle of this run is called."""
    place = real_place(run.parent if run.is_file() else run)
    return f"{place.parent.name}-{place.name}{SUFFIX}"


def _take_run(place: Path, content: _Content) -> None:
    """Report, the manifest, and what the manifest lists.

    Everything must be as it was signed.
    """
    try:
        with Folder(place) as folder:
            content.held[f"run/{REPORT}"] = folder.read(REPORT, LARGEST_REPORT)
            listing = content.held[f"run/{manifest.NAME}"] = folder.read(
                manifest.NAME, LARGEST_MANIFEST
            )
            listed = manifest.parse(listing)
            there = set(folder.names())
            for path, digest in listed.items():
                data = content.held[f"run/{path}"] = folder.read(path, LARGEST_FILE)
                if sha256(data) != digest:
                    raise BundleError(
                        f"{place / path} was changed after it was signed; restore the run as it"
                        " was signed, and bundle it again"
                    )
            for path in there & set(BESIDE) - listed.keys():
                content.held[f"run/{path}"] = folder.read(path, LARGEST_FILE)
            if more := sorted(there - listed.keys() - {REPORT, manifest.NAME, *BESIDE}):
                raise BundleError(
                    f"{place / more[0]} is not part of the run, because the manifest does not list"
                    " it; move it to another folder"
                )
    except OSError as error:
        raise BundleError(
            f"{place} cannot be opened: {error.strerror}; pass the folder of a finished run"
        ) from None
    except UnreadableFile as problem:
        raise BundleError(f"{place} is not a finished run: {problem.message}") from None
    except manifest.ManifestMalformed as error:
        raise BundleError(f"{place}: {error}") from None


def _take_inputs(
    facts: RunFacts, content: _Content, *, given: Mapping[str, Path], limit: int
) -> list[CarriedInput]:
    if unknown := sorted(given.keys() - {wanted.name for wanted in facts.inputs}):
        raise BundleError(f"the run has no input {unknown[0]}")
    carried = []
    left = limit
    for wanted in facts.inputs:
        places = (
            [given[wanted.name]] if wanted.name in given else list(_usual_places(wanted, facts))
        )
        refusals = {place: _differs(wanted, place) for place in places if place.exists()}
        place = next((place for place, why in refusals.items() if not why), None)
        why_not = next(iter(refusals.values()), "")
        if place is None and not why_not:
            lacks = missing("huggingface_hub") if wanted.revision is not None else None
            why_not = (
                f"{lacks or 'it was not found on this machine'}; pass its path with --input"
                " NAME=PATH"
            )
        elif place is not None:
            why_not = ""
            root = place if place.is_dir() else place.parent
            size = sum((root / file).stat().st_size for file in wanted.files)
            if size > left:
                why_not = f"it has {size} bytes, more than is left of the limit"
            else:
                left -= size
                content.files |= {
                    f"inputs/{wanted.name}/{file}": root / file for file in wanted.files
                }
        carried.append(
            CarriedInput(
                name=wanted.name, digest=wanted.digest, carried=not why_not, why_not=why_not
            )
        )
    return carried


def _differs(wanted: InputFacts, place: Path) -> str:
    try:
        same = digests(place, name=wanted.name) == wanted.files
    except InputError as error:
        return str(error)
    return "" if same else "the files at that path differ from the files that the run used"


def _usual_places(wanted: InputFacts, facts: RunFacts) -> Iterator[Path]:
    """Where an input may lie: in the checkout that this command is called from, or where a run of
    this user had it.
    """
    if wanted.revision is not None:
        # Of several families; all mean that it is not in the cache of the hub.
        with suppress(Exception):
            from huggingface_hub import snapshot_download

            model = wanted.given.rpartition("@")[0]
            yield Path(snapshot_download(model, revision=wanted.revision, local_files_only=True))
    elif (
        facts.source.scenario is not None
        and not leaves(facts.source.scenario)
        and not leaves(wanted.given)
    ):
        here = Path.cwd()
        tops = [top for top in (here, *here.parents) if (top / ".git").exists()]
        yield from (top / facts.source.scenario / wanted.given for top in tops[:1])
    if (place := remembered(wanted)) is not None:
        yield place


def _take_lock(facts: RunFacts, content: _Content) -> None:
    """Lock the environment was made from, where it still is that one."""
    name = facts.environment.lock
    digest = facts.environment.lock_sha256
    if name is None or digest is None or "/" in name:
        return
    here = Path.cwd()
    for top in (here, *here.parents):
        if (lock := top / "locks" / name).is_file():
            data = lock.read_bytes()
            if sha256(data) == digest:
                content.held[f"lock/{name}"] = data
            return


def _member(path: str, content: _Content) -> Member:
    digest = hashlib.sha256()
    size = 0
    with content.open(path) as file:
        while piece := file.read(2**20):
            digest.update(piece)
            size += len(piece)
    return Member(path=path, size=size, sha256=digest.hexdigest())


def _bytes(content: _Content, path: str) -> bytes:
    with content.open(path) as file:
        return file.read()


def _write(out: Path, index: Index, content: _Content) -> str:
    try:
        with out.open("xb") as file:
            try:
                pack(file, index, content.open)
                file.flush()
                # Before its digest is printed: what is named by it must be on the disk.
                os.fsync(file.fileno())
            except BaseException:
                out.unlink()
                raise
        return sha256_of(out)
    except FileExistsError:
        raise BundleError(
            f"{out} already exists; remove it, or choose another file with --out"
        ) from None
    except ArchiveError as error:
        raise BundleError(f"this run cannot be bundled: {error}") from None
    except OSError as error:
        raise BundleError(f"{out} cannot be written: {error.strerror}") from None
