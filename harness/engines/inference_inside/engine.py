"""Request that a session answers, and the engine that it asks: a model, or a share of one."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from inspect import Parameter
from typing import Any, NamedTuple

ATTENTION = ("self-attn", "attn", "self-attention")
AT_ONE = ("rope-base", "scaled-layer")
"""Defects that a rank has by itself; the others begin where a model is split."""
LOUDER = 1.01
"""So many times too large is what a defect `scaled-layer` makes."""
ROUTER = "router"
"""The part of a layer in which its router's scores are kept."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Slice of a tensor of the checkpoint that this rank holds.

    Attributes:
        tensor: its name in the checkpoint.
        slices: begin and end in each dimension of the whole tensor.
        data: the bytes of the slice in C order, in the dtype in which it was loaded.
    """

    tensor: str
    slices: list[list[int]]
    data: bytes


@dataclass(frozen=True, kw_only=True)
class LibraryPlan:
    """Plan by which an engine shares a model among ranks, as a process says that holds the whole of
    it and is none of them.

    Attributes:
        engine: the name of the engine that shares by it.
        rules: as the library has them, what to how.
        whole: the tensors of the checkpoint of which every rank holds all. What is not here lies on
            one rank each.
    """

    engine: str
    rules: Mapping[str, str]
    whole: frozenset[str]


def part_name(attribute: str) -> str:
    """Return how a part of a layer is called, by the library's name for it.

    What attends is called alike everywhere.
    """
    name = "-".join(word for word in re.split(r"[^a-z]+", attribute.lower()) if word)
    return "attention" if name in ATTENTION else name


class SumOrder(NamedTuple):
    """Another order in which the same sums may be added up.

    Attributes:
        words: what is other.
        inside: makes a context inside of which it is in force.
        chunked: whether the prompt is to be read once more so, in chunks as well, as ranks that
            share each layer read it. Where one number is very sensitive, the furthest of few
            answers says little of the next one.
    """

    words: str
    inside: Callable[[], AbstractContextManager[Any]]
    chunked: bool = False


def products(
    splitting: Callable[[int, bool], Callable[[], AbstractContextManager[Any]]],
) -> Iterator[SumOrder]:
    """Matrix products in parts that are summed, as many as ranks would make.

    Args:
        splitting: of how many parts, and whether each is every so manieth column, to what makes the
            context of it.
    """
    for parts, ordinal in ((2, "second"), (3, "third"), (4, "fourth")):
        words = f"matrix products in {parts} parts"
        yield SumOrder(f"{words} that are summed", splitting(parts, False), chunked=True)
        yield SumOrder(
            f"{words}, each every {ordinal} column", splitting(parts, True), chunked=True
        )


class InferenceEngine(ABC):
    """Model, or a rank's share of one, that goes on from what it has seen.

    Args:
        name: the engine and how it shares the model, such as `hf-pipeline`.
        rank, size: of this process; one that holds the whole model is rank 0 of 1.

    Attributes:
        architecture: as the configuration calls it.
        device: where it computes.
        rows: tokens that the model has an embedding for.
        has_logits: whether this rank gets logits; inner stages of a pipeline do not.
        whole: whether this rank holds all of the model.
        model: as its library has it, once it is loaded.
    """

    def __init__(self, name: str, *, rank: int, size: int) -> None:
        self.name = name
        self.rank = rank
        self.size = size
        self.architecture = ""
        self.device = "cpu"
        self.rows = 0
        self.has_logits = True
        self.whole = size == 1
        self.model: Any = None
        self._shapes: Mapping[str, tuple[int, ...]] = {}  # of the checkpoint's tensors
        self._hidden: dict[str, Any] = {}

    @abstractmethod
    def load(self, folder: str, *, dtype: str, defect: str = "none") -> None:
        """Load the model of a folder, or this rank's share.

        With a defect in it unless that is `none`.
        """

    @abstractmethod
    def pieces(self) -> Iterator[Piece]:
        """All that this rank holds."""

    def stored(self) -> Collection[str]:
        """Return the names of all tensors of the checkpoint."""
        return self._shapes.keys()

    def plan(self) -> LibraryPlan | None:
        """Return how the library shares this model within its layers; None where nothing is known
        of that.
        """
        return None

    @abstractmethod
    def begin(self) -> None:
        """Forget what it has seen: an empty KV cache."""

    def forget(self) -> None:
        """Lose the last token that it has seen, with its keys and values."""
        raise NotImplementedError(
            "an adapter whose sessions can drop their last token must override forget()"
        )

    @abstractmethod
    def step(self, ids: Sequence[int]) -> Any:
        """Logits after each of some more tokens, `[tokens, vocabulary]`, in the engine's own kind
        of array.

        On a rank that has none, None.
        """

    def hidden(self) -> dict[str, Any]:
        """Return what came out of each layer of this rank, and of its parts, in the last step,
        `[tokens, width]`.

        By the layer's number, and by that and the part's name: `3`, `3.attention`, `3.mlp`.
        """
        states = dict(self._hidden)
        self._hidden.clear()  # hooks go on writing into this dictionary
        return states

    def decided(self, *, routers: bool) -> Any:  # noqa: ARG002 - by those that look at choices
        """Return by how much each choice was decided in the steps since this was asked last,
        `[tokens, choices]`.

        Of a router, how far the last expert chosen lay above the first that was not, and only where
        `routers` are not told what to take; of an indexer the same of keys, or of blocks of them.
        Infinite where there was nothing to choose; None of a model that chooses nothing, of which
        only a share is here, or whose choices nobody looks at.
        """
        return None

    def routed(self) -> Any:
        """Return the experts that each token was sent to in the last step, `[tokens, routers,
        experts for each token]`.

        None of a model without experts, or whose routers nobody sees.
        """
        return None

    def scores(self) -> dict[int, Any]:
        """Return what the router of a layer of this rank chose the best of in the last step,
        `[tokens, experts]` float32.
        """
        return {}

    def take(self, experts: Any) -> None:
        """Have the next step send each token to these experts, given as `routed` gives them of the
        whole model.

        None: to those that the routers choose. An engine that sees no routers is given nothing
        else: `routing: reference` is refused before.
        """
        assert experts is None

    @abstractmethod
    def scaled(self, layer: int, factor: float) -> AbstractContextManager[None]:
        """Inside of it the matrices of one of this rank's layers, but for a router's, are so many
        times as large.
        """

    @abstractmethod
    def together(self, parts: Sequence[Any]) -> Any:
        """Arrays one below the other."""

    @abstractmethod
    def numbers(self, row: Any) -> Any:
        """Return a row of logits as a float64 array of numpy."""

    def agree(self, token: int | None) -> int:
        """Return the token that was chosen, on every rank.

        Where every rank has logits, each chooses for itself: the rank's own.
        """
        assert token is not None
        return token

    @abstractmethod
    def orders(self) -> Iterator[SumOrder]:
        """Other orders in which the same sums may be added up."""


BOUNDARY = "boundary-"
"""So begin the defects of a session, where a chunk of a prompt follows another.

