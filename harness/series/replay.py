"""A series judged again: every part from its own evidence, held against the plan.

Then the record and the text; and what the reports of all series have in common: how they begin,
what their evidence is, how to check it.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Generic

from harness.forms import manifest
from harness.forms.digest import sha256
from harness.forms.problem import ScenarioError
from harness.record.assemble import difference
from harness.record.facts import SCENARIO_PATH, SOURCE_FOLDER
from harness.record.model import PATH, Record, RecordError
from harness.report import blocks
from harness.report.blocks import (
    Block,
    BulletList,
    Evidence,
    Heading,
    Paragraph,
    Table,
    Verbatim,
)
from harness.report.markdown import render_markdown
from harness.reproduce.archive import ArchiveError, Index, unpack
from harness.run.replay import RecordReplay
from harness.scenario import Scenario, parse_scenario
from harness.series.series import SCENARIO, F, PlannedPart, R, Read, Series, SeriesFacts, code
from harness.trust import footer, sshsig, statement
from harness.trust.replay import CannotRender, Replay

Listed = Mapping[str, str]
"""The files of a run, path to sha256."""


class SeriesReplay(Replay, Generic[F, R]):
    """One report of a series, judged and rendered again. Use once."""

    def __init__(self, series: Series[F, R]) -> None:
        super().__init__()
        self.series = series
        self.record: R | None = None

    def judge(self, read: Read, names: Sequence[str]) -> str | None:
        """Count again, from the evidence of every part."""
        series = self.series
        try:
            record = series.assemble(
                read, [name for name in names if name not in (PATH, series.figure)]
            )
        except RecordError as error:
            return str(error)
        if (different := difference(read(PATH), record.encode())) is not None:
            return different
        if series.figure and (
            series.figure not in names or read(series.figure) != series.draw(record)
        ):
            return f"{series.figure} differs from the figure of the record"
        facts = series.read(read(series.path))
        if why := refusal(series, facts):
            return why
        self.record = record
        # A series takes hours, and its evidence stands for the version that made it. But whoever
        # signs could leave a part out, or ask less of one, and say that other code did: so what
        # this version would plan is said too.
        other = series.other_plan(facts)
        self.arrays = (
            f"its plan differs from the plan of this version: {other}"
            if other
            else "its plan matches this version"
        )
        if trusted := series.on_trust(facts):
            self.arrays += f"; {trusted}"
        return None

    def render(self, read: Read, manifest_digest: str) -> bytes:
        """Render the body from the record."""
        return self.series.render(self._record(read), manifest_digest=manifest_digest)

    def signer(self, read: Read) -> str | None:
        """Return the key that the record names."""
        signer = self._record(read).facts.signer
        return None if signer is None else signer.key

    def _record(self, read: Read) -> R:
        if self.record is None:
            try:
                self.record = self.series.record.decode(read(PATH))
            except RecordError as error:
                raise CannotRender(str(error)) from None
        return self.record


def refusal(series: Series[F, R], facts: F) -> str:
    """Why a plan cannot be what it says: this very code made it, and would have planned
    otherwise.
    """
    if facts.code != code() or not (other := series.other_plan(facts)):
        return ""
    return (
        f"it states that this version of the code made it, but this version's plan differs: {other}"
    )


# -- its parts -------------------------------------------------------------------------------------


@contextmanager
def opened(part: PlannedPart, data: bytes) -> Iterator[tuple[Index, Listed, Read]]:
    """Unpack a part as long as this lasts; yields its index, what its manifest lists, and how to
    read that.

    Raises:
        RecordError: it is unreadable, or its files are not those of its manifest.
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
                raise RecordError(f"{part.path}: {name} does not match its manifest")
        if why := _misnamed(index, listed, read):
            raise RecordError(f"{part.path}: {why}")
        yield index, listed, read


def part_record(
    part: PlannedPart, data: bytes, *, facts: SeriesFacts, unlike: Callable[[Scenario, Listed], str]
) -> Record:
    """Return the record of one part, worked out from its bundle and held against the plan.

    Args:
        part: as it was planned.
        data: its bundle.
        facts: of the series.
        unlike: what the series says of the part, and its scenario or its files do not; empty where
            they agree.

    Raises:
        RecordError: it is unreadable, not what was planned, or its verdicts do not follow from its
            evidence.
        harness.trust.replay.CannotJudge: this version cannot judge it.
        harness.trust.verification.Refused: its evidence contradicts itself.
    """
    with opened(part, data) as (index, listed, read):
        if sha256(read(SCENARIO_PATH)) != part.scenario:
            raise RecordError(
                f"{part.path} ran a scenario that differs from the one in the plan of the"
                f" {facts.kind}"
            )
        try:
            scenario = parse_scenario(read(SCENARIO_PATH), name=part.name)
        except ScenarioError as error:
            raise RecordError(f"{part.path}: {error.problems[0]}") from None
        if why := unlike(scenario, listed):
            raise RecordError(f"{part.path}: {why}")
        replay = RecordReplay()
        different = replay.judge(read, tuple(listed))
        if different is not None or replay.record is None:
            raise RecordError(f"{part.path}: {different}")
        if why := not_of(replay.record, facts):
            raise RecordError(f"{part.path} {why}")
        if why := _contradicted(replay, index, read):
            raise RecordError(f"{part.path}: {why}")
        return replay.record


