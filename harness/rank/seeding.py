"""Seeding the random generators of a rank."""

from __future__ import annotations

import random
import sys


def seed(number: int) -> None:
    """Seed what is loaded. numpy takes 32 bits, torch 64; nothing is imported for the sake of a seed."""
    random.seed(number)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(number % 2**32)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(number)
    if (mlx := sys.modules.get("mlx.core")) is not None:
        mlx.random.seed(number)
