"""Choices of a forward pass: between experts, and between what attention reads.

`Margins` measures how far the last choice lay above the first that was left out. `Routers` notes
what routers chose, and makes choices for them.

Routers choose experts, and groups of them; indexers choose the keys or the blocks of keys that a
position attends to. Where two scores at the border lie as near as rounding, another order of the
same sums chooses otherwise, and what follows is something else.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn

# torch's own: another function stands for it while a model computes.
TOPK = torch.topk
Place = tuple[str, tuple[int, ...]]
"""The name of a module, and the lines through which it came to choose."""


# It remembers whom to tell, which a tuple has no slot for.
class Best(tuple[Tensor, Tensor]):  # noqa: SLOT001
    """Best scores and where they are, which tells when it is asked where: only then it is a choice.

    The sum of the two best of a group changes little where two of them are nearly the same.
    """

    _asked: Callable[[], None]

    @classmethod
    def of(cls, pair: tuple[Tensor, Tensor], asked: Callable[[], None]) -> Best:
        """Return what torch gave, and what is called once somebody asks where it is."""
        best = cls(pair)
        best._asked = asked
        return best

    @property
    def values(self) -> Tensor:
        """Scores, as torch's."""
        return super().__getitem__(0)

    @property
    def indices(self) -> Tensor:
        """Places, as torch's."""
        return self[1]

    def __iter__(self) -> Iterator[Tensor]:
        self._asked()
        return super().__iter__()

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        if at != 0:
            self._asked()
        return super().__getitem__(at)


class Margins:
    """Margins of all choices of some steps: of each, how far its last one lay above the first that
    it left out.

    Args:
        model: whose modules choose.
    """

    def __init__(self, model: nn.Module) -> None:
        self._names: Mapping[int, str] = {
            id(module): name for name, module in model.named_modules()
        }
        self._columns: dict[Place, int] = {}
        self._routers: set[str] = set()
        self._steps: list[tuple[int, dict[Place, Tensor]]] = []
        self._batch = 1
        self._tokens = 1
        self._last = 1
        self._loops: defaultdict[Place, list[tuple[int, Tensor]]] = defaultdict(list)

    def begin(self) -> None:
        """Forget all steps."""
        self._steps.clear()

    def step(self, batch: int, tokens: int, *, last: int) -> None:
        """Begin a step, of so many sequences of so many tokens: the last ones of the last of them
        count.
        """
        self._batch = batch
        self._tokens = tokens
        self._last = last
        self._steps.append((last, {}))
        self._loops.clear()

    def watch(self, best: Any, scores: Tensor, *, along: int, is_router: bool) -> Best:
        """Note a choice as soon as somebody asks what was chosen.

        Args:
            best: scores and where they are, as torch gives both.
            scores: of what.
            along: the dimension in which they were chosen.
            is_router: whether experts were.
        """
        place = self._place()
        width = scores.shape[along]
        many = best[1].shape[along] if best[1].ndim == scores.ndim else 1
        left = margin(scores, many, along)
        if is_router:
            self._routers.add(place[0])

        def asked() -> None:
            if left.ndim == 0:
                # One row at a time, position by position: the last sequence is the last that begins
                # with less.
                self._loops[place].append((width, left))
                self._note(place, self._of_loop(self._loops[place]), anew=True)
            else:
                self._note(place, self._by_token(left))

        return Best.of(best, _once(asked))

    def taken(self, *, routers: bool) -> Tensor | None:
        """Return the margins of all steps that began since this was asked, `[tokens, choices]`;
        None where nothing chooses.

        A choice that there was not in a step, or that left nothing out, has an infinite margin.
        Where `routers` are told what to take, theirs are none.
        """
        places = [place for place in self._columns if routers or place[0] not in self._routers]
        steps = self._steps
        self._steps = []
        if not places or not steps:
            return None
        empty = torch.tensor(torch.inf)
        return torch.cat(
            [
                torch.stack([noted.get(place, empty).expand(many) for place in places], 1)
                for many, noted in steps
            ]
        ).float()

    def _note(self, place: Place, margins: Tensor, *, anew: bool = False) -> None:
        self._columns.setdefault(place, len(self._columns))
        noted = self._steps[-1][1]
        noted[place] = (
            margins if anew or place not in noted else torch.minimum(noted[place], margins)
        )

    def _by_token(self, margins: Tensor) -> Tensor:
        """Return the least margin of each of the last tokens.

        Where a row's token cannot be told, of all.
        """
        rows = self._batch * self._tokens
        if margins.ndim > 1 and (margins.shape[0], margins.shape[-1]) == (
            self._batch,
            self._tokens,
        ):
            least = margins[-1].reshape(-1, self._tokens).amin(0)
        elif margins.shape[-1] == rows:
            least = margins.reshape(-1, rows).amin(0)
        elif margins.shape[0] == rows:
            least = margins.reshape(rows, -1).amin(1)
        else:
            least = margins.amin().expand(self._last)
        return least[-self._last :]

    def _of_loop(self, calls: list[tuple[int, Tensor]]) -> Tensor:
        begins = (at for at in range(len(calls) - 1, 0, -1) if calls[at][0] < calls[at - 1][0])
        margins = [left for _, left in calls[next(begins, 0) :]][-self._last :]
        before = torch.full((self._last - len(margins),), torch.inf, dtype=margins[0].dtype)
        return torch.cat([before, torch.stack(margins)])

    def _place(self) -> Place:
        """Which module chooses, wherever in its code: the first that is one among those that wait
        for the answer.
        """
        lines = list[int]()
        frame = inspect.currentframe()
        while frame is not None:
            lines.append(frame.f_lineno)
            if (name := self._names.get(id(frame.f_locals.get("self")))) is not None:
                return name, tuple(lines)
            frame = frame.f_back
        return "", tuple(lines)


