"""Two conversations, whatever Hypothesis does to the wire between them, and what was found out of
them so far.

With --soak twenty times as many orders of events are tried.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from rankproof_integrity import frame
from rankproof_integrity.digest import digest
from rankproof_integrity.link import Counters, RoundTrip
from rankproof_integrity.outgoing import OutgoingFrames
from rankproof_integrity.problem import MessageLost, PeerRestarted
from rankproof_integrity.wire import StreamWire, Torn
from two_nodes import LIMITS, OTHER, OverAStream, Side, TwoNodes


@pytest.mark.parametrize("machine", [TwoNodes, OverAStream])
def test_whatever_happens_on_the_wire_messages_come_once_and_in_order(
    machine: Any, pytestconfig: Any
) -> None:
    """Loss, copies, another order, damage, cuts, restarts and renewals never give a message twice
    or out of order.
    """
    examples = 2000 if pytestconfig.getoption("--soak") else 25
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=60, deadline=None)
    )


def met(*, ordered: bool) -> TwoNodes:
    """Two nodes that know each other, with nothing on its way."""
    return OverAStream() if ordered else TwoNodes()


@pytest.mark.parametrize("ordered", [False, True])
def test_a_greeting_that_is_lost_once_is_sent_again(ordered: bool) -> None:
    """Who hears no greeting asks for another.

    Else nothing it has to say would leave before its deadline.
    """
    nodes = met(ordered=ordered)
    nodes.cut()
    nodes.join()
    nodes.pump()
    # As a wire of either kind drops it: one whose payload came damaged.
    lost = nodes.flying["a"].pop(0)
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
    """A peer that is connected again hears that nothing will come, on each connection until it
    has.
    """
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
    """Another damaged frame and a whole one after it hide from nobody that the second copy was
    damaged too.
    """
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
    """Its first messages would seem to be those it sent before: acknowledged, and never given to
    anybody.
    """
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
    assert "a knows an earlier start with epoch 1; each start needs a greater epoch" in str(problem)
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
    """One begins again and the other's epoch stays: what the one sent, or was sent, before then is
    dropped by both.
    """
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
    """Whatever single bit of a frame is flipped on a stream: its payload is not given, and the next
    frame is whole.
    """
    payload = bytes(range(24))
    whole = frame.packed(
        kind=frame.Kind.DATA, epoch=1, toward=1, length=len(payload), payload_digest=digest(payload)
    )
    whole += payload
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        ours, theirs = socket.socketpair()
        wire = StreamWire(ours, longest=1000)
        theirs.sendall(bytes(changed) + whole)
        if bit < 8 * frame.SIZE:
            with pytest.raises(Torn, match="a header arrived damaged"):
                list(wire.receive())
        else:
            (first, damaged), (second, came) = wire.receive()
            assert (damaged, came) == (None, payload)
            assert first == second == frame.parsed(whole)
        wire.close()
        theirs.close()


def test_what_waited_behind_a_lost_frame_does_not_make_the_time_out_longer() -> None:
    """Of two datagrams the first is lost and sent again: the answer to both says nothing of the way
    of the second.
    """
    seen = RoundTrip()
    out = OutgoingFrames(
        limits=LIMITS, round_trip=seen, counters=Counters(), ordered=False, largest=1000
    )
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
