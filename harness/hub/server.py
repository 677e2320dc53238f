"""Server of the hub: one event loop that accepts, answers, strikes and logs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from harness.hub import HubError, LogLost
from harness.hub.access import Access, AccessLog, End
from harness.hub.answer import (
    FileChanged,
    OutgoingAnswer,
    answer,
    body_chunks,
    changes,
    failure,
    head_of,
    read_piece,
    spoiled,
    truly,
)
from harness.hub.place import ListeningPlace, Peers
from harness.hub.repository import ServedRepository
from harness.hub.request import (
    HEAD_LIMIT,
    BadRequest,
    BadTarget,
    HubRequest,
    Limits,
    Target,
    parse,
    parse_head,
)
from harness.hub.rules import RuleCounts, Rules

ADDRESS_SHOWN = 512


@dataclass(slots=True)
class Connection:
    """Connection of a client, with who holds its other end."""

    number: int
    peer: tuple[str, int]
    here: tuple[str, int]
    place: ListeningPlace
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pid: int | None = None
    started: int | None = None


@dataclass(slots=True)
class HubExchange:
    """Request that is being answered: what is known of it so far."""

    n: int
    connection: Connection
    method: str | None
    address: str
    client: str
    target: Target | None = None
    range: str | None = None
    ns: int = field(default_factory=time.monotonic_ns)
    status: int | None = None
    rules: tuple[str, ...] = ()
    commit: str | None = None
    sent: int = 0
    note: str = ""
    logged: bool = False

    def access(self, end: End) -> Access:
        """Return the line for the log."""
        self.logged = True
        target = self.target
        return Access(
            n=self.n,
            ns=self.ns,
            duration_ns=time.monotonic_ns() - self.ns,
            client=self.client,
            pid=self.connection.pid,
            started=self.connection.started,
            connection=self.connection.number,
            port=self.connection.peer[1],
            method=self.method,
            path=self.address[:ADDRESS_SHOWN],
            role=target.role if target else None,
            repository=target.repository if target else "",
            revision=target.revision if target else "",
            file=target.path if target else "",
            status=self.status,
            rules=self.rules,
            bytes=self.sent,
            range=self.range,
            commit=self.commit,
            end=end,
            note=self.note,
        )


HOST = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


class Silent(Exception):
    """End of a connection whose client went away, or stayed idle, without a request: there is
    nothing to answer or to log.
    """


async def read_request(reader: asyncio.StreamReader, limits: Limits) -> HubRequest:
    """Read one head; the body, which none of our requests has, is refused.

    Raises:
        Silent: nothing came.
        BadRequest: something came that is not a request, or came too slowly, or is too large.
    """
    try:
        first = await asyncio.wait_for(reader.read(1), limits.idle)
    except (TimeoutError, ConnectionError) as error:
        raise Silent from error
    if not first:
        raise Silent
    try:
        rest = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), limits.head)
    except asyncio.LimitOverrunError as error:
        raise BadRequest(431, f"the request headers are larger than {HEAD_LIMIT} bytes") from error
    except asyncio.IncompleteReadError as error:
        message = "the connection was closed before the end of the request headers"
        raise BadRequest(400, message) from error
    except TimeoutError as error:
        message = f"the request headers did not arrive within {limits.head:g} s"
        raise BadRequest(408, message) from error
    except ConnectionError as error:
        message = "the connection was reset in the middle of the request headers"
        raise BadRequest(400, message) from error
    return parse_head(first + rest)


class Server:
    """Serves repositories until stopped. All methods belong to the event loop's thread."""

    def __init__(
        self,
        repositories: Mapping[str, ServedRepository],
        rules: Rules,
        log: AccessLog,
        limits: Limits,
    ) -> None:
        self.repositories = repositories
        self.log = log
        self.limits = limits
        self.strikes = RuleCounts(rules)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.host = ""
        self.port = 0
        self.requests = 0
        self.connections = 0
        self._open: dict[asyncio.Task[None], Connection] = {}
        self._busy: dict[int, HubExchange] = {}
        self._names: dict[tuple[int, int | None], str] = {}
        self._peers = Peers()
        # Looking through /proc blocks; one thread, because what was met before is remembered.
        self._finder = ThreadPoolExecutor(1, "hub-peers")
        self._places: Sequence[ListeningPlace] = ()
        self._listeners: list[asyncio.Server] = []
        self._return: asyncio.TimerHandle | None = None
        self._started = time.monotonic()
        self._stopped = False

    # --- listening

    async def start(self, places: Sequence[ListeningPlace]) -> None:
        """Listen at these places, which are closed when it stops, or cannot begin.

        Raises:
            HubError: one cannot be listened at.
        """
        self._places = places
        self.host, self.port = places[0].address
        try:
            await self._listen()
        except OSError as error:
            self._leave()
            for place in places:
                place.close()
            raise HubError(f"cannot listen on {self.host}:{self.port}: {error.strerror}") from error
        self._started = time.monotonic()

    async def _listen(self) -> None:
        for place in self._places:
            accept = functools.partial(self._accept, place)
            listener = await asyncio.start_server(
                accept, sock=place.open(), limit=HEAD_LIMIT, backlog=1024
            )
            self._listeners.append(listener)

    def _leave(self) -> None:
        while self._listeners:
            self._listeners.pop().close()

    async def stop(self) -> None:
        """Stop listening, end every connection, log what was under way, and wait until all of it is
        done.
        """
        self._stopped = True
        if self._return is not None:
            self._return.cancel()
        self._leave()
        while self._open:
            # More than once: `asyncio.wait_for` swallows a cancellation that comes together with
            # its result.
            self._cut("the hub was stopped")
            await asyncio.wait(list(self._open), timeout=2.0)
        for place in self._places:
            place.close()
        self._finder.shutdown(wait=True)

    def open_connections(self) -> int:
        """Return how many connections are open."""
        return len(self._open)

    def busy(self) -> int:
        """Return how many requests have no line in the log yet."""
        return sum(not exchange.logged for exchange in self._busy.values())

    def _cut(self, why: str, *, keep: asyncio.Task[None] | None = None) -> None:
        for task, connection in list(self._open.items()):
            if task is keep:
                continue
            exchange = self._busy.get(connection.number)
            if exchange is not None:
                exchange.note = exchange.note or why
            task.cancel()

    def _refuse(self, seconds: float, rule: str) -> None:
        """Refuse connections for a time, everywhere. The places stay ours."""
        if not self._listeners or self._stopped:
            return
        # A socket handed to us goes on listening through its giver's descriptor, so shut it down
        # before closing ours.
        for place in self._places:
            place.refuse()
        self._leave()
        # Not the task that is here: it still has to end its own connection.
        self._cut(f"cut by rule {rule}", keep=asyncio.current_task())
        loop = asyncio.get_running_loop()
        self._return = loop.call_later(seconds, lambda: loop.create_task(self._listen_anew()))

    async def _listen_anew(self) -> None:
        if not self._stopped:
            try:
                await self._listen()
            except OSError as error:
                self._fail(
                    HubError(
                        f"cannot listen on port {self.port} again after a refusal: {error.strerror}"
                    )
                )

    def _fail(self, error: HubError) -> None:
        """Stop answering for good."""
        if not self.failed.done():
            self.failed.set_exception(error)
            # Whoever asks gets it; the loop has nothing to complain about where nobody asks.
            self.failed.exception()
        self._leave()
        self._cut("the hub failed", keep=asyncio.current_task())

    # --- connections

    async def _accept(
        self, place: ListeningPlace, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        peer = writer.get_extra_info("peername")
        here = writer.get_extra_info("sockname")
        if task is None or peer is None or here is None or self.failed.done() or self._stopped:
            writer.transport.abort()
            return
        self.connections += 1
        connection = Connection(self.connections, peer[:2], here[:2], place, reader, writer)
        self._open[task] = connection
        # So that draining waits until everything has left: a client that does not read is noticed.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            await self._converse(connection, crowded=len(self._open) > self.limits.connections)
        except asyncio.CancelledError:
            # Only `_cut` cancels; the loop itself is never stopped before `stop` returned.
            self._finish(connection, "stopped")
            _reset(writer)
        except (ConnectionError, TimeoutError, Silent):
            self._finish(connection, "peer-left")
        except LogLost as error:
            self._fail(error)
        finally:
            self._busy.pop(connection.number, None)
            self._open.pop(task, None)
            writer.close()

    def _finish(self, connection: Connection, end: End) -> None:
        """Log a request that was under way when its connection ended."""
        exchange = self._busy.get(connection.number)
        if exchange is not None and not exchange.logged:
            try:
                self.log.write(exchange.access(end))
            except LogLost as error:
                self._fail(error)

    async def _converse(self, connection: Connection, *, crowded: bool) -> None:
        finding = asyncio.get_running_loop().run_in_executor(
            self._finder,
            lambda: self._peers.find(
                client=connection.peer, server=connection.here, kernel=connection.place.kernel
            ),
        )
        connection.pid, connection.started = await finding
        keep = True
        while keep and not self._stopped and not self.failed.done():
            try:
                request = await read_request(connection.reader, self.limits)
            except BadRequest as error:
                await self._refuse_request(connection, error)
                return
            if crowded:
                full = BadRequest(
                    503, f"more than {self.limits.connections} connections", address=request.address
                )
                await self._refuse_request(connection, full)
                return
            keep = await self._serve(connection, request)

    async def _refuse_request(self, connection: Connection, error: BadRequest) -> None:
        exchange = self._begin(connection, error.method, error.address, None)
        exchange.note = error.message
        await self._send(exchange, truly(failure(error.status, error.message)), None)
        # What the client still sends is read and dropped for a moment, so that the answer is not
        # lost in a reset.
        connection.writer.write_eof()
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(1.0):
                while await connection.reader.read(65536):
                    pass

    def _begin(
        self, connection: Connection, method: str | None, address: str, target: Target | None
    ) -> HubExchange:
        self.requests += 1
        client = target.client if target is not None and target.client else self._name(connection)
        exchange = HubExchange(self.requests, connection, method, address, client, target)
        self._busy[connection.number] = exchange
        return exchange

    def _name(self, connection: Connection) -> str:
        if connection.pid is None:
            return f"connection-{connection.number}"
        key = (connection.pid, connection.started)
        return self._names.setdefault(key, f"process-{len(self._names) + 1}")

    # --- requests

    async def _serve(self, connection: Connection, request: HubRequest) -> bool:
        """Answer one request; returns whether the connection goes on."""
        try:
            target = parse(request.address)
        except BadTarget as error:
            exchange = self._begin(connection, request.method, request.address, None)
            exchange.note = str(error)
            return await self._send(exchange, truly(failure(error.status, str(error))), request)
        exchange = self._begin(connection, request.method, request.address, target)
        exchange.range = request.headers.get("range")
        true = answer(
            self.repositories,
            target,
            range_header=exchange.range,
            base=self._base(request, exchange, target),
        )
        struck = self.strikes.judge(
            client=exchange.client,
            method=request.method,
            address=_without_client(request.address, target),
            target=target,
            at=time.monotonic() - self._started,
            changes=lambda rule: changes(rule, true),
        )
        exchange.rules = struck.ids
        if struck.delays:
            await self._wait(connection, struck.delays)
        outgoing = spoiled(struck, true, target=target, commit=self._commit(target))
        keep = await self._send(exchange, outgoing, request)
        if outgoing.refuse is not None and struck.rule is not None:
            self._refuse(outgoing.refuse, struck.rule.id)
        return keep

    @staticmethod
    async def _wait(connection: Connection, seconds: float) -> None:
        """Wait, but no longer than the client does."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.2))
            if connection.reader.at_eof():
                raise ConnectionResetError

    def _base(self, request: HubRequest, exchange: HubExchange, target: Target) -> str:
        host = request.headers.get("host", "")
        shown = host if HOST.fullmatch(host) else f"{self.host}:{self.port}"
        return f"http://{shown}" + (f"/client/{exchange.client}" if target.client else "")

    def _commit(self, target: Target) -> str | None:
        repository = self.repositories.get(target.repository)
        revision = repository.revision(target.revision) if repository is not None else None
        return revision.commit if revision is not None else None

    async def _send(
        self, exchange: HubExchange, outgoing: OutgoingAnswer, request: HubRequest | None
    ) -> bool:
        """Send an answer, with its line in the log before its last bytes.

        Returns whether the connection goes on.
        """
        writer = exchange.connection.writer
        if outgoing.answer is None:
            end: End = "reset" if outgoing.then == "reset" else "closed"
            if outgoing.refuse is not None:
                end = "refused"
            self.log.write(exchange.access(end))
            (_reset if outgoing.then == "reset" else asyncio.StreamWriter.close)(writer)
            return False
        reply = outgoing.answer
        bodiless = request is not None and request.method == "HEAD"
        pieces = [(0, 0)] if bodiless else body_chunks(outgoing)
        flipped = outgoing.flipped
        try:
            data = read_piece(reply, *pieces[0], flipped=flipped)
        except FileChanged as error:
            exchange.note = str(error)
            return await self._send(exchange, truly(failure(500, str(error))), request)
        exchange.status = reply.status
        exchange.commit = reply.headers.get("X-Repo-Commit")
        data = head_of(outgoing, reply, request) + data
        exchange.sent = pieces[0][1]
        for piece in pieces[1:]:
            writer.write(data)
            await self._drained(exchange)
            try:
                data = read_piece(reply, *piece, flipped=flipped)
            except FileChanged as error:
                exchange.note = str(error)
                self.log.write(exchange.access("truncated"))
                _reset(writer)
                return False
            exchange.sent = piece[1]
        cut = outgoing.sent < outgoing.announced and not bodiless
        self.log.write(exchange.access("truncated" if cut else "whole"))
        writer.write(data)
        await self._drained(exchange)
        if outgoing.then == "reset":
            _reset(writer)
        return outgoing.then == "keep" and request is not None and request.keep_alive

    async def _drained(self, exchange: HubExchange) -> None:
        """Wait until what was written has left; a client that does not read is dropped.

        Raises:
            ConnectionError: the client is gone, or was dropped.
        """
        try:
            await asyncio.wait_for(exchange.connection.writer.drain(), self.limits.send)
        except TimeoutError:
            if not exchange.logged:
                self.log.write(exchange.access("timed-out"))
            _reset(exchange.connection.writer)
            raise ConnectionAbortedError from None


def _without_client(address: str, target: Target) -> str:
    address = address.partition("?")[0]
    return address if target.client is None else "/" + address.split("/", 3)[-1]


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST: linger on, for no time."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
