"""`collective-correct`: it holds for right results alone, and names what came instead."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check, Finding
from harness.events import Event
from harness.history import CODED, CODED_END, History
from harness.ledger import coded

CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)
SIZE = 2
KNOWN: dict[str, Any] = {"elements": 5, "dtype": "float32"}


def told(operation: str, sequence: int, rank: int, **rest: Any) -> dict[str, Any]:
    """What a rank tells of a call that went right; `parts` are other bytes that came."""
    values = {
        "sequence": sequence,
        "operation": operation,
        "other": 0,
        "reduction": "sum",
        **KNOWN,
        "site": "try.py:7",
    }
    sources = coded.sources(operation, size=SIZE, other=0)
    right = [
        coded.expected(operation, one, rank=rank, size=SIZE, sequence=sequence, **KNOWN)
        for one in sources
    ]
    came = rest.pop("parts", right)
    parts = [hashlib.sha256(one).hexdigest() for one in came]
    return {**values, "bytes": sum(map(len, came)), "parts": parts, **rest}


def judged(
    *ranks: list[dict[str, Any]], ends: list[int | None] | None = None, calls: int = 1
) -> Finding:
    """What the check says of what the ranks told."""
    events = []
    for rank, calls_of in enumerate(ranks):
        count = len(calls_of) if ends is None else ends[rank]
        events.append(
            Event(ns=5, by="rank", rank=rank, pid=7, name=CODED, values={"calls": list(calls_of)})
        )
        if count is not None:
            events.append(
                Event(ns=6, by="rank", rank=rank, pid=7, name=CODED_END, values={"calls": count})
            )
    check = {"id": "c", "kind": "collective-correct", "ranks": "every", "calls": calls}
    return CHECK.validate_python(check).judge(History(events, size=len(ranks)))


def both(
    change: Callable[[dict[str, Any]], None] = lambda _: None, *, operation: str = "all_reduce"
) -> list[Any]:
    """Two calls of both ranks, of which rank 0 tells the second one otherwise."""
    found = [[told("all_gather", 1, rank), told(operation, 2, rank)] for rank in range(SIZE)]
    change(found[0][1])
    return found


def test_right_results_hold() -> None:
    """Every operation; the number of calls is shown, and asked for."""
    operations = sorted(coded.OPERATIONS - {"send", "recv"})
    right = [
        [told(one, number, rank) for number, one in enumerate(operations, start=1)]
        for rank in range(SIZE)
    ]
    assert judged(*right, calls=5).passed
    found = judged(*right, calls=6)
    assert [(part.passed, part.reason) for part in found.ranks] == [
        (False, "it made 5 coded calls, not 6")
    ] * SIZE


def came(operation: str, part: bytes) -> Callable[[dict[str, Any]], None]:
    return lambda values: values.update(told(operation, 2, 0, parts=[part]))


def made(rank: int, sequence: int) -> bytes:
    return coded.given("all_gather", rank=rank, size=SIZE, sequence=sequence, **KNOWN)


def summed(*parts: bytes) -> bytes:
    columns = zip(
        *([coded.decoded(one[at : at + 4], "float32") for at in range(0, 20, 4)] for one in parts),
        strict=True,
    )
    return b"".join(coded.encoded(int(sum(column)), "float32") for column in columns)


@pytest.mark.parametrize(
    ("operation", "part", "words"),
    [
        ("broadcast", made(0, 1), "it is what rank 0 passed to call 1"),
        ("broadcast", made(1, 2), "it is what rank 1 passed to call 2"),
        ("broadcast", coded.halves_swapped(made(0, 2), "float32"), "its halves are swapped"),
        ("broadcast", bytes(20), "it is all zeros"),
        ("all_reduce", made(0, 2), "the contribution of rank 1 is missing"),
        (
            "all_reduce",
            summed(made(0, 2), made(1, 2), made(1, 2)),
            "the contribution of rank 1 was added twice",
        ),
        ("all_reduce", summed(made(0, 1), made(1, 2)), "the contribution of rank 0 is from call 1"),
        (
            "all_reduce",
            summed(made(0, 2), coded.halves_swapped(made(1, 2), "float32")),
            "the halves of the contribution of rank 1 are swapped",
        ),
        (
            "all_reduce",
            b"\x01" * 20,
            "not all elements are correct; the same call of rank 1 at try.py:7",
        ),
    ],
)
def test_what_came_instead_is_named(operation: str, part: bytes, words: str) -> None:
    """With the call, its line, and the line of the other rank."""
    found = judged(*both(came(operation, part), operation=operation))
    assert [one.passed for one in found.ranks] == [False, True]
    assert words in found.ranks[0].reason
    assert found.ranks[0].reason.startswith(f"{operation} #2 of 5 float32 at try.py:7: ")


RIGHT = coded.expected("all_reduce", None, rank=0, size=SIZE, sequence=2, **KNOWN)[12:16].hex()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda one: one.update(first={"part": 0, "index": 3, "got": RIGHT}),
            "not all elements are correct",
        ),
        (lambda one: one.update(sequence=3), "call 2 has no report"),
        (lambda one: one.update(parts=[]), "no report of the result"),
        (lambda one: one.update(bytes=16), "returned 16 bytes, not 20"),
        (lambda one: one.update(elements=4, bytes=16), "all_reduce #2 of 4 float32"),
        (lambda one: one.update(operation="all_gather"), "no report of the result"),
        (lambda one: one.update(dtype="float128"), "coded payloads do not support call"),
        (lambda one: one.update(elements=-1), "coded payloads do not support call"),
        (lambda one: one.update(other=[]), "coded payloads do not support call"),
        (lambda one: one.update(parts=["x"]), "not all elements are correct"),
        (lambda one: one.clear(), "call 2 has no report"),
    ],
)
def test_what_is_told_otherwise_does_not_hold(
    change: Callable[[dict[str, Any]], None], words: str
) -> None:
    """Whatever was changed of what a rank told, right results included: nothing that does not fit
    is right.
    """

    def changed(values: dict[str, Any]) -> None:
        change(values)
        if "first" in values:
            values["parts"] = [hashlib.sha256(b"").hexdigest()]

    found = judged(*both(changed))
    assert not found.ranks[0].passed
    assert words in found.ranks[0].reason, found.ranks[0].reason


def test_the_ranks_have_to_make_the_same_calls_and_tell_of_all() -> None:
    """Another call on the other rank, another number of them, no end, and a rank that took part in
    none do not hold.
    """
    right = both()
    other = [right[0], [right[1][0], told("broadcast", 2, 1)]]
    assert "and broadcast 5 float32 sum on rank 1" in judged(*other).ranks[0].reason
    assert "it began 2 coded calls, but rank 1 1" in judged(right[0], right[1][:1]).ranks[0].reason
    assert judged(*right, ends=[2, None]).ranks[1].missing
    assert not judged(*right, ends=[2, 3]).ranks[1].passed
    skipped = [{"sequence": number, "operation": "skip"} for number in (1, 2)]
    found = judged(right[0], skipped)
    assert [part.passed for part in found.ranks] == [True, False]
    assert not judged([], []).passed
