"""Two conversations over a wire in memory that Hypothesis drives: it loses, doubles, reorders, damages, cuts, restarts.

With --soak twenty times as many orders of events are tried.
"""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from harness.integrity import frame
from harness.integrity.digest import digest
from harness.integrity.health import Counters, NetworkHealthMonitor, RoundTrip
from harness.integrity.incoming import Message
from harness.integrity.limits import Limits
from harness.integrity.outgoing import Outgoing
from harness.integrity.problem import MessageLost, PeerRestarted, TransferFailed
from harness.integrity.straight import StraightConversation
from harness.integrity.wire import StreamWire, Torn

LIMITS = Limits(window=2000, message=600, deadline=30, silence=2, shortest=0.05)
NODES = st.sampled_from(["a", "b"])
OTHER = {"a": "b", "b": "a"}


@dataclass
class Side:
    """A node as a test sees it, with what its application did since the conversation began."""

    talk: StraightConversation
    half: int
    sent: list[bytes] = field(default_factory=list)
    taken: list[bytes] = field(default_factory=list)


class TwoNodes(RuleBasedStateMachine):
    """What holds whatever happens: a message is given once, in order, unchanged, or an error names the first lost."""

    ordered = False

    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0
        self.epochs = Counter[str]()
        self.halves = 0
        self.sides = {node: self.made(node) for node in "ab"}
        self.flying: dict[str, list[bytes]] = {"a": [], "b": []}
        self.ever: Counter[bytes] = Counter()
        self.offered: set[bytes] = set()
        self.straight = False
        self.join()
        self.settle()

    def made(self, node: str) -> Side:
        self.epochs[node] += 1
        self.halves += 1
        talk = StraightConversation(
            node=node,
            peer=OTHER[node],
            epoch=self.epochs[node],
            limits=LIMITS,
            monitor=NetworkHealthMonitor(),
            ordered=self.ordered,
            largest=2**31 if self.ordered else 100,
        )
        return Side(talk, self.halves)

    def join(self) -> None:
        self.joined = True
        for side in self.sides.values():
            side.talk.begin(now=self.now)

    def cut(self) -> None:
        if self.ordered and self.joined:
            self.joined = False
            self.flying = {"a": [], "b": []}
            for side in self.sides.values():
                side.talk.end(why="cut")

    def pump(self) -> None:
        for node, side in self.sides.items():
            while (out := side.talk.next_frame(now=self.now)) is not None:
                self.flying[OTHER[node]].append(out[0] + bytes(out[1]))

    def deliver(self, node: str, data: bytes) -> None:
        talk, header = self.sides[node].talk, frame.parsed(data)
        payload = memoryview(data)[frame.SIZE :]
        if header is None and self.ordered:
            self.cut()
        elif header is not None and self.ordered and self.straight:
            message, _ = talk.passed(header, payload if frame.holds(header, payload) else None, now=self.now)
            if message is not None:
                self.given(node, message)
        elif header is None or not frame.holds(header, payload):
            talk.damaged(header, now=self.now)
        else:
            talk.came(header, payload, now=self.now)

    @rule(node=NODES, size=st.integers(0, 500))
    def send(self, node: str, size: int) -> None:
        side = self.sides[node]
        data = f"{node} {side.half} {len(side.sent)} ".encode().ljust(size, b".")
        if side.talk.problem is not None:
            with pytest.raises(TransferFailed):
                side.talk.offer(data, now=self.now)
        elif self.straight and (out := side.talk.at_once(data, now=self.now)) is not None:
            assert out[1] == len(side.sent)
            side.sent.append(data)
            self.offered.add(data)
            self.flying[OTHER[node]].append(out[0] + data)
        elif (number := side.talk.offer(data, now=self.now)) is not None:
            assert number == len(side.sent)
            side.sent.append(data)
            self.offered.add(data)

    @rule(node=NODES, sizes=st.lists(st.integers(0, 400), min_size=2, max_size=4))
    def send_some(self, node: str, sizes: list[int]) -> None:
        for size in sizes:
            self.send(node, size)

    @rule(node=NODES)
    def take(self, node: str) -> None:
        if (message := self.sides[node].talk.take(now=self.now)) is not None:
            self.given(node, message)

    def given(self, node: str, message: Message) -> None:
        side = self.sides[node]
        assert message.sequence == len(side.taken)
        side.taken.append(bytes(message.data))
        self.ever[bytes(message.data)] += 1
        assert bytes(message.data) in self.offered

    @rule(straight=st.booleans())
    def go(self, straight: bool) -> None:
        """From now on messages take the straight path where there is one."""
        self.straight = straight

    @rule(node=NODES, at=st.integers(0, 50), keeps=st.booleans())
    def arrive(self, node: str, at: int, keeps: bool) -> None:
        self.pump()
        if waiting := self.flying[node]:
            at = 0 if self.ordered else at % len(waiting)
            data = waiting[at] if keeps and not self.ordered else waiting.pop(at)
            self.deliver(node, data)

    @rule()
    def settle(self) -> None:
        """All that flies arrives."""
        self.pump()
        for _ in range(20):
            for node in "ab":
                while self.flying[node]:
                    self.deliver(node, self.flying[node].pop(0))
            self.pump()

    @rule(node=NODES, at=st.integers(0, 50))
    @precondition(lambda self: not self.ordered)
    def lose(self, node: str, at: int) -> None:
        self.pump()
        if waiting := self.flying[node]:
            waiting.pop(at % len(waiting))

    @rule(node=NODES, at=st.integers(0, 50), bit=st.integers(0, 4000))
    def flip(self, node: str, at: int, bit: int) -> None:
        self.pump()
        if waiting := self.flying[node]:
            changed = bytearray(waiting[at % len(waiting)])
            changed[bit // 8 % len(changed)] ^= 1 << bit % 8
            waiting[at % len(waiting)] = bytes(changed)

    @rule(seconds=st.sampled_from([0.001, 0.05, 0.3, 1.0]))
    def later(self, seconds: float) -> None:
        self.now += seconds
        for side in self.sides.values():
            side.talk.tick(now=self.now)
        if self.ordered and any(side.talk.wanted for side in self.sides.values()):
            self.cut()
        self.pump()

    @rule()
    @precondition(lambda self: self.ordered)
    def reset(self) -> None:
        if self.joined:
            self.cut()
        else:
            self.join()

    @rule(node=NODES, chance=st.integers(0, 7))
    def restart(self, node: str, chance: int) -> None:
        if chance:
            return  # rarely: most orders of events shall end with all that was sent
        self.cut()
        self.sides[node] = self.made(node)
        if not self.ordered:
            self.sides[node].talk.begin(now=self.now)

    @rule(node=NODES)
    def renew(self, node: str) -> None:
        side = self.sides[node]
        if side.talk.problem is not None:
            restarted = isinstance(side.talk.problem, PeerRestarted)
            self.epochs[node] += not restarted
            side.talk.renew(epoch=self.epochs[node], now=self.now)
            self.halves += 1
            self.sides[node] = Side(side.talk, self.halves)

    @invariant()
    def once_and_in_order(self) -> None:
        assert not self.ever or max(self.ever.values()) == 1
        for side in self.sides.values():
            origins = {tuple(data.split()[:2]) for data in side.taken}
            assert len(origins) <= 1
            assert [int(data.split()[2]) for data in side.taken] == list(range(len(side.taken)))

    @invariant()
    def what_is_named_is_the_first(self) -> None:
        for node, side in self.sides.items():
            problem = side.talk.problem
            given = sum(self.ever[data] for data in side.sent)
            ready = {data for data in side.sent if self.ever[data]}
            assert ready == set(side.sent[:given])
            if isinstance(problem, PeerRestarted) and side.talk.outgoing.untaken is not None:
                # What came before the first that is named was given; nothing after the last was sent.
                assert given >= problem.sequence
                assert side.talk.outgoing.untaken[1] == len(side.sent) - 1
            assert side.talk.outgoing.taken <= side.talk.outgoing.acknowledged <= side.talk.outgoing.offered, node

    def teardown(self) -> None:
        """Without further faults all that was sent is given, or there is an error that says why not."""
        for _ in range(400):
            if self.ordered and not self.joined:
                self.join()
            self.later(0.05)
            for node in "ab":
                while self.flying[node]:
                    self.deliver(node, self.flying[node].pop(0))
                    self.pump()
                self.take(node)
        problems = [side.talk.problem for side in self.sides.values()]
        for node, side in self.sides.items():
            if problems == [None, None]:
                assert self.sides[OTHER[node]].taken == side.sent
            elif side.talk.problem is not None:
                assert side.talk.peer in str(side.talk.problem)
                self.before_it_all_came(side, self.sides[OTHER[node]])
        self.once_and_in_order()

    @staticmethod
    def before_it_all_came(side: Side, other: Side) -> None:
        """All before the message that is given up on were given, where both are still who sent and received."""
        problem, same = side.talk.problem, (side.talk.peer_epoch, side.talk.epoch)
        named = isinstance(problem, MessageLost) and f"to {side.talk.peer} is lost" in str(problem)
        if named and same == (other.talk.epoch, other.talk.peer_epoch) and problem is not None:
            assert other.taken == side.sent[: len(other.taken)]
            assert len(other.taken) >= (problem.sequence or 0)


class OverAStream(TwoNodes):
    """The same where the wire keeps order, and breaks."""

    ordered = True


@pytest.mark.parametrize("machine", [TwoNodes, OverAStream])
def test_whatever_happens_on_the_wire_messages_come_once_and_in_order(machine: Any, pytestconfig: Any) -> None:
    """Loss, copies, another order, damage, cuts, restarts and renewals never give a message twice or out of order."""
    examples = 2000 if pytestconfig.getoption("--soak") else 25
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=60, deadline=None))


