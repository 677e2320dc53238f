"""nccl: torch.distributed on NVIDIA GPUs.

The store's errors are those of gloo, provoked there. NCCL's own are not: no machine with two GPUs was at hand. They are
as torch words them (ProcessGroupNCCL.cpp, NCCLUtils.cpp), and mean ncclRemoteError alone: ncclSystemError and
ncclInternalError have causes on the rank itself too.
"""

from __future__ import annotations

from harness.backends.properties import OF_TORCHS_STORE, BackendProperties, PeerGone

PROPERTIES = BackendProperties(
    modules=("torch", "torch.distributed"),
    makes_a_group=True,
    portable=False,
    peer_gone=(
        PeerGone("DistBackendError", r"ncclRemoteError|remote process exiting prematurely"),
        *OF_TORCHS_STORE,
    ),
)
