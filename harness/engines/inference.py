"""`hf-single`, `hf-tensor`, `hf-pipeline`, `mlx-single`, `mlx-tensor`, `mlx-pipeline`: inference
over the ranks.

All take the same arguments and tell the same, so that one scenario asks the same of each.
`hf-sharded` and `mlx-sharded` take the last part as an argument, so that one scenario asks it of
all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.engines.inference_inside import checkpoint
from harness.engines.inference_inside.engine import AT_ONE, demand_rows
from harness.subjects.subject import INSIDE, NO_DEFECT, Argument, ReadySubject

FOLDER = Path(__file__).with_name("inference_inside")
# Those that begin where a model is split, and those that a rank has by itself.
DEFECTS = (
    "bias-per-rank",
    "stale-position",
    "half-message",
    "swapped-heads",
    "dropped-layer",
    "norm-split",
    "fused-interleave",
    "other-router",
    *AT_ONE,
)
# And those of a session, whatever the model: where a chunk of a prompt follows another one.
BOUNDARIES = ("boundary-token", "boundary-position")
ARGUMENTS = {
    "model": Argument(
        does="the input that contains the model's folder", default="model", names_an_input=True
    ),
    "prompts": Argument(
        does="the prompts: strings, or lists of token ids",
        default=("the quick brown fox", "hello world"),
    ),
    "max_new_tokens": Argument(
        does="number of tokens that are generated after each prompt", default=8, at_most=4096
    ),
    "prefill_chunk": Argument(
        does="number of tokens of a prompt that are read at a time; 0: all at once",
        default=0,
        at_least=0,
        of_the_ranks=True,
    ),
    "dtype": Argument(
        does="type of weights and activations",
        default="float32",
        choices=("float32", "bfloat16", "float16"),
    ),
    "sampling": Argument(
        does=(
            "greedy: the most likely token, and the first of several equal ones; seeded: a token"
            " drawn by its probability"
        ),
        default="greedy",
        choices=("greedy", "seeded"),
    ),
    "seed": Argument(
        does="the seed for sampling, together with the number of the prompt", default=0, at_least=0
    ),
    "teacher": Argument(
        does=(
            "for each prompt, the token ids that are fed after it, regardless of what the model"
            " chooses"
        ),
        default=(),
        texts=False,
    ),
    "follow": Argument(
        does=(
            "reference: feed the tokens that the reference generated, regardless of what the"
            " model chooses"
        ),
        default="own",
        choices=("own", "reference"),
    ),
    "warm_up": Argument(
        does="number of tokens that are generated from the first prompt as a warm-up; 0: none",
        default=0,
        at_least=0,
    ),
    "tokenizer": Argument(
        does="rank-0-only: the other ranks continue without a tokenizer",
        default="every-rank",
        choices=("every-rank", "rank-0-only"),
    ),
    "routing": Argument(
        does=(
            "reference: tokens go through the experts that the reference used, regardless of what"
            " a router chooses; the scores from which each router chose are kept and judged. Set"
            " it for the reference too (hf-*)"
        ),
        default="own",
        choices=("own", "reference"),
    ),
    "envelope": Argument(
        does=(
            "keep: each answer is computed again in every order in which the same sums may be added"
            " up; some: in two of these orders, and for the next prompt in the next two; unchunked:"
            " in all of them except other chunks of the prompt"
        ),
        default="none",
        choices=("none", "some", "keep", "unchunked"),
    ),
    "sensitivity": Argument(
        does=(
            "keep: each answer is computed again with the weights of the last layer 1% too large"
        ),
        default="none",
        choices=("none", "keep"),
    ),
    "hidden": Argument(
        does=(
            "keep: the output of each layer while the prompt was read is kept; parts: also the"
            " outputs of its attention and its feed-forward part, which show differences that 16"
            " bits hide in a layer's sum"
        ),
        default="none",
        choices=("none", "keep", "parts"),
    ),
    "influence": Argument(
        does=(
            "keep: the first prompt is read once more for each rank, with that rank's first layer"
            " scaled by 1.5"
        ),
        default="none",
        choices=("none", "keep"),
    ),
    "defect": Argument(
        does=(
            "the bug of a control, such as a bug in a real engine; in a world of one, only"
            f" {' and '.join(AT_ONE)} are possible, and the defects of chunked prompts:"
            " boundary-token begins a chunk one token too early, boundary-position loses the last"
            " position before a chunk from the cache"
        ),
        default=NO_DEFECT,
        choices=(NO_DEFECT, *DEFECTS, *BOUNDARIES),
    ),
}
INTEGRITY = {
    "integrity": Argument(
        does=(
            "how hidden states and tokens pass between stages. off: as the engine sends them;"
            " light: with a digest, so that a changed message is an error; full: a changed, lost or"
            " duplicated message is sent again (mlx-pipeline: as light)"
        ),
        default="off",
        choices=("off", "light", "full"),
    )
}
"""Argument of those that can be pipelines."""
NOT_HANDED_ON = (
    "can only be used with pipelines, whose stages pass states on. No rank sends the sum of an"
    " all_reduce, so its digest cannot be compared with a sender's. Use observe: [collectives,"
    " digests] and a check transfers-intact instead"
)
EMITS = {
    "model.load.begin": (),
    "model.load.end": (),
    "engine.ready": (
        "engine",
        "architecture",
        "world_size",
        "device",
        "dtype",
        "has_logits",
        "whole",
    ),
    "shard": ("rank", "tensor", "slices", "sha256"),
    "shards": ("bytes", "absent", "dtypes"),
    "plan.whole": ("engine", "tensor"),
    "plan": ("engine", "rules", "whole", "shared"),
    "tokenizer.ready": ("prompts",),
    "vocabulary": ("rows", "tokens", "beyond"),
    "warm.up.begin": (),
    "warm.up.end": ("ids", "text"),
    "prefill.begin": (),
    "prefill.boundary": ("prompt", "at", "size"),
    "prefill.end": (),
    "decode.begin": (),
    "decode.end": (),
    "generated": ("prompt", "ids"),
    "detokenized": ("prompt", "text", "unknown"),
    "notice": ("text",),
    "envelope": ("number", "prompt", "order"),
    "sensitivity": ("defect", "size", "what"),
    "perturbed": ("number", "layer", "factor"),
}


CARRIED = {
    "carried": ("damaged", "sent_again", "duplicates", "early", "made_anew"),
    "lost": ("peer", "message"),
}
"""Events of pipelines of transformers besides: what was mended with integrity `full`, and lost."""


def _misfit(arguments: Mapping[str, object], ranks: int) -> tuple[str, str] | None:
    """Return what the session raises ValueError for: a control that did so would seem to fail as
    stated.
    """
    prompts = _listed(arguments, "prompts")
    teacher = _listed(arguments, "teacher")
    has_integrity = arguments.get("integrity", "off") != "off"
    if teacher and arguments["follow"] == "reference":
        return "teacher", "cannot be combined with follow: reference, which also sets the input"
    if arguments["envelope"] == "unchunked" and arguments["prefill_chunk"]:
        why = "this envelope does not cover prompts that are read in chunks"
        return "envelope", f"unchunked cannot be combined with a prefill_chunk: {why}"
    if has_integrity and arguments.get("sharding", "pipeline") != "pipeline":
        return "integrity", NOT_HANDED_ON
    if has_integrity and ranks == 1:
        why = "has nothing to check in a world of one, because its only stage passes nothing on"
        return "integrity", f"{why}; remove it"
    if teacher and len(teacher) != len(prompts):
        return "teacher", (
            f"must have one list per prompt ({len(prompts)} in total), but has {len(teacher)}"
        )
    return None


def _listed(arguments: Mapping[str, object], name: str) -> Sequence[Any]:
    """Return an argument that is a list, as its complaints saw to; empty where it is not taken."""
    values = arguments.get(name, ())
    assert isinstance(values, list | tuple)
    return values


def _question(arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Return the prompts; and what is chosen after them, unless that is fed from elsewhere."""
    fed = arguments["follow"] == "reference" or arguments["teacher"]
    return ("prompts",) if fed else ("prompts", "max_new_tokens", "sampling", "seed")


