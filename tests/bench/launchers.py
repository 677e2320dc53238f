"""The other side: the launchers that come with the libraries, on the same no-op."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Each rank writes when its collective was done, by the clock that all processes share.
GLOO = """
import sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
with open(f"{sys.argv[1]}/{dist.get_rank()}", "w") as file:
    file.write(str(time.monotonic_ns()))
dist.destroy_process_group()
"""
RING = """
import sys, time
import mlx.core as mx
group = mx.distributed.init(strict=True, backend="ring")
mx.eval(mx.distributed.all_sum(mx.array([1]), group=group, stream=mx.cpu))
with open(f"{sys.argv[1]}/{group.rank()}", "w") as file:
    file.write(str(time.monotonic_ns()))
"""
MLX_LAUNCH = "from mlx._distributed_utils.launch import main; main()"


def torchrun(folder: Path, *, ranks: int) -> float:
    """Seconds from starting torchrun until the last rank has passed a gloo barrier."""
    script = folder / "noop_gloo.py"
    script.write_text(GLOO)
    command = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), str(script)]
    return _timed(command, ranks=ranks)


def mlx_launch(folder: Path, *, ranks: int) -> float:
    """Seconds from starting `mlx.launch --backend ring` until the last rank has an all_sum."""
    script = folder / "noop_ring.py"
    script.write_text(RING)
    command = ["-c", MLX_LAUNCH, "-n", str(ranks), "--backend", "ring", sys.executable, str(script)]
    return _timed(command, ranks=ranks)


def _timed(command: list[str], *, ranks: int) -> float:
    with tempfile.TemporaryDirectory() as out:
        begin = time.monotonic_ns()
        subprocess.run(
            [sys.executable, *command, out],
            check=True,
            capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        done = [int(file.read_text()) for file in Path(out).iterdir()]
    if len(done) != ranks:  # a launcher may end with 0 although a rank died
        raise SystemExit(f"{' '.join(command[:2])}: only {len(done)} of {ranks} ranks finished")
    return (max(done) - begin) / 1e9
