"""Session with an engine: load, prefill in chunks, decode.

Every rank tells what it holds and what it generated.

What is kept of prompt P: `prefill.logits.P` `[positions, vocabulary]` and `decode.logits.P`
`[steps, vocabulary]`, in the model's dtype, on every rank that has logits. Row n of the first is
what follows position n of the prompt, row n of the second what follows the n-th token after the
prompt.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .answers import AskedPrompt, PromptAnswer, PromptSession
from .checkpoint import HeaderEntry, dtypes_of, has_tokenizer
from .engine import BOUNDARY, OWN, InferenceEngine, LibraryPlan, Piece, Request, demand_rows

NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
"""What safetensors calls a dtype."""
ROUTING = "routing"
"""The experts that a reference took of prompt P are in `routing.P`."""
SIZES = (0.3, 0.1, 0.01, 0.001, 0.0001)
ONE_SIZE = (0.01,)
IDS_SHOWN = 8
"""Sizes of defects that a reference tries on itself: each costs all of its answers once more."""


def run(context: Any, engine: InferenceEngine, request: Request) -> None:
    """Load, warm up, and answer every prompt.

    Raises:
        ValueError: arguments that contradict each other.
    """
    if request.envelope == "unchunked" and request.prefill_chunk:
        raise ValueError(
            "envelope: unchunked cannot be combined with prefill_chunk; remove one of them"
        )
    folder = _load(context, engine, request)
    has_texts = has_tokenizer(folder)  # of a model without one, ids are all that is told
    # The bug of `rank-0-only`: whoever is not rank 0 goes on without one.
    tokenizer = (
        load_tokenizer(folder)
        if has_texts and (request.tokenizer == "every-rank" or context.rank == 0)
        else None
    )
    prompts = _prompts(context, engine, request, tokenizer)
    session = PromptSession(context, engine, request)
    if request.warm_up:
        _warm_up(context, session, request, prompts[0], tokenizer)
    histories = _histories(context, request, len(prompts))
    routings = _routings(context, request, len(prompts))
    # Asked once: a tokenizer makes its vocabulary anew each time.
    known = set(tokenizer.get_vocab().values()) if tokenizer is not None else set()
    padded = set[int]()
    answered = list[AskedPrompt]()
    for number, ids in enumerate(prompts):
        prompt = AskedPrompt(
            number=number, ids=ids, fed=histories[number], routing=routings[number]
        )
        answer = session.answer(prompt, steps=request.max_new_tokens)
        if request.routing != OWN and prompt.routing is None:  # the reference itself
            prompt = replace(
                prompt, routing=_kept_routing(context, engine, request, prompt, answer)
            )
        session.keep(answer, number)
        context.emit("generated", prompt=number, ids=answer.ids)
        if has_texts:
            assert tokenizer is not None
            # Rows that pad an embedding have no token: what is generated of them is no text, and
            # nobody would see it.
            unknown = sorted(set(answer.ids) - known)
            text = tokenizer.decode(answer.ids)
            context.emit("detokenized", prompt=number, text=text, unknown=unknown)
            padded.update(unknown)
        answered.append(replace(prompt, fed=answer.fed))
    if padded:
        some = ", ".join(map(str, sorted(padded)[:IDS_SHOWN]))
        text = f"The model generated {len(padded)} token ids that its tokenizer lacks ({some})."
        context.emit("notice", text=text)
    if request.envelope != "none":
        session.envelope(answered)
    if request.envelope == "keep":
        session.sensitivity(answered, sizes=SIZES)
    elif request.sensitivity == "keep":
        session.sensitivity(answered, sizes=ONE_SIZE)
    if request.influence == "keep":
        session.influence(answered[0])


def _prompts(
    context: Any, engine: InferenceEngine, request: Request, tokenizer: Any
) -> list[list[int]]:
    """Return the tokens of every prompt, and tell them."""
    prompts = [encode(tokenizer, prompt) for prompt in request.prompts]
    context.emit("tokenizer.ready", prompts=prompts)
    demand_rows(prompts, engine.rows)
    if tokenizer is not None:
        unusable = beyond(tokenizer, engine.rows)
        context.emit("vocabulary", rows=engine.rows, tokens=len(tokenizer), beyond=unusable)
        if unusable:
            some = ", ".join(map(str, unusable[:IDS_SHOWN]))
            context.emit(
                "notice",
                text=(
                    f"The tokenizer has {len(unusable)} token ids beyond the {engine.rows} rows of"
                    f" the model's embedding ({some}{', ...' if unusable[IDS_SHOWN:] else ''}). A"
                    " prompt that contains such an id cannot be answered."
                ),
            )
    return prompts


def _warm_up(
    context: Any, session: PromptSession, request: Request, ids: Sequence[int], tokenizer: Any
) -> None:
    context.emit("warm.up.begin")
    assert tokenizer is not None
    first = session.answer(AskedPrompt(number=0, ids=ids), steps=request.warm_up, quiet=True)
    context.emit("warm.up.end", ids=first.ids, text=tokenizer.decode(first.ids))


def _kept_routing(
    context: Any,
    engine: InferenceEngine,
    request: Request,
    prompt: AskedPrompt,
    answer: PromptAnswer,
) -> Any:
    """Keep the experts that the reference took, and return them for the answers made again."""
    if answer.routed is None:
        raise ValueError(
            f"no router of {engine.architecture} was observed; remove routing: {request.routing}"
        )
    context.keep(f"{ROUTING}.{prompt.number}", answer.routed)
    return answer.routed


def _load(context: Any, engine: InferenceEngine, request: Request) -> str:
    """Load the model, and tell all that lies here of it; its folder."""
    folder = folder_of(context, request.model)
    dtype = request.dtype
    context.emit("model.load.begin")
    is_of_session = request.defect.startswith(BOUNDARY)
    engine.load(folder, dtype=dtype, defect="none" if is_of_session else request.defect)
    context.emit("model.load.end")
    context.emit(
        "engine.ready",
        engine=engine.name,
        architecture=engine.architecture,
        world_size=context.size,
        device=engine.device,
        dtype=dtype,
        has_logits=engine.has_logits,
        whole=engine.whole,
    )
    held = 0
    absent = set(engine.stored())
    # What ranks hold is compared with what the reference holds, slice by slice.
    kept = dict[str, Piece]() if request.envelope != "none" and engine.whole else None
    for piece in engine.pieces():
        held += len(piece.data)
        absent.discard(piece.tensor)
        if kept is not None:
            kept[piece.tensor] = piece
        digest = hashlib.sha256(piece.data).hexdigest()
        context.emit(
            "shard", rank=context.rank, tensor=piece.tensor, slices=piece.slices, sha256=digest
        )
    # Of the checkpoint; on a rank with the whole model, what nothing uses.
    context.emit("shards", bytes=held, absent=sorted(absent), dtypes=dtypes_of(folder))
    if kept is not None:
        context.keep("checkpoint", checkpoint(kept.values(), dtype=dtype))
        _tell_plan(context, engine.plan(), kept)
    return folder


def _tell_plan(context: Any, plan: LibraryPlan | None, kept: Collection[str]) -> None:
    """Tell what ranks that share by the engine's plan each hold all of: one event a tensor, for
    there may be many.
    """
    if plan is None:
        return
    whole = sorted(plan.whole.intersection(kept))
    for name in whole:
        context.emit("plan.whole", engine=plan.engine, tensor=name)
    context.emit(
        "plan",
        engine=plan.engine,
        rules=dict(plan.rules),
        whole=len(whole),
        shared=len(kept) - len(whole),
    )


def beyond(tokenizer: Any, rows: int) -> list[int]:
    """Return the tokens of a tokenizer for which a model of so many rows has none."""
    return sorted(token for token in tokenizer.get_vocab().values() if token >= rows)


def checkpoint(pieces: Collection[Piece], *, dtype: str) -> bytes:
    """Whole tensors as a safetensors file, in the dtype in which they were loaded.

    Of others a byte is I8, more F32.
    """
    header = dict[str, HeaderEntry]()
    begin = 0
    for piece in pieces:
        shape = [end for _, end in piece.slices]
        end = begin + len(piece.data)
        elements = math.prod(shape)
        kept_as = "F32"
        if len(piece.data) == elements:  # quantized
            kept_as = "I8"
        elif len(piece.data) == elements * (4 if dtype == "float32" else 2):
            kept_as = NAMES[dtype]
        header[piece.tensor] = {"dtype": kept_as, "shape": shape, "data_offsets": (begin, end)}
        begin = end
    text = json.dumps(header).encode()
    # Joined once: of a large model a copy more is what the machine may not have.
    return b"".join([len(text).to_bytes(8, "little"), text, *(piece.data for piece in pieces)])


def folder_of(context: Any, model: str) -> str:
    """Return the folder of an input that holds a model.

    Raises:
        ValueError: it is not a folder with a config.json.
    """
    folder = context.inputs[model]
    if not Path(folder, "config.json").is_file():
        raise ValueError(
            f"input {model} contains no config.json; use a model folder that transformers can load"
        )
    return str(folder)


def load_tokenizer(folder: str) -> Any:
    """Return the tokenizer of a folder, from the files that are there."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def encode(tokenizer: Any, prompt: Any) -> list[int]:
    """Return the tokens of a prompt, which is a text or a list of them."""
    if isinstance(prompt, str):
        assert tokenizer is not None
        prompt = tokenizer.encode(prompt)
    ids = [int(token) for token in prompt]
    if not ids:
        raise ValueError("a prompt has no tokens; use a non-empty string or list of token ids")
    return ids


