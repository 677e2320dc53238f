"""What machines that were lost wrote down, fetched when a run is over, and the run judged again
with it.

The signed folder stays as it is. What came lies beside it, in `RUN.late`: each machine's journal as
it came, and the events of it that the evidence does not have. The verdict of both together is
worked out each time, and is never better than the signed one: who was lost has failed its trial,
whatever it wrote down.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from harness.events import Event, EventError, parse_lines
from harness.forms.digest import sha256
from harness.forms.manifest import NAME as MANIFEST
from harness.forms.manifest import ManifestMalformed, parse
from harness.forms.regular_file import read_regular
from harness.forms.strict_json import NotStrict, strict_json
from harness.forms.variables import cache_folder
from harness.history import MACHINE_COLLECTED, MACHINE_LATE
from harness.record.assemble import assemble
from harness.record.model import Contradiction, RecordError, Unknown
from harness.report.appendix import evidence_among
from harness.run.replay import RecordReplay
from harness.stats.provenance import path_of
from harness.stats.verdict import Judgement
from harness.trust.folder import LARGEST_FILE, LARGEST_MANIFEST, Folder, Reader, UnreadableFile
from harness.trust.replay import CannotJudge
from harness.trust.verification import Refused
from harness.world.below.leftovers import remove
from harness.world.control.names import ROOT
from harness.world.machines import agent, node_channel, store
from harness.world.machines.agent_channel import LEASE, Unreachable, argv
from harness.world.machines.heartbeat import BEAT, MachineLine
from harness.world.machines.late import Late, LateShare, replay
from harness.world.machines.roll import Hostile
from harness.world.starters import hostfile

WORST = ("FAIL", "INCONCLUSIVE", "PASS", "SKIPPED")


class NotCollected(Exception):
    """A folder that nothing can be collected for; the message says why."""


@dataclass(frozen=True, kw_only=True)
class MissingPart:
    """A machine whose share of a trial did not come whole.

    Attributes:
        trial: path of its events in the run's folder.
        share: of the machine.
        run: what machines know the run by.
    """

    trial: str
    share: LateShare
    run: str

    @property
    def file(self) -> str:
        """Return what its journal is called beside the run."""
        return f"{self.share.mark}-{self.share.machine}.journal"


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What became of one that was missing: what came, or why nothing did."""

    missing: MissingPart
    late: Late | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class LateOutcome:
    """A run with what came late.

    Attributes:
        found: of each machine that was missing in a trial.
        signed: the verdict of the evidence alone, worked out again.
        verdict: with what came late; never better.
        trials: of each trial with something late: its outcome before and after, and what failed in
            it then.
        contradiction: why what came was not joined; empty where it was.
        folder: where it lies.
    """

    found: Sequence[Collected]
    signed: str
    verdict: str
    folder: Path
    trials: Mapping[str, tuple[str, str, Sequence[str]]] = field(default_factory=dict)
    contradiction: str = ""


Fetch = Callable[[MissingPart, Path], None]
"""Fetches a journal into a file. Raises `Unreachable` or `OSError`."""


def collect(run: Path, *, fetch: Fetch) -> LateOutcome:
    """Fetch what is missing, keep it beside the run, and judge both.

    Args:
        run: its folder.
        fetch: called for what does not lie there yet.

    Raises:
        NotCollected: the folder is not that of a run, or was changed.
        OSError: nothing can be written beside it.
    """
    folder = run.with_name(f"{run.name}.late")
    with contextlib.ExitStack() as stack:
        try:
            finished = stack.enter_context(Folder(run))
            digests = parse(finished.read(MANIFEST, LARGEST_MANIFEST))
            read = Reader(finished, digests)
            missing = _missing(read, digests)
            replayed = RecordReplay()
            wrong = replayed.judge(read, tuple(digests))
        except (OSError, UnreadableFile, ManifestMalformed, Refused) as error:
            raise NotCollected(f"{run} is not a finished run, or was changed: {error}") from None
        except (CannotJudge, EventError) as error:
            raise NotCollected(f"{run} cannot be judged again: {error}") from None
        if wrong or replayed.record is None:
            raise NotCollected(f"the results of {run} do not follow from its evidence: {wrong}")
        signed = replayed.record.judgement
        parts = [_collected(part, folder, fetch) for part in missing]
        whole = [part for part in parts if part.late is not None]
        outcome = _judged(read, digests, whole, signed, parts=parts, folder=folder)
        if whole:
            _write(folder, outcome, report=sha256(finished.read("report.md", LARGEST_FILE)))
    return outcome


def _missing(read: Reader, digests: Collection[str]) -> list[MissingPart]:
    gaps = []
    for name in sorted(digests):
        if not name.endswith("/events.jsonl"):
            continue
        text = read(name)
        if MACHINE_COLLECTED.encode() not in text:
            continue
        events = parse_lines(text)
        for event in events:
            run = event.values.get("run")
            called = event.values.get("machine")
            if (event.name, event.by) != (MACHINE_COLLECTED, "harness") or not isinstance(run, str):
                continue
            about: Any = events[0].values.get("machines")
            if not node_channel.JOURNAL_NAME.fullmatch(run):
                raise NotCollected(f"{name}: the name of its run is not valid")
            try:
                share = LateShare(events, machine=about["called"].index(called))
            except (Hostile, ValueError, TypeError, KeyError) as error:
                raise NotCollected(f"{name}: {error}") from None
            gaps.append(MissingPart(trial=name, share=share, run=run))
    return gaps