def met(*, ordered: bool) -> TwoNodes:
    """Two nodes that know each other, with nothing on its way."""
    return OverAStream() if ordered else TwoNodes()


@pytest.mark.parametrize("ordered", [False, True])
def test_a_greeting_that_is_lost_once_is_sent_again(ordered: bool) -> None:
    """Who hears no greeting asks for another; else nothing it has to say would leave before its deadline."""
    nodes = met(ordered=ordered)
    nodes.cut()
    nodes.join()
    nodes.pump()
    lost = nodes.flying["a"].pop(0)  # as a wire of either kind drops it: one whose payload came damaged
    header = frame.parsed(lost)
    assert header is not None
    assert header.kind is frame.Kind.HELLO
    nodes.sides["a"].talk.damaged(header, now=nodes.now)
    nodes.settle()
    assert [nodes.sides[node].talk.joined for node in "ab"] == [False, True]
    nodes.send("a", 10)
    nodes.later(1.0)
    nodes.settle()
    nodes.take("b")
    assert nodes.sides["b"].taken == nodes.sides["a"].sent


def test_who_gave_up_while_apart_says_so_when_they_meet() -> None:
    """A peer that is connected again hears that nothing will come, on each connection until it has."""
    nodes = met(ordered=True)
    nodes.cut()
    nodes.send("a", 10)
    nodes.later(nodes.sides["a"].talk.limits.deadline + 1)
    for _ in range(2):
        nodes.join()
        nodes.pump()
        nodes.cut()
    nodes.join()
    nodes.settle()
    assert "a gave up: message" in str(nodes.sides["b"].talk.problem)


