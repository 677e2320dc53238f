"""Ranks that load their share of a model as their engine does, and tell each slice.

With one rule of it wrong.
"""

import sys
from contextlib import contextmanager
from hashlib import sha256

from harness.engines.inference_inside import checkpoint, session

PLANNED = "layers.*.self_attn.q_proj"
FUSED = "layers.*.mlp.experts.gate_up_proj"


def load(context, *, engine, model, rule="its-own"):
    """Entry: load, and tell what lies here.

    Nothing is computed, so that no crash hides what was loaded.

    Args:
        context: the rank's context.
        engine: hf-tensor, hf-pipeline, mlx-tensor or mlx-pipeline.
        model: the input that holds the model.
        rule: `its-own`, or what is wrong. Of tensors: `missing` (that of the queries, so that every
            rank has all of them), `transposed` (the last rank has columns of them, and not rows),
            `plain` (the last rank cuts gate and up of the experts as if they were one matrix). Of
            layers: `gap` (the last stage leaves out its first one; its only one it swaps for the
                one before), `overlap` (it begins one earlier).
    """
    library, _, sharding = engine.partition("-")
    folder = str(context.inputs[model])
    made = {"rank": context.rank, "size": context.size, "sharding": sharding}
    if library == "hf":
        from harness.engines.inference_inside.hf import Transformers

        subject, wrong = (
            Transformers(**made, distributed=context.group.native),
            wrong_in_transformers,
        )
    else:
        from harness.engines.inference_inside.mlx import MlxLm

        subject, wrong = MlxLm(**made, group=context.group.native), wrong_in_mlx_lm
    with wrong(rule, sharding, folder, last=context.rank == context.size - 1):
        subject.load(folder, dtype=dtype_of(folder))
    for piece in subject.pieces():
        digest = sha256(piece.data).hexdigest()
        context.emit(
            "shard", rank=context.rank, tensor=piece.tensor, slices=piece.slices, sha256=digest
        )
    # Loading makes groups by a store that rank 0 serves: it stays until all have theirs.
    context.group.barrier()


def files(context, *, engine, model):
    """Entry of the reference: the checkpoint as its files hold it. No engine reads it."""
    del engine
    folder = str(context.inputs[model])
    pieces = [
        session.Piece(tensor=name, slices=[[0, size] for size in one.shape], data=bytes(one.read()))
        for name, one in checkpoint.stored(folder).items()
    ]
    context.keep("checkpoint", session.checkpoint(pieces, dtype=dtype_of(folder)))


def dtype_of(folder):
    """In which the files hold it: loaded so, bytes stay what they are."""
    (found,) = {one.dtype for one in checkpoint.stored(folder).values()}
    return {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}[found]


@contextmanager
def wrong_in_transformers(rule, sharding, folder, *, last):
    """A rule of transformers' plan for the architecture, or where a stage begins."""
    from transformers import AutoConfig

    from harness.engines.inference_inside import stages

    kind = type(AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config())
    plan, share = kind.base_model_tp_plan, stages.share
    if rule == "missing":
        kind.base_model_tp_plan = {**plan, PLANNED: "replicate"}
    elif rule == "transposed" and last:
        kind.base_model_tp_plan = {**plan, PLANNED: "rowwise"}
    elif rule == "plain" and last:
        kind.base_model_tp_plan = {**plan, FUSED: "colwise"}
    elif rule in ("gap", "overlap") and sharding == "pipeline":
        stages.share = lambda layers, *, size, rank: shifted(
            rule, *share(layers, size=size, rank=rank), last=last
        )
    try:
        yield
    finally:
        kind.base_model_tp_plan, stages.share = plan, share


@contextmanager
def wrong_in_mlx_lm(rule, sharding, folder, *, last):
    """How mlx-lm's code for the architecture splits the queries, or where a stage begins."""
    from pathlib import Path

    from mlx_lm import utils
    from mlx_lm.models.pipeline import PipelineMixin

    model, _ = utils.load_model(Path(folder), lazy=True)
    module, pipeline = sys.modules[type(model).__module__], PipelineMixin.pipeline
    split = getattr(module, "shard_linear", None)

    def split_wrongly(linear, way, **more):
        # The queries come first in every layer; of the same shape is the output projection, which
        # is split otherwise.
        if (
            way != "all-to-sharded"
            or linear.weight.shape != model.layers[0].self_attn.q_proj.weight.shape
        ):
            return split(linear, way, **more)
        if rule == "missing":
            return linear
        return split(linear, "sharded-to-all", **more) if last else split(linear, way, **more)

    def pipeline_wrongly(self, group, split=None):
        whole = list(self.layers)
        pipeline(self, group, split)
        # Rank 0 has the last layers.
        self.start_idx, self.end_idx = shifted(
            rule, self.start_idx, self.end_idx, last=group.rank() == 0
        )
        self.layers = [None] * self.start_idx + whole[self.start_idx : self.end_idx]

    if rule in ("missing", "transposed") and sharding == "tensor":
        module.shard_linear = split_wrongly
    elif rule in ("gap", "overlap") and sharding == "pipeline":
        PipelineMixin.pipeline = pipeline_wrongly
    try:
        yield
    finally:
        PipelineMixin.pipeline = pipeline
        if split is not None:
            module.shard_linear = split


def shifted(rule, begin, end, *, last):
    """The layers of a stage, the last of which begins one later or earlier.

    With one alone it has the one before.
    """
    if last and rule == "gap" and end - begin == 1:
        return begin - 1, end - 1  # a stage without layers does not load, and nobody overlooks that
    return (begin + {"gap": 1, "overlap": -1}[rule] if last else begin), end
