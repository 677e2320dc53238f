"""The transport for an event loop: the same nodes, messages, bounds and errors as
`ReliableMessageTransport` has them, without a thread.

    async with AsyncTransport(node="server", key=key) as transport:
        await transport.listen(("0.0.0.0", 4000))
        for client in clients:
            transport.expect(client)
        while True:
            message = await transport.receive()             # of whichever client has one
            await transport.send(answer(message), to=message.source)

A peer's conversation is the same object as under threads (`conversation`), and so are the meeting
with whoever connects (`meeting`) and the frames (`reader`); here are connections and the clock. A
transport belongs to the event loop that first uses it, and no method may be called from another
thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from .attendant import REST
from .closing import Goodbye, let_go_in_children
from .conversation import Conversation
from .dial import LIVED, REDIAL, Lookup
from .envelope import Envelope, described
from .frame import LARGEST, Greeting, GreetingRefusal, Header
from .incoming import Message
from .link import LinkHealth, NetworkHealthMonitor, TransportLimits
from .meeting import Stranger, Strangers, refusal_of
from .outgoing import unchanging
from .problem import MessageLate, Misused, TransferFailed
from .proof import PATIENCE, UNPROVED, Introduction, Session, Unproved, demand_key
from .reader import Damaged, FrameReader, Torn
from .records import NodeId
from .wire import Address, Trust, address_of, listening

Result = TypeVar("Result")
TOGETHER = 32 * 1024
"""Bytes of a payload up to which it is written with its header in one call."""
LOOKED = 0.005
"""Seconds after which it is looked whether a peer's address was found."""
ACCEPTED = 32
"""Connections that are accepted in a row, before those that were before are listened to."""
AHEAD = 256 * 1024
"""Bytes that wait in a connection's buffer before no more frames are put there."""