def _collected(missing: MissingPart, folder: Path, fetch: Fetch) -> Collected:
    place = folder / missing.file
    if not place.exists():
        folder.mkdir(exist_ok=True)
        coming = folder / f".{missing.file}"
        try:
            fetch(missing, coming)
            coming.rename(place)
        except (Unreachable, OSError) as error:
            with contextlib.suppress(OSError):
                coming.unlink(missing_ok=True)
                folder.rmdir()
            return Collected(missing=missing, why=str(error))
    scratch = Path(tempfile.mkdtemp(prefix="rankproof-late-"))
    try:
        return Collected(
            missing=missing, late=replay(missing.share, _messages(place), scratch=scratch)
        )
    except (Hostile, OSError) as error:
        return Collected(missing=missing, why=f"its journal was not merged: {error}")
    finally:
        remove(scratch)


def _messages(place: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Messages of a journal that came; what is not one ends it."""
    with place.open("rb") as stream:
        while head := stream.read(agent.HEAD.size):
            if len(head) != agent.HEAD.size:
                raise Hostile("it is cut off")
            words, size = agent.HEAD.unpack(head)
            if words > agent.MOST_JSON or size > agent.MOST_BYTES:
                raise Hostile("it contains data that is not a valid message")
            text = stream.read(words)
            content = stream.read(size)
            if len(text) != words or len(content) != size:
                raise Hostile("it is cut off")
            try:
                message = strict_json(text)
            except NotStrict as error:
                raise Hostile(f"it contains data that is not a valid message: {error}") from None
            if not isinstance(message, dict):
                raise Hostile("it contains data that is not a valid message")
            yield message, content


def _judged(
    read: Reader,
    digests: Collection[str],
    late: Sequence[Collected],
    signed: Judgement,
    *,
    parts: Sequence[Collected],
    folder: Path,
) -> LateOutcome:
    """Return the verdict of the evidence and of what came late together."""
    files: dict[str, bytes] = {}
    for name in {part.missing.trial for part in late}:
        ours = [part for part in late if part.missing.trial == name]
        files[name] = _union(ours)
        for part in ours:
            assert part.late is not None
            files |= {path_of(digest): data for digest, data in part.late.loaded.items()}
    before = _outcomes(signed)
    try:
        evidence = set(evidence_among(digests))
        after = assemble(
            lambda name: files[name] if name in files else read(name), {*evidence, *files}
        ).judgement
    except (RecordError, Contradiction, Unknown, EventError) as error:
        why = f"with it, the evidence contradicts itself: {error}"
        return LateOutcome(
            found=parts,
            signed=signed.verdict,
            verdict=signed.verdict,
            folder=folder,
            contradiction=why,
        )
    trials = {}
    for name, (outcome, failures) in _outcomes(after).items():
        if name in files:
            # A trial that was not good does not become so by what somebody sends later.
            stands = before[name][0] if outcome == "pass" else outcome
            trials[name] = (before[name][0], stands, failures)
    return LateOutcome(
        found=parts,
        signed=signed.verdict,
        verdict=min(signed.verdict, after.verdict, key=WORST.index),
        folder=folder,
        trials=trials,
    )


def _outcomes(judgement: Judgement) -> dict[str, tuple[str, list[str]]]:
    return {
        trial.evidence: (
            trial.outcome,
            [f"{finding.check}: {why}" for finding in trial.failures for why in finding.reasons],
        )
        for cell in judgement.cells
        for tally in cell.arms.values()
        for trial in tally.trials
    }


def _union(late: Sequence[Collected]) -> bytes:
    """Return the events of one trial with all that came late of it, in order of time."""
    *events, end = late[0].missing.share.events
    for part in late:
        assert part.late is not None
        events += [*part.late.events, _told(part.missing, part.late)]
    # Stable: what was heard in time stays before what came late and happened at the same moment.
    return b"".join(
        f"{event.line()}\n".encode("ascii") for event in [*sorted(events, key=_ns), end]
    )


def _ns(event: Event) -> int:
    return event.ns


def _told(missing: MissingPart, late: Late) -> Event:
    values = {
        "machine": missing.share.called,
        "messages": late.messages,
        "events": len(late.events),
        "whole": late.whole,
    }
    return Event(ns=missing.share.ended, by="harness", name=MACHINE_LATE, values={**values})


def _write(folder: Path, outcome: LateOutcome, *, report: str) -> None:
    """Write down what came, of which report, and what follows from it.

    Nobody signs it: it is worked out each time.
    """
    listed = []
    for part in outcome.found:
        if part.late is None:
            continue
        place = folder / part.missing.file
        events = place.with_suffix(".events.jsonl")
        events.write_text("".join(f"{event.line()}\n" for event in part.late.events), "ascii")
        listed.append(
            {
                "trial": part.missing.trial,
                "machine": part.missing.share.called,
                "journal": {"file": place.name, "sha256": _sha256(place)},
                "events": {"file": events.name, "sha256": _sha256(events)},
                "ended": part.late.why,
                "whole": part.late.whole,
            }
        )
    page = {
        "report": f"sha256:{report}",
        "late": listed,
        "signed": outcome.signed,
        "verdict": outcome.verdict,
        "contradiction": outcome.contradiction,
    }
    (folder / "late.json").write_text(json.dumps(page, indent=1) + "\n")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


REACHED_WITHIN = 60.0
COLLECTED_WITHIN = 300.0
# What a run remembers here of machines that did not come back: names, which its evidence need not
# have.
REMEMBERED = "lost-machines"
MOST_REMEMBERED = 2**20
DIGITS = 12


def digest_of(name: str) -> str:
    """Return what a record calls a machine of this name, unless it was asked to name it."""
    return sha256(name.encode())[:DIGITS]


def commands_of(
    hosts: Path, *, interpreter: str, configuration: Path | None
) -> dict[str, list[str]]:
    """By what evidence may call each machine of a hostfile, its name or a digest of that, what
    starts an agent there.

    Raises:
        OSError, ScenarioError: as for `harness.world.starters.hostfile.read`.
    """
    commands = {}
    for machine in hostfile.read(hosts):
        command = hostfile.ssh_command(machine.name, argv(interpreter), configuration=configuration)
        commands[machine.name] = commands[digest_of(machine.name)] = command
    return commands


def over_ssh(commands: Mapping[str, Sequence[str]] | None, *, lease: float = LEASE) -> Fetch:
    """Fetches from machines.

    Args:
        commands: by what evidence calls each, the command that starts an agent there; None: as the
            run remembered.
        lease: seconds without a heartbeat after which the other end gives up.
    """
    files = {
        f"harness/{name}": path for name, path in store.files_of(Path(ROOT, "harness")).items()
    }
    root = store.digest_of(files), files

    def fetch(missing: MissingPart, place: Path) -> None:
        known = remembered(missing.run) if commands is None else commands
        command = known.get(missing.share.called)
        if command is None:
            raise Unreachable(
                "no machine in the hostfile matches it; pass the run's own hostfile with --hosts"
            )
        line = MachineLine(
            missing.share.machine,
            command,
            within=REACHED_WITHIN,
            lease=lease,
            demand=lambda _facts: None,
            root=root,
            run=missing.run,
        )
        beating = _Beating(line)
        try:
            with place.open("wb") as stream:
                line.hears = _Taking(stream, world=missing.share.mark)
                given = line.ask(
                    "collect", world=missing.share.mark, after=0, within=COLLECTED_WITHIN
                )
                stream.flush()
                os.fsync(stream.fileno())
            if not given.get("there"):
                raise Unreachable("it no longer has any data from this world")
            line.send({"ask": "done", "world": missing.share.mark})
        finally:
            beating.end()
            line.close()

    return fetch


class _Taking:
    """Writes what a machine sends of a world, up to what a journal may hold."""

    def __init__(self, stream: BinaryIO, *, world: str) -> None:
        self._stream = stream
        self._world = world
        self._left = node_channel.MOST_JOURNAL

    def __call__(self, _line: MachineLine, message: dict[str, Any], content: bytes) -> None:
        words = json.dumps(message).encode()
        self._left -= len(words) + len(content)
        if message.get("world") != self._world or self._left < 0:
            raise Hostile(
                "it sent data that was not requested, or more data than a journal can contain"
            )
        self._stream.write(agent.HEAD.pack(len(words), len(content)) + words + content)


class _Beating:
    """Heartbeats while a line is asked."""

    def __init__(self, line: MachineLine) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._beat, args=(line,), daemon=True, name="heartbeats"
        )
        self._thread.start()

    def _beat(self, line: MachineLine) -> None:
        while not self._over.wait(BEAT) and not line.lost:
            line.beat()

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def remember(run: str, commands: Mapping[str, Sequence[str]]) -> None:
    """Keep how the machines of a run are reached, for who collects without its hostfile.

    In this user's cache alone.
    """
    place = cache_folder(REMEMBERED)
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        listing = {called: list(command) for called, command in commands.items()}
        (place / f"{run}.json").write_text(json.dumps(listing))


def remembered(run: str) -> dict[str, list[str]]:
    """Return what `remember` kept; nothing where it is not there, or was tampered with."""
    with contextlib.suppress(OSError, NotStrict):
        listing = strict_json(
            read_regular(cache_folder(REMEMBERED) / f"{run}.json", limit=MOST_REMEMBERED)
        )
        if isinstance(listing, dict):
            return {
                called: [str(word) for word in command]
                for called, command in listing.items()
                if isinstance(command, list)
            }
    return {}
