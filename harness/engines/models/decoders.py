"""Which decoders of transformers cannot be run layer by layer, or not step by step: read from their files.

Nothing is imported. What is in doubt is left to the rank, which has the modules themselves and refuses it too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

CACHE = "past_key_values"


def stateful(folder: Path, architecture: str) -> str:
    """Why a decoder cannot go on from a KV cache, as all engines of transformers have it do; empty where it may.

    Args:
        folder: of the package transformers.
        architecture: the class of its causal language model, such as `LlamaForCausalLM`.
    """
    whole = _classes(folder, architecture).get(architecture)
    forward = _method(whole, "forward") if whole is not None else None
    if forward is None or CACHE in _parameters(forward):
        return ""
    return f"{architecture} takes no {CACHE}: it keeps another state than a KV cache"


def is_told_to_decode(folder: Path, architecture: str) -> bool:
    """Whether a model looks at the tokens that follow as well unless its configuration has `is_decoder` (BERT's kin).

    transformers only logs it; what such a model says of a prompt is another thing when it is read in chunks.
    """
    whole = _classes(folder, architecture).get(architecture)
    constructor = _method(whole, "__init__") if whole is not None else None
    tests = (one.test for one in ast.walk(constructor) if isinstance(one, ast.If)) if constructor is not None else ()
    return any(ast.unparse(one) in ("not config.is_decoder", "not self.config.is_decoder") for one in tests)


def unsplittable(folder: Path, architecture: str) -> str:
    """What lies beside the layers of a decoder and belongs to no stage; empty where all is known, or in doubt."""
    classes = _classes(folder, architecture)
    holder = _holder(classes, architecture)
    if holder is None:
        return ""
    before = True
    for name, kind in _made(holder):
        if kind == "ModuleList":
            before = False
        elif "norm" in kind.lower():
            if before != ("embed" in name):
                return f"{holder.name} makes {name} {'before' if before else 'behind'} its layers"
        elif kind == "Linear":
            return f"{holder.name} has {name}, a matrix beside its layers"
        elif kind in classes and _is_embedding(classes[kind]):
            forward = _method(classes[kind], "forward")
            if forward is not None and len(_parameters(forward)) > 1:
                return f"{holder.name} has {name} ({kind}), which takes more than the positions"
        elif kind in classes and {made for _, made in _made(classes[kind])} & {"Linear", "Parameter"}:
            return f"{holder.name} has {name} ({kind}), with numbers of its own beside its layers"
    return ""


def _holder(classes: dict[str, ast.ClassDef], name: str, seen: frozenset[str] = frozenset()) -> ast.ClassDef | None:
    """The class that has the layers: of what a class makes, and of what that makes, the first with a list."""
    if name not in classes or name in seen:
        return None
    made = [kind for _, kind in _made(classes[name])]
    if "ModuleList" in made:
        return classes[name]
    found = (_holder(classes, kind, seen | {name}) for kind in made)
    return next((one for one in found if one is not None), None)


def _made(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """What its constructor makes in every case: attribute and the class it is of."""
    constructor = _method(node, "__init__")
    for one in constructor.body if constructor is not None else ():
        target = (
            one.targets[0] if isinstance(one, ast.Assign) else one.target if isinstance(one, ast.AnnAssign) else None
        )
        value = one.value if isinstance(one, ast.Assign | ast.AnnAssign) else None
        if isinstance(target, ast.Attribute) and isinstance(value, ast.Call):
            called = value.func
            kind = (
                called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            )
            yield target.attr, kind


def _is_embedding(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Attribute) and base.attr == "Embedding" for base in node.bases)


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == name), None)


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*function.args.args, *function.args.kwonlyargs) if one.arg != "self"]


@cache
def _classes(folder: Path, architecture: str) -> dict[str, ast.ClassDef]:
    """The classes of the file in which an architecture is; none where no file has it."""
    stem = re.sub(r"(?:ForCausalLM|LMHeadModel)$", "", architecture).lower()
    files = sorted(
        (folder / "models").glob("*/modeling_*.py"),
        key=lambda path: path.parent.name.replace("_", "") != stem,  # where it most likely is comes first
    )
    for path in files:
        data = path.read_bytes()
        if f"\nclass {architecture}(".encode() in data:
            return {node.name: node for node in ast.parse(data).body if isinstance(node, ast.ClassDef)}
    return {}
