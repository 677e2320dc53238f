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
from rankproof_integrity.problem import MessageLost, PeerRestarted
from rankproof_integrity.reader import Damaged
from rankproof_integrity.wire import StreamWire
from two_nodes import OTHER, Side, TwoNodes


def test_whatever_happens_on_the_wire_messages_come_once_and_in_order(pytestconfig: Any) -> None:
    """Loss, copies, another order, damage, cuts, restarts and renewals never give a message twice
    or out of order.
    """
    examples = 2000 if pytestconfig.getoption("--soak") else 25
    run_state_machine_as_test(
        TwoNodes, settings=settings(max_examples=examples, stateful_step_count=60, deadline=None)
    )


def test_a_greeting_that_is_lost_once_is_sent_again() -> None:
    """Who hears no greeting asks for another.

    Else nothing it has to say would leave before its deadline.
    """
    nodes = TwoNodes()
    nodes.cut()
    nodes.join()
    nodes.pump()
    header = frame.parsed(nodes.flying["a"].pop(0))
    assert header is not None
    assert header.kind is frame.Kind.HELLO
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
    nodes = TwoNodes()
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


def test_after_a_frame_that_is_missing_the_next_connection_begins_at_it() -> None:
    """What came before it is not sent again, and what came after it on the old connection is not
    taken from there.
    """
    nodes = TwoNodes()
    for _ in range(4):
        nodes.send("a", 50)
    nodes.pump()
    assert len(nodes.flying["b"]) == 4
    nodes.flying["b"].pop(2)
    nodes.settle()
    assert not nodes.joined
    assert "frame 3 arrived, but frame 2 before it did not" in nodes.sides["b"].talk.trouble
    nodes.join()
    nodes.settle()
    assert nodes.sides["a"].talk.counters.sent_again == 2
    for _ in range(4):
        nodes.take("b")
    assert nodes.sides["b"].taken == nodes.sides["a"].sent


def test_who_begins_again_under_its_old_epoch_is_told() -> None:
    """Its first messages would seem to be those it sent before: acknowledged, and never given to
    anybody.
    """
    nodes = TwoNodes()
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
    assert isinstance(nodes.sides["a"].talk.problem, PeerRestarted)
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
    nodes = TwoNodes()
    nodes.send("b", 10)
    nodes.pump()
    (former,) = nodes.flying["a"]
    nodes.flying["a"].clear()
    nodes.restart(again, 0)
    nodes.join()
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
    """Whatever single bit of a frame is flipped on a stream: the frame before it is given, and
    nothing after it.
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
        theirs.sendall(whole + bytes(changed) + whole)
        frames = wire.receive()
        assert next(frames) == (frame.parsed(whole), payload)
        with pytest.raises(Damaged, match="arrived damaged"):
            next(frames)
        wire.close()
        theirs.close()
