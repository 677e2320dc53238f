"""A session with an engine: load, prefill in chunks, decode; every rank tells what it holds and what it generated.

What is kept of prompt P: `prefill.logits.P` `[positions, vocabulary]` and `decode.logits.P` `[steps, vocabulary]`, in
the model's dtype, on every rank that has logits. Row n of the first is what follows position n of the prompt, row n of
the second what follows the n-th token after the prompt.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SOME = 2
"""Orders in which a prompt is answered again where not all are asked; the next prompt takes the next ones."""

SIZES, ONE_SIZE = (0.3, 0.1, 0.01, 0.001, 0.0001), (0.01,)
"""Sizes of defects that a reference tries on itself: each costs all of its answers once more."""
BOUNDARY = "boundary-"
"""So begin the defects of a session, where a chunk of a prompt follows another; the others are an engine's."""
LOUDER = 1.5
"""By this the share of a rank is changed, to show that it takes part."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A slice of a tensor of the checkpoint that this rank holds.

    Attributes:
        tensor: its name in the checkpoint.
        slices: begin and end in each dimension of the whole tensor.
        data: the bytes of the slice in C order, in the dtype in which it was loaded.
    """

    tensor: str
    slices: list[list[int]]
    data: bytes


class Engine(Protocol):
    """A model, or a rank's share of one, that goes on from what it has seen.

    Attributes:
        name: the engine and how it shares the model, such as `hf-pipeline`.
        architecture: as the configuration calls it.
        device: where it computes.
        rows: tokens that the model has an embedding for.
        has_logits: whether this rank gets logits; inner stages of a pipeline do not.
        whole: whether this rank holds all of the model.
    """

    name: str
    architecture: str
    device: str
    rows: int
    has_logits: bool
    whole: bool

    def load(self, folder: str, *, dtype: str, defect: str = "none") -> None:
        """Load the model of a folder, or this rank's share; with a defect in it unless that is `none`."""
        ...

    def pieces(self) -> Iterator[Piece]:
        """All that this rank holds."""
        ...

    def stored(self) -> Collection[str]:
        """The names of all tensors of the checkpoint."""
        ...

    def begin(self) -> None:
        """Forget what it has seen: an empty KV cache."""
        ...

    def forget(self) -> None:
        """Lose the last token that it has seen, with its keys and values."""
        ...

    def step(self, ids: Sequence[int]) -> Any:
        """Logits after each of some more tokens, `[tokens, vocabulary]`, in the engine's own kind of array.

        On a rank that has none, None.
        """
        ...

    def hidden(self) -> dict[int, Any]:
        """What came out of each layer of this rank in the last step, `[tokens, width]`, by the layer's number."""
        ...

    def decided(self) -> Any:
        """By how much, in the last step, the last expert chosen lay above the first that was not, `[tokens]`.

        Of all layers the least; None of a model without experts.
        """
        ...

    def scaled(self, layer: int, factor: float) -> AbstractContextManager[None]:
        """Inside of it the matrices of one of this rank's layers, but for a router's, are so many times as large."""
        ...

    def together(self, parts: Sequence[Any]) -> Any:
        """Arrays one below the other."""
        ...

    def numbers(self, row: Any) -> Any:
        """One row of logits as a float64 array of numpy."""
        ...

    def agree(self, token: int | None) -> int:
        """The token that was chosen, on every rank; where all choose for themselves, the rank's own."""
        ...

    def orders(self) -> Iterator[tuple[str, AbstractContextManager[Any]]]:
        """Other orders in which the same sums may be added up, in words, each in force inside its context."""
        ...


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of an engine; see the arguments of the ready subjects."""

    prompts: Sequence[Any]
    max_new_tokens: int
    prefill_chunk: int
    sampling: str
    seed: int
    teacher: Sequence[Sequence[int]]
    follow: str
    warm_up: int
    tokenizer: str
    envelope: str
    sensitivity: str
    hidden: str
    influence: str
    defect: str


@dataclass(frozen=True)
class Answer:
    """What came of a prompt: logits, None on a rank without; the tokens that were chosen, and those that were fed."""

    prefill: Any
    decode: Any
    ids: list[int]
    fed: list[int]
    hidden: dict[int, Any]
    decided: dict[str, Any]


def run(context: Any, engine: Engine, request: Request, *, folder: str, dtype: str) -> None:
    """Load, warm up, and answer every prompt.

    Raises:
        ValueError: arguments that contradict each other.
    """
    if request.envelope == "unchunked" and request.prefill_chunk:
        raise ValueError("envelope: unchunked beside a prefill_chunk: leave one of them out")
    context.emit("model.load.begin")
    of_session = request.defect.startswith(BOUNDARY)
    engine.load(folder, dtype=dtype, defect="none" if of_session else request.defect)
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
    held, absent = 0, set(engine.stored())
    # What ranks hold is compared with what the reference holds, slice by slice.
    kept = dict[str, Piece]() if request.envelope != "none" and engine.whole else None
    for piece in engine.pieces():
        held += len(piece.data)
        absent.discard(piece.tensor)
        if kept is not None:
            kept[piece.tensor] = piece
        digest = hashlib.sha256(piece.data).hexdigest()
        context.emit("shard", rank=context.rank, tensor=piece.tensor, slices=piece.slices, sha256=digest)
    # Of the checkpoint; on a rank with the whole model, what nothing uses.
    context.emit("shards", bytes=held, absent=sorted(absent))
    if kept is not None:
        context.keep("checkpoint", checkpoint(kept.values(), dtype=dtype))
    # The bug of `rank-0-only`: whoever is not rank 0 goes on without one.
    tokenizer = load_tokenizer(folder) if request.tokenizer == "every-rank" or context.rank == 0 else None
    prompts = [encode(tokenizer, prompt) for prompt in request.prompts]
    context.emit("tokenizer.ready", prompts=prompts)
    demand_rows(prompts, engine.rows)
    if tokenizer is not None:
        context.emit("vocabulary", rows=engine.rows, tokens=len(tokenizer), beyond=beyond(tokenizer, engine.rows))
    if request.warm_up:
        context.emit("warm.up.begin")
        assert tokenizer is not None
        first = _answer(context, engine, request, prompts[0], steps=request.warm_up, number=0, quiet=True)
        context.emit("warm.up.end", ids=first.ids, text=tokenizer.decode(first.ids))
    histories = _histories(context, request, len(prompts))
    kept_fed = list[Sequence[int]]()
    for number, prompt in enumerate(prompts):
        answer = _answer(
            context, engine, request, prompt, steps=request.max_new_tokens, number=number, fed=histories[number]
        )
        kept_fed.append(answer.fed)
        _keep(context, f"prefill.logits.{number}", answer.prefill)
        _keep(context, f"decode.logits.{number}", answer.decode)
        for phase, gaps in answer.decided.items():
            context.keep(f"{phase}.router.{number}", gaps)
        for layer, values in sorted(answer.hidden.items()):
            context.keep(f"hidden.{layer}.{number}", values)
        context.emit("generated", prompt=number, ids=answer.ids)
        assert tokenizer is not None
        context.emit("detokenized", prompt=number, text=tokenizer.decode(answer.ids))
        if request.envelope != "none":
            _envelope(context, engine, request, prompt, number=number, fed=answer.fed)
    sizes = SIZES if request.envelope == "keep" else ONE_SIZE if request.sensitivity == "keep" else ()
    _sensitivity(context, engine, request, prompts, kept_fed, sizes=sizes)
    if request.influence == "keep":
        _influence(context, engine, request, prompts[0])


def demand_rows(prompts: Sequence[Sequence[int]], rows: int) -> None:
    """Demand an embedding for each token: MLX reads whatever lies beyond them, and says nothing.

    Raises:
        ValueError: a token has none.
    """
    for number, prompt in enumerate(prompts):
        if odd := [token for token in prompt if not 0 <= token < rows]:
            raise ValueError(
                f"prompt {number} has the token {odd[0]}, and the model has rows for {rows}: its tokenizer is another "
                "model's, or has tokens that were added without rows"
            )


def beyond(tokenizer: Any, rows: int) -> list[int]:
    """The tokens of a tokenizer for which a model of so many rows has none."""
    return sorted(token for token in tokenizer.get_vocab().values() if token >= rows)


def checkpoint(pieces: Collection[Piece], *, dtype: str) -> bytes:
    """Whole tensors as a safetensors file, in the dtype in which they were loaded; what is wider is float32."""
    header, content = dict[str, Any](), b"".join(piece.data for piece in pieces)
    begin = 0
    for piece in pieces:
        shape, end = [one[1] for one in piece.slices], begin + len(piece.data)
        narrow = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}[dtype]
        told = narrow if len(piece.data) == math.prod(shape) * (4 if dtype == "float32" else 2) else "F32"
        header[piece.tensor] = {"dtype": told, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def folder_of(context: Any, model: str) -> str:
    """The folder of an input that holds a model.

    Raises:
        ValueError: it is not a folder with a config.json.
    """
    folder = context.inputs[model]
    if not Path(folder, "config.json").is_file():
        raise ValueError(f"input {model} holds no config.json: name a folder as transformers loads it")
    return str(folder)


def load_tokenizer(folder: str) -> Any:
    """The tokenizer of a folder, from the files that are there."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def encode(tokenizer: Any, prompt: Any) -> list[int]:
    """The tokens of a prompt, which is a text or a list of them."""
    if isinstance(prompt, str):
        assert tokenizer is not None
        prompt = tokenizer.encode(prompt)
    ids = [int(token) for token in prompt]
    if not ids:
        raise ValueError("a prompt has no token: give a text or a list of token ids")
    return ids


