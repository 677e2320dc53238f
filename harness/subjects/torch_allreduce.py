"""`torch-allreduce`: the collectives of torch.distributed."""

from __future__ import annotations

from pathlib import Path

from harness.subjects.subject import COLLECTIVES, OF_COLLECTIVES, Argument, ReadySubject

SUBJECT = ReadySubject(
    does="does every common collective of torch.distributed, and compares each result with what it must be",
    file=Path(__file__).with_name("torch_allreduce_inside.py"),
    backends=("gloo", "nccl"),
    arguments={
        "dtype": Argument(does="type of the numbers", default="float32", choices=("int64", "float32", "float64")),
        **OF_COLLECTIVES,
    },
    emits=COLLECTIVES,
)