def margin(scores: Tensor, many: int, along: int) -> Tensor:
    """Return how far the last of the best lies above the first that is left out, in all dimensions
    but one.

    Infinite where none is left out, or what is was ruled out beforehand, as a mask does.
    """
    scores = scores.detach().movedim(along, -1)
    if many >= scores.shape[-1]:
        return torch.full(scores.shape[:-1], torch.inf, dtype=torch.float64)
    best = TOPK(scores, many + 1).values
    last = best[..., -2].double()
    first = best[..., -1].double()
    ruled_out = first <= torch.finfo(scores.dtype).min / 2
    return torch.where(ruled_out, torch.inf, last - first).nan_to_num(nan=0.0, posinf=torch.inf)


def _once(act: Callable[[], None]) -> Callable[[], None]:
    due = [act]

    def acted() -> None:
        if due:
            due.pop()()

    return acted


EXPERT = re.compile(r"\.layers\.(\d+)\..*\bexperts\.")
NUMBERS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "moe_k", "num_experts_per_token", "moe_topk")


class Routers:
    """Around a forward pass: watches each choice of the best of all experts, wherever a model makes
    it.

    Its own functions stand for `topk`, and for `max` where margins are told, meanwhile: not a mode
    of torch's, which would stand in the traceback of every error.

    Args:
        config: of the text model.
        stored: the names of the checkpoint's tensors, which tell the layers with experts.
        layers: first and last (exclusive) layer of this rank.
        margins: of every choice, these among them; None where nobody asks for them.

    Attributes:
        scores: of each router in the order of its layer, what it chose the best of, `[rows,
            experts]`.
        chosen: what was chosen, `[rows, experts for each token]`.
        given: `[tokens, routers of the whole model, experts for each token]`: what the last rows
            take, whatever they would have chosen; None where they choose.
        all: the layers of the whole model that have a router.
        own: those of this rank.
    """

    def __init__(
        self,
        config: Any,
        stored: Collection[str],
        *,
        layers: tuple[int, int],
        margins: Margins | None = None,
    ) -> None:
        self._experts = _number(config, NUMBERS)
        self._best = _number(config, CHOSEN)
        self.all = (
            sorted({int(match[1]) for name in stored if (match := EXPERT.search(name))})
            if self._best
            else []
        )
        self.own = [layer for layer in self.all if layers[0] <= layer < layers[1]]
        self.scores: list[Tensor] = []
        self.chosen: list[Tensor] = []
        self.given: Tensor | None = None
        self._margins = margins
        self._whole: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        self.scores.clear()
        self.chosen.clear()
        names: tuple[str, ...] = ("topk",) if self.own else ()
        if self._margins is not None:
            names = ("topk", "max")
        self._whole = [
            (place, name, getattr(place, name)) for name in names for place in (torch, Tensor)
        ]
        # Process-wide: no two engines compute at a time in a rank.
        for place, name, whole in self._whole:
            setattr(place, name, self._watching(whole, count=name == "topk"))

    def __exit__(self, *_error: object) -> None:
        for place, name, whole in self._whole:
            setattr(place, name, whole)
        self._whole = []

    def _watching(self, whole: Any, *, count: bool) -> Any:
        """Return what stands for a function of torch's, which is told how many are chosen, or
        chooses one.
        """

        def best(scores: Any, *given: Any, **named: Any) -> Any:
            pair = whole(scores, *given, **named)
            if not isinstance(pair, tuple) or not scores.is_floating_point():
                return pair  # the largest of all numbers, or of each two
            is_router = count and self._is_choice(scores, pair[1])
            if is_router:
                pair = self._routed(scores, pair)
            if self._margins is None:
                return pair
            along = named.get("dim", given[count] if len(given) > count else -1)
            return self._margins.watch(pair, scores, along=along, is_router=is_router)

        return best

    def _routed(self, scores: Tensor, pair: Any) -> Any:
        chosen = pair[1]
        if self.given is not None:
            place = self.all.index(self.own[len(self.scores)])
            chosen = chosen.clone()
            chosen[-self.given.shape[0] :] = self.given[:, place]
            pair = Best.of((scores.gather(-1, chosen), chosen), lambda: None)
        self.scores.append(scores)
        self.chosen.append(chosen)
        return pair

    def _is_choice(self, scores: Tensor, chosen: Tensor) -> bool:
        if scores.ndim != 2 or (scores.shape[-1], chosen.shape[-1]) != (self._experts, self._best):
            return False
        return len(self.scores) < len(self.own)  # more than its routers would be something else


def _number(config: Any, names: tuple[str, ...]) -> int:
    return next((int(number) for name in names if (number := getattr(config, name, None))), 0)
