"""The reports of a commit in results folders: found, verified whole, and compared with what is
trusted.

Nothing a report says is believed before the whole of it is verified as `rankproof verify` does it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from harness.forms.model import Model
from harness.forms.strict_json import NotStrict, strict_json
from harness.forms.text import visible
from harness.gate.basis import GateBasis, GateError
from harness.gate.discrepancies import differs, foreign, strangers
from harness.gate.policy import Role
from harness.record.facts import PATH as RUN_PATH
from harness.record.model import Record
from harness.run.replay import RecordReplay
from harness.trust.folder import Folder, UnreadableFile, verify_folder
from harness.trust.replay import Read
from harness.trust.statement import REPORT

UNFINISHED = ".unfinished"
DEEPEST = 5
MOST_FOLDERS = 20_000
LARGEST_CLAIM = 8 * 2**20
SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Report:
    """Verified report of the commit.

    Attributes:
        place: where it lies, for messages.
        record: its record, from the bytes that were verified.
        signer: the name under which the key is allowed.
        key: fingerprint of the key; two certificates for one key, or two names, do not make it two.
        roles: of the signer, by the policy.
        differs: how its scenario differs from the trusted one; empty where it is the same.
        foreign: files of its arms that are not the commit's; empty where all are.
        strangers: what ranks loaded beside their arm's folder that is not the commit's; empty where
            all is.
        built: files in the commit's installed packages that only their build wrote, each with its
            sha256.
    """

    place: str
    record: Record
    signer: str
    key: str
    roles: tuple[Role, ...]
    differs: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    built: tuple[tuple[str, str], ...] = ()

    @property
    def made(self) -> datetime | None:
        """When it says it was made, in UTC; None where it does not say a time."""
        try:
            return datetime.strptime(self.record.run.made, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            return None

    @property
    def age(self) -> tuple[datetime, str]:
        """For sorting: the newest is the largest."""
        return self.made or datetime.min.replace(tzinfo=UTC), self.record.run.id


class Refusal(Model):
    """A report that says it is of the commit, and that verification refused; `word` as in
    docs/verify.md.
    """

    place: str
    word: str
    message: str


def some(items: Sequence[str]) -> str:
    """Return a few of many."""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return visible(f"{'; '.join(item[:300] for item in items[:SHOWN])}{more}")


@dataclass
class Runs:
    """Runs below results folders.

    Attributes:
        claimed: those that say they are of the commit, or do not say it so that it can be read.
        elsewhere: how many say they are of another commit, by that commit.
        unfinished: how many nobody signed.
    """

    claimed: list[Path] = field(default_factory=list)
    elsewhere: dict[str, int] = field(default_factory=dict)
    unfinished: int = 0


def find_runs(paths: Sequence[Path], commit: str) -> Runs:
    """Runs whose own facts say that they are of the commit, and those that cannot be asked.

    What a run says here is only used to leave it aside: whoever could write another commit into it
    could as well remove it.

    Raises:
        GateError: a folder that is not there, or with too many runs.
    """
    runs = Runs()
    seen: set[tuple[int, int]] = set()
    budget = [MOST_FOLDERS]
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            raise GateError(f"{path}: {error.strerror}; pass a results folder, or a run") from None
        if not stat.S_ISDIR(status.st_mode):
            raise GateError(f"{path}: this is not a folder; pass a results folder, or a run")
        for run in _below(path, budget, runs):
            status = run.stat()
            # The same run by two names is one run.
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            claim = _claim(run)
            if claim is None or claim == commit:
                runs.claimed.append(run)
            else:
                runs.elsewhere[claim] = runs.elsewhere.get(claim, 0) + 1
    return runs


def _below(path: Path, budget: list[int], runs: Runs, depth: int = 0) -> Iterator[Path]:
    """Folders that hold a report, never through a link (`latest` is one)."""
    budget[0] -= 1
    if budget[0] < 0:
        raise GateError(
            f"more than {MOST_FOLDERS} folders to search; pass the folders of individual runs or"
            " scenarios instead"
        )
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise GateError(f"{path} cannot be listed: {error.strerror}") from None
    if any(entry.name == REPORT for entry in entries):
        yield path
        return
    if path.name.endswith(UNFINISHED):
        runs.unfinished += 1
        return
    for entry in entries:
        if depth < DEEPEST and entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path), budget, runs, depth + 1)


def _claim(run: Path) -> str | None:
    """Commit that a run says it is of; None where it says none that can be read, so that it is
    verified.
    """
    try:
        with Folder(run) as folder:
            commit = strict_json(folder.read(RUN_PATH, LARGEST_CLAIM))["source"]["commit"]
    except (OSError, UnreadableFile, NotStrict, KeyError, TypeError):
        return None
    return commit if isinstance(commit, str) and commit else None


class _Comparison(RecordReplay):
    """Verifies a run, and compares it with what is trusted from the very bytes that are
    verified.
    """

    def __init__(self, basis: GateBasis) -> None:
        super().__init__()
        self._basis = basis
        self.differs: tuple[str, ...] = ()
        self.foreign: tuple[str, ...] = ()
        self.strangers: tuple[str, ...] = ()
        self.built: tuple[tuple[str, str], ...] = ()

    def render(self, read: Read, manifest_digest: str) -> bytes:
        body = super().render(read, manifest_digest)
        record = self.record
        assert record is not None  # it was rendered
        if known := self._basis.scenarios.get(record.scenario.id):
            self.differs = differs(record, known, self._basis, read)
            self.foreign = foreign(record, known, self._basis, read)
            self.strangers, self.built = strangers(record, self._basis, read)
        return body


def verified(run: Path, basis: GateBasis) -> Report | Refusal:
    """Report of a run, if it verifies by the keys that are trusted."""
    compared = _Comparison(basis)
    verification = verify_folder(run / REPORT, policy=basis.signers, replay=compared, now=basis.now)
    if not verification.ok or compared.record is None:
        return Refusal(
            place=visible(str(run)), word=verification.word, message=visible(verification.message)
        )
    name = verification.signer or ""
    return Report(
        place=str(run),
        record=compared.record,
        signer=name,
        key=verification.key or "",
        roles=basis.policy.signers.roles.of(name),
        differs=compared.differs,
        foreign=compared.foreign,
        strangers=compared.strangers,
        built=compared.built,
    )
