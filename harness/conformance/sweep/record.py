"""The record of a sweep over servers, worked out from the conformance of each: by whoever made it,
and again by whoever verifies it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar, Final, Literal

from harness.conformance.judged import Conformance
from harness.conformance.record import (
    MAY_HARM,
    NOT_NAMED,
    ONLY_WITH_ALL,
    ConformanceRecord,
    RowResult,
    Verdict,
)
from harness.conformance.rows import ROWS
from harness.conformance.rows.row import Word
from harness.forms.digest import sha256
from harness.forms.model import Model
from harness.record.model import RecordError, read_model
from harness.series.replay import SeriesReplay, demand_named, not_signed_text, opened
from harness.series.series import Digest, Read, SeriesFacts, SeriesPart, SeriesRecord
from harness.trust.replay import CannotJudge, CannotRender

PATH: Final = "evidence/served.json"
FORMAT: Final = 1


class ServerPart(SeriesPart):
    """One server of a sweep.

    Attributes:
        target: engine with its release, or an address.
        mode: how an engine serves; `plain` for an address.
        scenario: sha256 of both.
    """

    target: str
    mode: str
    scenario: Digest


def digest_of(target: str, mode: str) -> str:
    """Return what identifies the server of a part."""
    return sha256(f"{target}\n{mode}\n".encode())


class ServedFacts(SeriesFacts):
    """What a sweep was going to ask of which servers.

    Attributes:
        seed: of the words in prompts, the same for every server.
        rows: that were named; empty for all but the long ones.
        every: whether the long ones are asked too.
        may_break: whether rows may be asked that could harm a server that is not ours.
        within: seconds for all rows of one server.
        timeout: seconds for one request.
        model: name in requests to an address.
        parts: in the order in which they are asked.
    """

    kind: ClassVar[str] = "sweep of servers"

    format: Literal[1]
    seed: int
    rows: list[str]
    every: bool
    may_break: bool
    within: float
    timeout: float
    model: str | None
    parts: list[ServerPart]


class ServerResult(Model):
    """What one server keeps.

    Attributes:
        name: of its part.
        server: engine with its version and mode, or the address.
        engine: of our table; empty for an address.
        versions: of the engine's distributions.
        verdict: of its conformance.
        words: of every row.
        unasked: why no row was asked; empty where one was.
        requests: that were sent.
        seconds: that it took.
    """

    name: str
    server: str
    engine: str
    versions: dict[str, str]
    verdict: Verdict
    words: dict[str, Word]
    unasked: str
    requests: int
    seconds: float


class ViolationGroup(Model):
    """Violations of one row by one engine that differ from the promise in the same way.

    Attributes:
        engine: of our table, or the address.
        row: whose promise is broken.
        promises: that promise.
        about: the difference, in one word of the row's own.
        violates: parts in which it was seen.
        others: parts of the same engine in which the row came out otherwise, by word.
        fact: what was found in the first of them.
        count: in how many repetitions.
        curls: requests for a shell.
        evidence: part of the fact and the requests.
    """

    engine: str
    row: str
    promises: str
    about: str
    violates: list[str]
    others: dict[Word, list[str]]
    fact: str
    count: str
    curls: list[str]
    evidence: str

    @property
    def depends(self) -> bool:
        """Whether another release or mode of the engine keeps the promise, or refuses."""
        return bool(self.others.get("CONFORMS") or self.others.get("REFUSES"))


class ServedRecord(SeriesRecord):
    """The record of a sweep over servers: `results.json`."""

    format: Literal[1]
    facts: ServedFacts
    servers: list[ServerResult]
    groups: list[ViolationGroup]

    @property
    def asked(self) -> list[ServerResult]:
        """The servers of which any row was asked."""
        return [server for server in self.servers if not server.unasked]


def assemble(read: Read, names: Collection[str]) -> ServedRecord:
    """Work out the record.

    Raises:
        RecordError: a part that is missing or too much, or that is not the conformance that was
            planned.
    """
    facts = read_model(ServedFacts, read(PATH), name=PATH)
    demand_named(facts)
    planned = {part.path for part in facts.parts}
    servers = {(part.target, part.mode) for part in facts.parts}
    if not len(planned) == len(servers) == len(facts.parts):
        raise RecordError(f"{PATH}: a part is listed twice")
    if odd := sorted(set(names) ^ planned ^ {PATH}):
        how = "missing" if odd[0] in planned else "not a part of this sweep"
        raise RecordError(f"{odd[0]} is {how}")
    records = {part.name: _conformance(part, read(part.path), facts) for part in facts.parts}
    return ServedRecord(
        format=FORMAT,
        facts=facts,
        servers=[_result(name, record) for name, record in records.items()],
        groups=list(_grouped(records)),
    )


def _conformance(part: ServerPart, data: bytes, facts: ServedFacts) -> ConformanceRecord:
    """Judge one part again. Raises RecordError."""
    with opened(part, data) as (_, listed, read):
        replay = SeriesReplay(Conformance())
        try:
            different = replay.judge(read, tuple(listed))
            if different is None:
                different = not_signed_text(replay, read)
        except (CannotJudge, CannotRender) as error:
            raise RecordError(f"{part.path}: {error}") from None
        if different or replay.record is None:
            raise RecordError(f"{part.path}: {different}")
    if why := _unlike(part, replay.record, facts):
        raise RecordError(f"{part.path} {why}")
    return replay.record


def _unlike(part: ServerPart, record: ConformanceRecord, facts: ServedFacts) -> str:
    """Return how a conformance is not the one that was planned; empty where it is."""
    own = record.facts
    is_engine = own.server.engine is not None
    said: dict[str, tuple[object, object]] = {
        "server": (part.target, own.server.requested),
        "mode": (part.mode if is_engine else "", own.server.mode),
        "seed": (facts.seed, own.seed),
        "timeout": (facts.timeout, own.timeout),
        "signer": (
            None if facts.signer is None else facts.signer.key,
            None if own.signer is None else own.signer.key,
        ),
        "version of Rankproof": (facts.rankproof, own.rankproof),
        "code of Rankproof": (facts.code, own.code),
        "name": (part.scenario, digest_of(part.target, part.mode)),
    }
    for what, (planned, found) in said.items():
        if planned != found:
            return f"has a different {what} from the one that the sweep planned"
    if own.made < facts.made:
        return f"was made at {own.made}, before the sweep started"
    # A reason that the plan rules out would take a row away.
    named = {*facts.rows, "completion"}
    for row, why in own.unasked.items():
        is_named = row in named or not facts.rows
        is_ruled_out = {
            NOT_NAMED: is_named,
            ONLY_WITH_ALL: facts.every or (is_named and bool(facts.rows)),
            MAY_HARM: facts.may_break,
        }
        if is_ruled_out.get(why, False):
            return f"was not tested for {row} ({why}), but the sweep planned it"
    if more := sorted(set(own.asked) - named) if facts.rows else []:
        return f"was tested for {more[0]}, which the sweep did not plan"
    return ""


def _result(name: str, record: ConformanceRecord) -> ServerResult:
    server = record.facts.server
    why = ""
    if not record.facts.asked:
        why = next(iter(record.facts.unasked.values()), "").removeprefix(f"{server.requested}: ")
    return ServerResult(
        name=name,
        server=record.name,
        engine=server.engine or "",
        versions=server.versions,
        verdict=record.verdict,
        words={row.name: row.word for row in record.rows},
        unasked=why,
        requests=sum(row.requests for row in record.rows),
        seconds=record.facts.seconds,
    )


def _grouped(records: dict[str, ConformanceRecord]) -> Iterator[ViolationGroup]:
    """Yield the violations by engine, row and difference, in the order of the rows."""
    for row in ROWS:
        found: dict[tuple[str, str], list[tuple[str, RowResult]]] = {}
        for name, record in records.items():
            result = next(one for one in record.rows if one.name == row)
            if result.word == "VIOLATES":
                key = (_engine(record), _about(result))
                found.setdefault(key, []).append((name, result))
        for (engine, about), members in found.items():
            first, result = members[0]
            violates = [name for name, _ in members]
            others: dict[Word, list[str]] = {}
            for name, record in records.items():
                if _engine(record) == engine and name not in violates:
                    word = next(one.word for one in record.rows if one.name == row)
                    others.setdefault(word, []).append(name)
            yield ViolationGroup(
                engine=engine,
                row=row,
                promises=result.promises,
                about=about,
                violates=violates,
                others=others,
                fact=result.fact,
                count=result.count,
                curls=result.curls,
                evidence=first,
            )


def _engine(record: ConformanceRecord) -> str:
    return record.facts.server.engine or record.facts.server.base


def _about(result: RowResult) -> str:
    """Return the difference that the repetitions on the server itself found first."""
    return result.places["bare"][0].about


def plan(targets: Sequence[str], modes: Sequence[Sequence[str]]) -> list[ServerPart]:
    """Return the parts for servers, each in its modes.

    Args:
        targets: engines with their releases, or addresses.
        modes: of each target.
    """
    parts: list[ServerPart] = []
    for number, (target, some) in enumerate(zip(targets, modes, strict=True), 1):
        parts += [
            ServerPart(
                name=f"server-{number}-{mode}",
                target=target,
                mode=mode,
                scenario=digest_of(target, mode),
            )
            for mode in some
        ]
    return parts
