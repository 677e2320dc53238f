"""Sealed tensors over the engines' own send and recv, between two real processes: gloo, and MLX's
ring.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.whole]

GLOO = """
import sys
import torch
import torch.distributed as group
from rankproof_integrity import MessageCorrupt, TorchTensors

rank = int(sys.argv[1])
group.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
tensors = TorchTensors(rank=rank, epoch=3)
made = [torch.arange(12, dtype=torch.bfloat16).reshape(3, 4).t(), torch.tensor(1.5), torch.ones(1000), torch.ones(5)]
if rank == 0:
    for tensor in made:
        tensors.send(tensor, to=1)
else:
    received, calls = group.recv, []

    def struck(tensor, **how):
        received(tensor, **how)
        calls.append(tensor)
        if len(calls) == 3:  # each comes together with its seal
            tensor.view(torch.int32)[700] ^= 1 << 9

    group.recv = struck
    for number, tensor in enumerate(made):
        into = torch.empty(tensor.shape, dtype=tensor.dtype)
        try:
            tensors.receive(into, source=0)
            print(number, torch.equal(into, tensor))
        except MessageCorrupt as error:
            print(error)
group.barrier()
"""

RING = """
import sys
import mlx.core as mx
from rankproof_integrity import MessageCorrupt, MlxTensors

rank = int(sys.argv[1])
group = mx.distributed.init(strict=True, backend="ring")
tensors = MlxTensors(rank=rank, epoch=3, group=group)
made = [mx.arange(12).reshape(3, 4).astype(mx.bfloat16).T, mx.array(1.5), mx.ones((1000,)), mx.ones((5,))]
if rank == 0:
    for array in made:
        tensors.send(array, to=1)
else:
    received, calls = mx.distributed.recv, []

    def struck(shape, dtype, source, **how):
        array = received(shape, dtype, source, **how)
        calls.append(shape)
        if len(calls) == 5:  # each is followed by its seal
            bits = mx.where(mx.arange(1000) == 700, mx.array(1 << 9, dtype=mx.uint32), mx.array(0, dtype=mx.uint32))
            array = mx.bitwise_xor(array.view(mx.uint32), bits).view(mx.float32)
        return array

    mx.distributed.recv = struck
    for number, array in enumerate(made):
        try:
            came = tensors.receive(shape=tuple(array.shape), dtype=array.dtype, source=0)
            print(number, mx.array_equal(came, array).item())
        except MessageCorrupt as error:
            print(error)
mx.eval(mx.distributed.all_sum(mx.ones((1,)), group=group))
"""


def ranks(program: str, *arguments: str, environments: list[dict[str, str]]) -> list[str]:
    """Run a program as rank 0 and rank 1; gives the lines that rank 1 printed."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank), *arguments],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, environment in enumerate(environments)
    ]
    try:
        said = [process.communicate(timeout=120)[0] for process in started]
        assert [process.returncode for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
    return said[1].splitlines()


def the_third_is_refused(lines: list[str]) -> None:
    """Three tensors of four come as they were sent, and the one that was struck is named in one
    error.
    """
    assert [*lines[:2], lines[3]] == ["0 True", "1 True", "3 True"]
    assert lines[2].startswith(
        "tensor 2 from rank 0 to rank 1 changed in transit: 4000 bytes arrived with digest "
    )
    assert len(lines) == 4


def test_a_tensor_that_changed_over_gloo_is_named(tmp_path: Path) -> None:
    """Of tensors of several shapes and dtypes, the one with a flipped bit is one clear error.

    The others pass.
    """
    the_third_is_refused(
        ranks(GLOO, str(tmp_path / "meet"), environments=[{"GLOO_SOCKET_IFNAME": "lo"}] * 2)
    )


def test_an_array_that_changed_over_a_ring_is_named(tmp_path: Path) -> None:
    """The same over MLX's ring."""
    pytest.importorskip("mlx.core")
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        hosts = [[f"127.0.0.1:{end.getsockname()[1]}"] for end in (one, other)]
    (tmp_path / "hosts.json").write_text(json.dumps(hosts))
    about = {"MLX_HOSTFILE": str(tmp_path / "hosts.json")}
    the_third_is_refused(
        ranks(RING, environments=[about | {"MLX_RANK": str(rank)} for rank in range(2)])
    )