def _histories(context: Any, request: Request, prompts: int) -> list[Sequence[int] | None]:
    """What is fed after each prompt, whatever is chosen; None where it is what was chosen."""
    if request.follow == "reference":
        values = json.loads(Path(context.inputs["reference"], "values.json").read_text())
        told = values["generated.ids"]
        if len(told) != prompts:
            raise ValueError(f"the reference answered {len(told)} prompts, this session has {prompts}: give both alike")
        return list(told)
    if request.teacher and len(request.teacher) != prompts:
        raise ValueError(f"teacher has {len(request.teacher)} lists for {prompts} prompts: give one for each")
    return list(request.teacher) or [None] * prompts


def _answer(
    context: Any,
    engine: Engine,
    request: Request,
    prompt: Sequence[int],
    *,
    steps: int,
    number: int,
    fed: Sequence[int] | None = None,
    chunk: int | None = None,
    quiet: bool = False,
) -> Answer:
    """Prefill and decode one prompt from an empty cache."""
    size = (request.prefill_chunk if chunk is None else chunk) or len(prompt)
    dice = random.Random(f"{request.seed} {number}")  # noqa: S311 - what is drawn has to be the same again
    engine.begin()
    if not quiet:
        context.emit("prefill.begin")
    parts, layers = [], list[dict[int, Any]]()
    gaps: dict[str, list[Any]] = {"prefill": [], "decode": []}
    for begin in range(0, len(prompt), size):
        behind = 0
        if begin and not quiet:
            context.emit("prefill.boundary", prompt=number, at=begin, size=size)
        if begin and request.defect == "boundary-position":
            engine.forget()
        elif begin and request.defect == "boundary-token":
            behind = 1
        parts.append(engine.step(prompt[begin - behind : begin + size - behind][: len(prompt) - begin]))
        layers.append(engine.hidden() if request.hidden == "keep" else {})
        gaps["prefill"].append(engine.decided() if request.envelope in ("keep", "unchunked") else None)
    if not quiet:
        context.emit("prefill.end")
    prefill = engine.together(parts) if engine.has_logits else None
    hidden = {layer: engine.together([one[layer] for one in layers]) for layer in layers[0]}
    ids, rows = list[int](), list[Any]()
    last: Any = prefill
    given = list(fed) if fed is not None else None
    steps = len(given) if given is not None else steps
    while len(ids) < steps:
        mine = choose(engine.numbers(last[-1]), request.sampling, dice) if engine.has_logits else None
        ids.append(engine.agree(mine))
        if len(ids) == steps:
            break
        if not quiet:
            context.emit("decode.begin")
        last = engine.step([given[len(ids) - 1] if given is not None else ids[-1]])
        rows.append(last)
        gaps["decode"].append(engine.decided() if request.envelope in ("keep", "unchunked") else None)
        if not quiet:
            context.emit("decode.end")
    decode = engine.together(rows) if engine.has_logits and rows else None
    decided = {phase: engine.together(told) for phase, told in gaps.items() if told and told[0] is not None}
    return Answer(prefill, decode, ids, given or ids, hidden, decided)