def _histories(context: Any, request: Request, prompts: int) -> list[Sequence[int] | None]:
    """Return what is fed after each prompt, whatever is chosen; None where it is what was
    chosen.
    """
    if request.follow == "reference":
        values = json.loads(Path(context.inputs["reference"], "values.json").read_text())
        histories: list[Sequence[int] | None] = values["generated.ids"]
        if len(histories) != prompts:
            raise ValueError(
                f"the reference answered {len(histories)} prompts, but this session has {prompts};"
                " set the same prompts for both"
            )
        return histories
    if request.teacher and len(request.teacher) != prompts:
        raise ValueError(
            f"teacher must have one list per prompt ({prompts} in total), but has"
            f" {len(request.teacher)}"
        )
    return list(request.teacher) or [None] * prompts


def _routings(context: Any, request: Request, prompts: int) -> list[Any]:
    """Through which experts each prompt goes; None where the routers choose, as in the reference's
    first answers.
    """
    if request.routing == OWN or "reference" not in context.inputs:
        return [None] * prompts
    import numpy as np

    files = [
        Path(context.inputs["reference"], f"{ROUTING}.{number}.npy") for number in range(prompts)
    ]
    if lost := next((path.name for path in files if not path.is_file()), None):
        raise ValueError(
            f"the reference kept no {lost}; set routing: {request.routing} for the reference too"
        )
    return [np.load(path) for path in files]
