"""Cache of a decoder of transformers: the parameter of its forward pass that takes one, and whether
the decoder keeps anything in it.

The type tells the parameter. Its name differs: `past_key_values`, `cache_params` or `cache`, by
model and release. A release that renames it takes the old name for a while, and warns.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any


def cache_parameter(kind: type) -> str:
    """Return the parameter by which the forward pass of a class takes a `Cache` of transformers.

    It is declared with that type, or the output has a field of its name with that type: some
    classes declare what releases before took, and RecurrentGemma's output has no such field.

    Raises:
        ValueError: the class has no such parameter.
    """
    forward: Any = inspect.unwrap(kind.forward)  # type: ignore[attr-defined]  # of any module
    hints = typing.get_type_hints(forward)
    given_back = {
        name
        for output in _alternatives(hints.pop("return", None))
        for name, hint in typing.get_type_hints(output).items()
        if _may_be_cache(hint)
    }
    for name in inspect.signature(forward).parameters:
        if name in given_back or _may_be_cache(hints.get(name)):
            return name
    raise ValueError(without_parameter(kind.__name__))


def without_parameter(architecture: str) -> str:
    """Return why the hf engines cannot run a class without such a parameter."""
    return (
        f"{architecture}.forward has no parameter of type Cache, and the hf engines continue from a"
        " Cache; use an mlx engine if mlx-lm has this model"
    )


def demand_kept(cache: Any, *, architecture: str, parameter: str) -> None:
    """Demand that a forward pass left something in the cache that it was given.

    A forward pass that takes any named argument may ignore the cache without an error, and would
    begin anew at each step.

    Raises:
        ValueError: the cache has no tensor.
    """
    # Not above, because the harness reads this module without an engine.
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    for layer in cache.layers:
        for leaf in tree_leaves(list(vars(layer).values())):
            if isinstance(leaf, Tensor) and leaf.numel():
                return
    raise ValueError(
        f"{architecture} left nothing in the Cache that it was given as {parameter}, and the hf"
        " engines continue from a Cache; use an mlx engine if mlx-lm has this model"
    )


def _may_be_cache(hint: Any) -> bool:
    from transformers import Cache

    return any(issubclass(kind, Cache) for kind in _alternatives(hint))


def _alternatives(hint: Any) -> Iterator[type]:
    """Yield the classes that a type stands for: `Cache | None` for `Cache` and that of None."""
    for kind in (hint, *typing.get_args(hint)):
        if isinstance(kind, type):
            yield kind
