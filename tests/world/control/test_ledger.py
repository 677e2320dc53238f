"""Ledgers of real ranks: every call is in them, and what two ranks differ by is named with the line
of both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.backends import KINDS
from harness.ledger.file import ARTEFACT, Ledger, encode, parse
from harness.ledger.outside.account import account, in_words, standing
from harness.rank.artefacts import BYTES, FOLDER
from harness.run.artefacts import cut_ledgers
from harness.world.control import launch
from harness.world.control.rank_environment import compiled_recorder
from harness.world.control.world import World

RING = KINDS["mlx-ring"]
SUBJECT = (Path(__file__).parents[1] / "subjects" / "calling.py").read_text().splitlines()
pytestmark = pytest.mark.slow
needs_ring = pytest.mark.skipif(RING.refusal(size=2) is not None, reason=str(RING.refusal(size=2)))


class Called:
    """A world whose calls were observed: what lived, the ledgers, and what they give."""

    def __init__(
        self,
        live: Callable[..., Any],
        entry: str,
        *,
        size: int = 2,
        file: str = "calling",
        **rest: Any,
    ) -> None:
        self.ledgers: dict[int, Ledger] = {}
        self.account: Any = None

        def left(world: World, scratch: Path) -> None:
            paths = {
                rank: scratch / f"rank-{rank}" / FOLDER / (ARTEFACT + BYTES) for rank in range(size)
            }
            raw = {rank: parse(path.read_bytes()) for rank, path in paths.items()}
            cut_ledgers(scratch, size=size)
            files = {rank: path.read_bytes() for rank, path in paths.items()}
            self.ledgers = {rank: parse(data) for rank, data in files.items()}
            assert self.ledgers == raw  # nothing that was written is cut off
            assert all(encode(self.ledgers[rank]) == data for rank, data in files.items())
            self.account = account(
                files, size=size, world=world.mark, asked={"x": range(size)}, transferred=sent
            )

        sent = {"y": range(size)} if "digests" in rest else None
        self.lived = live(f"{file}:{entry}", size=size, on_left=left, observe=True, **rest)

    @property
    def difference(self) -> Any:
        return self.account["checks"]["x"]["difference"]

    @property
    def whys(self) -> list[str]:
        """Why the ranks' ledgers show nothing."""
        return [summary["why"] for summary in self.account["ranks"]]

    def sides(self) -> list[tuple[int, str, str]]:
        """Of both ranks of the difference, the rank, the call and the text of its line."""
        found = []
        for side in (self.difference["one"], self.difference["other"]):
            call = side["call"] or side["last"]
            line = int(call["site"].partition(":")[2].partition(" ")[0])
            found.append(
                (
                    side["rank"],
                    in_words(call).partition(" of ")[0].partition(" at ")[0],
                    SUBJECT[line - 1].strip(),
                )
            )
        return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With --soak everything holds where Python writes alone, too."""
    if "called" in metafunc.fixturenames:
        written = ["in C", "by Python"] if metafunc.config.getoption("--soak") else ["in C"]
        metafunc.parametrize("written", written)


@pytest.fixture
def called(
    live: Callable[..., Any], written: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Called]:
    if written == "by Python":
        monkeypatch.setattr(launch, "compiled_recorder", str)
    return lambda entry, **rest: Called(live, entry, **rest)


def test_every_call_of_torch_is_seen_and_agrees(called: Callable[..., Called]) -> None:
    """Functions, functional collectives, threads, batches, own groups, sparse tensors: as many as
    gloo counted itself.

    The library of this release is the one that is understood, and uneven splits are no difference.
    """
    world = called("every_kind", size=3)
    assert world.lived.passed, world.lived.capture.logs
    assert world.whys == [""] * 3
    assert world.difference is None
    calls = world.ledgers[0].calls
    assert world.account["checks"]["x"]["matched"] == [
        len(world.ledgers[rank].calls) for rank in range(3)
    ]
    assert {call.operation for call in calls} >= {
        *(
            "all_reduce",
            "broadcast",
            "reduce",
            "all_gather",
            "all_gather_into_tensor",
            "gather",
            "scatter",
            "barrier",
        ),
        *(
            "reduce_scatter",
            "reduce_scatter_tensor",
            "all_to_all",
            "all_to_all_single",
            "send",
            "recv",
        ),
    }
    first, second, third = calls[:3]
    assert (first.shape, first.dtype, first.reduction, first.site) == (
        *("4", "float32", "sum"),
        f"calling.py:{1 + SUBJECT.index('    dist.all_reduce(one)')} in every_kind",
    )
    assert (first.state, second.state, third.elements) == ("ended", "started", 6)
    assert first.end is not None
    assert first.begin < first.end <= second.begin
    assert [(call.group.ranks, call.peer) for call in calls if call.group.name != "0"] == [
        ((0, 1), None),
        ((0, 1), 1),
    ]
    assert {call.thread for call in calls} == {0, 1}
    assert all(call.site.startswith("calling.py:") for call in calls)


@pytest.mark.whole
def test_a_recorder_in_c_writes_what_python_writes(
    called: Callable[..., Called], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Call for call the same, but for the time: other tensors from one line, other lines, groups,
    threads and tags.
    """
    in_c = called("again", size=3)
    loaded = [event.values for event in in_c.lived.capture.events if event.name == "subject.loaded"]
    assert loaded
    # It is the harness's own, and no part of what the subject loaded.
    assert "recorder" not in str(loaded)
    monkeypatch.setattr(launch, "compiled_recorder", str)
    alone = called("again", size=3)
    for rank in range(3):
        one, other = in_c.ledgers[rank], alone.ledgers[rank]
        assert (one.in_c, other.in_c) == (bool(compiled_recorder()), False)
        assert len(one.calls) == len(other.calls) > 90
        for first, second in zip(one.calls, other.calls, strict=True):
            assert first.values() == second.values()
            assert (first.thread, first.end is None) == (second.thread, second.end is None)
        begun = [call.begin for call in one.calls]
        assert begun == sorted(begun)
        assert all(call.end is None or call.end >= call.begin for call in one.calls)
    assert (in_c.difference, in_c.account["checks"]) == (None, alone.account["checks"])


