"""Who goes on from a state with a token and begins anew with a chunk is seen without numbers."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
origins = importlib.import_module("harness.engines.inference_inside.rehearsal_hf")


class Layer(torch.nn.Module):  # type: ignore[name-defined,misc]
    """Keeps a state and what it was given last.

    Reads of them what its kind does with so many tokens.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.kept = kind, SimpleNamespace(state=None, last=None, name="kept")

    def forward(self, given: Any) -> Any:
        made = given * 2
        if self.kept.state is not None and (len(given) == 1 or self.kind == "goes-on"):
            made = made + self.kept.state
        if self.kept.last is not None and self.kind != "alone":
            made = made + self.kept.last
        if self.kind != "alone":
            self.kept.state, self.kept.last = made.sum(0), given[-1]
        return made


class Keeper(torch.nn.Module):  # type: ignore[name-defined,misc]
    """A module of a layer that keeps states as attributes, and a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.state, self.last, self.name = None, None, "kept"
        self.weight = torch.nn.Parameter(torch.ones(4))


def read(*kinds: str, inside: bool = False) -> Any:
    """What is seen of a prompt in two chunks and a token more, of layers that keep in a cache, or
    in themselves.
    """
    layers = [Layer(kind) for kind in kinds]
    if inside:
        for layer in layers:
            layer.mixer = layer.kept = Keeper()
    cache = SimpleNamespace(layers=[] if inside else [layer.kept for layer in layers])
    with torch.no_grad(), origins.ChunkOrigins(layers) as followed:
        for tokens in (8, 8, 1):
            followed.step_from(cache)
            state = torch.ones(tokens, 4)
            for layer in layers:
                state = layer(state)
    return followed


@pytest.mark.parametrize("inside", [False, True])
def test_a_layer_that_reads_a_chunk_as_it_reads_a_token_is_well(inside: bool) -> None:
    """After all that it keeps, or after nothing."""
    read("goes-on", "alone", "goes-on", inside=inside).demand_memory()


@pytest.mark.parametrize("inside", [False, True])
def test_a_layer_that_begins_anew_with_a_chunk_is_named(inside: bool) -> None:
    """Jamba's go on from the rows before a chunk, and from no state: what the whole prompt says is
    something else.
    """
    with pytest.raises(
        origins.Forgetful, match="ignores the state of layer 1 when it processes the second chunk"
    ):
        read("goes-on", "begins-anew", inside=inside).demand_memory()


def test_a_layer_that_runs_several_times_in_a_step_is_followed_by_steps() -> None:
    """The second run of Dory's layers in the first chunk was taken for the second chunk, which
    reads nothing that is kept: whoever read in chunks was refused.
    """
    layer = Layer("goes-on")
    cache = SimpleNamespace(layers=[layer.kept])
    with torch.no_grad(), origins.ChunkOrigins([layer]) as followed:
        for tokens in (8, 8, 1):
            followed.step_from(cache)
            state = torch.ones(tokens, 4)
            for _ in range(2):
                state = layer(state)
    followed.demand_memory()
