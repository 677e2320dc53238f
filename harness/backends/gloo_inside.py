"""The half of `gloo` inside a rank."""

from __future__ import annotations

from harness.rank import torch_group
from harness.rank.spec import RankSpec


def join(spec: RankSpec) -> torch_group.TorchGroup:
    """Join the group; returns when every rank is there."""
    torch_group.join("gloo", spec)
    return torch_group.TorchGroup()
