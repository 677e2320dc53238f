"""The ready subjects, by name. A scenario that was signed names them: none is renamed, and arguments only come."""

from __future__ import annotations

from collections.abc import Mapping

from harness.subjects.ready import Argument, ReadySubject

NONE = "none"
COLLECTIVES = {
    "collective.begin": (),
    "collective.end": (),
    "collective": ("kind", "round", "digest", "expected", "correct"),
    "collectives.done": ("digest", "wrong", "correct"),
}
OF_COLLECTIVES = {
    "elements": Argument(does="numbers that each rank puts in", default=1024),
    "rounds": Argument(does="how often each collective is done", default=1, at_most=10_000),
    "defect": Argument(
        does="own-value: ranks other than 0 go on with their own value instead of the result; "
        "left-out: what the last rank puts in does not count",
        default=NONE,
        choices=(NONE, "own-value", "left-out"),
    ),
}


def _pipeline_misfit(arguments: Mapping[str, object], ranks: int) -> tuple[str, str] | None:
    """What `torch_pipeline.run` raises ValueError for: a control that did so would seem to fail as stated."""
    layers = arguments["layers"]
    if arguments["parallel"] != "pipeline":
        return None
    if arguments["defect"] == "own-part":
        return "defect", "is a defect of parallel: tensor; between layers no parts are summed"
    if isinstance(layers, int) and layers < ranks:
        return "layers", f"{layers} is too few for a pipeline of {ranks} ranks, which needs a layer for each"
    return None


READY: dict[str, ReadySubject] = {
    "torch-pipeline": ReadySubject(
        does="decodes with a small transformer whose layers or heads are split over the ranks, and compares each step "
        "with the whole model",
        module="torch_pipeline",
        backends=("gloo", "nccl"),
        arguments={
            "parallel": Argument(
                does="what is split: layers (pipeline) or heads (tensor)",
                default="pipeline",
                choices=("pipeline", "tensor"),
            ),
            "layers": Argument(
                does="layers of the model; a pipeline has a rank for each at most", default=8, at_most=64
            ),
            "prompt": Argument(does="tokens of the prompt", default=12, at_most=512),
            "steps": Argument(does="tokens to decode", default=8, at_most=512),
            "model_seed": Argument(does="what the model and the prompt are made from", default=1, at_least=0),
            "defect": Argument(
                does="in every rank but 0. stale-cache: decoded tokens are not kept in the KV cache; wrong-positions: "
                "positions start anew at each step; wrong-shard: it holds its neighbour's weights; own-part (tensor "
                "only): it goes on with its own part of a sum",
                default=NONE,
                choices=(NONE, "stale-cache", "wrong-positions", "wrong-shard", "own-part"),
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
        misfit=_pipeline_misfit,
    ),
    "torch-allreduce": ReadySubject(
        does="does every common collective of torch.distributed, and compares each result with what it must be",
        module="torch_allreduce",
        backends=("gloo", "nccl"),
        arguments={
            "dtype": Argument(does="type of the numbers", default="float32", choices=("int64", "float32", "float64")),
            **OF_COLLECTIVES,
        },
        emits=COLLECTIVES,
    ),
    "mlx-allreduce": ReadySubject(
        does="does every collective of MLX's ring, and compares each result with what it must be",
        module="mlx_allreduce",
        backends=("mlx-ring",),
        arguments={
            "dtype": Argument(does="type of the numbers", default="float32", choices=("int32", "float32")),
            **OF_COLLECTIVES,
        },
        emits=COLLECTIVES,
    ),
    "tokenizer-load": ReadySubject(
        does="loads a tokenizer on every rank with transformers, identifies it, and encodes and decodes a text",
        module="tokenizer_load",
        backends=("gloo", "mlx-ring", "nccl", "none"),
        arguments={
            "tokenizer": Argument(does="the input that holds it", default="tokenizer", names_an_input=True),
            "text": Argument(does="what is encoded and decoded", default="Hello world"),
            "loader": Argument(
                does="rank-0-only: the other ranks go on without a tokenizer",
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
    ),
}
