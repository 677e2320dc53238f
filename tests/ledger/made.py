"""Ledgers made for a test, from short words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.ledger.call import RECEIVE, SEND, Call, CallGroup
from harness.ledger.file import SLOTS, CallPart, Ledger, Sketch

WORLD = "0123456789abcdef"


def ledger(rank: int, *calls: Call, size: int = 2, **rest: Any) -> Ledger:
    """A ledger of calls, numbered as they come, each with its place among those it is counted
    with.
    """
    counts: dict[Any, int] = {}
    numbered = []
    for number, call in enumerate(calls, start=1):
        key = (call.group, None if call.is_collective else (call.operation, call.peer, call.tag))
        counts[key] = counts.get(key, 0) + 1
        numbered.append(replace(call, number=number, index=counts[key], begin=number * 10))
    known = {"pid": 100 + rank, "world": WORLD, "made": len(calls), "room": SLOTS, **rest}
    return Ledger(rank=rank, size=size, calls=tuple(numbered), **known)


def call(operation: str = "all_reduce", **rest: Any) -> Call:
    """A call in the group of two ranks."""
    known: dict[str, Any] = {
        "number": 1,
        "operation": operation,
        "group": CallGroup("torch", "0", (0, 1)),
        "index": 1,
        "peer": None,
        "tag": 0,
        "shape": "4",
        "dtype": "float32",
        "elements": 4,
        "reduction": "",
        "site": "step.py:9 in step",
        "thread": 0,
        "begin": 1,
        "end": None,
        "state": "started",
    }
    return Call(**{**known, **rest})


def send(to: int, **rest: Any) -> Call:
    return call(SEND, peer=to, **rest)


def receive(source: int | None, **rest: Any) -> Call:
    return call(RECEIVE, peer=source, **rest)


def last(found: Ledger, *, kept: int) -> Ledger:
    """The same when only the last calls were held: its file had no room for more."""
    return replace(found, calls=found.calls[-kept:], room=kept)


def digested(found: Ledger, *parts: CallPart) -> Ledger:
    """The same with digests, numbered as they come."""
    numbered = tuple(replace(part, number=number) for number, part in enumerate(parts, start=1))
    return replace(found, digested=True, parts=numbered)


def part(call: int, side: Any, digest: int, **rest: Any) -> CallPart:
    """The digest of an array of a call; of a sum with a sketch."""
    known: dict[str, Any] = {"whom": None, "many": 1, "sketch": None, **rest}
    return CallPart(number=1, call=call, side=side, digest=digest, **known)


def of_sum(call: int, side: Any, total: float, *, size: float = 100.0, **rest: Any) -> CallPart:
    return part(call, side, 7, sketch=Sketch(total=total, size=size), **rest)
