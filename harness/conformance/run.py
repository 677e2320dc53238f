"""From a server to a signed report: ask each row, keep what came, judge that, sign."""

from __future__ import annotations

import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import harness
from harness.conformance.client import Client
from harness.conformance.correct import serving
from harness.conformance.engine import (
    ENGINES,
    MODEL,
    EngineError,
    EngineProcess,
    EngineRelease,
    engine_of,
    running,
)
from harness.conformance.exchange import MODELS, HTTPExchange, HTTPRequest, write_lines
from harness.conformance.judged import FOLDER, Conformance
from harness.conformance.judgement import (
    ON_OWN,
    REPETITIONS,
    RepeatedTexts,
    Where,
    judge_row,
    places_after,
)
from harness.conformance.own import running_own
from harness.conformance.proxy import PASS_THROUGH, proxied
from harness.conformance.record import (
    FORMAT,
    LOG,
    LOST,
    MAY_HARM,
    NOT_NAMED,
    ONLY_WITH_ALL,
    PATH,
    PLAIN,
    UNFINISHED,
    AgainstFacts,
    ConformanceFacts,
    ConformanceRecord,
    ExitFacts,
    ServerFacts,
    assemble,
    evidence_path,
)
from harness.conformance.room import room
from harness.conformance.rows import ROWS
from harness.conformance.rows.row import ConformanceRow, RowFinding, Word, drive
from harness.conformance.strike import EngineStrike
from harness.conformance.tokens import TokenCounts, TokenizerProblem
from harness.forms.digest import sha256
from harness.forms.source import real_place
from harness.forms.strict_json import strict_json
from harness.forms.text import plural, visible
from harness.record.environment import capture
from harness.record.facts import SignerFacts
from harness.record.model import PATH as RECORD_PATH
from harness.record.repository import describe
from harness.record.results import ResultsFolder
from harness.series.series import FinishedSeries, code, sign
from harness.trust.key import Signer

WITHIN: Final = 150.0
"""Seconds for all rows. With the start of an engine, the row in progress, and judging and signing
what came, a report is there in three minutes.
"""
WITHIN_ALL: Final = 900.0
"""The same with the long rows."""
Sending = Callable[[list[HTTPRequest]], list[HTTPExchange]]
FIRST: Final = "completion"
"""ParsedRequest before every other row: where it is not answered, nothing else can be."""


class ConformanceError(Exception):
    """A conformance that cannot be made; the message says what to do."""


class OutOfTime(Exception):
    """The time for all rows is over. What this row found so far is not kept.

    Args:
        violated: how many of its repetitions had violated the promise.
    """

    def __init__(self, violated: int) -> None:
        super().__init__()
        self.violated = violated


@dataclass(frozen=True, kw_only=True)
class ConformanceSettings:
    """How a server is asked.

    Attributes:
        target: an engine of our table with or without its release, or an address.
        mode: how an engine serves; `plain` where nothing is added to its arguments.
        model: name in requests; None: the only one that the server lists.
        tokenizer: folder with a tokenizer.json.
        api_key: sent as a bearer token, to an address and never to an engine that is started here.
        rows: names of rows; empty: all that are not long.
        every: whether the long ones are asked too.
        may_break: whether rows may be asked that could harm a server that is not ours.
        timeout: seconds for one request.
        within: seconds in which the server is asked; a row that needs more is not asked.
        against: what an older server was found to keep.
        unstarted: whether an engine that does not start is reported, and raises no error.
    """

    target: str
    results: Path
    mode: str = PLAIN
    model: str | None = None
    tokenizer: Path | None = None
    api_key: str | None = None
    rows: tuple[str, ...] = ()
    every: bool = False
    may_break: bool = False
    timeout: float = 30.0
    within: float = WITHIN
    seed: int | None = None
    against: AgainstFacts | None = None
    unstarted: bool = False

    @property
    def release(self) -> EngineRelease | None:
        """The engine to start; None for an address. Raises ConformanceError."""
        if engine_of(self.target) is None:
            return None
        try:
            return EngineRelease.parse(self.target, self.mode)
        except EngineError as error:
            raise ConformanceError(str(error)) from None


def demand_known(settings: ConformanceSettings) -> None:
    """Refuse what cannot be asked, before anything is made. Raises ConformanceError."""
    if odd := sorted(set(settings.rows) - set(ROWS)):
        raise ConformanceError(f"{odd[0]!r} is not a row; the rows are {', '.join(ROWS)}")
    key = settings.api_key or ""
    if not (key.isascii() and key.isprintable()) or " " in key:
        # Without the key: whoever reads the message may keep it in a log.
        raise ConformanceError(
            "the API key contains a line end, a space or another character that an HTTP header"
            " cannot hold; set the variable again, without it"
        )
    if settings.release is None:
        base_of(settings.target)
        if settings.mode != PLAIN:
            raise ConformanceError(
                f"{settings.target} is an address, but only an engine has modes; leave --mode out"
            )


