"""Offers of the engines: which runs which architecture at which world size, read from the libraries
that are installed.

Nothing is imported: an engine's files show what it offers, and a scenario's cell is refused before
anything runs. Some engines accept what they cannot do and crash in the first layer, or in a
reshape; that is refused too. So is a decoder that cannot be run layer by layer, or step by step.
What is in doubt is left to the rank, which has the modules themselves and refuses it as well.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.engines import decoders
from harness.engines.models import EXPERTS, HEADS, LAYERS, ModelError, number_of
from harness.forms.distribution import absence

ENGINES = ("hf-single", "hf-tensor", "hf-pipeline", "mlx-single", "mlx-tensor", "mlx-pipeline")
LIBRARIES = {"hf": "transformers", "mlx": "mlx-lm"}
PACKAGES = {"hf": "transformers", "mlx": "mlx_lm"}
PIPELINE = "PipelineMixin"
# mlx-lm's other names of architectures: of a `model_type`, or of one with the class of config.json.
REMAPPINGS = ("MODEL_REMAPPING", "MODEL_ARCHITECTURE_REMAPPING")
# What stands in a plan of transformers for the number of a layer.
OF_EACH_LAYER = "*"
# What the grouped product that transformers' experts use asks of the bytes of a row.
ALIGNED = 16


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Offer of a library for an architecture.

    Attributes:
        single: whether it knows the architecture at all.
        tensor: whether it has a plan by which the layers are split.
        heads: whether that plan gives each rank some of the heads; others leave attention whole, or
            gather it.
        head: whether it splits the matrix behind the layers, or the embedding before them, which
            makes a plan where there is none for the layers.
        pipeline: whether it can split by layers itself.
        architecture: the class of transformers that has it.
        wants: keys of config.json without which it raises; of some architectures releases of
            transformers write others.
    """

    single: bool = False
    tensor: bool = False
    heads: bool = True
    head: bool = False
    pipeline: bool = False
    architecture: str = ""
    wants: tuple[str, ...] = ()


def refusal(engine: str, config: Mapping[str, Any], *, ranks: int, dtype: str = "float32") -> str:
    """Return why an engine cannot run a model over so many ranks; empty where it can.

    Args:
        engine: of `ENGINES`.
        config: what stands in the model's config.json.
        ranks: world size.
        dtype: of its weights.

    Raises:
        ModelError: as `offers`.
    """
    library, _, sharding = engine.partition("-")
    kind = str(config.get("model_type", ""))
    offer = _offer_of(library, config)
    called = f"{LIBRARIES[library]} {installed(library)}"
    if not offer.single:
        return f"{called} has no causal language model {_kind_that_lacks(library, config)}"
    if library == "hf" and (why := _unlike_a_decoder(config, offer.architecture)):
        return f"{called}: {why}"
    unsplittable = (
        decoders.unsplittable(_folder("hf"), offer.architecture) if library == "hf" else ""
    )
    is_of_head = sharding == "tensor" and offer.head and not offer.tensor
    if sharding == "tensor" and not offer.tensor and not is_of_head:
        if library == "hf":
            other = "hf-single" if unsplittable else "hf-pipeline"
            return f"{called} has no tensor-parallel plan for the layers of {kind}; use {other}"
        return f"{called} cannot split the layers of {kind}; use mlx-single"
    if sharding == "pipeline" and not offer.pipeline:
        other = "mlx-tensor" if offer.tensor else "mlx-single"
        return f"{called} has no pipeline for {kind}; use {other}"
    lacking = [key for key in offer.wants if key not in config]
    if lacking and "text_config" not in config:
        return f"{called} needs {lacking[0]} in the config.json of {kind}, which lacks it; add it"
    if engine == "hf-pipeline" and unsplittable:
        return f"{called}: {unsplittable}; use {'hf-tensor' if offer.tensor else 'hf-single'}"
    text = config.get("text_config") or config
    if (
        library == "mlx"
        and dtype != "float32"
        and number_of(text, *EXPERTS) > 0
        and is_without_gpu()
    ):
        return (
            f"MLX multiplies the experts of {kind} only in float32 on a CPU; use that dtype, or a"
            " GPU"
        )
    if is_of_head:
        return ""  # each rank has all heads and all experts
    return uneven(engine, config, ranks=ranks, dtype=dtype, by_heads=offer.heads)


def _offer_of(library: str, config: Mapping[str, Any]) -> Offer:
    """Return what a library offers a model: by its class, else by the kind of the whole, also where
    it wraps that of a text model.
    """
    known = offers(library)
    kind = str(config.get("model_type", ""))
    classes = (f"{kind}:{architecture}" for architecture in config.get("architectures") or ())
    offer = next((known[name] for name in classes if name in known), known.get(kind, Offer()))
    inner = known.get(_wrapped(config), Offer())
    if library == "hf" and inner.tensor and not offer.tensor:
        # transformers keeps its plan with the configuration of the text.
        return replace(offer, tensor=True, heads=inner.heads)
    return offer


