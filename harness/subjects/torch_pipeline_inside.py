"""A small transformer that decodes over several ranks: split by layers (pipeline) or by heads
(tensor).

The model is made from a seed: 8 layers, 8 heads, rotary positions, float64. Each rank makes its
share of it and keeps the keys and values of that share between steps. After the last step each rank
runs the whole model over what was decoded, once, without the group and without a cache, and
compares every step with that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody imports it
from torch import Tensor

VOCABULARY = 101
WIDTH = 64
HEADS = 8
HIDDEN = 192
TYPE = torch.float64
# Reordered sums of float64 differ by some 1e-14 here; the defects below change logits by more than
# 1e-3.
TOLERANCE = 1e-9


class Layer:
    """One layer, or the share of it that some heads and some hidden units make."""

    def __init__(
        self, seed: int, number: int, *, part: int, parts: int, device: torch.device
    ) -> None:
        dice = torch.Generator().manual_seed(seed * 1000 + number + 1)

        def weights(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=dice, dtype=TYPE).div(shape[-1] ** 0.5)

        # Made whole, on every rank from the same seed, and cut: so shares of one layer fit each
        # other.
        query, key, value = (weights(HEADS, WIDTH // HEADS, WIDTH) for _ in range(3))
        back = weights(HEADS, WIDTH, WIDTH // HEADS)
        up = weights(HIDDEN, WIDTH)
        down = weights(HIDDEN, WIDTH)

        def cut(whole: Tensor) -> Tensor:
            return torch.tensor_split(whole, parts)[part].to(device)

        self.query = cut(query)
        self.key = cut(key)
        self.value = cut(value)
        self.back = cut(back)
        self.up = cut(up)
        self.down = cut(down)

    def attend(
        self, hidden: Tensor, positions: Tensor, cache: list[Tensor], *, keep: bool
    ) -> Tensor:
        """Return what attention adds, `[tokens, WIDTH]`.

        `cache` holds keys and values of earlier tokens, and gets these.
        """
        normal = F.layer_norm(hidden, (WIDTH,))
        query, key, value = (
            torch.einsum("hdw,tw->htd", weights, normal)
            for weights in (self.query, self.key, self.value)
        )
        query = _rotate(query, positions)
        key = _rotate(key, positions)
        if cache:
            key = torch.cat([cache[0], key], 1)
            value = torch.cat([cache[1], value], 1)
        if keep:
            cache[:] = [key, value]
        scores = query @ key.transpose(1, 2) / (WIDTH // HEADS) ** 0.5
        earlier = key.shape[1] - query.shape[1]
        unseen = torch.ones_like(scores[0], dtype=torch.bool).triu(earlier + 1)
        scores = scores.masked_fill(unseen, float("-inf"))
        return torch.einsum("hwd,htd->tw", self.back, scores.softmax(-1) @ value)

    def think(self, hidden: Tensor) -> Tensor:
        """Return what the feed-forward part adds, `[tokens, WIDTH]`."""
        return F.gelu(F.layer_norm(hidden, (WIDTH,)) @ self.up.T) @ self.down


def _rotate(heads: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions on `[heads, tokens, size]`."""
    half = heads.shape[-1] // 2
    speed = 100.0 ** (-torch.arange(half, dtype=TYPE, device=heads.device) / half)
    angle = positions.to(TYPE)[:, None] * speed
    first = heads[..., :half]
    second = heads[..., half:]
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1
    )


class ModelShare:
    """Part of the model that one rank holds, and the group it works with.

    Attributes:
        sent, received: digests of the hidden states of the last step that went to the next rank and
            came from the one before; empty at an end of the pipeline, and where ranks share layers.
    """

    def __init__(self, context: Any, *, parallel: str, layers: int, seed: int, defect: str) -> None:
        self._rank = context.rank
        self._size = context.size
        self._distributed = context.group.native
        self._device = (
            torch.device("cuda", context.rank) if context.backend == "nccl" else torch.device("cpu")
        )
        self._is_tensor = parallel == "tensor"
        # A defect is in every rank but the first: the bug that a test of one rank, or of rank 0,
        # does not see.
        self._defect = defect if context.rank else "none"
        if self._is_tensor:
            # The neighbour's heads: as many, and of the right shape, and not the ones that are
            # missing.
            part = self._rank - 1 if self._defect == "wrong-shard" else self._rank
            self._layers = [
                Layer(seed, number, part=part, parts=self._size, device=self._device)
                for number in range(layers)
            ]
        else:
            mine = torch.tensor_split(torch.arange(layers), self._size)[self._rank].tolist()
            off = 1 if self._defect == "wrong-shard" else 0
            self._layers = [
                Layer(seed, number - off, part=0, parts=1, device=self._device) for number in mine
            ]
        self._embedding, self._head = (table.to(self._device) for table in ends(seed))
        self._caches: list[list[Tensor]] = [[] for _ in self._layers]
        self.sent = self.received = ""

    def step(self, tokens: Sequence[int], *, begin: int) -> Tensor:
        """Logits after some new tokens, of which the first is at position `begin`: `[VOCABULARY]`,
        on every rank.
        """
        decodes = begin > 0
        begin = 0 if decodes and self._defect == "wrong-positions" else begin
        positions = torch.arange(begin, begin + len(tokens), device=self._device)
        hidden = self._embedding[torch.tensor(tokens, device=self._device)]
        if not self._is_tensor and self._rank > 0:
            self._distributed.recv(hidden, src=self._rank - 1)
            self.received = digest(hidden)
        for layer, cache in zip(self._layers, self._caches, strict=True):
            keep = not (decodes and self._defect == "stale-cache")
            hidden = hidden + self._whole(layer.attend(hidden, positions, cache, keep=keep))
            hidden = hidden + self._whole(layer.think(hidden))
        if not self._is_tensor and self._rank < self._size - 1:
            self.sent = digest(hidden)
            self._distributed.send(hidden, dst=self._rank + 1)
        logits = F.layer_norm(hidden[-1], (WIDTH,)) @ self._head.T
        if not self._is_tensor:
            self._distributed.broadcast(logits, src=self._size - 1)
        return logits

    def _whole(self, part: Tensor) -> Tensor:
        """Return the sum of every rank's part, where ranks share a layer."""
        if not self._is_tensor:
            return part
        total = part.clone()
        self._distributed.all_reduce(total)
        return part if self._defect == "own-part" else total


