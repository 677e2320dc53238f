"""Digests at both ends held against each other: what arrived as it was sent, what did not, and what
nobody knows.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.ledger.call import CallGroup
from harness.ledger.file import DIGESTS, CallPart, Ledger, Sketch, encode, parse
from harness.ledger.inside.digests import FEW, few_weights
from harness.ledger.outside.transfers import ROUNDING, Transfers, transfers
from tests.ledger.made import call, digested, ledger, of_sum, part, receive, send

THREE = CallGroup("torch", "0", (0, 1, 2))


def of(*ledgers: Ledger) -> Transfers:
    """What the digests of these ranks give, read back from their files."""
    return transfers({rank: parse(encode(one)) for rank, one in enumerate(ledgers)})


def gathered(*given: list[int], got: dict[tuple[int, int, int], int] | None = None) -> list[Ledger]:
    """Three ranks that gather: what each gave in each call; `got` is what (rank, call, source) got
    otherwise.
    """
    found = []
    for rank in range(3):
        parts: list[CallPart] = []
        for number, sent in enumerate(given, start=1):
            parts.append(part(number, "sent", sent[rank]))
            for source in range(3):
                digest = (got or {}).get((rank, number, source), sent[source])
                parts.append(part(number, "received", digest, whom=source, many=3))
        calls = [call("all_gather", group=THREE, site=f"step.py:{9 + rank} in f") for _ in given]
        found.append(digested(ledger(rank, *calls, size=3), *parts))
    return found


def added(
    *totals: dict[int, list[float]], result: dict[tuple[int, int], float] | None = None, **rest: Any
) -> list[Ledger]:
    """Three ranks that add: what each gave, call by call; `result` is what (rank, call) got
    otherwise.
    """
    found = []
    for rank in range(3):
        parts = list[CallPart]()
        for number, given in enumerate(totals, start=1):
            (values,) = given.values()
            parts.append(of_sum(number, "sent", values[rank]))
            parts.append(
                of_sum(
                    number, "received", (result or {}).get((rank, number), sum(values)), size=300.0
                )
            )
        calls = [
            call(group=THREE, **{"reduction": "sum", "dtype": "float32", **rest}) for _ in totals
        ]
        found.append(digested(ledger(rank, *calls, size=3), *parts))
    return found


def test_what_arrived_as_it_was_sent_is_counted() -> None:
    """A send, a broadcast, a gather and a sum: every call of every rank was held against the other
    end.
    """
    pair = [
        digested(
            ledger(0, send(1), call("broadcast", peer=1)),
            part(1, "sent", 5, whom=1),
            part(2, "received", 6, whom=1),
        ),
        digested(
            ledger(1, receive(0), call("broadcast", peer=1)),
            part(1, "received", 5, whom=0),
            part(2, "sent", 6),
        ),
    ]
    assert of(*pair) == Transfers(damage=None, compared={0: 2, 1: 2}, left={0: 0, 1: 0})
    assert of(*gathered([1, 2, 3], [4, 5, 6])).compared == {0: 2, 1: 2, 2: 2}
    assert of(*added({0: [1.5, 2.5, -3.0]})).damage is None


def test_a_payload_of_the_call_before_is_named() -> None:
    """Both ranks, both calls, and what came instead; what follows is compared all the same."""
    sends, receives = [send(1), send(1), send(1)], [receive(0), receive(0), receive(0)]
    sender = [part(number, "sent", 40 + number, whom=1) for number in (1, 2, 3)]
    got = [
        part(1, "received", 41, whom=0),
        part(2, "received", 41, whom=0),
        part(3, "received", 43, whom=0),
    ]
    found = of(digested(ledger(0, *sends), *sender), digested(ledger(1, *receives), *got))
    assert found.damage is not None
    assert (found.damage.ranks, found.damage.sender, found.damage.receiver) == ((0, 1), 0, 1)
    assert found.damage.like == "what rank 0 sent in send #1 at step.py:9"
    assert (found.compared, found.left) == ({0: 3, 1: 3}, {0: 0, 1: 0})


def test_swapped_receives_of_one_shape_are_named() -> None:
    """Two messages of one channel that came in the other order: each got what belongs to the other
    call.
    """
    sender = digested(
        ledger(0, send(1), send(1)), part(1, "sent", 1, whom=1), part(2, "sent", 2, whom=1)
    )
    taker = digested(
        ledger(1, receive(0), receive(0)),
        part(1, "received", 2, whom=0),
        part(2, "received", 1, whom=0),
    )
    found = of(sender, taker).damage
    assert found is not None
    assert (found.received.index, found.like) == (1, "what rank 0 sent in send #2 at step.py:9")


@pytest.mark.parametrize(
    ("got", "ranks"),
    [
        ({(0, 2, 1): 99}, (0, 1)),  # one rank got it otherwise: either end
        ({(0, 2, 1): 99, (2, 2, 1): 99}, (1,)),  # all others got the same: where it came from
        ({(1, 2, 1): 99}, (1,)),  # its own part, which nobody else touched
        ({(0, 2, 1): 99, (2, 2, 1): 98}, (0, 1)),  # all others, each otherwise
    ],
)
def test_who_is_to_blame_for_a_part(
    got: dict[tuple[int, int, int], int], ranks: tuple[int, ...]
) -> None:
    """The rank that gave it, where every other got the same wrong thing, or it has it wrong itself.

    Else both ends.
    """
    found = of(*gathered([1, 2, 3], [4, 5, 6], got=got)).damage
    assert found is not None
    assert (found.ranks, found.sender) == (ranks, 1)


@pytest.mark.parametrize(
    ("result", "ranks", "like"),
    [
        (11.0, (1,), "the sum without what rank 1 gave"),
        (51.0, (1,), "the sum with what rank 1 gave twice"),
        (37.0, (1,), "the sum with what rank 1 gave in the call before"),
        (32.7, (0, 1, 2), ""),
    ],
)
def test_a_sum_that_is_not_one_is_found_and_explained(
    result: float, ranks: tuple[int, ...], like: str
) -> None:
    """A lost part, one that is there twice, and that of the call before are named.

    Of another sum all ranks are.
    """
    calls: list[dict[int, list[float]]] = [{0: [5.0, 26.0, 9.0]}, {0: [2.0, 20.0, 9.0]}]
    found = of(*added(*calls, result={(rank, 2): result for rank in range(3)})).damage
    assert found is not None
    assert (found.ranks, found.sender, found.received.index, found.like) == (ranks, None, 2, like)


def to_bfloat16(number: float) -> float:
    """The nearest one."""
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    bits += 0x7FFF + (bits >> 16 & 1)
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0])


KEPT: dict[str, Callable[[float], float]] = {
    "float16": lambda number: float(struct.unpack("<e", struct.pack("<e", number))[0]),
    "bfloat16": to_bfloat16,
    "float32": lambda number: float(struct.unpack("<f", struct.pack("<f", number))[0]),
    "float64": float,
}


@pytest.mark.parametrize("dtype", sorted(ROUNDING))
def test_no_order_of_additions_is_an_alarm(dtype: str) -> None:
    """Sums rounded at every step to the type, in any order, of numbers of any sizes, are what the
    parts make.
    """
    chance = random.Random(dtype)
    keep = KEPT[dtype]
    for _ in range(60):
        count = chance.choice([1, 7, 200])
        scale = 10.0 ** chance.randrange(-2, 3)
        weights = [1.0 / (1 + index // 8) for index in range(count)]
        given = [[keep(chance.gauss(0, scale)) for _ in range(count)] for _ in range(3)]
        order = chance.sample(range(3), 3)
        sums = [
            keep(keep(given[order[0]][at] + given[order[1]][at]) + given[order[2]][at])
            for at in range(count)
        ]

        def sketch(values: list[float], weights: list[float] = weights) -> Sketch:
            pairs = list(zip(weights, values, strict=True))
            return Sketch(
                total=sum(w * v for w, v in pairs), size=sum(w * abs(v) for w, v in pairs)
            )

        ledgers = []
        for rank in range(3):
            one = ledger(
                rank, call(group=THREE, reduction="sum", dtype=dtype, elements=count), size=3
            )
            sent = part(1, "sent", 7, sketch=sketch(given[rank]))
            ledgers.append(digested(one, sent, part(1, "received", 7, sketch=sketch(sums))))
        assert of(*ledgers).damage is None


def test_whole_numbers_add_up_exactly_and_wrap() -> None:
    """Of int32 modulo 2**32: a carry is no damage, and a difference of one is."""

    def whole(total: int) -> list[Ledger]:
        parts = [(2**31 + 5, 2**31, 3)[rank] for rank in range(3)]
        return [
            digested(
                ledger(rank, call(group=THREE, reduction="sum", dtype="int32"), size=3),
                part(1, "sent", 7, sketch=Sketch(total=parts[rank], size=0.0)),
                part(1, "received", 7, sketch=Sketch(total=total, size=0.0)),
            )
            for rank in range(3)
        ]

    assert of(*whole(8)).damage is None
    assert of(*whole(8 + 2**32)).damage is None
    assert of(*whole(9)).damage is not None


def test_a_maximum_is_held_against_what_the_others_got() -> None:
    """Its parts say nothing of it."""

    def results(*digests: int) -> list[Ledger]:
        calls = [ledger(rank, call(group=THREE, reduction="max"), size=3) for rank in range(3)]
        return [
            digested(one, part(1, "sent", rank), part(1, "received", digests[rank]))
            for rank, one in enumerate(calls)
        ]

    assert of(*results(5, 5, 5)).damage is None
    found = of(*results(5, 6, 5)).damage
    assert found is not None
    assert (found.ranks, found.like) == ((1,), "what the other ranks did not get")


def test_what_nobody_knows_is_not_compared() -> None:
    """A missing end or part, a product, values that are not finite, and what follows a step out of
    line are left.
    """
    whole = gathered([1, 2, 3])
    torn = [
        replace(one, parts=one.parts[:-1]) if rank == 2 else one for rank, one in enumerate(whole)
    ]
    assert (of(*torn).compared, of(*torn).left) == (
        dict.fromkeys(range(3), 0),
        dict.fromkeys(range(3), 1),
    )
    assert of(*[digested(replace(one, parts=())) for one in whole]).left == dict.fromkeys(
        range(3), 1
    )
    assert of(*added({0: [1, 2, 3]}, reduction="product")).left == dict.fromkeys(range(3), 1)
    bare = [
        replace(one, parts=tuple(replace(part, sketch=None) for part in one.parts))
        for one in added({0: [1, 2, 3]})
    ]
    assert of(*bare).left == dict.fromkeys(range(3), 1)
    stepped = [*whole[:2], digested(ledger(2, call("barrier", group=THREE), size=3))]
    assert of(*stepped).compared == dict.fromkeys(range(3), 0)
    alone = ledger(0, call(group=CallGroup("torch", "0", (0,))), call("barrier"))
    assert of(digested(alone), digested(ledger(1, call("barrier")))).left == {0: 0, 1: 0}


def test_the_last_digests_are_held_when_there_were_more() -> None:
    """Those of the ring's last round count, and older ones in the file are not read."""
    one = digested(ledger(0, send(1)), part(1, "sent", 5, whom=1))
    old, new = (replace(one.parts[0], number=number) for number in (1, DIGESTS + 1))
    assert parse(encode(replace(one, parts=(old, new)))).parts == (new,)


def test_no_two_of_few_elements_have_one_weight() -> None:
    """Halves of a small array in the other order would have the same sum, and be taken for
    whole.
    """
    for count in range(1, FEW + 1):
        weights = few_weights(count, power=1)
        assert sorted(weights, reverse=True) == [1.0 / place for place in range(1, count + 1)]
