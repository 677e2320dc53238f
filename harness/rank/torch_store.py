"""The store of torch.distributed that the harness made the socket of, as ranks of gloo and nccl connect to it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from harness.rank.spec import RankSpec

LOOPBACK = "127.0.0.1"
# The world's deadline is the judge of a hang. This only has to be longer than the longest deadline a scenario may set.
TIMEOUT = dt.timedelta(hours=2)


def store(spec: RankSpec) -> Any:
    """Connect to the store, from a rank's spec."""
    import torch.distributed

    # Not declared by the module, though documented: https://docs.pytorch.org/docs/stable/distributed.html
    distributed: Any = torch.distributed
    port, listener = spec.rendezvous["port"], spec.rendezvous["listener"]
    return distributed.TCPStore(
        LOOPBACK,
        port,
        world_size=spec.size,
        is_master=listener is not None,
        timeout=TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=listener,
    )