The others are an engine's.
"""
OWN = "own"
"""Where a run chooses by itself what is fed, or between which experts."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Arguments that every ready subject of this folder takes, as `harness.engines.inference`
    describes them.
    """

    model: str = "model"
    prompts: Sequence[Any] = ("the quick brown fox", "hello world")
    max_new_tokens: int = 8
    prefill_chunk: int = 0
    dtype: str = "float32"
    sampling: str = "greedy"
    seed: int = 0
    teacher: Sequence[Sequence[int]] = ()
    follow: str = OWN
    warm_up: int = 0
    tokenizer: str = "every-rank"
    routing: str = OWN
    envelope: str = "none"
    sensitivity: str = "none"
    hidden: str = "none"
    influence: str = "none"
    defect: str = "none"


def takes_a_request(entry: Callable[..., None]) -> Callable[..., None]:
    """Name the arguments of a request among the parameters of an entry that takes them in `**`.

    So a slip in `with` is found before the first trial, and a report does not doubt that an
    argument was used.
    """
    parameters = [
        parameter
        for parameter in inspect.signature(entry).parameters.values()
        if parameter.kind is not Parameter.VAR_KEYWORD
    ]
    named = {parameter.name for parameter in parameters}
    further = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default)
        for field in fields(Request)
    ]
    entry.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*parameters, *(parameter for parameter in further if parameter.name not in named)]
    )
    return entry


def demand_rows(prompts: Sequence[Sequence[int]], rows: int) -> None:
    """Demand an embedding for each token: MLX reads whatever lies beyond them, and says nothing.

    Raises:
        ValueError: a token has none.
    """
    for number, prompt in enumerate(prompts):
        if odd := [token for token in prompt if not 0 <= token < rows]:
            raise ValueError(
                f"prompt {number} contains the token {odd[0]}, but the model has only {rows}"
                f" embedding rows; use ids from 0 to {rows - 1}, or a tokenizer whose ids all have"
                " a row"
            )