class _Connection(asyncio.BufferedProtocol):
    """One connection: of a peer's link, or of a stranger until it has met one.

    Args:
        transport: whose.
        link: that connects; None for a connection that was accepted.
        trust: what this side proves or demands.
        stranger: who connected; None where we do.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        link: _Link | None,
        trust: Trust,
        *,
        stranger: Stranger | None = None,
    ) -> None:
        self._owner = transport
        self._link = link
        self._trust = trust
        self._reader = FrameReader(longest=UNPROVED if link is None or trust.key else LARGEST)
        self._stranger = stranger
        self._introduction: Introduction | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wire: asyncio.Transport | None = None
        self._opening: asyncio.Task[Any] | None = None
        self._accepted: socket.socket | None = None
        self._paused = False
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._wire = transport
        transport.set_write_buffer_limits(high=AHEAD)
        # asyncio does so only where it made the socket.
        with contextlib.suppress(OSError):  # a socket of the system's own family has none
            connected = transport.get_extra_info("socket")
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = self._trust.key
        if self.closed:
            transport.abort()
        elif self._link is not None and key is None:
            self._link.begin(self, None)
        elif self._link is not None and key is not None:
            self._introduction = Introduction(key, initiator=True)
            self._say(self._introduction)
            self._limit()

    def open(self, accepted: socket.socket) -> None:
        """Begin with a connection that was accepted; its time runs from here."""
        accepted.setblocking(False)
        self._accepted = accepted
        self._limit()
        tls = self._trust.tls
        self._opening = asyncio.get_running_loop().create_task(self._opened(accepted, tls))

    async def _opened(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: self,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else PATIENCE,
            )
        except (OSError, asyncio.CancelledError) as error:  # a handshake that failed
            accepted.close()
            self.drop(str(error) or "no TLS")

    def _limit(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PATIENCE, self.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        del sizehint
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._reader.came(nbytes)
        now = time.monotonic()
        try:
            while not self.closed and (received := self._reader.next_frame()) is not None:
                self._came(*received, now)
        except Unproved as unproved:
            self._turn_away(unproved)
            return
        except Torn as torn:
            if self._link is not None and isinstance(torn, Damaged):
                self._link.conversation.damaged()
            self.drop(str(torn))
            return
        if self._link is not None and not self.closed:
            self._link.heard(self, now)

    def _came(self, header: Header, payload: Any, now: float) -> None:
        if self._introduction is not None:
            self._introduction.came(header, payload)
            self._say(self._introduction)
            if self._introduction.session is not None and self._link is not None:
                session = self._introduction.session
                self._introduction = None
                self._settle()
                self._link.begin(self, session)
        elif self._stranger is not None:
            greeting = self._stranger.came(header, payload)
            self._say(self._stranger)
            if greeting is not None:
                self._meet(greeting, header, payload, self._stranger.session)
        elif self._link is not None:
            self._link.came(self, header, payload, now)

    def _meet(
        self, greeting: Greeting, header: Header, payload: Any, session: Session | None
    ) -> None:
        """Become the connection of who greets, or tell it why not."""
        met = self._owner.meet(greeting, header.epoch)
        if isinstance(met, GreetingRefusal):
            self.write(*met.packed(toward=header.epoch))
            self.drop(met.words)
            return
        self._owner.let_out(self)
        self._stranger = None
        self._settle()
        self._link = met
        met.begin(self, session)
        met.came(self, header, payload, time.monotonic())

    def _settle(self) -> None:
        """Take frames of any length from now on, from somebody who is known."""
        self._reader.allow(LARGEST)
        if self._timer is not None:
            self._timer.cancel()

    def _say(self, speaker: Introduction | Stranger) -> None:
        while (said := speaker.next_frame()) is not None:
            self.write(*said)

    def _turn_away(self, unproved: Unproved) -> None:
        if self._stranger is not None:
            self._owner.refused = str(unproved)
            if unproved.answer:
                self.write(*GreetingRefusal(unproved.answer).packed(toward=0))
        self.drop(str(unproved))

    def write(self, header: bytes, payload: Any) -> None:
        """Send a frame."""
        if self._wire is None or self.closed:
            return
        if len(payload) <= TOGETHER:
            self._wire.write(header + payload if payload else header)
        else:
            self._wire.write(header)
            self._wire.write(payload)

    @property
    def takes_more(self) -> bool:
        """Return whether frames may be written to it now."""
        return self._wire is not None and not self._paused and not self._wire.is_closing()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._paused = True

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._paused = False
        if self._link is not None:
            self._link.pump(time.monotonic())

    def drop(self, why: str) -> None:
        """Close it, once what was written is gone."""
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._wire is not None:
            self._wire.close()
            # What was written to a peer that takes nothing would keep it open for ever.
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._wire.abort)
        self._owner.let_out(self)
        if self._link is not None:
            self._link.lost(self, why)

    def abort(self) -> None:
        """Close it now."""
        self.drop("nothing was proved in time")
        if self._wire is not None:
            self._wire.abort()
        elif self._opening is not None:
            self._opening.cancel()

    def let_go(self) -> None:
        """Close the socket in a child, without a word to the peer."""
        if self._wire is not None:
            connected = self._wire.get_extra_info("socket")
            with contextlib.suppress(OSError):  # it is closed
                os.close(connected.fileno())

    def eof_received(self) -> bool:
        """See `asyncio.BufferedProtocol`."""
        self.drop("the peer closed the connection")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        self.drop("the peer closed the connection" if exc is None else str(exc))
        if self._timer is not None:
            self._timer.cancel()


class _Link:
    """One peer: its conversation, the connection that carries it now, and who waits.

    Attributes:
        waits: whether the peer connects to us.
        waiting: tasks that wait for something of this peer.
        lost_one: is set whenever the connection is gone.
    """

    def __init__(
        self, transport: AsyncTransport, conversation: Conversation, *, waits: bool
    ) -> None:
        self._owner = transport
        self.conversation = conversation
        self.waits = waits
        self.connection: _Connection | None = None
        self.waiting: dict[asyncio.Future[None], None] = {}
        self.sending = asyncio.Lock()  # messages go in the order in which they were awaited
        self.lost_one = asyncio.Event()
        self.told: TransferFailed | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, connection: _Connection, session: Session | None) -> None:
        """Go on over a new connection."""
        if self.connection is not None:
            self.connection.drop("the peer reconnected")
        self.connection = connection
        now = time.monotonic()
        self.conversation.begin(now=now, session=session)
        self.pump(now)

    def came(self, connection: _Connection, header: Header, payload: Any, now: float) -> None:
        """Take a frame."""
        if connection is not self.connection:
            return
        self.conversation.came(header, payload, now=now)
        if self.conversation.wanted:
            connection.drop(self.conversation.trouble)

    def heard(self, connection: _Connection, now: float) -> None:
        """Note that bytes came, and do what follows."""
        if connection is self.connection:
            self.conversation.alive(now=now)
            self.pump(now)
            self.wake()

    def lost(self, connection: _Connection, why: str) -> None:
        """Note that a connection is gone."""
        if connection is self.connection:
            self.connection = None
            self.conversation.end(why=why)
        elif not self.waits and self.connection is None:
            self.conversation.trouble = why  # it did not come as far as a conversation
        self.lost_one.set()
        self.wake()

    def pump(self, now: float) -> None:
        """Send what there is to send, as far as it goes, and look when something is due."""
        connection = self.connection
        while connection is not None and connection.takes_more:
            out = self.conversation.next_frame(now=now)
            if out is None:
                break
            connection.write(*out)
        self._arm(now)

    def _arm(self, now: float) -> None:
        due = self.conversation.due
        if due is None:
            return
        loop = asyncio.get_running_loop()
        delay = max(0.001, due - now)
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay:
                return  # it looks again then
            self._timer.cancel()
        self._timer = loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = time.monotonic()
        conversation = self.conversation
        before = conversation.problem
        conversation.tick(now=now)
        if conversation.wanted and self.connection is not None:
            self.connection.drop(conversation.trouble)
        self.pump(now)
        if conversation.problem is not before:
            self.wake()

    def wake(self) -> None:
        """Have those who wait look again, in the order in which they began to."""
        for future in (*self.waiting, *self._owner.waiting):
            if not future.done():
                future.set_result(None)

    def may_connect(self) -> bool:
        """Return whether there is anything left to connect for."""
        conversation = self.conversation
        return not (conversation.incoming.ended and conversation.delivered)

    def close(self) -> None:
        """Let go of the connection and the clock."""
        if self._timer is not None:
            self._timer.cancel()
        if self.connection is not None:
            self.connection.abort()


class AsyncTransport:
    """Messages of one node, for an event loop.

    Args:
        node: this node's name; the peer has to expect it.
        key: of the group, as `ReliableMessageTransport` has it.
        epoch: how often the node began, as `ReliableMessageTransport` has it.
        limits: bounds.
        monitor: where health is written; one of its own where none is given.

    Attributes:
        refused: why the last who greeted was refused; empty where nobody was.
    """

    # Six arguments: as ReliableMessageTransport.
    def __init__(
        self,
        *,
        node: NodeId,
        key: bytes | None = None,
        epoch: int | Callable[[], int] | None = None,
        limits: TransportLimits | None = None,
        monitor: NetworkHealthMonitor | None = None,
    ) -> None:
        if "\n" in node:
            raise Misused(f"a node's name must be one line, not {node!r}")
        self.node = node
        self.limits = TransportLimits() if limits is None else limits
        self.monitor = monitor or NetworkHealthMonitor(
            shortest=self.limits.shortest, longest=self.limits.longest
        )
        self.refused = ""
        self.waiting: dict[asyncio.Future[None], None] = {}
        self._key = demand_key(key)
        given = itertools.count(epoch).__next__ if isinstance(epoch, int) else epoch
        self._epochs: Callable[[], int] = time.time_ns if given is None else given
        self.epoch = self._epochs()
        self._links: dict[NodeId, _Link] = {}
        self._strangers = Strangers[_Connection]()
        self._listeners: list[socket.socket] = []
        self._dialling: list[asyncio.Task[None]] = []
        self._turn = 0
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._process = os.getpid()
        let_go_in_children(self)

    def let_go(self) -> None:
        """See `Held`."""
        self._closed = True
        for listener in self._listeners:
            listener.close()
        for connection in (*(link.connection for link in self._links.values()), *self._strangers):
            if connection is not None:
                connection.let_go()

    # Who there is.

    async def listen(
        self, address: Address = ("127.0.0.1", 0), *, tls: ssl.SSLContext | None = None
    ) -> Address:
        """Let peers connect to this address, as `ReliableMessageTransport.listen`.

        Raises:
            Misused: other machines can reach the address, and who connects has to prove nothing.
            OSError: the address is not free, or not this machine's.
        """
        self._demand_open()
        address = address_of(address)
        trust = Trust(key=self._key, tls=tls)
        listener = listening(address, proves=trust.proves)
        loop = asyncio.get_running_loop()

        loop.add_reader(listener, self._accept, listener, trust)
        self._listeners.append(listener)
        if isinstance(address, str):
            return address
        name = listener.getsockname()
        return str(name[0]), int(name[1])

    def _accept(self, listener: socket.socket, trust: Trust) -> None:
        """Accept who connects, and count him before anything is made ready for him.

        asyncio's own servers accept as many in a row as wait, and count none before TLS is done.
        """
        for _ in range(ACCEPTED):
            try:
                connected, address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # it was gone before it was accepted, or no descriptor is free
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(REST, self._accept_again, listener, trust)
                return
            crowded = self._strangers.crowded_out()
            if crowded is not None:
                crowded.abort()
            host = address[0] if isinstance(address, tuple) else ""
            stranger = Stranger(trust.key, host=host, now=time.monotonic())
            connection = _Connection(self, None, trust, stranger=stranger)
            self._strangers.add(connection, stranger)
            connection.open(connected)

    def _accept_again(self, listener: socket.socket, trust: Trust) -> None:
        if not self._closed:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener, trust)

    def expect(self, peer: NodeId) -> None:
        """Expect a peer to connect to us."""
        self._add(peer, waits=True)

    def connect(
        self,
        peer: NodeId,
        address: Address | Callable[[], Address],
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> None:
        """Connect to a peer that listens, now or later, and again whenever the connection breaks;
        as `ReliableMessageTransport.connect`. Does not wait.

        Raises:
            Misused: the context checks the listener's name, and none is given.
        """
        if tls is not None and tls.check_hostname and not server_name:
            raise Misused(
                "this TLS context checks the name in the listener's certificate; pass it as"
                " server_name"
            )
        where = Lookup(address if callable(address) else address_of(address))
        link = self._add(peer, waits=False)
        # With a key nobody's word ends it: whoever passes a proof on could lead it astray.
        link.conversation.settled = not callable(address) and self._key is None
        link.conversation.dials = True
        trust = Trust(key=self._key, tls=tls, server_name=server_name)
        self._dialling.append(
            asyncio.get_running_loop().create_task(self._dial(link, where, trust))
        )

    async def _dial(self, link: _Link, where: Lookup, trust: Trust) -> None:
        """Keep a peer connected, at growing distances where that fails."""
        tries = 0
        reached = 0
        while True:
            if not link.may_connect():
                link.lost_one.clear()
                await link.lost_one.wait()
                continue
            begun = time.monotonic()
            link.lost_one.clear()
            try:
                async with asyncio.timeout(max(PATIENCE, self.limits.silence)):
                    await self._connected(link, where, trust)
            # A resolver of somebody else's raises what it likes; it is said and asked again.
            except Exception as error:  # noqa: BLE001
                words = str(error) or "no answer"
                link.conversation.trouble = f"connecting: {words}"
            else:
                await link.lost_one.wait()
            conversation = link.conversation
            came = conversation.outgoing.acknowledged + conversation.incoming.arrived
            if came != reached or time.monotonic() >= begun + LIVED:
                tries = 0
                reached = came
            else:
                await asyncio.sleep(min(1.0, REDIAL * 2**tries))
                tries = min(tries + 1, 10)

    async def _connected(self, link: _Link, where: Lookup, trust: Trust) -> None:
        # Asked for in a thread of its own: the loop's threads are the application's.
        while True:
            try:
                address = where.address(patience=0.0)
                break
            except ConnectionError:
                if not where.pending:
                    raise
            await asyncio.sleep(LOOKED)
        loop = asyncio.get_running_loop()

        def made() -> _Connection:
            return _Connection(self, link, trust)

        name = trust.server_name or ("" if trust.tls is not None else None)
        if isinstance(address, str):
            await loop.create_unix_connection(made, address, ssl=trust.tls, server_hostname=name)
        else:
            await loop.create_connection(made, *address, ssl=trust.tls, server_hostname=name)

    def _add(self, peer: NodeId, *, waits: bool) -> _Link:
        self._demand_open()
        if peer in self._links or peer == self.node or "\n" in peer:
            raise Misused(
                f"the transport of {self.node} already has a connection to {peer!r}, or cannot have"
                " one"
            )
        conversation = Conversation(
            node=self.node, peer=peer, epoch=self.epoch, limits=self.limits, monitor=self.monitor
        )
        link = self._links[peer] = _Link(self, conversation, waits=waits)
        return link

    def _demand_open(self) -> None:
        if self._process != os.getpid():
            raise Misused(
                f"the transport of {self.node} belongs to process {self._process}, from which this"
                " process was forked; create another transport here, with a greater epoch"
            )
        if self._closed:
            raise Misused(f"the transport of {self.node} is closed")

    def _link(self, peer: NodeId) -> _Link:
        self._demand_open()
        link = self._links.get(peer)
        if link is None:
            known = ", ".join(sorted(self._links)) or "nobody"
            raise Misused(
                f"{self.node} has no connection to {peer!r}; it has connections to: {known}"
            )
        return link

    # What connections ask.

    def let_out(self, connection: _Connection) -> None:
        """Count it no longer."""
        if connection in self._strangers:
            self._strangers.remove(connection)

    def meet(self, greeting: Greeting, epoch: int) -> _Link | GreetingRefusal:
        """Return the link of who greets, or why there is none."""
        refusal = refusal_of(greeting, epoch, node=self.node, peers=self._links)
        if refusal is None:
            return self._links[greeting.node]
        self.refused = refusal.words
        return refusal

    # Messages.

    # Six arguments: as ReliableMessageTransport.send.
    async def send(
        self,
        data: Any,
        *,
        to: NodeId,
        stream: str = "",
        position: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the same words as under threads
    ) -> int:
        """Send a message, as `ReliableMessageTransport.send`. Gives its number.

        Who is cancelled while it waits for room has sent nothing.

        Raises:
            MessageLate: there was no room in time; the message was not taken over.
            TransferFailed: what ended the conversation: it says which message was lost.
            Misused: no such peer, or not a buffer, or it is too long.
        """
        link = self._link(to)
        payload = data if type(data) is bytes else unchanging(data)
        head = b""
        if stream or position is not None:
            head = Envelope(stream, position, "", None).packed()
        return await self._send(link, payload, head, timeout)

    # Six arguments: as ReliableMessageTransport.send_tensor.
    async def send_tensor(
        self,
        array: Any,
        *,
        to: NodeId,
        stream: str = "",
        position: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the same words as under threads
    ) -> int:
        """Send an array with its dtype and shape, as `ReliableMessageTransport.send_tensor`.

        Raises:
            MessageLate: as `send`.
            TransferFailed: as `send`.
            Misused: as `send`, or its elements do not lie in memory as they are.
        """
        link = self._link(to)
        dtype, shape, data = described(array)
        head = Envelope(stream, position, dtype, shape).packed()
        return await self._send(link, data, head, timeout)

    async def _send(self, link: _Link, payload: Any, head: bytes, seconds: float | None) -> int:
        wait = self.limits.deadline if seconds is None else seconds
        until = time.monotonic() + wait
        try:
            async with asyncio.timeout(wait):
                await link.sending.acquire()
        except TimeoutError:
            raise link.conversation.not_sent(wait, self._state(link)) from None
        try:
            number = await self._until(
                lambda now: link.conversation.offer(payload, now=now, head=head), [link], until
            )
        finally:
            link.sending.release()
        if number is None:
            raise link.conversation.not_sent(wait, self._state(link))
        return number

    async def receive(
        self,
        *,
        source: NodeId | None = None,
        stream: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the same words as under threads
    ) -> Message:
        """Return the next message of a peer, or of any, as `ReliableMessageTransport.receive`.

        Who is cancelled loses nothing: the message waits for the next who asks.

        Raises:
            MessageLate: none came in time; asking again goes on where this stopped.
            TransferFailed: none will come. Of any peer, each is told once, and the others go on.
            MemoryError: there is none for the message, which is kept for the next call.
        """
        wait = self.limits.deadline if timeout is None else timeout
        until = time.monotonic() + wait
        if source is not None:
            link = self._link(source)
            message = await self._until(
                lambda now: link.conversation.next_message(now=now, stream=stream), [link], until
            )
            if message is None:
                raise link.conversation.not_arrived(wait, self._state(link))
            return message
        self._demand_open()
        message = await self._until(lambda now: self._any_there(now, stream), None, until)
        if message is None:
            raise MessageLate(
                f"no message arrived within {wait:g} s from any of {len(self._links)} peers",
                peer="",
            )
        return message

    def _any_there(self, now: float, stream: str | None) -> Message | None:
        """Return a message that has come, of the first peer in turn that has one."""
        links = list(self._links.values())
        self._turn += 1
        begin = self._turn % len(links) if links else 0
        for link in (*links[begin:], *links[:begin]):
            conversation = link.conversation
            if conversation.incoming.waiting:
                message = conversation.take(now=now, stream=stream)
                if message is not None:
                    link.pump(now)
                    return message
            end = conversation.end_of_messages()
            if end is not None and end is not link.told:
                link.told = end
                raise end.again()
        return None

    async def flush(
        self,
        *,
        to: NodeId,
        timeout: float | None = None,  # noqa: ASYNC109 - the same words as under threads
    ) -> None:
        """Wait until the peer has all that was sent.

        Raises:
            MessageLate: it has not within `timeout` seconds (`limits.deadline`); it is tried
                further.
            TransferFailed: it will not.
        """
        link = self._link(to)
        wait = self.limits.deadline if timeout is None else timeout
        until = time.monotonic() + wait
        conversation = link.conversation
        outgoing = conversation.outgoing
        if await self._until(lambda _: conversation.flushed(outgoing), [link], until) is None:
            raise conversation.not_acknowledged(wait, self._state(link))

    async def _until(
        self,
        find: Callable[[float], Result | None],
        links: Iterable[_Link] | None,
        until: float,
    ) -> Result | None:
        """Wait until something is found, or the time is up.

        Args:
            find: asked at first and whenever something came or changed, with the time; may raise.
            links: whose waiting this is; None for those of all.
            until: of the monotonic clock.
        """
        loop = asyncio.get_running_loop()
        places = [self.waiting] if links is None else [link.waiting for link in links]
        looked = False
        while True:
            if self._closed:
                raise Misused(f"the transport of {self.node} was closed during this call")
            now = time.monotonic()
            try:
                result = find(now)
            finally:
                for link in links or ():
                    link.pump(now)  # what was found, or raised, may be something to say
            if result is not None or (looked and now >= until):
                return result
            looked = True
            future = loop.create_future()
            for place in places:
                place[future] = None
            handle = loop.call_later(max(0.0, until - now), _wake, future)
            try:
                await future
            finally:
                handle.cancel()
                for place in places:
                    place.pop(future, None)

    def renew(self, peer: NodeId) -> None:
        """Begin a new conversation with a peer after an error ended the last: numbers begin at 0 on
        both sides.
        """
        link = self._link(peer)
        epoch = max(self._epochs(), link.conversation.epoch + 1)
        now = time.monotonic()
        link.conversation.renew(epoch=epoch, now=now)
        link.lost_one.set()  # there may be something to connect for again
        link.pump(now)

    def _state(self, link: _Link) -> str:
        return link.conversation.state(self.refused if link.waits else "")

    def connected(self, peer: NodeId) -> bool:
        """Return whether both know each other, and no error ended it."""
        conversation = self._link(peer).conversation
        return conversation.joined and conversation.problem is None

    def health(self, peer: NodeId) -> LinkHealth:
        """How the link to a peer does."""
        self._link(peer)
        return self.monitor.health(peer)

    # The end.

    async def close(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the same words as under threads
    ) -> None:
        """Deliver what was sent, say goodbye, and close.

        Args:
            timeout: seconds for all peers together; `limits.deadline` where none is given.

        Raises:
            TransferFailed: something that was sent is not known to have arrived. All is closed then
                too.
        """
        if self._process != os.getpid():
            return
        if self._closing is None:
            wait = self.limits.deadline if timeout is None else timeout
            self._closing = asyncio.get_running_loop().create_task(self._close(wait))
        # Who is cancelled while he waits does not end it for the others.
        await asyncio.shield(self._closing)

    async def _close(self, wait: float) -> None:
        until = time.monotonic() + wait
        links = list(self._links.values())
        try:
            failures = await asyncio.gather(*(self._goodbye(link, until) for link in links))
        finally:  # also where somebody had no patience
            self._closed = True
            for task in self._dialling:
                task.cancel()
            for listener in self._listeners:
                asyncio.get_running_loop().remove_reader(listener)
                listener.close()
            for link in links:
                link.close()
                link.wake()
            while (crowded := self._strangers.first()) is not None:
                crowded.abort()
            await asyncio.gather(*self._dialling, return_exceptions=True)
        failed = next((failure for failure in failures if failure is not None), None)
        if failed is not None:
            raise failed

    async def _goodbye(self, link: _Link, until: float) -> TransferFailed | None:
        saying = Goodbye(link.conversation)
        while True:
            # In short waits: `over` looks at the clock too, and not only at what comes.
            look = time.monotonic() + self.limits.unhurried
            ended = await self._until(saying.over, [link], min(until, look))
            if ended or time.monotonic() >= until:
                return saying.failure()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
            return
        with contextlib.suppress(TransferFailed):  # the error that is on its way says more
            await self.close(timeout=0.2)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
