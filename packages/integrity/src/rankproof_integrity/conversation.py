"""Conversation of two nodes: a state machine that is told what came and what time it is, and says
what to send.

It knows neither sockets nor clocks nor threads, so that a test can drive two of them through any
order of events. One file of more than 500 lines, because it is one state: every method reads and
writes the same few fields, and what is said depends on all of them.
"""

from __future__ import annotations

from typing import Any

from . import frame
from .digest import digest
from .frame import Greeting, Header, Kind, begun_before, greeting_of, too_long
from .incoming import Acknowledgement, FrameMissing, IncomingFrames, Message
from .link import NetworkHealthMonitor, TransportLimits
from .outgoing import OutgoingFrames
from .problem import MessageLate, MessageLost, Misused, PeerRestarted, TransferFailed
from .proof import TAG, WORDS, Session, opened
from .records import NodeId


class Conversation:
    """One node's side.

    Args:
        node, peer: the names of both; who answers under another name is not talked to.
        epoch: how often this node had begun: greater than 0, and greater at each new start.
        limits: bounds.
        monitor: where health is written.

    Attributes:
        peer_epoch: of the peer; 0 until it was heard.
        problem: why nothing more goes either way, until `renew`; None while all is well.
        wanted: whether a new connection is needed, since this one is silent or damaged.
        longest: bytes of a message that both take, as far as that is known.
        settled: whether the peer is nowhere else than where it is connected to.
        dials: whether this side connects.
    """

    def __init__(
        self,
        *,
        node: NodeId,
        peer: NodeId,
        epoch: int,
        limits: TransportLimits,
        monitor: NetworkHealthMonitor,
    ) -> None:
        if not 0 < epoch < 2**64:
            raise Misused(f"an epoch must be greater than 0 and less than 2^64, not {epoch}")
        self.node = node
        self.peer = peer
        self.epoch = epoch
        self.limits = limits
        self.round_trip, self.counters = monitor.link(peer)
        self._session: Session | None = None
        self.longest = limits.message
        self.settled = False
        self.dials = False
        self._refused = False
        self.peer_epoch = 0
        self.problem: TransferFailed | None = None
        self._ended_by: TransferFailed | None = None  # the conversation before this one
        self.wanted = False
        self.trouble = ""
        self._acks = Acknowledgement(limits=limits, round_trip=self.round_trip)
        self._new_halves()
        self.connected = self._heard = False  # heard: a HELLO on this connection that knows us
        self._hello = False
        self._hellos = 0
        self._hello_at = self._heard_at = self._said_at = 0.0
        self._next_epoch = 0
        # The first frame that the peer lacked when this connection began, and how many before it
        # began with the same: a long message over a way that breaks comes on a little with each.
        self._begun_with = -1
        self._in_vain = 0
        # Met: whether anything came of or went to this epoch of the peer.
        self._fail = self._has_said_fail = self._met = False

    def _new_halves(self) -> None:
        self._closed: MessageLost | None = None  # what to say once the peer said goodbye
        self.outgoing = OutgoingFrames(limits=self.limits, counters=self.counters)
        self.incoming = IncomingFrames(source=self.peer, epoch=self.peer_epoch, limits=self.limits)

    # What happened.

    def begin(self, *, now: float, session: Session | None = None) -> None:
        """Begin on a new connection.

        Args:
            now: the time.
            session: what both ends proved on it; None where they have no key.
        """
        self._session = session
        self.connected = True
        self.wanted = False
        self.counters.connections += 1
        self._heard = False
        self._hello = True
        self._has_said_fail = False
        self._refused = False
        self._heard_at = self._said_at = now
        self._hellos = 0
        self._acks.connect()
        oldest = self.outgoing.oldest
        if oldest is not None and oldest.times and oldest.sequence == self._begun_with:
            self._in_vain += 1
        else:
            self._in_vain = 0
        self._begun_with = -1 if oldest is None else oldest.sequence
        self.outgoing.rewind()

    def end(self, *, why: str) -> None:
        """Note that the connection is gone."""
        self.connected = self._heard = self.wanted = False
        if not self._refused:  # a reason that the peer gave says more than that it closed on us
            self.trouble = why
        oldest = self.outgoing.oldest
        if (
            self.incoming.ended
            and oldest is not None
            and oldest.kind is Kind.DATA
            and self.problem is None
        ):
            self._give_up(f"{self.peer} has closed")

    def alive(self, *, now: float) -> None:
        """Note that bytes came, of whatever: a long frame takes long to come, and who sends it
        waits for a sign of life.
        """
        self._heard_at = now
        self.tick(now=now)

    def came(self, header: Header, payload: Any, *, now: float) -> None:
        """Take a frame that came, and whose digests hold."""
        if header.kind is Kind.HELLO:
            self._greeted(header, payload, now)
            return
        if header.kind is Kind.FAIL and header.flags & frame.REFUSED:
            self._refuse(header, bytes(payload).decode(errors="replace"))
            return
        if (
            header.toward != self.epoch
            or header.epoch != self.peer_epoch
            or self.problem is not None
        ):
            self.counters.stale += 1
            if header.epoch > self.peer_epoch or (
                header.epoch == self.peer_epoch and header.toward != self.epoch
            ):
                self._hello = True  # it speaks to somebody who was here before, or we have not met
            return
        self._heard_at = now
        self._met = True
        self.counters.received += 1
        self.counters.received_bytes += len(payload)
        if header.kind is Kind.FAIL:
            words = bytes(payload).decode(errors="replace")
            self.problem = MessageLost(
                f"{self.peer} gave up: {words}",
                peer=self.peer,
                sequence=None,
                epoch=self.peer_epoch,
            )
            return
        self.outgoing.heard(acknowledged=header.acknowledged, taken=header.taken)
        if header.kind is Kind.ACK:
            if header.sequence > self.incoming.arrived:
                # All that was offered was sent before it.
                self._missed(
                    f"{header.sequence} frames were sent, but {self.incoming.arrived} arrived"
                )
            self._acks.heard(flags=header.flags, sequence=header.sequence, now=now)
        elif header.kind in (Kind.DATA, Kind.BYE):
            self._arrived(header, payload, now)

    def _arrived(self, header: Header, payload: Any, now: float) -> None:
        try:
            is_new = self.incoming.accept(header, payload)
        except FrameMissing as missing:
            self._missed(str(missing))
            return
        except ValueError as error:
            self._give_up(str(error))
            return
        if is_new:
            at_once = header.kind is Kind.BYE
            self._acks.arrived(len(payload), frames=self.incoming.arrived, now=now, at_once=at_once)
        else:
            self.counters.duplicates += 1
            self._acks.owe(now)

    def _missed(self, why: str) -> None:
        """Give up a connection that lost a frame, and may lose others: the next begins at the one
        that is due.
        """
        self.counters.early += 1
        self.trouble = why
        self.wanted = True

    def damaged(self) -> None:
        """Note that a frame came damaged: its connection is of no more use."""
        self.counters.damaged += 1

    def _greeted(self, header: Header, payload: Any, now: float) -> None:
        greeting = self._greeting(header, payload)
        if greeting is None:
            self.wanted = True
            return
        if header.epoch < self.peer_epoch:
            self.counters.stale += 1
            self.trouble = begun_before(self.peer, header.epoch, self.node, self.peer_epoch)
            return
        self._heard_at = now
        if header.toward > self.epoch and self.problem is None:
            self._give_up(begun_before(self.node, self.epoch, self.peer, header.toward))
        if header.epoch > self.peer_epoch:
            if self._met or self.problem is not None:
                self._restarted(header.epoch)
                return
            self.peer_epoch = header.epoch
            self.incoming = IncomingFrames(source=self.peer, epoch=header.epoch, limits=self.limits)
            self._acks.renew()
            self._hello = True
        if header.toward == 0 and self._met:
            # It has forgotten us: what it sends now would seem to be what it sent before.
            self._restarted(header.epoch)
        elif header.toward == self.epoch and header.acknowledged and not self._met:
            self._give_up(
                f"{self.peer} knows an earlier start with epoch {self.epoch}; each start needs a"
                " greater epoch"
            )
        if self.problem is not None:
            self._heard = header.toward == self.epoch  # it is told, if it was not
            return
        if header.toward == self.epoch:
            self.outgoing.heard(acknowledged=header.acknowledged, taken=header.taken)
            self.outgoing.room = min(self.limits.window, header.sequence)
            self._takes(greeting)
            if not self._heard:
                # What was before they met is no trouble any more.
                self.trouble = self.trouble if self._met else ""
                self._heard = self._met = True
                self._acks.owe(now)
                self._acks.ask()
            elif header.flags & frame.UNHEARD:
                self._hello = True  # our own was lost, and nothing else would have it sent again
        else:
            self._hello = True

    def _greeting(self, header: Header, payload: Any) -> Greeting | None:
        """Return what a HELLO says; None where it is not the peer's to this node."""
        words = opened(self._session, header, payload)
        if words is None:
            self.trouble = f"a greeting of {self.peer} was not sealed with the group's key"
            return None
        greeting = greeting_of(words)
        if greeting[:2] == (self.peer, self.node):
            return greeting
        self.trouble = (
            f"{greeting.node} answered {greeting.peer}, but {self.node} expected an answer"
            f" from {self.peer}"
        )
        return None

    def _takes(self, greeting: Greeting) -> None:
        """Learn what the peer takes; what was offered before that was known, and is longer, would
        never pass.
        """
        self.longest = min(self.limits.message, greeting.message or self.limits.message)
        message, size = self.outgoing.longest if self.longest < self.limits.message else (0, 0)
        if size > self.longest and self.problem is None:
            self._give_up(self._too_long(size, message))

    def _too_long(self, size: int, message: int) -> str:
        return too_long(
            self.node,
            self.peer,
            ours=self.limits.message,
            both=self.longest,
            size=size,
            message=message,
        )

    def _refuse(self, header: Header, words: str) -> None:
        """Note that nobody there talks to us."""
        if header.toward not in (0, self.epoch) or self._heard or self.problem is not None:
            return
        self._refused = True
        self.trouble = words
        if header.toward == 0:
            self.trouble = words[:WORDS]
            return  # by somebody who had not read the greeting
        if header.flags & frame.BEFORE or (header.flags & frame.ANOTHER and self.settled):
            self.problem = self._lost("no process listens at its address")

    def _restarted(self, epoch: int) -> None:
        """End this conversation with a peer that remembers nothing of us; what became of what it
        was sent, nobody can say.
        """
        self._next_epoch = max(epoch, self._next_epoch)
        if self.problem is not None:
            return
        incoming = self.incoming
        lost = self.outgoing.untaken
        sent = "it had accepted everything that was sent to it"
        if lost is not None:
            sent = (
                f"messages {lost[0]} to {lost[1]} had been sent to it, but it is not known whether"
                " it accepted them"
            )
        self.problem = PeerRestarted(
            f"{self.peer} restarted (epoch {epoch} after {self.peer_epoch}): {sent}; its message"
            f" {incoming.messages} and all later messages did not arrive. Call"
            f" renew({self.peer!r}) to start again with it",
            peer=self.peer,
            sequence=lost[0] if lost is not None else incoming.messages,
            epoch=self.peer_epoch,
        )

    def tick(self, *, now: float) -> None:
        """Do what has become due by the clock."""
        if self.problem is not None:
            return
        oldest = self.outgoing.oldest
        if oldest is not None and now >= oldest.deadline:
            self._give_up(f"not acknowledged within {self.limits.deadline:g} s")
        elif oldest is not None and self._in_vain > self.limits.attempts:
            self._give_up(f"{self._in_vain} connections in a row delivered nothing")
        if self._fail or not self.connected:
            return
        if not self._heard and now >= self._hello_at + self.round_trip.timeout(
            doubled=self._hellos
        ):
            self._hello = True
            self._hellos += 1
        if self.silent(now=now):
            self.wanted = True
            self.trouble = f"nothing was received for {self._silence():g} s"
        elif self._heard and not self.incoming.ended and now >= self._sign_at():
            self._acks.ask()  # a sign of life, and one is asked for

    def _sign_at(self) -> float:
        """When to give a sign of life; or to ask, in time, whether the oldest frame came.

        Who listens waits longer: where the other side gives signs, an answer to each is enough.
        """
        at = self._said_at + self.limits.silence / (3 if self.dials else 2)
        oldest = self.outgoing.oldest
        if oldest is None or not oldest.times:
            return at
        return min(at, max(oldest.sent_at, self._acks.asked_at) + self.limits.deadline / 3)

    def hurry(self) -> None:
        """Tell the peer, once, that somebody waits until all that was offered is acknowledged, or
        taken.
        """
        self._acks.hurry(self.outgoing.offered)

    def silent(self, *, now: float) -> bool:
        """Return whether nothing was heard for so long that the connection is made anew."""
        return (
            self.connected and not self.incoming.ended and now >= self._heard_at + self._silence()
        )

    def _silence(self) -> float:
        known = self.round_trip.smoothed is not None
        return max(self.limits.silence, 4 * self.round_trip.timeout() * known)

    def _give_up(self, why: str) -> None:
        self.problem = self._lost(why)
        self._fail = True

    def _lost(self, why: str) -> MessageLost:
        """This side tries no longer; with what is known of it, in words."""
        out = self.outgoing
        connections = self.counters.connections
        oldest = out.oldest
        untaken = out.untaken
        which = f"to {self.peer}"
        tried = ""
        if oldest is not None:
            message = oldest.message
            tried = f"sent {oldest.times} times, "
        elif self.incoming.ended:
            message = out.messages  # the one that somebody is about to send
        else:
            message = self.incoming.messages
            which = f"from {self.peer}"
        last = f"; last problem: {self.trouble}" if self.trouble else ""
        if untaken is not None and oldest is None:
            last += (
                f"; messages {untaken[0]} to {untaken[1]} had arrived at the peer, but it is not"
                " known whether it accepted them"
            )
        elif untaken is not None and untaken[1] > message:
            last += f"; messages up to {untaken[1]} had been sent after it"
        return MessageLost(
            f"message {message} {which} is lost: {why} ({tried}{connections}"
            f" connection{'s' * (connections != 1)}, timeout {self.round_trip.timeout():.3g} s,"
            f" epoch {self.epoch}{last})",
            peer=self.peer,
            sequence=untaken[0] if untaken is not None and oldest is None else message,
            epoch=self.epoch,
        )

    # What is to be done.

    def offer(self, data: Any, *, now: float, head: bytes = b"") -> int | None:
        """Send a message when there is a way: its number, or None where there is no room now.

        Args:
            data: its bytes, which must stay as they are until they are acknowledged.
            now: the time.
            head: what the message is; empty for bytes alone.

        Raises:
            Misused: it is too long, or after the goodbye.
            TransferFailed: what ended the conversation.
        """
        if self.problem is not None:
            raise self.problem.again()
        size = memoryview(data).nbytes + len(head)
        if size > self.longest:
            raise Misused(self._too_long(size, self.outgoing.messages))
        if self.incoming.ended:
            self._give_up(f"{self.peer} has closed")
            assert self.problem is not None
            raise self.problem.again()
        if self.outgoing.ended:
            raise Misused(
                f"{self.node} is closing its connection to {self.peer}, so it cannot send"
                " any more messages"
            )
        if not self.outgoing.has_room(size):
            self.hurry()
            return None
        return self.outgoing.offer(data, now=now, head=head)

    def goodbye(self, *, now: float) -> None:
        """Say that nothing comes after all that was offered."""
        if self.problem is None:
            self.outgoing.offer(b"", now=now, kind=Kind.BYE)
            self._acks.hasten()

    def take(self, *, now: float, stream: str | None = None) -> Message | None:
        """Return the next message, if it is there.

        What had arrived before a failure is given still.

        Args:
            now: the time.
            stream: whose next message; None for any.
        """
        message = self.incoming.take(stream)
        if message is not None:
            incoming = self.incoming
            self._acks.took(
                len(message.data), frames=incoming.taken, last=not incoming.waiting, now=now
            )
        return message

    def next_message(self, *, now: float, stream: str | None = None) -> Message | None:
        """Return the next message, as `take` does.

        Raises:
            TransferFailed: none will come.
        """
        message = self.take(now=now, stream=stream) if self.incoming.waiting else None
        if message is None and (end := self.end_of_messages()) is not None:
            raise end.again()
        return message

    def end_of_messages(self) -> TransferFailed | None:
        """Return why nothing comes any more; the same object each time. None: more may come."""
        if self.problem is None and self.incoming.ended and self._closed is None:
            count = self.incoming.messages
            self._closed = MessageLost(
                f"message {count} from {self.peer} will not arrive, because {self.peer} closed"
                f" after sending {count}",
                peer=self.peer,
                sequence=count,
                epoch=self.peer_epoch,
            )
        return self.problem or self._closed

    def not_sent(self, seconds: float, state: str) -> MessageLate:
        """Return that there was no room for a message in so many seconds."""
        out = self.outgoing
        first, last = out.untaken or (0, 0)
        return MessageLate(
            f"message {out.messages} to {self.peer} was not sent: {self.peer} has not accepted"
            f" messages {first} to {last} for {seconds:g} s, and at most {out.room} bytes may be"
            f" queued{state}",
            peer=self.peer,
            sequence=out.messages,
            epoch=self.epoch,
        )

    def not_arrived(self, seconds: float, state: str) -> MessageLate:
        """Return that no message came in so many seconds."""
        count = self.incoming.messages
        return MessageLate(
            f"message {count} from {self.peer} did not arrive within {seconds:g} s{state}",
            peer=self.peer,
            sequence=count,
            epoch=self.peer_epoch,
        )

    def not_acknowledged(self, seconds: float, state: str) -> MessageLate:
        """Return that not all that was sent was acknowledged in so many seconds."""
        oldest = self.outgoing.oldest
        number = None if oldest is None else oldest.message
        return MessageLate(
            f"message {number} to {self.peer} was not acknowledged within {seconds:g} s{state}",
            peer=self.peer,
            sequence=number,
            epoch=self.epoch,
        )

    def flushed(self, outgoing: OutgoingFrames) -> bool | None:
        """Return whether the peer has all that was offered; None while it has not.

        Args:
            outgoing: `outgoing` of when the waiting began: another one knows nothing of what was
                offered before somebody renewed the conversation.

        Raises:
            TransferFailed: it will not have it.
        """
        problem = self.problem
        if outgoing is not self.outgoing:
            problem = self._ended_by
        if problem is not None:
            raise problem.again()
        self.hurry()
        return self.delivered or None

    def state(self, refused: str = "") -> str:
        """Return how the link is, in words for an error.

        Args:
            refused: why the last who greeted was refused; empty where nobody was.
        """
        joined = "connected" if self.joined else "not connected"
        trouble = f"; last problem: {self.trouble}" if self.trouble else ""
        if refused and not self.joined:
            trouble += f"; refused: {refused}"
        count = self.counters.connections
        return f" ({joined}, {count} connection{'s' * (count != 1)} so far{trouble})"

    def renew(self, *, epoch: int, now: float) -> None:
        """Begin anew, with sequences from 0.

        What had arrived and was not taken is gone, and so is what was not acknowledged: whoever
        flushes it is told.

        Args:
            epoch: this node's from now on; where the peer's is new, ours may stay, for the pair of
                both is new.
            now: the time.

        Raises:
            Misused: the epoch is not greater, though the peer did not begin again.
        """
        self._ended_by = self.problem or self._lost("the conversation was renewed")
        if not isinstance(self.problem, PeerRestarted) or self._next_epoch <= self.peer_epoch:
            if epoch <= self.epoch:
                raise Misused(
                    f"epoch {epoch} is not greater than {self.epoch}, the epoch that {self.peer}"
                    " knows"
                )
            self.epoch = epoch
        self.peer_epoch = max(self.peer_epoch, self._next_epoch)
        self.problem = None
        self._fail = self._met = False
        self._in_vain = 0
        self._acks.renew()
        self._new_halves()
        if self.connected:
            self.begin(now=now, session=self._session)

    def next_frame(self, *, now: float) -> tuple[bytes, Any] | None:
        """Header and payload of what is to be sent now; it counts as sent.

        None where nothing is.
        """
        if not self.connected:
            return None
        if self._hello:
            self._hello = False
            self._hello_at = now
            return self._greet(now)
        if self._fail and self._heard and not self._has_said_fail:
            self._has_said_fail = True
            return self._frame(Kind.FAIL, now, payload=str(self.problem).encode())
        if not self._heard or self.problem is not None:
            return None
        pending = self.outgoing.next(now=now)
        if pending is not None:
            return self._frame(
                pending.kind,
                now,
                sequence=pending.sequence,
                flags=pending.flags,
                payload=pending.payload,
                payload_digest=pending.digest,
            )
        if not self.owes(now):
            return None
        offered = self.outgoing.offered
        flags = self._acks.flags(sequence=offered, now=now)
        return self._frame(Kind.ACK, now, sequence=offered, flags=flags)

    def _greet(self, now: float) -> tuple[bytes, Any]:
        """Header and payload of a HELLO, which is sealed where both have a key."""
        words = Greeting(self.node, self.peer, self.limits.message).packed()
        flags = 0 if self._heard else frame.UNHEARD
        window = self.limits.window
        if self._session is not None:
            unsealed, _ = self._frame(
                Kind.HELLO, now, sequence=window, flags=flags, payload=words + bytes(TAG)
            )
            header = frame.parsed(unsealed)
            assert header is not None
            words += self._session.seal(frame.said(header), words)
        return self._frame(Kind.HELLO, now, sequence=window, flags=flags, payload=words)

    def _frame(
        self,
        kind: Kind,
        now: float,
        *,
        sequence: int = 0,
        flags: int = 0,
        payload: Any = b"",
        payload_digest: int | None = None,
    ) -> tuple[bytes, Any]:
        if payload_digest is None and payload:
            payload_digest = digest(payload)
        self._said_at = now
        self._acks.said()
        header = frame.packed(
            kind=kind,
            flags=flags,
            length=len(payload),
            sequence=sequence,
            epoch=self.epoch,
            toward=self.peer_epoch,
            acknowledged=self.incoming.arrived,
            taken=self.incoming.taken,
            payload_digest=payload_digest,
        )
        return header, payload

    # The same for one message, where nothing else is to be done: see `Line`.

    def at_once(self, payload: bytes, *, now: float) -> tuple[bytes, int] | None:
        """Send a message now, where there is a way and nothing has to be said before it.

        Returns:
            Its header, which is to be sent with it, and its number; None where nothing was done:
            `offer` it.
        """
        acks = self._acks
        incoming = self.incoming
        # What is to be asked or answered too would wait for another step: the general way says
        # both.
        if (
            not self._heard
            or self._hello
            or acks.asks
            or acks.answers
            or self.problem is not None
            or incoming.ended
            or len(payload) > self.longest
        ):
            return None
        pending = self.outgoing.at_once(payload, now=now)
        if pending is None:
            return None
        self._said_at = now
        acks.said()
        header = frame.packed(
            kind=Kind.DATA,
            length=len(payload),
            sequence=pending.sequence,
            epoch=self.epoch,
            toward=self.peer_epoch,
            acknowledged=incoming.arrived,
            taken=incoming.taken,
            payload_digest=pending.digest,
        )
        return header, pending.message

    def passed(self, header: Header, payload: Any, *, now: float) -> tuple[Message | None, bool]:
        """Take a frame that came by itself, as `came` or `damaged` do.

        Returns:
            Its message, where that is the next, and so taken; and whether something is to be said
            now.
        """
        incoming = self.incoming
        message = None
        kind, flags, length, sequence, epoch, toward, acknowledged, taken, _ = header
        if (
            kind is not Kind.DATA
            or flags
            or sequence != incoming.arrived
            or toward != self.epoch
            or epoch != self.peer_epoch
            or self.problem is not None
            or (message := incoming.passed(payload)) is None
        ):
            self.came(header, payload, now=now)
        if message is None:
            return None, False  # who waits says what there is to say
        self._heard_at = now
        self._met = True
        self.counters.received += 1
        self.counters.received_bytes += length
        self.outgoing.heard(acknowledged=acknowledged, taken=taken)
        return message, self._acks.passed(length, frames=incoming.arrived, now=now)

    def quiet(self, now: float) -> bool:
        """Return whether there is a way, nothing is to be said, and no end is known."""
        acks = self._acks
        return not (
            not self._heard
            or self._hello
            or self.incoming.ended
            or acks.asks
            or acks.answers
            or self.problem is not None
            or (acks.at is not None and now >= acks.at)
        )

    def owes(self, now: float) -> bool:
        """Return whether an acknowledgement is to be sent, or a question, or an answer."""
        acks = self._acks
        return acks.asks or acks.answers or (acks.at is not None and now >= acks.at)

    # What is known.

    @property
    def due(self) -> float | None:
        """When `tick` or `next_frame` has something to do, if nothing comes before; None: never."""
        if self.problem is not None:
            return None
        oldest = self.outgoing.oldest
        times = [None if oldest is None else oldest.deadline]
        if self._heard:
            times.append(self._acks.at)
        elif self.connected:
            times.append(self._hello_at + self.round_trip.timeout(doubled=self._hellos))
        if self.connected and not self.incoming.ended:
            times.append(self._heard_at + self._silence())
            if self._heard:
                times.append(self._sign_at())
        return min((time for time in times if time is not None), default=None)

    @property
    def delivered(self) -> bool:
        """Return whether all that was offered is acknowledged."""
        return self.outgoing.oldest is None

    @property
    def joined(self) -> bool:
        """Return whether both know each other on this connection."""
        return self._heard
