"""The routers of a decoder of transformers: between which experts they chose, and choices that are made for them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from .margins import Best, Margins

EXPERT = re.compile(r"\.layers\.(\d+)\..*\bexperts\.")
NUMBERS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "moe_k", "num_experts_per_token", "moe_topk")


class Routers:
    """Around a forward pass: watches each choice of the best of all experts, wherever a model makes it.

    Its own functions stand for `topk`, and for `max` where margins are told, meanwhile: not a mode of torch's, which
    would stand in the traceback of every error.

    Args:
        config: of the text model.
        stored: the names of the checkpoint's tensors, which tell the layers with experts.
        layers: first and last (exclusive) layer of this rank.
        margins: of every choice, these among them; None where nobody asks for them.

    Attributes:
        scores: of each router in the order of its layer, what it chose the best of, `[rows, experts]`.
        chosen: what was chosen, `[rows, experts for each token]`.
        given: `[tokens, routers of the whole model, experts for each token]`: what the last rows take, whatever they
            would have chosen; None where they choose.
        all: the layers of the whole model that have a router.
        own: those of this rank.
    """

    def __init__(
        self, config: Any, stored: Collection[str], *, layers: tuple[int, int], margins: Margins | None = None
    ) -> None:
        self._experts = _number(config, NUMBERS)
        self._best = _number(config, CHOSEN)
        self.all = sorted({int(match[1]) for name in stored if (match := EXPERT.search(name))}) if self._best else []
        self.own = [layer for layer in self.all if layers[0] <= layer < layers[1]]
        self.scores: list[Tensor] = []
        self.chosen: list[Tensor] = []
        self.given: Tensor | None = None
        self._margins = margins
        self._whole: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        self.scores.clear()
        self.chosen.clear()
        names = ("topk", "max") if self._margins is not None else ("topk",) if self.own else ()
        self._whole = [(place, name, getattr(place, name)) for name in names for place in (torch, Tensor)]
        for place, name, whole in self._whole:
            setattr(place, name, self._watching(whole, count=name == "topk"))

    def __exit__(self, *_error: object) -> None:
        for place, name, whole in self._whole:
            setattr(place, name, whole)
        self._whole = []

    def _watching(self, whole: Any, *, count: bool) -> Any:
        """What stands for a function of torch's, which is told how many are chosen, or chooses one."""

        def best(scores: Any, *given: Any, **named: Any) -> Any:
            found = whole(scores, *given, **named)
            if not isinstance(found, tuple) or not scores.is_floating_point():
                return found  # the largest of all numbers, or of each two
            is_router = count and self._is_choice(scores, found[1])
            if is_router:
                found = self._routed(scores, found)
            if self._margins is None:
                return found
            along = named.get("dim", given[count] if len(given) > count else -1)
            return self._margins.watch(found, scores, along=along, is_router=is_router)

        return best

    def _routed(self, scores: Tensor, found: Any) -> Any:
        chosen = found[1]
        if self.given is not None:
            place = self.all.index(self.own[len(self.scores)])
            chosen = chosen.clone()
            chosen[-self.given.shape[0] :] = self.given[:, place]
            found = Best.of((scores.gather(-1, chosen), chosen), lambda: None)
        self.scores.append(scores)
        self.chosen.append(chosen)
        return found

    def _is_choice(self, scores: Tensor, chosen: Tensor) -> bool:
        if scores.ndim != 2 or (scores.shape[-1], chosen.shape[-1]) != (self._experts, self._best):
            return False
        return len(self.scores) < len(self.own)  # more than its routers would be something else


def _number(config: Any, names: tuple[str, ...]) -> int:
    return next((int(found) for name in names if (found := getattr(config, name, None))), 0)