SHARDING = {
    "sharding": Argument(
        does=(
            "single: the whole model in each rank; tensor: each layer is split; pipeline: the"
            " layers are divided among the ranks"
        ),
        default="tensor",
        choices=("single", "tensor", "pipeline"),
        of_the_ranks=True,
    )
}


def _refuses(
    name: str, arguments: Mapping[str, object], inputs: Mapping[str, Path], ranks: int
) -> str:
    """Return what the engine does not offer, or accepts and crashes in.

    The rank refuses it as well.
    """
    from harness.engines import offers, rehearsal
    from harness.engines.models import ModelError, config_of

    folder = inputs[str(arguments["model"])]
    engine = f"{name.partition('-')[0]}-{arguments.get('sharding') or name.partition('-')[2]}"
    try:
        config = config_of(folder)
        dtype = str(arguments["dtype"])
        if why := offers.refusal(engine, config, ranks=ranks, dtype=dtype):
            return why
        if arguments["routing"] != "own" and name.startswith("mlx"):
            return (
                "the choices of mlx-lm's routers cannot be observed from outside; set routing:"
                " own, or use an hf engine"
            )
        checkpoint.stored(str(folder))
        if engine == "mlx-pipeline":
            checkpoint.demand_index(str(folder))
        # Rows for the tokens of prompts that are given as ids, as the session demands them.
        rows = (config.get("text_config") or config).get("vocab_size")
        if isinstance(rows, int):
            prompts = _listed(arguments, "prompts")
            demand_rows([() if isinstance(prompt, str) else prompt for prompt in prompts], rows)
        chunked = bool(arguments.get("prefill_chunk")) or arguments.get("envelope") in (
            "some",
            "keep",
        )
        if why := rehearsal.refusal(engine, folder, ranks=ranks, dtype=dtype, chunked=chunked):
            return why
    except (ModelError, ValueError) as error:
        return str(error)
    return "" if checkpoint.has_tokenizer(str(folder)) else _without_tokenizer(engine, arguments)


