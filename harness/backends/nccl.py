"""nccl: torch.distributed on NVIDIA GPUs, one per rank, over loopback.

Written after gloo and not run yet: no machine with a GPU was at hand. Tested is its refusal alone.

The store's errors are those of gloo, provoked there. NCCL's own are not: they are as torch words
them (ProcessGroupNCCL.cpp, NCCLUtils.cpp), and mean ncclRemoteError alone: ncclSystemError and
ncclInternalError have causes on the rank itself too.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from harness.backends.backend import (
    OF_TORCHS_STORE,
    Backend,
    BackendProperties,
    PeerGone,
    Ports,
    Rendezvous,
)
from harness.backends.gloo import rendezvous, rendezvous_over
from harness.forms.distribution import missing
from harness.reason import Skip, SkipCode

ANSWER_WITHIN = 20.0


class Nccl(Backend):
    """See the module."""

    description: ClassVar = "torch.distributed on NVIDIA GPUs, one per rank"
    properties: ClassVar = BackendProperties(
        modules=("torch", "torch.distributed"),
        makes_a_group=True,
        portable=False,
        unbounded="NCCL's timeout was never tested, because no machine with two GPUs was available",
        unobserved=("the ledger observes torch's CPU kernels, and was not tested on GPUs"),
        runs_calls_later="",
        peer_gone=(
            PeerGone("DistBackendError", r"ncclRemoteError|remote process exiting prematurely"),
            *OF_TORCHS_STORE,
        ),
    )
    inside_file: ClassVar = Path(__file__).with_name("torch_inside.py")

    def refusal(self, *, size: int) -> Skip | None:
        if lacks := missing("torch"):
            return Skip(SkipCode.BACKEND_LIBRARY, lacks)
        # What torch was built with stands in its version; importing it to ask would cost the
        # harness seconds.
        if (version := importlib.metadata.version("torch")).endswith("+cpu"):
            return Skip(SkipCode.BACKEND_LIBRARY, f"torch {version} is built without CUDA")
        count = gpus()
        if count < size:
            here = f"this machine has {count or 'no'} NVIDIA GPU{'' if count == 1 else 's'}"
            return Skip(
                SkipCode.CELL_GPUS,
                f"nccl needs one GPU per rank, so {size} for this world, but {here}",
            )
        return None

    def prepare(self, *, size: int, ports: Ports) -> Rendezvous:
        del ports
        return rendezvous(size, interface="NCCL_SOCKET_IFNAME")

    def prepare_over(
        self, *, addresses: Sequence[str], ports: Sequence[int], interfaces: Sequence[str]
    ) -> Rendezvous:
        return rendezvous_over(addresses, ports, interfaces, interface="NCCL_SOCKET_IFNAME")


@functools.cache
def gpus() -> int:
    """Return how many NVIDIA GPUs the ranks would see: what the driver lists, and
    CUDA_VISIBLE_DEVICES leaves of it.
    """
    if shutil.which("nvidia-smi") is None:
        return 0
    try:
        command = ["nvidia-smi", "--list-gpus"]
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_WITHIN, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    if answer.returncode != 0:
        return 0
    listed = sum(line.startswith("GPU ") for line in answer.stdout.splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return listed
    return min(listed, len([name for name in visible.split(",") if name.strip()]))