def test_a_branch_around_a_collective_is_named_with_both_lines(
    called: Callable[..., Called],
) -> None:
    """Of three ranks the one that takes another way differs, and each rank's stand is told."""
    world = called("branch", size=3, deadline=4.0)
    assert world.difference["ranks"] == [1]
    assert world.sides() == [
        (0, "all_reduce #3", "dist.all_reduce(total)"),
        (1, "barrier #3", "dist.barrier()"),
    ]
    assert [standing(world.account, rank).partition(" of ")[0] for rank in (0, 2)] == [
        "in all_reduce #3"
    ] * 2
    assert standing(world.account, 1).startswith("in barrier #3 at calling.py:")


def test_a_missing_send_is_named_with_both_lines(called: Callable[..., Called]) -> None:
    """The second receive meets the third send."""
    world = called("missing_send", deadline=2.0)
    assert world.difference["ranks"] == [0, 1]
    assert world.sides() == [
        (0, "send #2 to rank 1", "dist.send(torch.ones(step + 1), 1)"),
        (1, "recv #2 from rank 0", "dist.recv(torch.ones(step + 1), 0)"),
    ]


@pytest.mark.whole
def test_swapped_receives_are_named_with_both_lines(called: Callable[..., Called]) -> None:
    """A send that nobody takes is named beside the receive in which its rank stands instead."""
    world = called("swapped_receives", deadline=2.0)
    assert world.sides() == [
        (0, "send #1 to rank 1 with tag 1", "dist.send(torch.ones(1 << 20), 1, tag=1)"),
        (1, "recv #1 from rank 0 with tag 2", "dist.recv(torch.ones(5), 0, tag=2)"),
    ]
    assert standing(world.account, 1).startswith("after it called recv #1 from rank 0 with tag 2")


