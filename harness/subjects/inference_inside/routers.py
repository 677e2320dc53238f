"""The routers of a decoder of transformers: between which experts they chose, and choices that are made for them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

EXPERT = re.compile(r"\.layers\.(\d+)\..*\bexperts\.")
NUMBERS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "moe_k", "num_experts_per_token", "moe_topk")


class Routers:
    """Around a forward pass: watches each choice of the best of all experts, wherever a model makes it.

    Its own function stands for `topk` meanwhile: not a mode of torch's, which would stand in the traceback of every
    error.

    Args:
        config: of the text model.
        stored: the names of the checkpoint's tensors, which tell the layers with experts.
        layers: first and last (exclusive) layer of this rank.

    Attributes:
        scores: of each router in the order of its layer, what it chose the best of, `[rows, experts]`.
        chosen: what was chosen, `[rows, experts for each token]`.
        given: `[tokens, routers of the whole model, experts for each token]`: what the last rows take, whatever they
            would have chosen; None where they choose.
        all: the layers of the whole model that have a router.
        own: those of this rank.
    """

    def __init__(self, config: Any, stored: Collection[str], *, layers: tuple[int, int]) -> None:
        self._experts = _number(config, NUMBERS)
        self._best = _number(config, CHOSEN)
        self.all = sorted({int(match[1]) for name in stored if (match := EXPERT.search(name))}) if self._best else []
        self.own = [layer for layer in self.all if layers[0] <= layer < layers[1]]
        self.scores: list[Tensor] = []
        self.chosen: list[Tensor] = []
        self.given: Tensor | None = None
        self._whole: list[tuple[Any, Any]] = []

    def __enter__(self) -> None:
        self.scores.clear()
        self.chosen.clear()
        if self.own:
            self._whole = [(place, place.topk) for place in (torch, Tensor)]
            for place, whole in self._whole:
                setattr(place, "topk", self._watching(whole))  # noqa: B010 - a type has no such attribute for types

    def __exit__(self, *_error: object) -> None:
        for place, whole in self._whole:
            setattr(place, "topk", whole)  # noqa: B010 - the same
        self._whole = []

    def _watching(self, whole: Any) -> Any:
        def topk(scores: Tensor, *given: Any, **named: Any) -> Any:
            found = whole(scores, *given, **named)
            if not self._is_choice(scores, found[1]):
                return found
            chosen = found[1]
            if self.given is not None:
                place = self.all.index(self.own[len(self.scores)])
                chosen = chosen.clone()
                chosen[-self.given.shape[0] :] = self.given[:, place]
            self.scores.append(scores)
            self.chosen.append(chosen)
            return (scores.gather(-1, chosen), chosen) if self.given is not None else found

        return topk

    def _is_choice(self, scores: Tensor, chosen: Tensor) -> bool:
        if scores.ndim != 2 or (scores.shape[-1], chosen.shape[-1]) != (self._experts, self._best):
            return False
        return len(self.scores) < len(self.own)  # more than its routers would be something else

    def gap(self, tokens: int) -> Tensor | None:
        """By how much the last expert chosen lay above the first that was not: of all routers the least, `[tokens]`."""
        best = [one[-tokens:].float().topk(self._best + 1).values for one in self.scores]
        return torch.stack([one[:, -2] - one[:, -1] for one in best]).amin(0) if best else None


def _number(config: Any, names: tuple[str, ...]) -> int:
    return next((int(found) for name in names if (found := getattr(config, name, None))), 0)
