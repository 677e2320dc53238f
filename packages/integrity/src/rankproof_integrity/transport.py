"""Messages between nodes: unchanged, once, in order, within a bound.

Or one error that says which one is not.

Nodes that have the same key prove it to each other when they connect. What goes between them then
is checked for accidents; whoever can alter the bytes on their way is kept out by TLS alone.

    key = key_from_file("/etc/pipeline/key")            # the same on every node
    with ReliableMessageTransport(node="rank 0", key=key) as transport:
        address = transport.listen(("127.0.0.1", 0))    # tell rank 1, however ranks tell each other
        transport.expect("rank 1")
        transport.send(b"...", to="rank 1")
        answer = transport.receive(source="rank 1", timeout=30).data
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from .attendant import Attendant
from .closing import goodbye, interrupts, let_go_in_children
from .conversation import Conversation
from .dial import Lookup
from .envelope import Envelope, described
from .incoming import Message
from .line import Line
from .link import LinkHealth, NetworkHealthMonitor, TransportLimits
from .loops import LoopCalls
from .outgoing import unchanging
from .problem import MessageLate, Misused, TransferFailed
from .proof import demand_key
from .records import NodeId, TransferResult
from .wire import Address, Trust, address_of, dialled, listening

ValidatedMessage = Message
THREAD = "integrity-close"


class ReliableMessageTransport:
    """Messages of one node.

    Streams (TCP, or sockets in the file system) are connected anew when they break, and go on after
    the last frame that arrived. What cannot be delivered within `limits.deadline` ends the
    conversation with that peer by one error; `renew` begins another one.

    Args:
        node: this node's name; the peer has to expect it.
        key: of the group, at least 16 bytes, the same on every node: who cannot prove that it has
            it is told nothing and delivers nothing. See `key_from_file` and
            `key_from_environment`. Without one other users of this machine can take a node's name
            wherever they can connect.
        epoch: how often the node began: an integer greater than all it had before; or what is asked
            for such a one, at the start and at each `renew`. The time in nanoseconds where none is
            given; `next_epoch` of a store, asked each time, is safe also where clocks are set back.
        limits: bounds.
        monitor: where health is written; one of its own where none is given.
    """

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
        self._key = demand_key(key)
        self.limits = TransportLimits() if limits is None else limits
        self.monitor = monitor or NetworkHealthMonitor(
            shortest=self.limits.shortest, longest=self.limits.longest
        )
        given = itertools.count(epoch).__next__ if isinstance(epoch, int) else epoch
        self._epochs: Callable[[], int] = time.time_ns if given is None else given
        self.epoch = self._epochs()
        if not 0 < self.epoch < 2**64:
            raise Misused(f"an epoch must be greater than 0 and less than 2^64, not {self.epoch}")
        self._lines: dict[NodeId, Line] = {}
        # Held while a line is added: two threads must not give one peer two lines. Who looks a line
        # up takes none, because lines are added and never taken away.
        self._lock = threading.Lock()
        self._attendant = Attendant(node=node, lines=self._lines, limits=self.limits)
        self._turn = 0  # of peers, where any may answer
        # What each line's end was told as, where any peer may answer: each is told once.
        self._told: dict[Line, TransferFailed] = {}
        self._closed = self._closing = False
        self._end = threading.RLock()  # a signal's handler may close while its thread does
        self._failed: TransferFailed | None = None
        self._calls = LoopCalls()
        self._process = os.getpid()
        let_go_in_children(self)

    # Who there is.

    def listen(
        self, address: Address = ("127.0.0.1", 0), *, tls: ssl.SSLContext | None = None
    ) -> Address:
        """Let peers connect to this address.

        Gives it as it became, with the port that was free where 0 was asked.

        Args:
            address: a host and a port, or the path of a socket, whose file only this user can
                connect to.
            tls: for listeners, with this node's certificate; `verify_mode` CERT_REQUIRED also
                demands one of who connects. All who hold one it accepts are members of the group.

        Raises:
            Misused: other machines can reach the address, and who connects has to prove nothing:
                there is no key, and no certificate is required.
            OSError: the address is not free, or not this machine's.
        """
        if self._closed:
            raise Misused(f"the transport of {self.node} {self._gone()}")
        address = address_of(address)
        trust = Trust(key=self._key, tls=tls)
        listener = listening(address, proves=trust.proves)
        self._attendant.listen(listener, trust)
        if isinstance(address, str):
            return address
        name = listener.getsockname()
        return str(name[0]), int(name[1])

    def expect(self, peer: NodeId) -> None:
        """Expect a peer to connect to us."""
        self._add(peer, Line(self._conversation(peer), attendant=self._attendant))

    def connect(
        self,
        peer: NodeId,
        address: Address | Callable[[], Address],
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> None:
        """Connect to a peer that listens, now or later, and again whenever the connection breaks.

        Does not wait.

        Args:
            peer: its name.
            address: where it listens; or what is asked at each try, in a thread, for a peer that
                may come back elsewhere. It raises OSError while nobody knows.
            tls: for who connects: certificates that it trusts, and this node's own where the
                listener requires one.
            server_name: the name that the listener's certificate has to be for.

        Raises:
            Misused: the context checks the listener's name, and none is given.
        """
        if tls is not None and tls.check_hostname and not server_name:
            raise Misused(
                "this TLS context checks the name in the listener's certificate; pass it as"
                " server_name"
            )
        where = Lookup(address if callable(address) else address_of(address))

        def dial() -> socket.socket:
            return dialled(where.address())

        conversation = self._conversation(peer)
        # With a key nobody's word ends it: whoever passes a proof on could lead it astray.
        conversation.settled = not callable(address) and self._key is None
        conversation.dials = True
        trust = Trust(key=self._key, tls=tls, server_name=server_name)
        self._add(peer, Line(conversation, attendant=self._attendant, dial=dial, trust=trust))

    def _conversation(self, peer: NodeId) -> Conversation:
        return Conversation(
            node=self.node,
            peer=peer,
            epoch=self.epoch,
            limits=self.limits,
            monitor=self.monitor,
        )

    def _add(self, peer: NodeId, line: Line) -> None:
        with self._lock:
            if self._closed or peer in self._lines or peer == self.node or "\n" in peer:
                line.close()
                why = f"already has a connection to {peer!r}, or cannot have one"
                if self._closed:
                    why = self._gone()
                raise Misused(f"the transport of {self.node} {why}")
            self._lines[peer] = line
        self._attendant.wake()

    def _line(self, peer: NodeId) -> Line:
        if self._closed:
            raise Misused(f"the transport of {self.node} {self._gone()}")
        line = self._lines.get(peer)
        if line is None:
            known = ", ".join(sorted(self._lines)) or "nobody"
            raise Misused(
                f"{self.node} has no connection to {peer!r}; it has connections to: {known}"
            )
        return line

    def _gone(self) -> str:
        if self._process == os.getpid():
            return "is closed"
        return (
            f"belongs to process {self._process}, from which this process was forked; create"
            " another transport here, with a greater epoch"
        )

    def let_go(self) -> None:
        """See `Held`."""
        if not self._closed:
            self._closed = self._closing = True
            # A thread that is not here may have held them when this process was forked.
            self._end = threading.RLock()
            self._lock = threading.Lock()
            for line in self._lines.values():
                line.let_go()
            self._attendant.let_go()

    # Messages.

    # Seven arguments: what (1), to whom, as what (2), and how long to wait.
    def send(
        self,
        data: Any,
        *,
        to: NodeId,
        stream: str = "",
        position: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Send a message; returns once it is on its way, or waits for room. Gives its number.

        Args:
            data: a buffer. Contiguous read-only ones (bytes) are sent from where they lie and must
                not change; what could be changed is copied, and what has gaps, in the order of its
                indices. For a tensor with its dtype and shape there is `send_tensor`.
            to: the peer.
            stream: name of a stream that the receiver can ask for; all streams share the order, the
                window and the connection.
            position: in the stream; what it counts is the caller's affair.
            timeout: seconds to wait for room, where the peer takes nothing; `limits.deadline` where
                none is given.

        Raises:
            MessageLate: there was no room in time; the message was not taken over.
            TransferFailed: what ended the conversation: it says which message was lost.
            Misused: no such peer, or it is too long, or not a buffer, or its bytes are not all that
                it holds (objects, a mask). Nothing was sent, and the next message goes.
        """
        line = self._line(to)
        payload = data if type(data) is bytes else unchanging(data)
        head = b""
        if stream or position is not None:
            head = Envelope(stream, position, "", None).packed()
        elif type(payload) is bytes and (sent := line.send(payload)) is not None:
            return sent
        return self._send(line, payload, head, timeout)

    def send_tensor(
        self,
        array: Any,
        *,
        to: NodeId,
        stream: str = "",
        position: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Send an array of numpy, torch or MLX with its dtype and shape: `message.array()` gives it
        as one of numpy.

        Args:
            array: of any strides; not copied where it is contiguous and cannot be written to, or
                lies in torch's or MLX's memory: it must not change before it is acknowledged.
            to: as for `send`.
            stream: as for `send`.
            position: as for `send`.
            timeout: as for `send`.

        Raises:
            MessageLate: as `send`.
            TransferFailed: as `send`.
            Misused: as `send`, or its elements do not lie in memory as they are.
        """
        line = self._line(to)
        dtype, shape, data = described(array)
        head = Envelope(stream, position, dtype, shape).packed()
        return self._send(line, data, head, timeout)

    def _send(self, line: Line, payload: Any, head: bytes, timeout: float | None) -> int:
        wait = self.limits.deadline if timeout is None else timeout
        conversation = line.conversation
        number = line.until(
            lambda now: conversation.offer(payload, now=now, head=head),
            deadline=time.monotonic() + wait,
            sends=True,
        )
        if number is None:
            raise conversation.not_sent(wait, self._state(line))
        return number

    def receive(
        self,
        *,
        source: NodeId | None = None,
        stream: str | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Return the next message of a peer, or of any.

        Args:
            source: the peer; None for whichever has one. Several are asked in turn.
            stream: whose next message; None for any, also those without one. Messages of other
                streams wait on within the window, which they can fill.
            timeout: seconds; `limits.deadline` where none is given.

        Raises:
            MessageLate: none came in time; asking again goes on where this stopped.
            TransferFailed: none will come: what ended the conversation, after all that had arrived
                was given. Of any peer, each is told once, and the others go on.
            MemoryError: there is none for the message, which is kept for the next call.
        """
        wait = self.limits.deadline if timeout is None else timeout
        begin = time.monotonic()
        if source is None:
            return self._receive_any(stream, wait, begin + wait)
        line = self._line(source)
        message = None
        if stream is None:
            message = line.receive(now=begin, seconds=wait)
        return self._received(line, stream, wait, begin) if message is None else message

    def _receive_any(self, stream: str | None, wait: float, until: float) -> Message:
        """Return the next message of whichever peer has one."""
        while True:
            arrivals = self._attendant.arrivals
            seen = arrivals.count()
            message = self._any_there(stream)
            if message is not None:
                return message
            left = until - time.monotonic()
            if left <= 0 or not arrivals.wait(seen, left):
                if self._closed:
                    raise Misused(f"the transport of {self.node} was closed during this call")
                message = self._any_there(stream)
                if message is not None:
                    return message
                raise MessageLate(
                    f"no message arrived within {wait:g} s from any of {len(self._lines)} peers",
                    peer="",
                    sequence=None,
                    epoch=None,
                )

    def _any_there(self, stream: str | None) -> Message | None:
        """Return a message that has come, of the first peer in turn that has one."""
        if self._closed:
            raise Misused(f"the transport of {self.node} {self._gone()}")
        lines = list(self._lines.values())
        self._turn += 1
        begin = self._turn % len(lines) if lines else 0
        for line in (*lines[begin:], *lines[:begin]):
            message = line.take(stream)
            if message is not None:
                return message
            end = line.conversation.end_of_messages()
            if end is not None and end is not self._told.get(line):
                self._told[line] = end
                raise end.again()
        return None

    def _received(self, line: Line, stream: str | None, wait: float, begin: float) -> Message:
        conversation = line.conversation

        def find(now: float) -> Message | None:
            return conversation.next_message(now=now, stream=stream)

        message = line.until(find, deadline=begin + wait)
        if message is None:
            raise conversation.not_arrived(wait, self._state(line))
        return message

    def flush(self, *, to: NodeId, timeout: float | None = None) -> None:
        """Wait until the peer has all that was sent.

        Raises:
            MessageLate: it has not within `timeout` seconds (`limits.deadline`); it is tried
                further.
            TransferFailed: it will not.
        """
        line = self._line(to)
        conversation = line.conversation
        wait = self.limits.deadline if timeout is None else timeout

        outgoing = conversation.outgoing
        until = time.monotonic() + wait
        if line.until(lambda _: conversation.flushed(outgoing), deadline=until) is None:
            raise conversation.not_acknowledged(wait, self._state(line))

    def renew(self, peer: NodeId) -> None:
        """Begin a new conversation with a peer after an error ended the last: numbers begin at 0 on
        both sides.
        """
        line = self._line(peer)
        epoch = max(self._epochs(), line.conversation.epoch + 1)

        def renewed(now: float) -> bool:
            line.conversation.renew(epoch=epoch, now=now)
            return True

        line.until(renewed, deadline=time.monotonic())
        self._calls.renew(peer)
        self._attendant.wake()

    def _state(self, line: Line) -> str:
        return line.conversation.state(self._attendant.refused if line.waits else "")

    def connected(self, peer: NodeId) -> bool:
        """Return whether both know each other, and no error ended it."""
        conversation = self._line(peer).conversation
        return conversation.joined and conversation.problem is None

    def health(self, peer: NodeId) -> LinkHealth:
        """How the link to a peer does."""
        self._line(peer)
        return self.monitor.health(peer)

    # The names that were asked for, for callers that run an event loop.

    async def send_with_validation(self, data: Any, destination: NodeId) -> TransferResult:
        """Send a message and wait until the peer has it, its digest checked there.

        Messages go in the order in which they are awaited. One that is cancelled once it was is
        sent all the same.

        Raises:
            TransferFailed: as `send` and `flush`.
        """
        line = self._line(destination)
        payload = unchanging(data)
        begin = time.monotonic()
        before = line.conversation.counters.sent_again
        until = begin + self.limits.deadline

        def offer() -> int:
            return self.send(payload, to=destination, timeout=max(0.0, until - time.monotonic()))

        def then(number: int) -> TransferResult:
            self.flush(to=destination)
            conversation = line.conversation
            return TransferResult(
                peer=destination,
                sequence=number,
                epoch=conversation.epoch,
                seconds=time.monotonic() - begin,
                sent_again=conversation.counters.sent_again - before,
            )

        return await self._calls.send(destination, offer, then)

    async def receive_with_validation(self, source: NodeId) -> ValidatedMessage:
        """Return the next message of a peer, its digest checked.

        Of several who wait, who asked first is given the first. One that comes after this was
        cancelled is given to the next.

        Raises:
            TransferFailed: as `receive`.
        """
        line = self._line(source)
        begin = time.monotonic()
        return await self._calls.receive(
            source, lambda: self._received(line, None, self.limits.deadline, begin)
        )

    # The end.

    def close(self, *, timeout: float | None = None) -> None:
        """Deliver what was sent, say goodbye, and close.

        Once: who calls it while another does waits for that one.

        A signal's handler that interrupts a call of the same thread does not wait: this goes on in
        another thread, and the call ends with `Misused`. What failed is raised to who closes after
        it.

        Args:
            timeout: seconds for all peers together; `limits.deadline` where none is given.

        Raises:
            TransferFailed: something that was sent is not known to have arrived. All is closed then
                too.
        """
        held = (*self._lines.values(), self._attendant, self._attendant.arrivals)
        if not self._closing and interrupts(held):
            threading.Thread(target=self._close_beside, args=(timeout,), name=THREAD).start()
            return
        with self._end:
            if self._closing:
                failed = self._failed
                self._failed = None
                if failed is not None:
                    raise failed
                return
            self._closing = True
            self._close(time.monotonic() + (self.limits.deadline if timeout is None else timeout))

    def _close_beside(self, timeout: float | None) -> None:
        with self._end:
            try:
                self.close(timeout=timeout)
            except TransferFailed as error:
                self._failed = error

    def _close(self, deadline: float) -> None:
        try:
            failed = [
                fault
                for line in list(self._lines.values())  # somebody may add one meanwhile
                if (fault := goodbye(line, deadline)) is not None
            ]
        finally:  # also where somebody had no patience
            self._closed = True
            # In this order: the attendant connects anew what is closed; a line tells the selector
            # when it closes, so that the selector goes after them; calls of loops wait in lines.
            self._attendant.stop()
            self._attendant.arrivals.note()
            for line in list(self._lines.values()):
                line.close()
            self._attendant.close()
            self._calls.close()
        if failed:
            raise failed[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(TransferFailed):  # the error that is on its way says more
            self.close(timeout=0.2)
