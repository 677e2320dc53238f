"""A decoder continues from the Cache that its forward pass takes, whatever the release calls that
parameter; a decoder that takes none is refused for that.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.engines import decoders, offers
from harness.engines.models import write

if TYPE_CHECKING:
    from transformers import Cache

transformers: Any = pytest.importorskip("transformers")
deprecation: Any = importlib.import_module("transformers.utils.deprecation")
torch: Any = pytest.importorskip("torch")
hf = importlib.import_module("harness.engines.inference_inside.hf")
kv_cache = importlib.import_module("harness.engines.inference_inside.kv_cache")

IDS = [20, 21, 22, 23, 24, 25, 26, 27, 28]
LATER = "99.0.0"
"""A release in which an old name will be gone."""


def taking(*names: str, hint: Any, gives: Any = None) -> type:
    """A class whose forward has a parameter of that type, called by the last name; the names before
    it are accepted for a while, as transformers 5.24.0 accepts `past_key_values` for `cache`.
    """
    *before, name = names

    def forward(self: Any, input_ids: Any = None, **given: Any) -> Any:
        del self, input_ids
        return given

    forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            inspect.Parameter("input_ids", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None),
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None),
        ]
    )
    forward.__annotations__ = {name: hint, "return": gives}
    decorated: Any = forward
    for old in before:
        decorated = deprecation.deprecate_kwarg(old, LATER, new_name=name)(decorated)
    return type("StandIn", (), {"forward": decorated})


@pytest.mark.parametrize(
    "names",
    [
        ("past_key_values",),
        ("past_key_values", "cache"),
        ("cache_params", "cache"),
        ("past_key_values", "cache_params", "memory"),
    ],
)
def test_the_parameter_is_found_by_its_type_and_passed_by_its_own_name(
    names: tuple[str, ...],
) -> None:
    """A release that renamed it accepted the old name with a warning: every model was refused."""
    kind = taking(*names, hint=transformers.Cache | None)
    assert kv_cache.cache_parameter(kind) == names[-1]
    # Warnings are errors here.
    given = kind().forward(**{kv_cache.cache_parameter(kind): "kept"})  # type: ignore[attr-defined]
    assert given == {names[-1]: "kept"}
    for old in names[:-1]:
        with pytest.warns(FutureWarning, match=f"`{old}` is deprecated"):
            kind().forward(**{old: "kept"})  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["past_key_values", "cache"])
def test_a_parameter_that_an_output_gives_back_as_a_cache_takes_one(name: str) -> None:
    """RoBERTa's kin declare the tuples that earlier releases took."""
    gives = type("Output", (), {"__annotations__": {name: transformers.Cache | None}})
    kind = taking(name, hint=tuple[tuple[torch.Tensor]] | None, gives=tuple[torch.Tensor] | gives)
    assert kv_cache.cache_parameter(kind) == name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("state", list[torch.Tensor] | None),
        ("cache", dict[str, torch.Tensor] | None),
        ("past_key_values", type("OwnCache", (), {})),
    ],
)
def test_a_decoder_that_takes_no_cache_is_refused_for_that(name: str, hint: Any) -> None:
    """RWKV takes its state, XLM a dictionary, xLSTM a class of its own: no name makes it a
    Cache, and nothing is said of why.
    """
    with pytest.raises(
        ValueError, match=r"^StandIn\.forward has no parameter of type Cache, and the hf engines"
    ):
        kv_cache.cache_parameter(taking(name, hint=hint))


OUTPUTS = """
from .cache_utils import Cache

class Shared:
    logits: Tensor
    {name}: Cache | None = None
"""
MODELING = """
from ...cache_utils import Cache, DynamicCache
from ...modeling_outputs import Shared

class OwnCache:
    pass

class Own:
    {name}: OwnCache | None = None

class RenamedForCausalLM(PreTrained):
    @deprecate_kwarg("before", "99.0.0", new_name="{name}")
    def forward(self, input_ids=None, {name}: {hint} = None, **kwargs) -> tuple | {gives}:
        pass
"""