def _misnamed(index: Index, listed: Listed, read: Read) -> str:
    """Return what the index of a bundle names and the bundle does not hold.

    Empty where they agree.
    """
    if index.report != sha256(read(statement.REPORT)):
        return "its index names a different report from the report that it contains"
    paths = {member.path for member in index.members if member.path.startswith("run/")}
    if odd := sorted(
        {path.removeprefix("run/") for path in paths} - {*listed, manifest.NAME, statement.REPORT}
    ):
        return f"its manifest does not list {odd[0]}"
    return ""


def _contradicted(replay: RecordReplay, index: Index, read: Read) -> str:
    """Return what else a bundle states of its run, and its record does not.

    Empty where they agree.
    """
    record = replay.record
    assert record is not None
    named = {member.name: member.digest for member in index.inputs}
    if index.rankproof != record.run.rankproof:
        return "its index and its run name different versions of Rankproof"
    if named != {member.name: member.digest for member in record.run.inputs}:
        return "its index and its run name different inputs"
    try:
        return not_signed_text(replay, read)
    except CannotRender as error:
        return str(error)


def not_signed_text(replay: Replay, read: Read) -> str:
    """Return how the report of a part is not the signed text of its record; empty where it is.

    Raises harness.trust.replay.CannotRender.
    """
    body = replay.render(read, sha256(read(manifest.NAME)))
    return _not_signed(read(statement.REPORT), body, key=replay.signer(read))


def _not_signed(report: bytes, body: bytes, *, key: str | None) -> str:
    """How a report is not the signed text of a record; empty where it is.

    The signature itself is not verified: the series' own covers these bytes.
    """
    if key is None:
        unsigned = body + footer.unsigned_footer("").partition(b"`")[0]
        return (
            ""
            if report.startswith(unsigned)
            else ("its report differs from the text of its record")
        )
    parts = footer.split(report)
    if not isinstance(parts, footer.Footer) or parts.body != body:
        return "its report differs from the text of its record"
    try:
        signer = sshsig.parse(parts.signature).key_fingerprint
    except sshsig.MalformedSignature as error:
        return f"the signature of its report cannot be read: {error}"
    return "" if signer == key else "its report was not signed with the key that its run names"


def other_files(listed: Listed, expected: Listed) -> str:
    """Return the arm whose code is not made of exactly these files; empty where there is none.

    A file beside them could take the place of a module of the standard library.
    """
    for arm in ("candidate", "control"):
        folder = f"{SOURCE_FOLDER}/{arm}/"
        files = {
            name.removeprefix(folder): digest
            for name, digest in listed.items()
            if name.startswith(folder)
        }
        files.pop(SCENARIO, None)
        if files != expected:
            return arm
    return ""


def not_of(record: Record, facts: SeriesFacts) -> str:
    """Why a run is not a part of a series; empty where it is."""
    run = record.run
    signer = None if run.signer is None else run.signer.key
    if signer != (None if facts.signer is None else facts.signer.key):
        return f"was made for a key other than the {facts.kind}'s"
    if run.overrides or run.rankproof != facts.rankproof:
        return f"was made with overrides, or by a version other than the {facts.kind}'s"
    return f"was made at {run.made}, before the {facts.kind} began" if run.made < facts.made else ""


def demand_named(facts: SeriesFacts) -> None:
    """Refuse a series whose name does not bear the time that it says it was begun at.

    Raises RecordError.
    """
    time = facts.made.replace("-", "").replace(":", "")
    if not facts.id.startswith(f"{time}-"):
        when = f"the name of the {facts.kind} {facts.id} does not contain its start time"
        raise RecordError(f"{when}, {facts.made}")


RECORD = Evidence(PATH)


def document(
    facts: SeriesFacts,
    body: Iterable[Block],
    *,
    title: blocks.Part,
    answer: Paragraph,
    files: Sequence[tuple[blocks.Part, ...]],
    manifest_digest: str,
) -> bytes:
    """Render the body of `report.md`: the answer first, the evidence last.

    Args:
        facts: of the series.
        body: what stands between.
        title: of the report.
        answer: what came out.
        files: files of the evidence, each with what it holds.
        manifest_digest: sha256 of the manifest, 64 hex digits.
    """
    key = facts.signer.key if facts.signer is not None else "SHA256:..."
    report: list[Block] = [
        Heading(1, title),
        answer,
        # The verifier reads the time from exactly this line.
        Paragraph("Made: ", Verbatim(facts.made)),
        *body,
        Heading(2, "Evidence"),
        Table(("file", "content"), tuple(files)),
        # The verifier looks for exactly this line.
        Paragraph("Manifest: ", Verbatim("MANIFEST.sha256"), " sha256 ", Verbatim(manifest_digest)),
        Heading(2, "Check it yourself"),
        Verbatim(
            f"rankproof verify report.md --signer {key}\nsha256sum --quiet -c MANIFEST.sha256", "sh"
        ),
    ]
    return render_markdown(report).encode()


def section(title: str, items: Sequence[blocks.Part], nothing: str = "None.") -> Iterator[Block]:
    """Heading and a list; without items a sentence."""
    yield Heading(2, title)
    yield BulletList(tuple(items)) if items else Paragraph(nothing)
