"""A part judged again: the record of a signed run, worked out from its bundle and held against the plan."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.forms import manifest
from harness.forms.digest import sha256
from harness.forms.problem import ScenarioError
from harness.record.facts import SCENARIO_PATH, SOURCE_FOLDER
from harness.record.model import Record, RecordError
from harness.reproduce.archive import ArchiveError, Index, unpack
from harness.run.replay import RecordReplay
from harness.scenario import Scenario, parse_scenario
from harness.series.series import Facts, Part, Read
from harness.trust import footer, sshsig, statement
from harness.trust.replay import CannotRender

SCENARIO = "scenario.yaml"
Listed = Mapping[str, str]
"""The files of a run, path to sha256."""


def part_record(part: Part, data: bytes, *, facts: Facts, unlike: Callable[[Scenario, Listed], str]) -> Record:
    """The record of one part.

    Args:
        part: as it was planned.
        data: its bundle.
        facts: of the series.
        unlike: what the series says of the part, and its scenario or its files do not; empty where they agree.

    Raises:
        RecordError: it is unreadable, not what was planned, or its verdicts do not follow from its evidence.
        harness.trust.replay.CannotJudge: this version cannot judge it.
        harness.trust.verification.Refused: its evidence contradicts itself.
    """
    with tempfile.TemporaryDirectory(prefix="rankproof-part-") as place:
        top = Path(place).resolve() / "part"
        try:
            index = unpack(io.BytesIO(data), top)
        except ArchiveError as error:
            raise RecordError(f"{part.path}: {error}") from None
        run = top / "run"

        def read(name: str) -> bytes:
            try:
                return (run / name).read_bytes()
            except OSError:
                raise RecordError(f"{part.path} lacks {name}") from None

        try:
            listed = manifest.parse(read(manifest.NAME))
        except manifest.ManifestMalformed as error:
            raise RecordError(f"{part.path}: {error}") from None
        for name, digest in listed.items():
            if sha256(read(name)) != digest:
                raise RecordError(f"{part.path}: {name} is not what its manifest lists")
        if why := _misnamed(index, listed, read):
            raise RecordError(f"{part.path}: {why}")
        if sha256(read(SCENARIO_PATH)) != part.scenario:
            raise RecordError(f"{part.path} is a run of another scenario than the {facts.what} plans")
        try:
            scenario = parse_scenario(read(SCENARIO_PATH), name=part.name)
        except ScenarioError as error:
            raise RecordError(f"{part.path}: {error.problems[0]}") from None
        if why := unlike(scenario, listed):
            raise RecordError(f"{part.path}: {why}")
        replay = RecordReplay()
        difference = replay.judge(read, tuple(listed))
        if difference is not None or replay.record is None:
            raise RecordError(f"{part.path}: {difference}")
        if why := not_of(replay.record, facts):
            raise RecordError(f"{part.path} {why}")
        if why := _contradicted(replay, index, read):
            raise RecordError(f"{part.path}: {why}")
        return replay.record


def _misnamed(index: Index, listed: Listed, read: Read) -> str:
    """What the index of a bundle names and the bundle does not hold; empty where they agree."""
    if index.report != sha256(read(statement.REPORT)):
        return "its index names another report than the one it holds"
    there = {one.path.removeprefix("run/") for one in index.members if one.path.startswith("run/")}
    if odd := sorted(there - {*listed, manifest.NAME, statement.REPORT}):
        return f"its manifest does not list {odd[0]}"
    return ""


def _contradicted(replay: RecordReplay, index: Index, read: Read) -> str:
    """What else a bundle states of its run, and its record does not; empty where they agree."""
    record, report = replay.record, read(statement.REPORT)
    assert record is not None
    named = {one.name: one.digest for one in index.inputs}
    if index.rankproof != record.run.rankproof:
        return "its index names another version of Rankproof than its run"
    if named != {one.name: one.digest for one in record.run.inputs}:
        return "its index names other inputs than its run"
    try:
        body = replay.render(read, sha256(read(manifest.NAME)))
    except CannotRender as error:
        return str(error)
    return _not_signed(report, body, key=replay.signer(read))


def _not_signed(report: bytes, body: bytes, *, key: str | None) -> str:
    """How a report is not the signed text of a record; empty where it is.

    The signature itself is not verified: the series' own covers these bytes.
    """
    if key is None:
        unsigned = body + footer.unsigned_footer("").partition(b"`")[0]
        return "" if report.startswith(unsigned) else "its report is not the text of its record"
    found = footer.split(report)
    if not isinstance(found, footer.Footer) or found.body != body:
        return "its report is not the text of its record"
    try:
        signer = sshsig.parse(found.signature).key_fingerprint
    except sshsig.MalformedSignature as error:
        return f"the signature of its report cannot be read: {error}"
    return "" if signer == key else "another key signed its report than its run names"


def other_files(listed: Listed, expected: Listed) -> str:
    """The arm whose code is not made of exactly these files; empty where there is none.

    A file beside them could take the place of a module of the standard library.
    """
    for arm in ("candidate", "control"):
        folder = f"{SOURCE_FOLDER}/{arm}/"
        there = {name.removeprefix(folder): digest for name, digest in listed.items() if name.startswith(folder)}
        there.pop(SCENARIO, None)
        if there != expected:
            return arm
    return ""


def not_of(record: Record, facts: Facts) -> str:
    """Why a run is not a part of a series; empty where it is."""
    run = record.run
    signer = None if run.signer is None else run.signer.key
    if signer != (None if facts.signer is None else facts.signer.key):
        return f"was made for another key than the {facts.what}"
    if run.overrides or run.rankproof != facts.rankproof:
        return f"was made with overrides, or by another version than the {facts.what}"
    return f"was made at {run.made}, before the {facts.what} was begun" if run.made < facts.made else ""


def demand_named(facts: Facts) -> None:
    """Refuse a series whose name does not bear the time that it says it was begun at. Raises RecordError."""
    made = facts.made.replace("-", "").replace(":", "")
    if not facts.id.startswith(f"{made}-"):
        when = f"the {facts.what} {facts.id} does not bear the time it says it was made at"
        raise RecordError(f"{when}, {facts.made}")