@pytest.mark.parametrize("name", ["past_key_values", "cache_params", "cache", "memory"])
@pytest.mark.parametrize(
    ("hint", "gives", "is_refused"),
    [
        ("Cache | None", "Own", False),
        ("DynamicCache", "Own", False),
        ("tuple[tuple[Tensor]] | None", "Shared", False),
        ("list[Tensor] | None", "Own", True),
        ("OwnCache | None", "Own", True),
    ],
)
def test_the_files_of_a_release_are_read_by_the_same_rule(
    name: str, hint: str, gives: str, is_refused: bool, tmp_path: Path
) -> None:
    """Before anything runs, and without an import."""
    (tmp_path / "models" / "renamed").mkdir(parents=True)
    (tmp_path / "modeling_outputs.py").write_text(OUTPUTS.format(name=name))
    (tmp_path / "models" / "renamed" / "modeling_renamed.py").write_text(
        MODELING.format(name=name, hint=hint, gives=gives)
    )
    why = decoders.without_cache(tmp_path, "RenamedForCausalLM")
    assert why == (kv_cache.without_parameter("RenamedForCausalLM") if is_refused else "")


@pytest.mark.whole
def test_files_and_classes_say_the_same_of_every_decoder() -> None:
    """Of the installed release: both refuse a decoder, or neither does."""
    mapping: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    folder = Path(transformers.__file__).parent
    refused = set()
    for name in set(mapping.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()):
        kind = getattr(transformers, name)
        try:
            kv_cache.cache_parameter(kind)
            why = ""
        except ValueError as error:
            why = str(error)
            refused.add(name)
        assert decoders.without_cache(folder, name) == why
    assert {"RwkvForCausalLM", "XLMWithLMHeadModel", "xLSTMForCausalLM"} <= refused
    assert refused.isdisjoint({"LlamaForCausalLM", "MambaForCausalLM", "RobertaForCausalLM"})


def renamed(kind: Any, *, ignores: bool = False) -> Callable[..., Any]:
    """The forward of a class as transformers 5.24.0 has it: a parameter called `cache`, which is
    `past_key_values` for a while. It ignores what it is given, or hands it on.
    """
    forward = kind.forward
    name = kv_cache.cache_parameter(kind)

    def other(self: Any, *args: Any, cache: Cache | None = None, **named: Any) -> Any:
        if not ignores:
            named[name] = cache
        return forward(self, *args, **named)

    other.__annotations__["cache"] = transformers.Cache | None
    decorated: Any = deprecation.deprecate_kwarg("past_key_values", LATER, new_name="cache")(other)
    return wraps(other)(decorated)


def loaded(folder: Path) -> Any:
    engine = hf.Transformers(rank=0, size=1, sharding="single")
    engine.load(str(folder), dtype="float32")
    engine.begin()
    return engine


@pytest.mark.slow
def test_an_engine_continues_from_the_cache_of_a_release_that_renamed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of a prompt and a token say what the whole prompt says, without a warning."""
    folder = write("llama", tmp_path / "model")
    whole = loaded(folder).step(IDS)
    kind = transformers.LlamaForCausalLM
    monkeypatch.setattr(kind, "forward", renamed(kind))
    engine = loaded(folder)
    parts = [engine.step(part) for part in (IDS[:4], IDS[4:8], IDS[8:])]
    assert (torch.cat(parts) - whole).abs().max() < 1e-4


@pytest.mark.slow
def test_a_decoder_that_ignores_the_cache_is_refused_in_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would begin anew at each step, and no error would say so."""
    folder = write("llama", tmp_path / "model")
    kind = transformers.LlamaForCausalLM
    monkeypatch.setattr(kind, "forward", renamed(kind, ignores=True))
    engine = loaded(folder)
    with pytest.raises(
        ValueError, match=r"^LlamaForCausalLM left nothing in the Cache that it was given as cache,"
    ):
        engine.step(IDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "kind", "says"),
    [
        ("hf-single", "mamba", ""),
        ("hf-pipeline", "mamba", ""),
        ("hf-single", "rwkv", "RwkvForCausalLM.forward has no parameter of type Cache"),
        ("hf-tensor", "rwkv", "RwkvForCausalLM.forward has no parameter of type Cache"),
        ("hf-single", "xlm", "XLMWithLMHeadModel.forward has no parameter of type Cache"),
        ("hf-single", "openai-gpt", "OpenAIGPTLMHeadModel.forward has no parameter of type Cache"),
    ],
)
def test_decoders_of_the_installed_release_are_refused_by_what_they_take(
    engine: str, kind: str, says: str
) -> None:
    """Mamba's states are in a Cache, and it was refused for the name of the parameter."""
    found = offers.refusal(engine, {"model_type": kind, "num_hidden_layers": 2}, ranks=2)
    assert says in found if says else not found
