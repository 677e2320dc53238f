"""`torch-allreduce` and `mlx-allreduce`: every collective of a library, each result compared with
what it must be.
"""

from __future__ import annotations

from pathlib import Path

from harness.subjects.subject import NO_DEFECT, Argument, ReadySubject

EMITS = {
    "collective.begin": (),
    "collective.end": (),
    "collective": ("kind", "round", "digest", "expected", "correct"),
    "collectives.done": ("digest", "wrong", "correct"),
}
ARGUMENTS = {
    "elements": Argument(does="numbers that each rank puts in", default=1024),
    "rounds": Argument(does="how often each collective is done", default=1, at_most=10_000),
    "defect": Argument(
        does=(
            "own-value: ranks other than 0 go on with their own value instead of the result; "
            "left-out: what the last rank puts in does not count"
        ),
        default=NO_DEFECT,
        choices=(NO_DEFECT, "own-value", "left-out"),
    ),
}


TORCH = ReadySubject(
    does=(
        "does every common collective of torch.distributed, and compares each result with what it"
        " must be"
    ),
    file=Path(__file__).with_name("torch_allreduce_inside.py"),
    backends=("gloo", "nccl"),
    arguments={
        "dtype": Argument(
            does="type of the numbers", default="float32", choices=("int64", "float32", "float64")
        ),
        **ARGUMENTS,
    },
    emits=EMITS,
)
MLX = ReadySubject(
    does="does every collective of MLX's ring, and compares each result with what it must be",
    file=Path(__file__).with_name("mlx_allreduce_inside.py"),
    backends=("mlx-ring",),
    arguments={
        "dtype": Argument(
            does="type of the numbers", default="float32", choices=("int32", "float32")
        ),
        **ARGUMENTS,
    },
    emits=EMITS,
)