def test_a_frame_that_comes_damaged_twice_is_sent_a_third_time() -> None:
    """Another damaged frame and a whole one after it hide from nobody that the second copy was damaged too."""
    nodes = met(ordered=True)

    def sent(*damaged: int) -> None:
        nodes.pump()
        for at in damaged:
            data = nodes.flying["a"][at]
            nodes.flying["a"][at] = data[:-1] + bytes([data[-1] ^ 1])
        while nodes.flying["a"]:
            nodes.deliver("a", nodes.flying["a"].pop(0))

    nodes.send_some("b", [10, 10])
    sent(0)
    nodes.pump()
    nodes.deliver("b", nodes.flying["b"].pop())
    nodes.send_some("b", [10, 10])
    sent(0, 1)
    nodes.settle()
    for _ in range(4):
        nodes.take("a")
    assert nodes.sides["a"].taken == nodes.sides["b"].sent
    assert len(nodes.sides["b"].sent) == 4


@pytest.mark.parametrize("ordered", [False, True])
def test_who_begins_again_under_its_old_epoch_is_told(ordered: bool) -> None:
    """Its first messages would seem to be those it sent before: acknowledged, and never given to anybody."""
    nodes = met(ordered=ordered)
    nodes.send_some("b", [10, 10])
    nodes.settle()
    for _ in range(2):
        nodes.take("a")
    nodes.settle()
    nodes.epochs["b"] -= 1
    nodes.restart("b", 0)
    nodes.join()
    nodes.send_some("b", [10, 10])
    nodes.settle()
    problem = nodes.sides["b"].talk.problem
    assert isinstance(problem, MessageLost)
    assert "a knows an earlier start under epoch 1: each takes a greater one" in str(problem)
    assert nodes.sides["b"].talk.outgoing.acknowledged == 0
    assert isinstance(nodes.sides["a"].talk.problem, PeerRestarted) or not ordered
    nodes.renew("b")
    nodes.settle()
    nodes.epochs["a"] += 1
    nodes.sides["a"].talk.renew(epoch=nodes.epochs["a"], now=nodes.now)
    nodes.sides["a"] = Side(nodes.sides["a"].talk, nodes.halves + 1)
    nodes.later(1.0)
    nodes.settle()
    nodes.send("b", 20)
    nodes.settle()
    nodes.take("a")
    assert nodes.sides["a"].taken == nodes.sides["b"].sent