def _without_tokenizer(engine: str, arguments: Mapping[str, object]) -> str:
    """Return what a model without a tokenizer beside it cannot be asked.

    Empty where ids are all that is asked.
    """
    lacks = "the model's folder contains no tokenizer"
    remedy = "add tokenizer.json to the folder"
    if any(isinstance(prompt, str) for prompt in _listed(arguments, "prompts")):
        return f"{lacks}, but a prompt is a string; use token ids, or {remedy}"
    if arguments.get("warm_up") or arguments.get("tokenizer", "every-rank") != "every-rank":
        return f"{lacks}, which warm_up and tokenizer need; remove these two arguments, or {remedy}"
    if engine in ("mlx-tensor", "mlx-pipeline"):
        return f"{lacks}, but mlx-lm loads a tokenizer with a model that it splits; {remedy}"
    return ""


def _subject(
    name: str, does: str, *backends: str, further: Mapping[str, Argument] = MappingProxyType({})
) -> ReadySubject:
    library, _, sharding = name.partition("-")
    takes = sharding in ("pipeline", "sharded")
    return ReadySubject(
        does=does,
        file=FOLDER / f"{library}.py",
        function=sharding,
        backends=backends,
        arguments={**further, **ARGUMENTS, **(INTEGRITY if takes else {})},
        emits={**EMITS, **(CARRIED if takes and library == "hf" else {})},
        lacks={} if takes else {"integrity": NOT_HANDED_ON},
        reference=f"{FOLDER.name.removesuffix(INSIDE)}.{library}:single",
        refuses=partial(_refuses, name),
        misfit=_misfit,
        question=_question,
    )


HF_SINGLE = _subject(
    "hf-single", "generates with the whole model in each rank, with transformers", "none", "gloo"
)
HF_TENSOR = _subject(
    "hf-tensor",
    "generates with a model that transformers splits over the ranks according to its own plan",
    "gloo",
)
HF_PIPELINE = _subject(
    "hf-pipeline",
    "generates with a decoder of transformers whose layers are split over the ranks",
    "gloo",
)
HF_SHARDED = _subject(
    "hf-sharded",
    "generates with transformers, with the model split as set by an argument",
    "gloo",
    further=SHARDING,
)
MLX_SINGLE = _subject(
    "mlx-single", "generates with the whole model in each rank, with mlx-lm", "none", "mlx-ring"
)
MLX_TENSOR = _subject(
    "mlx-tensor", "generates with a model that mlx-lm splits over the ranks", "mlx-ring"
)
MLX_PIPELINE = _subject(
    "mlx-pipeline", "generates with a model whose layers mlx-lm splits over the ranks", "mlx-ring"
)
MLX_SHARDED = _subject(
    "mlx-sharded",
    "generates with mlx-lm, with the model split as set by an argument",
    "mlx-ring",
    further=SHARDING,
)
