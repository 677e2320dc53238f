"""`torch-pipeline`: a small transformer split over the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.subjects.subject import NO_DEFECT, Argument, ReadySubject

HEADS = 8


def _misfit(arguments: Mapping[str, object], ranks: int) -> tuple[str, str] | None:
    """Return what the subject raises ValueError for: a control that did so would seem to fail as
    stated.
    """
    layers = arguments["layers"]
    if arguments["parallel"] != "pipeline":
        return (
            ("parallel", f"tensor splits {HEADS} heads, too few for {ranks} ranks")
            if ranks > HEADS
            else None
        )
    if arguments["defect"] == "own-part":
        return "defect", "is a defect of parallel: tensor; between layers no parts are summed"
    if isinstance(layers, int) and layers < ranks:
        return (
            "layers",
            f"{layers} is too few for a pipeline of {ranks} ranks, which needs a layer for each",
        )
    return None


SUBJECT = ReadySubject(
    does=(
        "decodes with a small transformer whose layers or heads are split over the ranks, and"
        " compares each step with the whole model"
    ),
    file=Path(__file__).with_name("torch_pipeline_inside.py"),
    backends=("gloo", "nccl"),
    arguments={
        "parallel": Argument(
            does="what is split: layers (pipeline) or heads (tensor)",
            default="pipeline",
            choices=("pipeline", "tensor"),
        ),
        "layers": Argument(
            does="layers of the model; a pipeline has a rank for each at most",
            default=8,
            at_most=64,
        ),
        "prompt": Argument(does="tokens of the prompt", default=12, at_most=512),
        "steps": Argument(does="tokens to decode", default=8, at_most=512),
        "model_seed": Argument(
            does="what the model and the prompt are made from", default=1, at_least=0
        ),
        "defect": Argument(
            does=(
                "in every rank but 0. stale-cache: decoded tokens are not kept in the KV cache;"
                " wrong-positions: positions start anew at each step; wrong-shard: it holds its"
                " neighbour's weights; own-part (tensor only): it goes on with its own part of"
                " a sum"
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
    misfit=_misfit,
)