def ends(seed: int) -> tuple[Tensor, Tensor]:
    """Return what turns tokens into hidden states, and hidden states into logits: both
    `[VOCABULARY, WIDTH]`.
    """
    dice = torch.Generator().manual_seed(seed * 1000)
    first, last = (torch.randn(VOCABULARY, WIDTH, generator=dice, dtype=TYPE) for _ in range(2))
    return first, last


def whole_model(tokens: Sequence[int], *, layers: int, seed: int) -> Tensor:
    """Logits at every position, `[tokens, VOCABULARY]`: all layers in this process, no group, no
    cache.
    """
    first, last = ends(seed)
    positions = torch.arange(len(tokens))
    hidden = first[torch.tensor(tokens)]
    for number in range(layers):
        layer = Layer(seed, number, part=0, parts=1, device=torch.device("cpu"))
        hidden = hidden + layer.attend(hidden, positions, [], keep=False)
        hidden = hidden + layer.think(hidden)
    return F.layer_norm(hidden, (WIDTH,)) @ last.T


def digest(tensor: Tensor) -> str:
    """Sha256 of a tensor's bytes."""
    return hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()


# Its arguments are those that a scenario may give.
def run(
    context: Any,
    *,
    parallel: str = "pipeline",
    layers: int = 8,
    prompt: int = 12,
    steps: int = 8,
    model_seed: int = 1,
    defect: str = "none",
) -> None:
    """Entry: a prompt, `steps` decoded tokens, and the comparison with the whole model."""
    if layers < context.size and parallel == "pipeline":
        raise ValueError(f"{layers} layers cannot be split over {context.size} ranks; raise layers")
    if parallel == "tensor" and context.size > HEADS:
        raise ValueError(
            f"{HEADS} heads cannot be split over {context.size} ranks; use fewer ranks"
        )
    if defect == "own-part" and parallel != "tensor":
        raise ValueError(
            "own-part needs parallel: tensor, because pipeline parallelism does not sum partial"
            " results between layers"
        )
    with torch.inference_mode():
        context.emit("model.load.begin")
        share = ModelShare(
            context, parallel=parallel, layers=layers, seed=model_seed, defect=defect
        )
        context.emit("model.load.end")
        dice = torch.Generator().manual_seed(model_seed)
        tokens = [int(token) for token in torch.randint(VOCABULARY, (prompt,), generator=dice)]
        new = tokens[:]
        begin = 0
        seen = []
        for number in range(steps):
            context.emit("prefill.begin" if number == 0 else "decode.begin")
            logits = share.step(new, begin=begin).cpu()
            context.emit("prefill.end" if number == 0 else "decode.end")
            seen.append(logits)
            begin += len(new)
            new = [int(logits.argmax())]
            tokens += new
            context.emit("step", number=number, token=new[0], logits=digest(logits))
            _compare_ends(context, share, number)
        expected = whole_model(tokens[:-1], layers=layers, seed=model_seed)[prompt - 1 :]
        difference = float((torch.stack(seen) - expected).abs().max())
        wanted = [int(token) for token in expected.argmax(-1)]
        context.emit(
            "decoded",
            tokens=tokens[prompt:],
            whole_model=wanted,
            difference=difference,
            correct=wanted == tokens[prompt:] and difference < TOLERANCE,
        )


def _compare_ends(context: Any, share: ModelShare, number: int) -> None:
    """Hold what this rank received against what the rank before it says that it sent."""
    answers = context.group.all_gather(json.dumps(share.sent).encode())
    digests = [json.loads(answer) for answer in answers]
    sent = digests[context.rank - 1] if context.rank else ""
    context.emit(
        "hop", number=number, sent=sent, received=share.received, intact=sent == share.received
    )