def _kind_that_lacks(library: str, config: Mapping[str, Any]) -> str:
    """Return a kind that a library has no model of, and what to do where it has what that wraps."""
    kind = str(config.get("model_type", ""))
    wrapped = _wrapped(config)
    if wrapped == kind or not offers(library).get(wrapped, Offer()).single:
        return repr(kind)
    return (
        f"{kind!r}, which wraps a {wrapped}; save the {wrapped} by itself, with its own config.json"
    )


def _wrapped(config: Mapping[str, Any]) -> str:
    text = config.get("text_config") or config
    return str(text.get("model_type", config.get("model_type", "")))


def _unlike_a_decoder(config: Mapping[str, Any], architecture: str) -> str:
    """Return why a prompt that is read in chunks is another one to a model of transformers.

    Empty where it is the same.
    """
    if not config.get("is_decoder") and decoders.is_told_to_decode(_folder("hf"), architecture):
        return (
            f"{architecture} also attends to later tokens unless config.json has is_decoder: true;"
            " add it if the model was trained as a decoder"
        )
    return decoders.without_cache(_folder("hf"), architecture)


def is_without_gpu() -> bool:
    """Return whether MLX computes on a CPU here, where experts have no products in 16 bits."""
    try:
        return bool(version("mlx-cpu"))
    except PackageNotFoundError:
        return False


