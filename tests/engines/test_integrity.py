"""What passes between the stages of a pipeline arrives as it was sent, or is one clear error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.engines.models import cached
from harness.subjects import READY
from tests.engines.worlds import Worlds

ASKED = {"prompts": [[40, 41, 42, 43, 44], [50, 51]], "max_new_tokens": 4}
TORCH = b"""
import torch.distributed
_recv, _count = torch.distributed.recv, [0]
def recv(tensor, src=None, group=None):
    found = _recv(tensor, src, group)
    _count[0] += 1
    if _count[0] == 3 and torch.distributed.get_rank() == 1:
        tensor.view(torch.uint8).view(-1)[60] ^= 64
    return found
torch.distributed.recv = recv
"""
MLX = b"""
_recv, _count = mlx.core.distributed.recv_like, [0]
def recv_like(state, source, **named):
    _count[0] += 1
    return _recv(state, source, **named) + (1e-3 if _count[0] == 3 else 0)
mlx.core.distributed.recv_like = recv_like
"""
"""Faults that change what a stage receives: a bit of its third tensor, behind its seal, or its
third.
"""


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    """One pool for all."""
    with Worlds() as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "file", "fault", "at"),
    [("hf-pipeline", "handover.py", TORCH, [1]), ("mlx-pipeline", "/mlx.py", MLX, [0, 1])],
)
def test_a_stage_that_receives_something_else_ends_by_one_clear_error(
    worlds: Worlds, engine: str, file: str, fault: bytes, at: list[int]
) -> None:
    """With `light` nothing differs.

    And what changed on its way is named, by the rank that took it, at that step.
    """
    model = cached("qwen2")
    plain = worlds.run(engine, size=2, model=model, integrity="off", **ASKED)
    sealed = worlds.run(engine, size=2, model=model, integrity="light", **ASKED)
    for rank in (0, 1):
        ids = [value for value, _ in plain.values(rank, "generated", "ids")]
        assert len(ids) == 2
        assert ids == [value for value, _ in sealed.values(rank, "generated", "ids")]
    files = READY[engine].files()
    (name,) = (one for one in files if one.endswith(file))
    files = {**files, name: files[name] + fault}
    struck = worlds.run(engine, size=2, model=model, files=files, integrity="light", **ASKED)
    for rank in at:
        error = struck.error(rank)
        assert error is not None
        assert error.event.values["type"] == "MessageCorrupt"
        assert "changed" in str(error.event.values["message"])


@pytest.mark.whole
def test_a_pipeline_over_sockets_gives_the_same_tokens(worlds: Worlds) -> None:
    """With `full`, over three ranks, every rank has the tokens that it has without it, and tells
    what was mended.
    """
    model = cached("llama")
    plain = worlds.run("hf-pipeline", size=3, model=model, integrity="off", **ASKED)
    carried = worlds.run("hf-pipeline", size=3, model=model, integrity="full", **ASKED)
    shared = worlds.run(
        "hf-sharded", size=3, model=model, sharding="pipeline", integrity="full", **ASKED
    )
    for rank in range(3):
        ids = [value for value, _ in plain.values(rank, "generated", "ids")]
        assert len(ids) == 2
        assert not plain.values(rank, "carried", "damaged")
        for one in (carried, shared):
            assert ids == [value for value, _ in one.values(rank, "generated", "ids")]
            assert [value for value, _ in one.values(rank, "carried", "damaged")] == [0]
