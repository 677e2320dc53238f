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
from harness.reproduce.archive import ArchiveError, unpack
from harness.run.replay import RecordReplay
from harness.scenario import Scenario, parse_scenario
from harness.series.series import Facts, Part

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
            unpack(io.BytesIO(data), top)
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
        return replay.record


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