def conform(
    settings: ConformanceSettings, signer: Signer | None, account: Callable[[str], None]
) -> FinishedSeries[ConformanceRecord]:
    """Ask a server about every row, and sign what came out.

    Args:
        settings: of which server, and how.
        signer: who signs it.
        account: hears in lines how far it is.

    Raises:
        ConformanceError, ResultsError: it cannot be made.
        harness.conformance.engine.EngineError: the engine cannot be started.
        harness.engines.models.ModelError: its model cannot be made.
    """
    begun = time.monotonic()
    demand_known(settings)
    place = real_place(settings.results)
    with terminable(), ExitStack() as stack, room() as own:
        process = None
        why_not = ""
        if (release := settings.release) is not None:
            try:
                opened = running(release, own, account)
                process = stack.enter_context(opened)
                process.start()
            except EngineError as error:
                if not settings.unstarted:
                    raise
                why_not = str(error)
        server = _server(settings, release, process)
        folder = ResultsFolder(place, FOLDER)
        try:
            facts = _planned(settings, signer, server, folder, place)
            asked: list[str] = []
            unasked = dict.fromkeys(ROWS, why_not)
            if not why_not:
                asking = RowsAsking(settings, facts, process, stack, account)
                asked, unasked = asking.ask_all(folder)
            if process is not None:
                process.stop()
                folder.write(LOG, process.log())
                gone = [ExitFacts(during=during, how=how) for during, how in process.exits]
                server = server.model_copy(update={"starts": process.starts, "exits": gone})
            seconds = round(time.monotonic() - begun, 1)
            told = {"server": server, "asked": asked, "unasked": unasked, "seconds": seconds}
            facts = facts.model_copy(update=told)
            folder.write(PATH, (facts.model_dump_json(indent=1) + "\n").encode())
            record = assemble(folder.read, tuple(folder.digests), facts)
            if not why_not:
                asking.tell_changed(record)
            folder.write(RECORD_PATH, record.encode())
            return FinishedSeries(record=record, folder=sign(Conformance(), record, folder, signer))
        except BaseException as error:
            folder.abandon(f"{type(error).__name__}: {error}")
            raise


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end this as Ctrl-C does, so that everything that was begun is tidied."""
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not is_ours:
        yield
        return

    def stop(*_: object) -> None:
        # A second one must not break into the tidying.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def older(record: ConformanceRecord) -> AgainstFacts:
    """Return what a record says of a server, for the report of a newer one."""
    return AgainstFacts(
        id=record.facts.id,
        record=sha256(record.encode()),
        server=record.name,
        words={row.name: row.word for row in record.rows},
    )


def _server(
    settings: ConformanceSettings, release: EngineRelease | None, process: EngineProcess | None
) -> ServerFacts:
    """Describe the server that is asked. Raises ConformanceError."""
    if release is not None:
        return ServerFacts(
            engine=release.engine,
            requested=str(release),
            mode=release.mode,
            base="" if process is None else process.base,
            model=MODEL,
            command=[] if process is None else process.command(),
            versions={} if process is None else dict(process.versions),
            starts=0 if process is None else process.starts,
            exits=[],
            authorized=False,
        )
    base = base_of(settings.target)
    return ServerFacts(
        engine=None,
        requested=settings.target,
        mode="",
        base=base,
        model=settings.model or _only_model(base, settings),
        command=[],
        versions={},
        starts=0,
        exits=[],
        authorized=settings.api_key is not None,
    )


def base_of(address: str) -> str:
    """Return the address of a server without /v1.

    Raises:
        ConformanceError: it is not the address of a server.
    """
    try:
        parts = urlsplit(address)
        is_server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_server = False
    if not is_server or parts.query or parts.fragment or not address.isprintable():
        raise ConformanceError(
            f"{address!r} is neither an engine ({', '.join(ENGINES)}) nor an address such as"
            " http://127.0.0.1:8000/v1"
        )
    if parts.username is not None or parts.password is not None:
        raise ConformanceError(
            "do not put the API key in the address; store it in an environment variable, and pass"
            " the name of this variable with --api-key-env"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def _only_model(base: str, settings: ConformanceSettings) -> str:
    """Return the only model that a server lists. Raises ConformanceError."""
    request = HTTPRequest(label="models", method="GET", path=MODELS)
    exchange = Client(base, timeout=settings.timeout, key=settings.api_key).send(request)
    try:
        names = [model["id"] for model in strict_json(exchange.body())["data"]]
    except (ValueError, KeyError, TypeError):
        names = []
    if len(names) != 1 or not isinstance(names[0], str):
        how = f"{len(names)} models" if names else f"no model ({exchange.status or exchange.ended})"
        raise ConformanceError(f"{base}{MODELS} lists {how}; name one with --model")
    return names[0]


def _planned(
    settings: ConformanceSettings,
    signer: Signer | None,
    server: ServerFacts,
    folder: ResultsFolder,
    place: Path,
) -> ConformanceFacts:
    seed = settings.seed if settings.seed is not None else secrets.randbelow(2**31)
    tokenizer = settings.tokenizer
    if server.engine is not None:
        from harness.engines.models import cached

        tokenizer = cached(MODEL)
    try:
        counts = None if tokenizer is None else TokenCounts(tokenizer)
    except TokenizerProblem as problem:
        raise ConformanceError(str(problem)) from None
    return ConformanceFacts(
        format=FORMAT,
        rankproof=harness.__version__,
        id=folder.id,
        made=f"{folder.made:%Y-%m-%dT%H:%M:%SZ}",
        signer=None if signer is None else SignerFacts(key=signer.identity(), name=None),
        source=describe(Path.cwd(), results=place),
        code=code(),
        server=server,
        seed=seed,
        samples=server.engine is not None,
        tokens=None if counts is None else counts.of_prompts(server.model, seed),
        chats=None if counts is None else counts.of_chats(server.model, seed),
        timeout=settings.timeout,
        seconds=0.0,
        machine=capture(),
        asked=[],
        unasked={},
        against=settings.against,
    )


class RowsAsking:
    """Asks the rows one after the other, each with its control."""

    def __init__(
        self,
        settings: ConformanceSettings,
        facts: ConformanceFacts,
        process: EngineProcess | None,
        stack: ExitStack,
        account: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._process = process
        self._stack = stack
        self._account = account
        self._until = time.monotonic() + settings.within
        self._correct = ""
        self._own: EngineProcess | None = None
        self._texts = RepeatedTexts()
        self._told: dict[str, Word] = {}

    def ask_all(self, folder: ResultsFolder) -> tuple[list[str], dict[str, str]]:
        """Ask every row; returns those that were asked, and why the others were not."""
        asked: list[str] = []
        unasked: dict[str, str] = {}
        for row in ROWS.values():
            if why := self._why_not(row):
                unasked[row.name] = why
                continue
            if row.name != FIRST and FIRST not in asked:
                unasked[row.name] = "the plain request was not answered"
                continue
            try:
                files, answered = self._ask(row)
            except OutOfTime as over:
                limit = f"{self._settings.within:g} s (--within)"
                unasked[row.name] = f"no time was left after {limit}"
                if over.violated:
                    count = plural(over.violated, "repetition")
                    unasked[row.name] = f"{UNFINISHED} after {limit}; it was violated in {count}"
                continue
            except EngineError as error:
                # What was asked before stays known; of this row and the rest nothing is.
                rest = [name for name in ROWS if name not in asked and name not in unasked]
                unasked |= dict.fromkeys(rest, f"{LOST} after {row.name}: {error}")
                break
            for path, exchanges in files.items():
                folder.write(path, write_lines(exchanges))
            asked.append(row.name)
            if row.name == FIRST and not answered:
                rest = [name for name in ROWS if name != FIRST]
                unasked |= dict.fromkeys(rest, "the plain request was not answered")
                break
        if late := [name for name, why in unasked.items() if "no time was left" in why]:
            self._account(f"no time was left for {', '.join(late)} (--within)")
        return asked, unasked

    def _why_not(self, row: ConformanceRow) -> str:
        settings = self._settings
        if settings.rows and row.name not in settings.rows and row.name != FIRST:
            return NOT_NAMED
        if row.is_long and not settings.every and row.name not in settings.rows:
            return ONLY_WITH_ALL
        if row.may_harm and self._process is None and not settings.may_break:
            return MAY_HARM
        if row.needs == "tokenizer" and self._facts.tokens is None:
            return "needs --tokenizer FOLDER"
        if row.needs == "template" and self._facts.chats is None:
            return "needs --tokenizer FOLDER with a chat template"
        if row.needs == "process" and self._process is None:
            return "needs a server that is started here"
        return ""

    def _ask(self, row: ConformanceRow) -> tuple[dict[str, list[HTTPExchange]], bool]:
        """Ask one row at every place; returns the files, and whether the server answered."""
        files: dict[str, list[HTTPExchange]] = {}
        begun = time.monotonic()
        places: dict[Where, list[RowFinding]] = {"bare": self._at(row, "bare", files)}
        for repetition in range(REPETITIONS):
            self._texts.add(files[evidence_path(row.name, "bare", repetition)])
        for where in places_after(places["bare"]):
            places[where] = self._at(row, where, files)
        # With its control: without one the word of the server's answers is not the row's.
        word = judge_row(row, places, self._texts.unsteady).word
        self._told[row.name] = word
        sent = sum(map(len, files.values()))
        took = time.monotonic() - begun
        self._account(f"{row.name:<19} {word:<11} {sent:>4} requests {took:>6.1f} s")
        return files, any(finding.about != "unanswered" for finding in places["bare"])

    def tell_changed(self, record: ConformanceRecord) -> None:
        """Say which rows came out otherwise than was said when they had been asked."""
        for row in record.rows:
            told = self._told.get(row.name, row.word)
            if row.word != told:
                # A fact may have a text of the server in it.
                self._account(visible(f"{row.name:<19} {row.word}, not {told}: {row.fact}"))

    def _at(
        self, row: ConformanceRow, where: Where, files: dict[str, list[HTTPExchange]]
    ) -> list[RowFinding]:
        """Ask one row at one place, three times."""
        found: list[RowFinding] = []
        is_own = where in ON_OWN
        process = self._process
        if is_own:
            process = self._own_process() if row.needs == "process" else None
        for repetition in range(REPETITIONS):
            # A proxy of its own: what one repetition broke must not be broken in the next.
            with self._place(row, where) as base:
                client = Client(
                    base,
                    timeout=self._settings.timeout,
                    # What we start needs none, and what it prints is kept.
                    key=None if is_own or process is not None else self._settings.api_key,
                    cpu_seconds=None if process is None else process.cpu_seconds,
                    until=None if is_own else self._until,
                    strike=(
                        EngineStrike(process.processes, process.exit_code)
                        if process is not None and row.needs == "process"
                        else None
                    ),
                )
                kept: list[HTTPExchange] = []
                setting = self._facts.setting(where, repetition)
                send = client.together if is_own else self._within(client, where, found)
                found.append(drive(row, setting, _keeping(send, kept)))
                files[evidence_path(row.name, where, repetition)] = kept
            if process is not None:
                if any(exchange.request.strike == "kill" for exchange in kept):
                    # Nothing that it did by itself: it is not among its exits.
                    process.stop((signal.SIGKILL,))
                    process.start()
                is_harmed = row.may_harm and found[-1].word not in ("CONFORMS", "REFUSES")
                process.revive(f"{row.name} ({where})", is_harmed=is_harmed)
        return found

    def _within(self, client: Client, where: Where, found: Sequence[RowFinding]) -> Sending:
        """Return what asks the server as long as there is time for it.

        Only its own time is limited: the control of what it violated is shown on our server.
        """

        def send(requests: list[HTTPRequest]) -> list[HTTPExchange]:
            exchanges = [] if time.monotonic() >= self._until else client.together(requests)
            # Also behind the answers, which the limit may have cut.
            if time.monotonic() >= self._until:
                is_bare = where == "bare"
                raise OutOfTime(sum(one.word == "VIOLATES" for one in found if is_bare))
            return exchanges

        return send

    def _own_process(self) -> EngineProcess:
        """Return our correct server in a process of its own."""
        if self._own is None:
            room = Path(self._stack.enter_context(tempfile.TemporaryDirectory())) / "own"
            self._own = self._stack.enter_context(running_own(room))
        return self._own

    @contextmanager
    def _place(self, row: ConformanceRow, where: Where) -> Iterator[str]:
        """Give the address at which a row is asked."""
        base = self._facts.server.base
        if where in ON_OWN and row.needs == "process":
            base = self._own_process().base
        elif where in ON_OWN:
            if not self._correct:
                self._correct = self._stack.enter_context(serving())
            base = self._correct
        if where in ("bare", "own"):
            yield base
            return
        defect = row.defect if where in ("defect", "own-defect") else PASS_THROUGH
        with proxied(base, defect, timeout=self._settings.timeout) as address:
            yield address


def _keeping(send: Sending, kept: list[HTTPExchange]) -> Sending:
    """Return what sends, and keeps what came."""

    def keep(requests: list[HTTPRequest]) -> list[HTTPExchange]:
        exchanges = send(requests)
        kept.extend(exchanges)
        return exchanges

    return keep
