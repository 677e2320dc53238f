"""Half of `gloo` and `nccl` inside a rank."""

from __future__ import annotations

from harness.rank import torch_group
from harness.rank.spec import RankSpec


class NcclGroup(torch_group.TorchGroup):
    """Default process group; this rank's tensors live on its own GPU."""

    def barrier(self) -> None:
        import torch

        device = torch.device(self._device)
        self.native.barrier(device_ids=[device.index])
        # The call only puts the barrier into the GPU's queue.
        torch.cuda.synchronize(device)


def join(spec: RankSpec) -> torch_group.TorchGroup:
    """Join the group; returns when every rank is there.

    With nccl this rank takes the GPU of its number.
    """
    if spec.backend != "nccl":
        torch_group.join("gloo", spec)
        return torch_group.TorchGroup()
    import torch

    device = torch.device("cuda", spec.rank)
    torch.cuda.set_device(device)
    torch_group.join("nccl", spec, device_id=device)
    return NcclGroup(str(device))
