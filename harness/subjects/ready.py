"""Ready subjects that run no inference, with what they do, take and emit: `torch-allreduce` and
`mlx-allreduce` (every collective of a library, each result compared with what it must be),
`torch-pipeline` (a small transformer split over the ranks) and `tokenizer-load` (a tokenizer on
every rank).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.subjects.subject import NO_DEFECT, Argument, ReadySubject

EMITS = {
    "collective.begin": (),
    "collective.end": (),
    "collective": ("kind", "round", "digest", "expected", "correct"),
    "collectives.done": ("digest", "wrong", "correct"),
}
ARGUMENTS = {
    "elements": Argument(does="number of elements that each rank contributes", default=1024),
    "rounds": Argument(does="how often each collective is called", default=1, at_most=10_000),
    "defect": Argument(
        does=(
            "own-value: ranks other than 0 continue with their own value instead of the result;"
            " left-out: the contribution of the last rank does not count"
        ),
        default=NO_DEFECT,
        choices=(NO_DEFECT, "own-value", "left-out"),
    ),
}


TORCH_ALLREDUCE = ReadySubject(
    does=(
        "calls every common collective of torch.distributed, and compares each result with the"
        " expected result"
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
MLX_ALLREDUCE = ReadySubject(
    does="calls every collective of MLX's ring, and compares each result with the expected result",
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
TOKENIZER_LOAD = ReadySubject(
    does=(
        "loads a tokenizer on every rank with transformers, identifies it, and encodes and decodes"
        " a text"
    ),
    file=Path(__file__).with_name("tokenizer_load_inside.py"),
    backends=("gloo", "mlx-ring", "nccl", "none"),
    arguments={
        "tokenizer": Argument(
            does="the input that contains the tokenizer", default="tokenizer", names_an_input=True
        ),
        "text": Argument(does="the texts to encode and decode", default="Hello world"),
        "loader": Argument(
            does="rank-0-only: the other ranks continue without a tokenizer",
            default="every-rank",
            choices=("every-rank", "rank-0-only"),
        ),
    },
    emits={
        "tokenizer.load.begin": (),
        "tokenizer.load.end": (),
        "tokenizer": ("class", "fast", "size", "semantic", "full"),
        "identities": ("count", "distinct"),
        "tokenizer.ready": ("ids", "count", "text", "returns"),
    },
)

HEADS = 8


def _misfit_of_pipeline(arguments: Mapping[str, object], ranks: int) -> tuple[str, str] | None:
    """Return the argument for which the subject raises ValueError, and why: a control that did so
    would seem to fail as stated.
    """
    layers = arguments["layers"]
    if arguments["parallel"] != "pipeline":
        return (
            ("parallel", f"tensor splits {HEADS} heads, too few for {ranks} ranks")
            if ranks > HEADS
            else None
        )
    if arguments["defect"] == "own-part":
        return "defect", (
            "is a defect of parallel: tensor, because pipeline parallelism does not sum partial"
            " results between layers"
        )
    if isinstance(layers, int) and layers < ranks:
        return (
            "layers",
            (
                f"{layers} is too few for a pipeline of {ranks} ranks, which needs at least one layer"
                " for each rank"
            ),
        )
    return None


TORCH_PIPELINE = ReadySubject(
    does=(
        "decodes with a small transformer whose layers or heads are split over the ranks, and"
        " compares each step with the whole model"
    ),
    file=Path(__file__).with_name("torch_pipeline_inside.py"),
    backends=("gloo", "nccl"),
    arguments={
        "parallel": Argument(
            does="what to split: layers (pipeline) or heads (tensor)",
            default="pipeline",
            choices=("pipeline", "tensor"),
        ),
        "layers": Argument(
            does="number of layers of the model; a pipeline can have at most as many ranks",
            default=8,
            at_most=64,
        ),
        "prompt": Argument(does="tokens of the prompt", default=12, at_most=512),
        "steps": Argument(does="tokens to decode", default=8, at_most=512),
        "model_seed": Argument(does="seed for the model and the prompt", default=1, at_least=0),
        "defect": Argument(
            does=(
                "in every rank but 0. stale-cache: decoded tokens are not kept in the KV cache;"
                " wrong-positions: positions start again at each step; wrong-shard: it has its"
                " neighbour's weights; own-part (tensor only): it continues with its own part of a"
                " sum"
            ),
            default=NO_DEFECT,
            choices=(NO_DEFECT, "stale-cache", "wrong-positions", "wrong-shard", "own-part"),
        ),
    },
    emits={
        "model.load.begin": (),
        "model.load.end": (),
        "prefill.begin": (),
        "prefill.end": (),
        "decode.begin": (),
        "decode.end": (),
        "step": ("number", "token", "logits"),
        "hop": ("number", "sent", "received", "intact"),
        "decoded": ("tokens", "whole_model", "difference", "correct"),
    },
    misfit=_misfit_of_pipeline,
)
