"""A group that the subject makes itself is told.

One of another size than the world's fails the trial.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from harness.backends import KINDS

Live = Callable[..., Any]
mlx = pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="needs MLX")
ring = pytest.mark.skipif(KINDS["mlx-ring"].refusal(size=2) is not None, reason="needs MLX's ring")


def made(lived: Any, rank: int) -> list[tuple[str, int, int]]:
    told = [event.values for event in lived.said(rank, "group.made")]
    return [(values["library"], values["rank"], values["size"]) for values in told]


@pytest.mark.parametrize(
    ("entry", "backend", "warm", "library"),
    [
        pytest.param("mlx_alone", "none", True, "mlx.core.distributed", marks=mlx),
        pytest.param("mlx_alone", "gloo", True, "mlx.core.distributed", marks=mlx),
        pytest.param("mlx_alone", "none", False, "mlx.core.distributed", marks=mlx),
        pytest.param("mlx_sum", "none", True, "mlx.core.distributed", marks=mlx),
        ("torch_alone", "none", True, "torch.distributed"),
        ("torch_alone", "gloo", True, "torch.distributed"),
    ],
)
def test_a_group_of_one_in_a_world_of_two_fails(
    live: Live, entry: str, backend: str, warm: bool, library: str
) -> None:
    """Its collectives reach nobody and raise nothing, so the group itself is what fails, on every
    rank that made it.
    """
    lived = live(f"grouping:{entry}", backend=backend, warm=warm)
    assert made(lived, 1) == [(library, 0, 1)]
    finding = lived.findings["group-is-whole"]
    assert finding.failed_ranks == (0, 1)
    assert (
        finding.ranks[0].reason
        == f"the subject made its own group with {library}, whose size differs from the world's"
    )
    assert [name for name, found in lived.findings.items() if not found.passed] == [
        "group-is-whole"
    ]


@pytest.mark.parametrize(("way", "leave"), [("mesh", True), ("past the watch", False)])
def test_a_group_may_be_made_in_other_ways(live: Live, way: str, leave: bool) -> None:
    """What a device mesh makes is told too.

    And what nobody saw being made, if it still stands at the end.
    """
    lived = live("grouping:torch_alone", backend="none", arguments={"way": way, "leave": leave})
    assert made(lived, 0) == [("torch.distributed", 0, 1)]
    assert not lived.findings["group-is-whole"].passed


def test_a_whole_group_of_ones_own_and_a_part_cut_out_of_it_are_fine(live: Live) -> None:
    """A subject that meets by its own means in the world's size passes, whatever smaller groups it
    then makes.
    """
    lived = live("grouping:torch_together", backend="none")
    assert lived.passed, lived.findings
    assert made(lived, 1) == [("torch.distributed", 1, 2)]


@ring
def test_the_group_that_was_given_is_the_one_mlx_takes(live: Live) -> None:
    """Over a ring MLX's own default is the world's group: told as what it is, and nothing fails."""
    lived = live("grouping:mlx_given", backend="mlx-ring")
    assert lived.passed, lived.findings
    assert lived.said(0, "summed")[0].values == {"total": 2, "whole": 2}
    assert made(lived, 1) == [("mlx.core.distributed", 1, 2)]


def test_a_childs_group_is_the_childs(live: Live) -> None:
    """A process that the subject forked may make any group: it is not a rank."""
    lived = live("grouping:torch_in_a_child", backend="none")
    assert lived.passed, lived.findings
    assert made(lived, 0) == []


@mlx
def test_watching_leaves_no_trace_in_the_subject(live: Live) -> None:
    """The library keeps its own loader, and an error it raises has its source line in the subject
    and is not ours.
    """
    lived = live("grouping:mlx_alone", backend="none", warm=False)
    assert lived.said(0, "made")[0].values["loader"] != "_Loader"
    error = live("grouping:mlx_refused", backend="none").error(0)
    assert error["source"] == 'mx.distributed.init(strict=True, backend="ring")'
    assert error["ours"] is False
    assert not any(frame["file"].endswith("rank/groups.py") for frame in error["frames"])


@pytest.mark.whole
@pytest.mark.parametrize(
    ("backend", "warm"),
    [("none", True), ("gloo", True), pytest.param("none", False, marks=pytest.mark.slow)],
)
def test_ranks_find_what_a_launcher_sets(live: Live, backend: str, warm: bool) -> None:
    """Before the subject's module is imported, as torchrun does.

    A script that relies on it meets the others.
    """
    lived = live("grouping:torch_as_launched", backend=backend, warm=warm)
    assert lived.passed, lived.findings
    for rank in (0, 1):
        assert lived.said(rank, "found")[0].values["at_import"] == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
        }
        assert lived.said(rank, "made")[0].values == {"rank": rank, "size": 2}
        # Watched, whether torch was there before the fork or is imported by the rank itself.
        assert made(lived, rank) == ([("torch.distributed", rank, 2)] if backend == "none" else [])


def test_what_the_scenario_sets_goes_before(live: Live) -> None:
    """A scenario that states a variable of the launcher's gets its own value, on every rank."""
    lived = live("grouping:torch_as_launched", env={"LOCAL_RANK": "0"})
    assert [lived.said(rank, "found")[0].values["at_import"]["LOCAL_RANK"] for rank in (0, 1)] == [
        "0",
        "0",
    ]