def test_another_reduction_is_found_though_nobody_waits(called: Callable[..., Called]) -> None:
    """Every rank comes to its end, and the ledgers differ."""
    world = called("reduces_otherwise", size=3)
    assert world.lived.passed, world.lived.capture.logs
    assert world.difference["ranks"] == [2]
    assert [
        side["call"]["reduction"] for side in (world.difference["one"], world.difference["other"])
    ] == [
        "sum",
        "max",
    ]


@pytest.mark.whole
@pytest.mark.parametrize("operation", ["all_to_all_single", "all_reduce_coalesced"])
def test_another_split_is_named_with_both_lines(
    called: Callable[..., Called], operation: str
) -> None:
    """What a rank gives and another does not take.

    And sums of several tensors, which gloo adds as if all were well.
    """
    world = called("splits_otherwise", size=3, arguments={"operation": operation})
    assert world.lived.passed == (operation == "all_reduce_coalesced"), world.lived.capture.logs
    assert world.difference["ranks"] == [1]
    lines = {
        "all_to_all_single": (
            "dist.all_to_all_single(torch.zeros(sum(takes)), torch.ones(6), takes, sizes)"
        )
    }
    line = lines.get(operation, "dist.all_reduce_coalesced([torch.ones(size) for size in sizes])")
    other = 2 if operation in lines else 0
    assert sorted(world.sides()) == [(rank, f"{operation} #2", line) for rank in sorted((1, other))]
    apart = world.difference.get("split")
    assert apart == ({"from": 1, "gives": 2, "to": 2, "takes": 3} if operation in lines else None)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (
            "past_it",
            "its calls were not observed: torch made 2 calls in group 0, but 1 were observed",
        ),
        (
            "past_it_and_gone",
            "its calls were not observed: torch made 2 calls in group 0, but 1 were observed",
        ),
        (
            "past_it_elsewhere",
            "its calls were not observed: torch made 1 calls in group 1, but 0 were observed",
        ),
        ("forks", "1 call of processes that it forked were not observed"),
        ("silent", "it made no call"),
    ],
)
def test_what_is_not_seen_is_said(called: Callable[..., Called], entry: str, why: str) -> None:
    """Calls past the dispatcher, those of a child, and none at all are not agreement."""
    world = called(entry)
    assert world.whys == [why] * 2
    assert world.account["checks"]["x"]["matched"] == [0, 0]


def test_a_killed_rank_leaves_what_it_had_begun(called: Callable[..., Called]) -> None:
    """Its ledger holds the call in which it was, and its peer's error is still the library's and
    the subject's.
    """
    world = called("killed", arguments={"call": True})
    assert [call.operation for call in world.ledgers[1].calls] == ["barrier", "recv"]
    assert standing(world.account, 1).startswith("after it called recv #1 from rank 0")
    assert world.ledgers[0].calls[-1].state == "failed"
    assert world.sides()[0][1:] == ("all_reduce #2", "dist.all_reduce(torch.ones(2))")
    error = world.lived.error(0)
    assert (error["type"], error["ours"], error["source"]) == (
        "RuntimeError",
        False,
        "dist.all_reduce(torch.ones(2))",
    )
    assert KINDS["gloo"].properties.says_that_a_peer_is_gone([error["type"]], error["message"])


def test_a_refused_call_is_one_that_failed(called: Callable[..., Called]) -> None:
    """What torch does not take raises as without the ledger, on every rank alike."""
    world = called("refused")
    assert world.lived.passed, world.lived.capture.logs
    assert [call.state for call in world.ledgers[0].calls] == ["ended", "failed", "ended"]
    assert (world.whys, world.difference) == (["", ""], None)


