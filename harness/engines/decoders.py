"""Decoders of transformers, as the library's source files describe them.

Nothing is imported. Where the files leave something open, no reason is returned.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from harness.engines.inference_inside import kv_cache

NUMBERS = ("Linear", "Parameter")
CACHES = "cache_utils"
"""The module of transformers that has the class Cache and those derived from it."""
OUTPUTS = "modeling_outputs"
"""The module of transformers that has the outputs which models share."""


def without_cache(folder: Path, architecture: str) -> str:
    """Return why a decoder cannot continue from a Cache, as all hf engines have it do.

    Empty where it can. The rule is that of `kv_cache.cache_parameter`.

    Args:
        folder: of the package transformers.
        architecture: the class of its causal language model, such as `LlamaForCausalLM`.
    """
    tree = _tree(folder, architecture)
    forward = method(_classes(tree).get(architecture), "forward")
    if forward is None:
        return ""
    caches = _imported(tree, CACHES)
    parameters = _parameters(forward)
    given_back = set[str]()
    for output in _names(forward.returns):
        place = _parsed(folder / f"{OUTPUTS}.py") if output in _imported(tree, OUTPUTS) else tree
        given_back |= _fields(_classes(place).get(output), _imported(place, CACHES))
    if given_back & parameters.keys() or any(caches & _names(kind) for kind in parameters.values()):
        return ""
    return kv_cache.without_parameter(architecture)


def is_told_to_decode(folder: Path, architecture: str) -> bool:
    """Return whether a model looks at the tokens that follow as well unless its configuration has
    `is_decoder` (BERT's kin).

    transformers only logs it; what such a model says of a prompt is another thing when it is read
    in chunks.
    """
    constructor = method(_classes(_tree(folder, architecture)).get(architecture), "__init__")
    return constructor is not None and any(
        isinstance(node, ast.If)
        and ast.unparse(node.test) in ("not config.is_decoder", "not self.config.is_decoder")
        for node in ast.walk(constructor)
    )


def unsplittable(folder: Path, architecture: str) -> str:
    """Return what lies beside the layers of a decoder and belongs to no stage.

    Empty where all is known, or in doubt.
    """
    classes = _classes(_tree(folder, architecture))
    holder = _holder(classes, architecture)
    if holder is None:
        return ""
    before = True
    for name, kind in _made(holder):
        if kind == "ModuleList":
            before = False
        elif "norm" in kind.lower():
            if before != ("embed" in name):
                place = "before" if before else "after"
                return (
                    f"{holder.name} creates {name} {place} its layers, and hf-pipeline does not know"
                    " which stage it belongs to"
                )
        elif kind == "Linear":
            return f"{holder.name} has {name}, a matrix outside its layers"
        elif kind in classes and _is_embedding(classes[kind]):
            forward = method(classes[kind], "forward")
            if forward is not None and len(given := _parameters(forward)) > 1:
                return (
                    f"{holder.name} has {name} ({kind}), whose forward takes {', '.join(given)};"
                    " hf-pipeline splits only decoders whose embeddings take one tensor"
                )
        elif kind in classes and any(inner in NUMBERS for _, inner in _made(classes[kind])):
            return f"{holder.name} has {name} ({kind}), which has parameters outside its layers"
    return ""


def _holder(
    classes: dict[str, ast.ClassDef], name: str, seen: frozenset[str] = frozenset()
) -> ast.ClassDef | None:
    """Return the class that has the layers: of what a class makes, and of what that makes, the
    first with a list.
    """
    if name not in classes or name in seen:
        return None
    kinds = [kind for _, kind in _made(classes[name])]
    if "ModuleList" in kinds:
        return classes[name]
    holders = (_holder(classes, kind, seen | {name}) for kind in kinds)
    return next((holder for holder in holders if holder is not None), None)


def _made(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield what its constructor makes in every case: attribute and the class it is of."""
    constructor = method(node, "__init__")
    for statement in constructor.body if constructor is not None else ():
        match statement:
            case (
                ast.Assign(targets=[ast.Attribute(attr=name), *_], value=ast.Call(func=called))
                | ast.AnnAssign(target=ast.Attribute(attr=name), value=ast.Call(func=called))
            ):
                yield name, getattr(called, "attr", getattr(called, "id", ""))


def _is_embedding(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Attribute) and base.attr == "Embedding" for base in node.bases)


def method(node: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    """Return the method of a class that has that name; None where the class does not define it."""
    for function in node.body if node is not None else ():
        if isinstance(function, ast.FunctionDef) and function.name == name:
            return function
    return None


def _parameters(function: ast.FunctionDef) -> dict[str, ast.expr | None]:
    """Return the parameters of a method but `self`, with their types as they are written."""
    arguments = (*function.args.args, *function.args.kwonlyargs)
    return {argument.arg: argument.annotation for argument in arguments if argument.arg != "self"}


def _fields(node: ast.ClassDef | None, names: frozenset[str]) -> set[str]:
    """Return the fields of an output whose type has one of those names."""
    return {
        statement.target.id
        for statement in (node.body if node is not None else ())
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and names & _names(statement.annotation)
    }


def _names(expression: ast.expr | None) -> set[str]:
    """Return the names in a type."""
    nodes = ast.walk(expression) if expression is not None else ()
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _imported(tree: ast.Module, module: str) -> frozenset[str]:
    """Return the names that a file imports from a module of transformers."""
    return frozenset(
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == module
        for alias in node.names
    )


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@cache
def _tree(folder: Path, architecture: str) -> ast.Module:
    """Return the file in which an architecture is; an empty one where no file has it."""
    stem = re.sub(r"(?:ForCausalLM|LMHeadModel)$", "", architecture).lower()
    files = (folder / "models").glob("*/modeling_*.py")
    # Where it most likely is comes first.
    for path in sorted(files, key=lambda path: path.parent.name.replace("_", "") != stem):
        if f"\nclass {architecture}(".encode() in path.read_bytes():
            return _parsed(path)
    return ast.Module([], [])
