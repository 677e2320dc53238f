"""Two conversations over a stream in memory that Hypothesis drives: it loses, doubles, reorders and
damages frames, and breaks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rankproof_integrity import frame
from rankproof_integrity.conversation import Conversation
from rankproof_integrity.incoming import Message
from rankproof_integrity.link import NetworkHealthMonitor, TransportLimits
from rankproof_integrity.problem import MessageLost, PeerRestarted, TransferFailed

LIMITS = TransportLimits(window=4000, message=600, deadline=30, silence=2, shortest=0.05)
NODES = st.sampled_from(["a", "b"])
OTHER = {"a": "b", "b": "a"}


@dataclass
class Side:
    """A node as a test sees it, with what its application did since the conversation began."""

    talk: Conversation
    half: int
    sent: list[bytes] = field(default_factory=list)
    taken: list[bytes] = field(default_factory=list)


class TwoNodes(RuleBasedStateMachine):
    """What holds whatever happens: a message is given once, in order, unchanged, or an error names
    the first lost.
    """

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
        talk = Conversation(
            node=node,
            peer=OTHER[node],
            epoch=self.epochs[node],
            limits=LIMITS,
            monitor=NetworkHealthMonitor(),
        )
        return Side(talk, self.halves)

    def join(self) -> None:
        self.joined = True
        for side in self.sides.values():
            side.talk.begin(now=self.now)

    def cut(self, why: str = "cut") -> None:
        if self.joined:
            self.joined = False
            self.flying = {"a": [], "b": []}
            for side in self.sides.values():
                side.talk.end(why=why)

    def pump(self) -> None:
        for node, side in self.sides.items():
            while (out := side.talk.next_frame(now=self.now)) is not None:
                self.flying[OTHER[node]].append(out[0] + bytes(out[1]))

    def deliver(self, node: str, data: bytes) -> None:
        talk, header = self.sides[node].talk, frame.parsed(data)
        payload = memoryview(data)[frame.SIZE :]
        if header is None or not frame.holds(header, payload):
            talk.damaged()
            self.cut()  # as a reader of frames has it
            return
        if self.straight:
            message, _ = talk.passed(header, payload, now=self.now)
            if message is not None:
                self.given(node, message)
        else:
            talk.came(header, payload, now=self.now)
        if talk.wanted:
            self.cut(talk.trouble)

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

    @rule(node=NODES)
    def arrive(self, node: str) -> None:
        self.pump()
        if self.flying[node]:
            self.deliver(node, self.flying[node].pop(0))

    @rule(node=NODES, at=st.integers(0, 50))
    def double(self, node: str, at: int) -> None:
        self.pump()
        if waiting := self.flying[node]:
            at %= len(waiting)
            waiting.insert(at, waiting[at])

    @rule(node=NODES, at=st.integers(0, 50))
    def swap(self, node: str, at: int) -> None:
        self.pump()
        if len(waiting := self.flying[node]) > 1:
            at %= len(waiting) - 1
            waiting[at : at + 2] = reversed(waiting[at : at + 2])

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
        if any(side.talk.wanted for side in self.sides.values()):
            self.cut()
        self.pump()

    @rule()
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
                # What came before the first that is named was given; nothing after the last was
                # sent.
                assert given >= problem.sequence
                assert side.talk.outgoing.untaken[1] == len(side.sent) - 1
            assert (
                side.talk.outgoing.taken
                <= side.talk.outgoing.acknowledged
                <= side.talk.outgoing.offered
            ), node

    def teardown(self) -> None:
        """Without further faults all that was sent is given, or there is an error that says why
        not.
        """
        for _ in range(400):
            if not self.joined:
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
        """All before the message that is given up on were given, where both are still who sent and
        received.
        """
        problem, same = side.talk.problem, (side.talk.peer_epoch, side.talk.epoch)
        named = isinstance(problem, MessageLost) and f"to {side.talk.peer} is lost" in str(problem)
        if named and same == (other.talk.epoch, other.talk.peer_epoch) and problem is not None:
            assert other.taken == side.sent[: len(other.taken)]
            assert len(other.taken) >= (problem.sequence or 0)
