"""A part judged again: the record of a signed run, worked out from the evidence in its bundle."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness.forms import manifest
from harness.forms.digest import sha256
from harness.record.facts import SCENARIO_PATH
from harness.record.model import Record, RecordError
from harness.reproduce.archive import ArchiveError, unpack
from harness.run.replay import RecordReplay
from harness.series.series import Facts, Part


def part_record(part: Part, data: bytes, *, facts: Facts, subject: Mapping[str, str]) -> Record:
    """The record of one part.

    Args:
        part: as it was planned.
        data: its bundle.
        facts: of the series.
        subject: the code of its arms, path in the run to sha256.

    Raises:
        RecordError: it is unreadable, not as planned, or its verdicts do not follow from its evidence.
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
            raise RecordError(f"{part.path} is a run of another scenario than was planned")
        for name, digest in subject.items():
            if sha256(read(name)) != digest:
                raise RecordError(f"{part.path}: {name} is not the code that was planned")
        replay = RecordReplay()
        difference = replay.judge(read, tuple(listed))
        if difference is not None or replay.record is None:
            raise RecordError(f"{part.path}: {difference}")
        record = replay.record
        signer = None if record.run.signer is None else record.run.signer.key
        if signer != (None if facts.signer is None else facts.signer.key):
            raise RecordError(f"{part.path} was made for another key than the series")
        if record.run.overrides or record.run.rankproof != facts.rankproof:
            raise RecordError(f"{part.path} was made with overrides, or by another version than the series")
        return record