@needs_ring
def test_calls_of_mlx_are_seen_in_order(called: Callable[..., Called]) -> None:
    """Operation, shape and type as they were called.

    Two that are swapped are named with the line of both.
    """
    world = called("over_the_ring", backend="mlx-ring", size=3)
    assert world.lived.passed, world.lived.capture.logs
    assert (world.whys, world.difference) == ([""] * 3, None)
    assert [
        (call.operation, call.shape, call.dtype, call.state) for call in world.ledgers[0].calls[:2]
    ] == [
        ("all_sum", "2x3", "float32", "started"),
        ("all_gather", "4", "float32", "started"),
    ]
    world = called("over_the_ring", backend="mlx-ring", arguments={"swapped": True})
    assert [side[:2] for side in world.sides()] == [(0, "all_max #3"), (1, "all_sum #3")]


@pytest.mark.whole
@needs_ring
def test_a_call_that_mlx_compiles_is_not_observed(called: Callable[..., Called]) -> None:
    """It is traced once and runs three times: the ledger says so, and there is nothing to agree on.

    Nor is anything evaluated there for the sake of its digest, which MLX would not allow.
    """
    world = called("compiled", backend="mlx-ring", digests="eager")
    assert world.lived.passed, world.lived.capture.logs
    assert all("all_sum was called inside mlx.core.compile" in why for why in world.whys), (
        world.whys
    )


@pytest.mark.whole
def test_a_mesh_of_tensors_is_seen(called: Callable[..., Called]) -> None:
    """What DTensor calls stands with the line that asked for it, each digested.

    A rank that leaves one out is named.
    """
    world = called("dtensor", file="seams", digests="given", arguments={"odd": 1}, deadline=120.0)
    gathers = ["all_gather_into_tensor_coalesced"] * 2
    assert [call.operation for call in world.ledgers[0].calls] == [
        "scatter",
        *gathers,
        "scatter",
        "all_reduce",
    ]
    assert all(call.site.endswith(" in dtensor") for call in world.ledgers[0].calls)
    assert world.account["checks"]["y"] == {"compared": [4, 4], "left": [1, 0], "damage": None}
    assert world.difference["ranks"] == [0, 1]
    assert (world.difference["one"]["call"]["operation"], world.difference["other"]["call"]) == (
        "all_reduce",
        None,
    )


@pytest.mark.long
def test_collectives_that_torch_compiles_are_seen(called: Callable[..., Called]) -> None:
    """Each time that they run, digested too, with the compiled function.

    While they are traced there are none.
    """
    given = {"backend": "aot_eager", "odd": 1}
    world = called("compiled", file="seams", digests="given", arguments=given, deadline=120.0)
    assert world.lived.passed, world.lived.capture.logs
    assert [call.operation for call in world.ledgers[0].calls] == ["all_reduce"] * 3 + ["barrier"]
    assert world.ledgers[0].calls[0].site.endswith(" in step")
    assert world.difference["one"]["call"]["index"] == 3
    sides = [world.difference[side]["call"]["reduction"] for side in ("one", "other")]
    assert (sides, world.account["checks"]["y"]["compared"]) == (["sum", "max"], [2, 2])


@needs_ring
@pytest.mark.whole
def test_what_mlx_lm_shares_is_seen(called: Callable[..., Called]) -> None:
    """It gives numbers and bytes to collectives, in place of arrays: each call is written, and
    whole.
    """
    world = called(
        "shares", file="seams", backend="mlx-ring", size=3, digests="eager", deadline=120.0
    )
    assert world.lived.passed, world.lived.capture.logs
    assert (world.whys, world.difference) == ([""] * 3, None)
    assert world.account["checks"]["y"] == {"compared": [12] * 3, "left": [0] * 3, "damage": None}
    assert world.ledgers[0].calls[1].site.startswith("mlx_lm/share.py:")


def test_nothing_is_written_where_nothing_is_observed(live: Callable[..., Any]) -> None:
    """Without `observe` no rank has the file, and nothing stands before torch's kernels."""
    files: list[str] = []
    lived = live(
        "calling:unobserved",
        on_left=lambda _, scratch: files.extend(path.name for path in scratch.rglob(f"{FOLDER}/*")),
    )
    assert (lived.passed, files) == (True, [])
    assert lived.said(0, "kernels")[0].values == {"before": []}
