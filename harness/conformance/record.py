"""The record of a conformance: a pure function of the exchanges that were kept.

Every row is run again over its exchanges, so the record cannot say what they do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import ClassVar, Final, Literal

from harness.conformance.correct import MODEL as CORRECT
from harness.conformance.correct import chat_prompt
from harness.conformance.exchange import (
    HTTPExchange,
    HTTPRequest,
    Mode,
    curl_line,
    read_lines,
    unpack,
)
from harness.conformance.judgement import (
    ON_OWN,
    REPETITIONS,
    WHERES,
    ControlResult,
    RepeatedTexts,
    Where,
    judge_row,
    places_after,
)
from harness.conformance.rows import ROWS
from harness.conformance.rows.row import (
    ConformanceRow,
    RowFinding,
    Setting,
    Word,
    drive,
)
from harness.forms.model import Model
from harness.forms.strict_json import strict_json
from harness.record.facts import EnvironmentFacts
from harness.record.model import RecordError
from harness.series.series import SeriesFacts, SeriesRecord

PATH: Final = "evidence/conformance.json"
LOG: Final = "evidence/engine.log"
FORMAT: Final = 1
CURLS_SHOWN: Final = 2
PLAIN: Final = "plain"
"""The mode of an engine without further arguments."""

# Why a row was not asked.
NOT_NAMED: Final = "not named with --rows"
ONLY_WITH_ALL: Final = "only with --all"
MAY_HARM: Final = "only with --may-break-it, because it may harm the server"
LOST: Final = "the engine could not be started again"
UNFINISHED: Final = "no time was left for its other repetitions"
"""Begin reasons. They say something of the server, unlike the others, so nothing passes with them."""

Verdict = Literal["PASS", "FAIL", "INCONCLUSIVE"]
Read = Callable[[str], bytes]


class ExitFacts(Model):
    """An engine that ended by itself.

    Attributes:
        during: the row that was asked.
        how: exit code or signal, and the last line it printed.
    """

    during: str
    how: str


class ServerFacts(Model):
    """The server that was asked.

    Attributes:
        engine: of our table, where we started it; None for an address.
        requested: engine with its release, or the address, as it was given.
        mode: how the engine serves, `plain` where nothing was added; empty for an address.
        base: its address without /v1.
        model: name that requests state.
        command: its command line, where we started it.
        versions: of its distributions, where we started it.
        exits: whenever it ended by itself.
        authorized: whether requests carried a key.
    """

    engine: str | None
    requested: str
    mode: str
    base: str
    model: str
    command: list[str]
    versions: dict[str, str]
    starts: int
    exits: list[ExitFacts]
    authorized: bool


class AgainstFacts(Model):
    """An older server that was asked the same rows, as its own report says.

    Attributes:
        id: of its report.
        record: sha256 of the record of that report.
        server: its address, or its engine.
        words: of every row there; taken on trust here.
    """

    id: str
    record: str
    server: str
    words: dict[str, Word]


class ConformanceFacts(SeriesFacts):
    """What was asked of which server.

    Attributes:
        seed: of the words in prompts.
        samples: whether the model is known to have several likely next tokens.
        tokens: what the tokenizer makes of two prompts; taken on trust.
        chats: what it makes of them as chats of one message, with its chat template; likewise.
        timeout: seconds for one request.
        seconds: how long it all took.
        asked: rows, in the order in which they were asked.
        unasked: every other row, with the reason.
        against: an older server that was asked the same rows before.
    """

    server: ServerFacts
    seed: int
    samples: bool
    tokens: dict[str, list[int]] | None
    chats: dict[str, list[int]] | None
    timeout: float
    seconds: float
    machine: EnvironmentFacts
    asked: list[str]
    unasked: dict[str, str]
    against: AgainstFacts | None = None

    kind: ClassVar[str] = "conformance"

    def setting(self, where: Where, repetition: int) -> Setting:
        """Return what a row knows in one repetition at a place."""
        is_own = where in ON_OWN
        return Setting(
            model=CORRECT if is_own else self.server.model,
            seed=self.seed,
            samples=self.samples or is_own,
            tokens={prompt: [len(prompt)] for prompt in self.tokens or {}}
            if is_own
            else self.tokens,
            chats={prompt: [len(chat_prompt(prompt))] for prompt in self.chats or {}}
            if is_own
            else self.chats,
            # Engines are started again by us, and proxies are made anew.
            waits=where == "bare" and self.server.engine is None,
            number=WHERES.index(where) * REPETITIONS + repetition,
        )


class RowResult(Model):
    """One row.

    Attributes:
        about: the difference in one word; empty where there is none.
        fact: what was found, in a sentence.
        requests: that were sent for it, with its control.
        count: repetitions that violated, of all: `2 of 3`.
        evidence: file of the repetition that the fact is about; empty for a row that was not asked.
        curls: requests of that repetition for a shell, where it VIOLATES.
        places: what every repetition found, by place.
    """

    name: str
    promises: str
    word: Word
    about: str
    fact: str
    requests: int
    count: str
    evidence: str
    control: ControlResult | None
    curls: list[str]
    places: dict[str, list[RowFinding]]


class ConformanceRecord(SeriesRecord):
    """What came out: `results.json`.

    Attributes:
        unsteady: a request whose text changed at temperature 0; empty where none did.
        tells: what the server says of itself in its answers.
    """

    facts: ConformanceFacts
    rows: list[RowResult]
    verdict: Verdict
    unsteady: str
    tells: list[str]

    @property
    def name(self) -> str:
        """The server: engine with its version and mode, or the address of its API."""
        server = self.facts.server
        if server.engine is None:
            return f"{server.base}/v1"
        number = next(iter(server.versions.values()), "")
        name = f"{server.engine} {number}" if number else server.requested
        return name if server.mode == PLAIN else f"{name} ({server.mode})"

    def of(self, word: Word) -> list[RowResult]:
        """Return the rows that came out so."""
        return [row for row in self.rows if row.word == word]

    def changed(self) -> Iterator[tuple[RowResult, Word]]:
        """Yield the rows whose word is another than on the older server, with the word there.

        A row that was not asked of both says nothing of a change.
        """
        older = self.facts.against.words if self.facts.against is not None else {}
        for row in self.rows:
            before = older.get(row.name, "NOT ASKED")
            if before != row.word and "NOT ASKED" not in (before, row.word):
                yield row, before


def evidence_path(row: str, where: Where, repetition: int) -> str:
    """Return where the exchanges of one repetition are, in the results folder."""
    return f"evidence/rows/{row}/{where}-{repetition + 1}.jsonl"


def assemble(read: Read, names: Collection[str], facts: ConformanceFacts) -> ConformanceRecord:
    """Judge every row again from the exchanges.

    Raises:
        RecordError: the exchanges are not those of the rows.
    """
    expected = {PATH, *({LOG} & set(names))}
    results: list[RowResult] = []
    bare: list[HTTPExchange] = []
    replays: dict[str, RowReplay] = {}
    for name in facts.asked:
        if name not in ROWS or name in replays:
            raise RecordError(f"{PATH}: {name!r} is not a row, or is listed twice")
        replays[name] = RowReplay(ROWS[name], facts, read, names)
        bare += replays[name].bare
        expected |= replays[name].files
    if odd := sorted(set(names) - expected):
        raise RecordError(f"{odd[0]} does not belong to any row that was tested")
    texts = RepeatedTexts()
    texts.add(bare)
    for row in ROWS.values():
        replay = replays.get(row.name)
        if replay is not None:
            results.append(replay.result(texts.unsteady))
        elif row.name not in facts.unasked:
            raise RecordError(f"{PATH} does not say why {row.name} was not tested")
        else:
            results.append(_unasked(row, facts.unasked[row.name]))
    return ConformanceRecord(
        format=FORMAT,
        facts=facts,
        rows=results,
        verdict=verdict_of(results),
        unsteady="; ".join(texts.unsteady.values()),
        tells=list(_tells(bare)),
    )


def verdict_of(rows: Sequence[RowResult]) -> Verdict:
    """Return the verdict over all rows; rows that were not asked change nothing."""
    if any(row.word == "VIOLATES" for row in rows):
        return "FAIL"
    for row in rows:
        good = ("CONFORMS",) if ROWS[row.name].is_core else ("CONFORMS", "REFUSES", "NOT ASKED")
        if row.word not in good or row.fact.startswith((LOST, UNFINISHED)):
            return "INCONCLUSIVE"
    return "PASS"


class RowReplay:
    """One row over the exchanges that were kept, at every place."""

    def __init__(
        self, row: ConformanceRow, facts: ConformanceFacts, read: Read, names: Collection[str]
    ) -> None:
        self.row = row
        self.base = facts.server.base
        self.authorized = facts.server.authorized
        self.files: set[str] = set()
        self.exchanges: dict[tuple[Where, int], list[HTTPExchange]] = {}
        self._groups: dict[tuple[Where, int], list[list[HTTPRequest]]] = {}
        self._compared: dict[tuple[Where, int], list[HTTPRequest]] = {}
        self.places: dict[Where, list[RowFinding]] = {}
        self._facts = facts
        self._read = read
        self._names = names
        self._judge("bare")
        for where in places_after(self.places["bare"]):
            # Without a place nothing is shown: the control does not count, and the row says so.
            if evidence_path(row.name, where, 0) in names:
                self._judge(where)

    @property
    def bare(self) -> list[HTTPExchange]:
        """What the server itself answered."""
        return [
            one for (where, _), some in self.exchanges.items() if where == "bare" for one in some
        ]

    def _judge(self, where: Where) -> None:
        self.places[where] = []
        for repetition in range(REPETITIONS):
            path = evidence_path(self.row.name, where, repetition)
            if path not in self._names:
                raise RecordError(f"{path} is missing")
            try:
                exchanges = read_lines(self._read(path))
            except ValueError as error:
                raise RecordError(f"{path}: {error}") from None
            left = iter(exchanges)
            setting = self._facts.setting(where, repetition)
            groups = self._groups.setdefault((where, repetition), [])
            compared = self._compared.setdefault((where, repetition), [])
            send = _kept(left, path, groups)
            self.places[where].append(drive(self.row, setting, send, compared))
            if next(left, None) is not None:
                raise RecordError(f"{path} contains more exchanges than this row has requests")
            self.exchanges[where, repetition] = exchanges
            self.files.add(path)

    def result(self, unsteady: Collection[Mode]) -> RowResult:
        """Return what the row says, with its control."""
        judged = judge_row(self.row, self.places, unsteady)
        curls: list[str] = []
        if judged.word == "VIOLATES":
            place: tuple[Where, int] = ("bare", judged.repetition)
            shown = [[request] for request in self._compared[place]]
            curls = list(self._curls(shown or _last_of(self._groups[place])))
        return RowResult(
            name=self.row.name,
            promises=self.row.promises,
            word=judged.word,
            about=judged.about,
            fact=judged.fact,
            requests=sum(map(len, self.exchanges.values())),
            count=judged.count,
            evidence=evidence_path(self.row.name, "bare", judged.repetition),
            control=judged.control,
            curls=curls,
            places={where: list(found) for where, found in self.places.items()},
        )

    def _curls(self, groups: Sequence[Sequence[HTTPRequest]]) -> Iterator[str]:
        """Return requests as lines for a shell; one that is sent several times in a row says so."""
        for _, same in groupby(groups, key=_sent):
            alike = list(same)
            times = f"  # send this {len(alike)} times" if len(alike) > 1 else ""
            yield curl_line(alike[0], "$URL", authorized=self.authorized) + times


def _sent(group: Sequence[HTTPRequest]) -> tuple[tuple[str, str], ...]:
    """Return what two groups of requests have in common where they are sent alike."""
    return tuple((request.path, request.body) for request in group)


def _last_of(groups: Sequence[Sequence[HTTPRequest]]) -> list[Sequence[HTTPRequest]]:
    """Return the last requests before a violation, each once; those that were sent at the same
    time are one group.
    """
    if len({_sent(group) for group in groups}) == 1:
        return list(groups)
    asked: dict[tuple[tuple[str, str], ...], Sequence[HTTPRequest]] = {}
    for group in groups:
        # Where it was asked last: beside the requests that it was compared with.
        asked.pop(_sent(group), None)
        asked[_sent(group)] = group
    return list(asked.values())[-CURLS_SHOWN:]


def _kept(
    left: Iterator[HTTPExchange], path: str, groups: list[list[HTTPRequest]]
) -> Callable[[list[HTTPRequest]], list[HTTPExchange]]:
    """Return what answers a row from a file; requests that are sent together go to `groups`."""

    def send(requests: list[HTTPRequest]) -> list[HTTPExchange]:
        groups.append(requests)
        found: list[HTTPExchange] = []
        for request in requests:
            exchange = next(left, None)
            if exchange is None or exchange.request != request:
                raise RecordError(
                    f"{path} does not contain the request that this row sends ({request.label})"
                )
            found.append(exchange)
        return found

    return send


def _unasked(row: ConformanceRow, why: str) -> RowResult:
    return RowResult(
        name=row.name,
        promises=row.promises,
        word="NOT ASKED",
        about="",
        fact=why,
        requests=0,
        count=f"0 of {REPETITIONS}",
        evidence="",
        control=None,
        curls=[],
        places={},
    )


def _tells(exchanges: Sequence[HTTPExchange]) -> Iterator[str]:
    """Return what a server says of itself most often: header and fingerprint."""
    said: Counter[str] = Counter()
    for exchange in exchanges:
        if "server" in exchange.headers:
            said[f"server: {exchange.headers['server']}"] += 1
        if exchange.status != 200 or not exchange.chunks:
            continue
        try:
            value = strict_json(unpack(exchange.chunks[0].data))
        except ValueError:
            continue
        if isinstance(value, dict) and isinstance(word := value.get("system_fingerprint"), str):
            said[f"system_fingerprint: {word}"] += 1
    for text, _ in said.most_common(2):
        yield text[:120]