def choose(logits: Any, sampling: str, dice: random.Random) -> int:
    """The next token: the best one (of equals the first), or one drawn by its probability."""
    import numpy as np

    if sampling == "greedy":
        return int(np.argmax(logits))
    weights = np.exp(logits - logits.max())
    return int(np.searchsorted(np.cumsum(weights), dice.random() * weights.sum()))


def _envelope(
    context: Any, engine: Engine, request: Request, prompt: Sequence[int], *, number: int, fed: Sequence[int]
) -> None:
    """Answer again in every order that is allowed, or in some; what differs is what rounding may do."""
    chunks = sorted({1, max(1, len(prompt) // 2), len(prompt)} - {request.prefill_chunk or len(prompt)})
    if request.envelope == "unchunked":
        chunks = []  # where chunks are what is asked about, they are not what is allowed
    orders: list[tuple[str, int | None, AbstractContextManager[Any]]] = [
        (f"prefill in chunks of {chunk}", chunk, nullcontext()) for chunk in chunks
    ]
    orders += [(words, None, order) for words, order in engine.orders()]
    for count, (words, chunk, order) in enumerate(orders):
        if request.envelope == "some" and (count - SOME * number) % len(orders) >= SOME:
            continue
        with order:
            other = _answer(context, engine, request, prompt, steps=0, number=number, fed=fed, chunk=chunk, quiet=True)
        _variant(context, count, words, other, number)


def _sensitivity(
    context: Any,
    engine: Engine,
    request: Request,
    prompts: Sequence[Sequence[int]],
    fed: Sequence[Sequence[int]],
    *,
    sizes: Sequence[float],
) -> None:
    """Answer again with defects of known size: what a run like this could have seen."""
    for count, size in enumerate(sizes):
        with engine.scaled(-1, 1 + size):
            for number, prompt in enumerate(prompts):
                other = _answer(context, engine, request, prompt, steps=0, number=number, fed=fed[number], quiet=True)
                _keep(context, f"sensitivity.{count}.prefill.logits.{number}", other.prefill)
                _keep(context, f"sensitivity.{count}.decode.logits.{number}", other.decode)
        context.emit("sensitivity", defect=count, size=size, what="the matrices of the last layer too large")


def _influence(context: Any, engine: Engine, request: Request, prompt: Sequence[int]) -> None:
    """Read the first prompt once more for each rank, whose share is changed meanwhile, and no other's."""
    for rank in range(context.size):
        changed: AbstractContextManager[None] = nullcontext()
        if rank == context.rank:
            context.emit("perturbed", number=rank, layer=0, factor=LOUDER)
            changed = engine.scaled(0, LOUDER)
        with changed:
            answer = _answer(context, engine, request, prompt, steps=0, number=0, fed=[], quiet=True)
        _keep(context, f"influence.{rank}.prefill.logits.0", answer.prefill)


def _variant(context: Any, count: int, words: str, answer: Answer, number: int) -> None:
    context.emit("envelope", number=count, prompt=number, order=words)
    _keep(context, f"envelope.{count}.prefill.logits.{number}", answer.prefill)
    _keep(context, f"envelope.{count}.decode.logits.{number}", answer.decode)
    for phase, gaps in answer.decided.items():
        context.keep(f"envelope.{count}.{phase}.router.{number}", gaps)
    for layer, values in sorted(answer.hidden.items()):
        context.keep(f"envelope.{count}.hidden.{layer}.{number}", values)


def _keep(context: Any, name: str, values: Any) -> None:
    if values is not None:
        context.keep(name, values)
