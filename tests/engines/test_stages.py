"""A stage of a decoder does what its layers do in the whole model, or is refused beforehand."""

from __future__ import annotations

import importlib
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
origins = importlib.import_module("harness.engines.inference_inside.rehearsal_hf")
stages = importlib.import_module("harness.engines.inference_inside.stages")


class Layer(torch.nn.Linear):  # type: ignore[name-defined,misc]
    """Adds what it is given besides."""

    def forward(self, state: Any, more: Any = 0) -> Any:
        return super().forward(state) + more


class Decoder(torch.nn.Module):  # type: ignore[name-defined,misc]
    """With a loop as those of transformers are."""

    def __init__(self, **lists: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(
            layer_types=["a", "b", "c", "d"], thetas=[1, 2, 3, 4], many=4, **lists
        )
        self.embed = torch.nn.Embedding(8, 4)
        self.layers = torch.nn.ModuleList([Layer(4, 4) for _ in range(4)])
        self.own, self.shared = ["e", "f", "g", "h"], 3
        self.leaks = False

    def forward(self, ids: Any, images: Any = None) -> Any:
        state = self.embed(ids)
        before = state * 2
        for i, layer in enumerate(self.layers[: self.config.many]):
            _ = self.config.thetas[i], self.own[i], i == self.shared
            if images is not None and i in range(len(images)):
                state = state + images[i]
            # What is made of a shape alone is nobody's.
            state = layer(state, before if self.leaks else torch.zeros_like(before))
        return state


class Told(Decoder):
    """Tells each layer its number."""

    def forward(self, ids: Any, images: Any = None) -> Any:  # noqa: ARG002 - as above
        state = self.embed(ids)
        for number, layer in enumerate(self.layers):
            state = layer(state, number)
        return state


def test_what_a_loop_finds_by_the_number_of_a_layer_is_cut_like_the_layers() -> None:
    """Granite's bases of rotation stand in such a list: the second stage rotated by those of the
    first.
    """
    whole = Decoder()
    stages.cut_by_number(whole, "layers", whole.config, kept=(2, 4), of=4)
    assert (whole.config.layer_types, whole.config.thetas) == (["c", "d"], [3, 4])
    assert (whole.own, whole.shared) == (["g", "h"], 1)


def test_a_loop_that_tells_layers_their_number_is_refused() -> None:
    """Nobody knows what they do with it."""
    whole = Told()
    with pytest.raises(
        ValueError,
        match=r"Told uses the indices of its layers \(state = layer\(state, number\)\)",
    ):
        stages.cut_by_number(whole, "layers", whole.config, kept=(2, 4), of=4)


class Looped(Decoder):
    """Runs the layers in the middle twice."""

    def forward(self, ids: Any, images: Any = None) -> Any:  # noqa: ARG002 - as above
        state = self.embed(ids)
        begin, end = 1, 3
        for layer in self.layers[:begin]:
            state = layer(state)
        for _ in range(2):
            for layer in self.layers[begin:end]:
                state = layer(state)
        for layer in self.layers[end:]:
            state = layer(state)
        return state


def test_a_loop_over_some_of_the_layers_is_refused() -> None:
    """A stage of four with one layer each ran every layer once, and nothing failed (Dory)."""
    whole = Looped()
    with pytest.raises(
        ValueError, match=r"Looped uses the indices of its layers \(self\.layers\[:begin\]\)"
    ):
        stages.cut_by_number(whole, "layers", whole.config, kept=(2, 4), of=4)


class Computed(SimpleNamespace):
    """A configuration that works out the kinds of layers from their number."""

    @property
    def layer_types(self) -> list[str]:
        return [self.kinds[number % len(self.kinds)] for number in range(self.many)]


@pytest.mark.parametrize("kinds", ["m", "am"])
def test_kinds_of_layers_that_cannot_be_set_matter_where_they_differ(kinds: str) -> None:
    """All of Mamba's are of one kind, which a stage's are too; Jamba's would be those of others."""
    whole = Decoder()
    whole.config = Computed(kinds=kinds, many=4, thetas=[1, 2, 3, 4])
    cut = partial(stages.cut_by_number, whole, "layers", whole.config, kept=(1, 4), of=4)
    if kinds == "m":
        cut()
        assert whole.config.thetas == [2, 3, 4]
        return
    with pytest.raises(ValueError, match="Computed does not let layer_types be set to that of one"):
        cut()


def test_a_stage_whose_layers_run_twice_in_a_step_is_refused() -> None:
    """It would take the hidden state of the stage before for its own."""
    stage = stages.Stage(origins.Still(None, rank=0, size=2), rank=0, size=2)
    layer = Layer(4, 4)
    layer.register_forward_pre_hook(vars(stages.Stage)["_enter"].__get__(stage), with_kwargs=True)
    for _ in range(2):
        stage.receive(tokens=1)
        state = layer(torch.ones(1, 1, 4))
    with pytest.raises(ValueError, match="runs layer 0 more than once in a step"):
        layer(state)


@pytest.mark.slow
@pytest.mark.parametrize("leaks", [False, True])
def test_what_reaches_a_stage_beside_the_hidden_state_is_seen(leaks: bool) -> None:
    """A layer that takes the embeddings once more would take zeros in a stage, and nothing would
    fail.
    """
    whole = Decoder()
    whole.leaks = leaks
    if not leaks:
        with torch.no_grad(), origins.StageOrigins(whole.embed, whole.layers, [0, 2]):
            whole(torch.tensor([1, 2]))
        return
    with (
        torch.no_grad(),
        pytest.raises(origins.StageLeak, match="layer 2 uses more than the hidden state"),
        origins.StageOrigins(whole.embed, whole.layers, [0, 2]),
    ):
        whole(torch.tensor([1, 2]))


def test_a_list_of_modules_without_numbers_is_not_the_layers() -> None:
    """As many rotary embeddings as layers made the layers of Granite ambiguous."""
    model = torch.nn.Module()
    model.rotary = torch.nn.ModuleList([torch.nn.Identity() for _ in range(4)])
    model.layers = Decoder().layers
    model.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(num_hidden_layers=4))
    assert stages.path_of_layers(model) == "layers"


