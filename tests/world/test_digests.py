"""Digests of real ranks: whole transfers are whole, whatever they carry, and what cannot be
digested is said.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.backends import KINDS
from harness.checks import AnyCheck
from harness.faults.strikes import Strikes
from harness.ledger.file import ARTEFACT, LARGEST_BARE
from harness.ledger.outside.account import account
from harness.rank.artefacts import BYTES, FOLDER
from harness.run.artefacts import cut_ledgers
from harness.world.control.world import World
from tests.kit.faulted_worlds import a_fault

RING = KINDS["mlx-ring"]
pytestmark = pytest.mark.slow
needs_ring = pytest.mark.skipif(RING.refusal(size=2) is not None, reason=str(RING.refusal(size=2)))


@pytest.fixture
def digested(live: Callable[..., Any]) -> Callable[..., Any]:
    """The account of a world whose payloads were digested, and what lived."""

    def run(entry: str, *, size: int = 2, digests: str = "given", **rest: Any) -> tuple[Any, Any]:
        found: dict[str, Any] = {}

        def left(world: World, scratch: Path) -> None:
            cut_ledgers(scratch, size=size)
            paths = {
                rank: scratch / f"rank-{rank}" / FOLDER / (ARTEFACT + BYTES) for rank in range(size)
            }
            files = {rank: path.read_bytes() for rank, path in paths.items()}
            found.update(
                account(
                    files, size=size, world=world.mark, asked={}, transferred={"x": range(size)}
                )
            )

        return live(entry, size=size, on_left=left, observe=True, digests=digests, **rest), found

    return run


def test_every_transfer_of_torch_is_whole(digested: Callable[..., Any]) -> None:
    """Strides, NaN, -0, empty tensors, every type, sums, asynchronous and functional calls: each
    compared and whole.

    The tensors stay what they were: one of them is resized.
    """
    lived, found = digested("sending:every_way", size=3)
    assert lived.passed, lived.capture.logs
    assert [(one["undigested"], one["undigested_why"]) for one in found["ranks"]] == [(0, "")] * 3
    calls = [one["calls"] for one in found["ranks"]]
    # All but the barrier.
    assert found["checks"]["x"] == {
        "compared": [many - 1 for many in calls],
        "left": [0, 0, 0],
        "damage": None,
    }


@needs_ring
def test_every_transfer_of_mlx_is_whole_where_it_is_evaluated(digested: Callable[..., Any]) -> None:
    """And where it is not to be, nothing is digested, and that is said."""
    lived, found = digested("sending:over_the_ring", backend="mlx-ring", digests="eager")
    assert lived.passed, lived.capture.logs
    assert found["checks"]["x"] == {"compared": [14, 14], "left": [0, 0], "damage": None}
    _, found = digested("sending:over_the_ring", backend="mlx-ring")
    assert found["checks"]["x"]["compared"] == [0, 0]
    assert (
        "MLX is lazy, and observe does not ask for evaluation; add"
        in found["ranks"][0]["undigested_why"]
    )


@pytest.mark.parametrize(
    ("how", "why", "left"),
    [
        ("not waited", "no Python code waited for it", 1),
        (
            "several",
            "all_reduce_coalesced: it has several tensors, but only one can be digested",
            1,
        ),
        ("from anybody", "", 1),
        ("not finite", "", 1),
    ],
)
def test_what_is_not_digested_is_not_compared(
    digested: Callable[..., Any], how: str, why: str, left: int
) -> None:
    """An end that Python does not see, several tensors, whoever sends, and NaN in a sum."""
    lived, found = digested("sending:left_alone", arguments={"how": how})
    assert lived.passed, lived.capture.logs
    assert found["ranks"][0]["undigested_why"] == why
    assert (found["checks"]["x"]["left"], found["checks"]["x"]["damage"]) == ([left] * 2, None)


def test_a_stale_payload_is_named_with_what_came(digested: Callable[..., Any], pool: Any) -> None:
    """Of two faults in one world each strikes, and the first damage is that of the first, by the
    rank it struck.
    """
    kinds = {"stale-payload": 1, "swapped-halves": 2}
    faults = [
        a_fault(kind=kind, ranks=[rank], operation="all_gather", nth=2 + rank)
        for kind, rank in kinds.items()
    ]
    strikes = Strikes(faults, size=3)
    found: dict[str, Any] = {}

    def left(world: World, scratch: Path) -> None:
        cut_ledgers(scratch, size=3)
        paths = {rank: scratch / f"rank-{rank}" / FOLDER / (ARTEFACT + BYTES) for rank in range(3)}
        files = {rank: path.read_bytes() for rank, path in paths.items()}
        assert max(map(len, files.values())) < LARGEST_BARE
        found.update(
            account(files, size=3, world=world.mark, asked={}, transferred={"x": range(3)})
        )

    from tests.kit.worlds import launch

    order = launch("calling:gathers", size=3, observe=True, digests="given")
    world = World(
        strikes.prepare(order), pool, on_begin=strikes.begin, on_gate=strikes.at_gate, on_left=left
    )
    told = [event for event in world.run().events if event.name == "fault.call"]
    assert {event.values["fault"]: event.rank for event in told} == kinds
    damage = found["checks"]["x"]["damage"]
    assert (damage["ranks"], damage["received"]["index"]) == ([1], 3)
    assert damage["like"].startswith("what rank 1 sent in all_gather #2 at calling.py:")


@pytest.mark.whole
def test_a_buffer_that_is_written_into_while_it_is_sent_is_named(
    digested: Callable[..., Any],
) -> None:
    """Both ends differ, and both lines are told."""
    _, found = digested("astray:overwritten", arguments={"draw": 1})
    damage = found["checks"]["x"]["damage"]
    lines = (Path(__file__).with_name("subjects") / "astray.py").read_text().splitlines()
    told = [
        lines[int(damage[end]["site"].split(":")[1].split()[0]) - 1].strip()
        for end in ("sent", "received")
    ]
    assert told == ["work = dist.isend(buffer, 1)", "dist.recv(buffer, 0)"]


@pytest.mark.whole
@pytest.mark.parametrize("backend", ["gloo", pytest.param("mlx-ring", marks=needs_ring)])
def test_two_of_one_shape_in_each_others_place_are_seen_by_coded_payloads_alone(
    digested: Callable[..., Any], backend: str
) -> None:
    """Ledger and digests agree, for every byte arrived as it was sent.

    Coded payloads tell whose it is.
    """
    lived, found = digested(
        "astray:swapped_places",
        backend=backend,
        arguments={"draw": 1},
        digests="eager" if backend != "gloo" else "given",
    )
    assert found["checks"]["x"] == {"compared": [2, 2], "left": [0, 0], "damage": None}
    check = TypeAdapter(AnyCheck).validate_python(
        {"id": "right", "kind": "collective-correct", "ranks": "every"}
    )
    reasons = [part.reason for part in check.judge(lived.history).ranks]
    assert reasons[0] == ""
    assert "it is what rank 0 passed to call 2; the same call of rank 0 at astray.py:" in reasons[1]


def test_what_a_library_raises_as_somebody_waits_is_no_refusal_of_ours(
    digested: Callable[..., Any],
) -> None:
    """The error of an asynchronous call whose end is seen is still the library's."""
    lived, _ = digested("sending:lost_meanwhile")
    error = lived.error(0)
    assert (error["type"], error["ours"]) == ("RuntimeError", False)