def uneven(
    engine: str,
    config: Mapping[str, Any],
    *,
    ranks: int,
    dtype: str = "float32",
    by_heads: bool = True,
) -> str:
    """Return what of a model an engine that has the architecture cannot split over so many ranks.

    Empty where it can.

    Follows from the arguments alone, whatever is installed; `by_heads` says whether each rank gets
    some of the heads. The engines accept some of it: transformers fails in a reshape then, mlx-lm
    while it loads or in a reshape.
    """
    library, _, sharding = engine.partition("-")
    text = config.get("text_config") or config
    if sharding == "single":
        return ""
    if library == "mlx" and ranks < 2:
        return "MLX's ring needs at least two ranks; use mlx-single"
    if sharding == "pipeline":
        layers = number_of(text, *LAYERS)
        if 0 < layers < ranks:
            return f"{layers} layers cannot be split over {ranks} ranks; use fewer ranks"
        return ""  # also where they are called otherwise: the rank, which has the model, will say
    heads = number_of(text, "num_key_value_heads", *HEADS)
    if by_heads and heads % ranks:
        return (
            f"{heads} KV heads cannot be split over {ranks} ranks; use a number that divides them,"
            " or a pipeline"
        )
    # transformers gives the last rank what is left.
    for name in ("intermediate_size", "moe_intermediate_size") if library == "mlx" else ():
        if (width := text.get(name) or 0) % ranks:
            return f"{name} {width} cannot be split over {ranks} ranks by mlx-lm; use fewer ranks"
    if library == "hf" and number_of(text, *EXPERTS):
        inner = number_of(text, "moe_intermediate_size", "intermediate_size")
        share = -(-inner // ranks)
        parts = (share, inner - share * (ranks - 1))
        if any(part * (4 if dtype == "float32" else 2) % ALIGNED for part in parts):
            why = (
                f"transformers multiplies experts in rows whose size is a multiple of {ALIGNED}"
                " bytes"
            )
            return (
                f"{share} of an expert's {inner} in {dtype} on each of {ranks} ranks: {why}; use"
                " fewer ranks"
            )
    return ""


def installed(library: str) -> str:
    """Return the version of a library. Raises ModelError where it is not installed here."""
    try:
        return version(LIBRARIES[library])
    except PackageNotFoundError:
        raise ModelError(absence(PACKAGES[library])) from None


@cache
def offers(library: str) -> Mapping[str, Offer]:
    """Return each architecture (`model_type`) that a library has, `hf` or `mlx`, with its offer.

    Raises:
        ModelError: it is not installed here, or its files are not what is understood.
    """
    installed(library)  # raises where it is not
    place = _folder(library)
    known = dict(_of_transformers(place) if library == "hf" else _of_mlx_lm(place))
    if not any(offer.tensor for offer in known.values()):
        raise ModelError(
            f"cannot find out which models {LIBRARIES[library]} {installed(library)} can split"
        )
    return known


def _folder(library: str) -> Path:
    spec = importlib.util.find_spec(PACKAGES[library])
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise ModelError(f"{LIBRARIES[library]} has no files on this machine; reinstall it")
    return Path(places[0])


def _of_transformers(folder: Path) -> Iterator[tuple[str, Offer]]:
    auto = (folder / "models" / "auto" / "modeling_auto.py").read_text("utf-8")
    _, _, rest = auto.partition("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")
    known = dict(re.findall(r'\(\s*"([^"]+)",\s*"([^"]+)"\s*\)', rest.partition("\n)")[0]))
    planned = dict[str, bool]()
    beside = set[str]()
    for path in (folder / "models").glob("*/configuration_*.py"):
        data = path.read_bytes()
        for node in ast.parse(data).body if b"base_model_tp_plan" in data else ():
            if isinstance(node, ast.ClassDef):
                values = _assigned(node)
                kind = values.get("model_type")
                rules = _rules(values.get("base_model_tp_plan"))
                if not isinstance(kind, ast.Constant):
                    continue
                if rules is None or any(OF_EACH_LAYER in name for name in rules):
                    planned[str(kind.value)] = _is_by_heads(rules)
                elif rules:
                    beside.add(str(kind.value))
    of_heads = set(_with_a_head_that_is_split(folder / "models"))
    for kind, architecture in known.items():
        offer = Offer(
            single=True,
            tensor=kind in planned,
            heads=planned.get(kind, True),
            head=architecture in of_heads or kind in beside,
            pipeline=True,  # ours, which takes any decoder but those that are `unsplittable`
            architecture=architecture,
        )
        yield kind, offer


def _with_a_head_that_is_split(models: Path) -> Iterator[str]:
    """Yield the classes of transformers that have a plan of their own, which is for what stands
    behind the layers.
    """
    for path in models.glob("*/modeling_*.py"):
        name = ""
        for match in re.finditer(
            r"^class (\w+)|^    _tp_plan = \{.", path.read_text("utf-8"), re.MULTILINE
        ):
            if match[1]:
                name = match[1]
            elif not match[0].endswith("}"):
                yield name


def _rules(plan: ast.expr | None) -> Mapping[str, str] | None:
    """Return the rules of a plan of transformers: what is split, and how.

    Empty where there is no plan; None where it cannot be read.
    """
    try:
        rules: Any = ast.literal_eval(plan) if plan is not None else {}
    except ValueError:
        return None
    return rules or {}


def _is_by_heads(rules: Mapping[str, str] | None) -> bool:
    """Return whether a plan of transformers gives each rank some of the heads.

    Also where it cannot be read.
    """
    return rules is None or any("att" in name and how == "colwise" for name, how in rules.items())


def _of_mlx_lm(folder: Path) -> Iterator[tuple[str, Offer]]:
    trees = {path.stem: ast.parse(path.read_bytes()) for path in (folder / "models").glob("*.py")}
    known = {name: offer for name in trees if (offer := _of_module(name, trees)) is not None}
    yield from known.items()
    for node in ast.parse((folder / "utils.py").read_bytes()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in REMAPPINGS:
                names: dict[Any, str] = ast.literal_eval(value)
                for kind, module in names.items():
                    if module in known:
                        yield kind if isinstance(kind, str) else ":".join(kind), known[module]


def _of_module(name: str, trees: Mapping[str, ast.Module]) -> Offer | None:
    """Return what the `Model` of a module offers, with what it inherits from other modules; None
    where there is none.
    """
    body = trees[name].body
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    imported = {
        alias.asname or alias.name: (node.module or alias.name, alias.name)
        for node in body
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    if "ModelArgs" not in classes or "Model" not in {*classes, *imported}:
        return None
    whole = classes.get("Model")
    bases: list[ast.expr] = whole.bases if whole is not None else [ast.Name("Model")]
    above = list[Offer]()
    for base in bases:
        match base:  # `from .other import Model as Other`, or `from . import other`, `other.Model`
            case ast.Name(id=name):
                module, what = imported.get(name, ("", ""))
            case ast.Attribute(value=ast.Name(id=name), attr=what):
                module, _ = imported.get(name, ("", ""))
            case _:
                continue
        if what == "Model" and module in trees and (offer := _of_module(module, trees)):
            above.append(offer)
    is_mixed = any(
        isinstance(base, ast.Name) and base.id == PIPELINE
        for kind in classes.values()
        for base in kind.bases
    )
    return Offer(
        single=True,
        tensor=decoders.method(whole, "shard") is not None or any(offer.tensor for offer in above),
        pipeline=is_mixed or any(offer.pipeline for offer in above),
        wants=tuple(_without_default(classes["ModelArgs"])),
    )


def _without_default(node: ast.ClassDef) -> Iterator[str]:
    """Yield the fields of a dataclass that have no default."""
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=None):
                yield name


def _assigned(node: ast.ClassDef) -> dict[str, ast.expr | None]:
    """Return what a class assigns in its body, with or without a type."""
    values: dict[str, ast.expr | None] = {}
    for statement in node.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                values[name] = value
    return values
