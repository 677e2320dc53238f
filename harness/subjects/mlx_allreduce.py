"""`mlx-allreduce`: the collectives of MLX's ring."""

from __future__ import annotations

from pathlib import Path

from harness.subjects.subject import COLLECTIVES, OF_COLLECTIVES, Argument, ReadySubject

SUBJECT = ReadySubject(
    does="does every collective of MLX's ring, and compares each result with what it must be",
    file=Path(__file__).with_name("mlx_allreduce_inside.py"),
    backends=("mlx-ring",),
    arguments={
        "dtype": Argument(does="type of the numbers", default="float32", choices=("int32", "float32")),
        **OF_COLLECTIVES,
    },
    emits=COLLECTIVES,
)