@pytest.mark.parametrize("again", ["a", "b"])
def test_what_was_said_between_former_selves_is_not_taken(again: str) -> None:
    """One begins again and the other's epoch stays: what the one sent, or was sent, before then is dropped by both."""
    nodes = met(ordered=False)
    nodes.send("b", 10)
    nodes.pump()
    (former,) = nodes.flying["a"]
    nodes.flying["a"].clear()
    nodes.restart(again, 0)
    nodes.settle()
    nodes.renew(OTHER[again])
    nodes.settle()
    nodes.later(1.0)
    nodes.settle()
    a = nodes.sides["a"].talk
    assert a.joined
    header = frame.parsed(former)
    assert header is not None
    assert (header.toward < a.epoch, header.epoch < a.peer_epoch) == (again == "a", again == "b")
    nodes.deliver("a", former)
    assert a.take(now=nodes.now) is None
    nodes.send("b", 20)
    nodes.settle()
    nodes.take("a")
    assert nodes.sides["a"].taken == nodes.sides["b"].sent


def test_each_bit_of_a_frame_counts_over_a_stream() -> None:
    """Whatever single bit of a frame is flipped on a stream: its payload is not given, and the next frame is whole."""
    payload = bytes(range(24))
    whole = frame.packed(kind=frame.Kind.DATA, epoch=1, toward=1, length=len(payload), payload_digest=digest(payload))
    whole += payload
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        ours, theirs = socket.socketpair()
        wire = StreamWire(ours, longest=1000)
        theirs.sendall(bytes(changed) + whole)
        if bit < 8 * frame.SIZE:
            with pytest.raises(Torn, match="a header came damaged"):
                list(wire.receive())
        else:
            (first, damaged), (second, came) = wire.receive()
            assert (damaged, came) == (None, payload)
            assert first == second == frame.parsed(whole)
        wire.close()
        theirs.close()


def test_what_waited_behind_a_lost_frame_does_not_make_the_time_out_longer() -> None:
    """Of two datagrams the first is lost and sent again: the answer to both says nothing of the way of the second."""
    seen = RoundTrip()
    out = Outgoing(limits=LIMITS, round_trip=seen, counters=Counters(), ordered=False, largest=1000)
    for number in range(2):
        out.offer(b"datagram", now=1.0)
        assert out.next(now=1.0 + number / 1000) is not None
    out.tick(now=4.0)
    again = out.next(now=4.0)
    assert again is not None
    assert (again.sequence, again.times) == (0, 2)
    out.heard(acknowledged=2, taken=2, now=4.01)
    assert seen.smoothed is None
    out.offer(b"datagram", now=5.0)
    out.next(now=5.0)
    out.heard(acknowledged=3, taken=3, now=5.01)
    assert seen.smoothed == pytest.approx(0.01)