class Model(torch.nn.Module):  # type: ignore[name-defined,misc]
    """With a decoder, and a tower beside it of as many layers."""

    def __init__(self, *, layers: int = 4) -> None:
        super().__init__()
        self.tower, self.text = Decoder(), Decoder()
        self.head = torch.nn.Linear(4, 8, bias=False)
        self.config = SimpleNamespace(
            get_text_config=lambda: SimpleNamespace(num_hidden_layers=layers)
        )

    def get_decoder(self) -> Any:
        return self.text

    def get_input_embeddings(self) -> Any:
        return self.text.embed

    def get_output_embeddings(self) -> Any:
        return self.head


@pytest.mark.parametrize("layers", [4, 8])
def test_layers_are_those_of_the_decoder(layers: int) -> None:
    """The tower of GOT-OCR has as many, LongCat counts two for each: whole models were refused for
    that.
    """
    assert stages.path_of_layers(Model(layers=layers)) == "text.layers"


def test_matrices_are_tied_where_they_are_one() -> None:
    """Inkling's configuration does not have the word, that of the text of GOT-OCR says another one
    than the whole.
    """
    model = Model()
    assert not stages.is_tied(model)
    model.head.weight = model.text.embed.weight
    assert stages.is_tied(model)


def test_a_product_over_fewer_columns_than_parts_is_made_once() -> None:
    """Gemma 3n has a matrix of two columns, which the envelope cuts into four."""
    orders = importlib.import_module("harness.engines.inference_inside.torch_decoder")
    matrix, given = torch.nn.Linear(2, 3), torch.ones(1, 2)
    with orders.split(torch.nn.Sequential(matrix), orders.Cut(4, strided=True)):
        assert torch.allclose(
            matrix(given), torch.nn.functional.linear(given, matrix.weight, matrix.bias)
        )


@pytest.mark.slow
def test_several_states_of_a_token_are_kept_side_by_side() -> None:
    """DeepSeek-V4 has four of each: as many rows were kept as states, whatever the number of
    tokens.
    """
    pytest.importorskip("transformers")
    hf = importlib.import_module("harness.engines.inference_inside.hf")
    engine = hf.Transformers(rank=0, size=1, sharding="single")
    engine._tokens, engine._batch = 5, (1, 5)
    engine._watch("of a token")(None, (), torch.ones(1, 5, 4, 8))
    engine._watch("of a batch")(None, (), torch.ones(4, 1, 5, 8))
    assert {name: tuple(found.shape) for name, found in engine.hidden().items()} == {
        "of a token": (5, 32),
        "of a batch": (5, 8),
    }


@pytest.mark.slow
def test_heads_are_counted_in_layers_that_differ() -> None:
    """The whole configuration of Dots 3 does not tell of them, and raised."""
    transformers: Any = pytest.importorskip("transformers")
    hf = importlib.import_module("harness.engines.inference_inside.hf")
    config = transformers.AutoConfig.for_model("dots3_note")
    hf.refuse_tensor(config, 2)
    # In the layers with a window.
    with pytest.raises(ValueError, match="64 KV heads cannot be split over 128 ranks"):
        hf.refuse_tensor(config, 128)


@pytest.mark.slow
def test_routers_that_nobody_saw_are_no_routing() -> None:
    """PhiMoE chooses otherwise than by `topk`, some layers of DeepSeek-V4 by a table."""
    pytest.importorskip("transformers")
    hf = importlib.import_module("harness.engines.inference_inside.hf")
    engine, names = (
        hf.Transformers(rank=0, size=1, sharding="single"),
        [f"m.layers.{n}.experts.w" for n in (0, 1)],
    )
    config = SimpleNamespace(num_experts=4, num_experts_per_tok=2)
    engine._routers = hf.Routers(config, names, layers=(0, 2))
    with pytest.raises(
        ValueError,
        match="experts in 2 layers, but the number of routers that were observed is 0; remove routing",
    ):
        engine.scores()
