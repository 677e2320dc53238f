"""What the loop of a decoder of transformers does with the numbers of its layers, read from its source.

A stage has some of the layers, and its loop counts them from 0: what it finds by number has to be cut like the layers.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

TYPES = "layer_types"
"""What caches and masks are made of, whether or not a loop asks it."""
OWN, CONFIGURED, COMPARED = "self", "self.config", "compared"
"""What a loop does with a number: it indexes a list of the decoder, one of its configuration, or compares it."""


def cut(holder: Any, layers: str, text: Any, *, begin: int, end: int, of: int) -> None:
    """Cut what is found by the number of a layer: lists with one for each, of the configuration or of the decoder.

    Args:
        holder: the module that has the layers and calls them one after the other.
        layers: its attribute that holds them.
        text: the configuration of the text model.
        begin: the first layer that is kept.
        end: the first behind it that is not.
        of: how many the whole model has.

    Raises:
        ValueError: the loop does something else with the number of a layer, or a list cannot be cut.
    """
    lists = [(text, TYPES)]
    for use, name in found_by_number(type(holder).forward, layers):
        if use == COMPARED and isinstance(getattr(holder, name), int):
            setattr(holder, name, getattr(holder, name) - begin)
        elif use in (OWN, CONFIGURED):
            lists.append((holder if use == OWN else holder.config, name))
        else:
            raise ValueError(
                f"{type(holder).__name__} goes by the numbers of its layers ({name}), which a stage counts from 0: "
                "hf-pipeline cannot split it"
            )
    for place, name in lists:
        found = getattr(place, name, None)
        if not isinstance(found, list | tuple) or len(found) != of:
            continue  # as a second name of what was cut
        try:
            setattr(place, name, found[begin:end])
        except AttributeError:
            raise ValueError(
                f"{type(holder).__name__} works out the {name} of its layers from their number: hf-pipeline cannot "
                "split it"
            ) from None


def found_by_number(forward: Any, layers: str) -> Iterator[tuple[str, str]]:
    """What a loop over the layers uses their number for, and on what.

    `OWN` and `CONFIGURED` are lists of the decoder and its configuration that it indexes, `COMPARED` a number of the
    decoder, each with its name; anything else is an empty word with the expression. What is found in arguments that
    nobody gives here (states of images) is left out.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(forward))))
    except OSError:
        return
    given = {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)} - {"self"}
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and (number := _number(loop, layers)):
            for line in loop.body:
                for node, around in _uses(line, line, number):
                    if around is line or not {one.id for one in ast.walk(around) if isinstance(one, ast.Name)} & given:
                        yield _use(node, around)


def _use(node: ast.AST, around: ast.AST) -> tuple[str, str]:
    """What the number is for, in the index or the comparison that it stands in."""
    if isinstance(around, ast.Subscript) and around.slice is node and isinstance(around.value, ast.Attribute):
        if (owner := ast.unparse(around.value.value)) in (OWN, CONFIGURED):
            return owner, around.value.attr
    elif isinstance(around, ast.Compare) and around.left is node and len(around.comparators) == 1:
        other = around.comparators[0]
        if isinstance(other, ast.Attribute) and ast.unparse(other.value) == OWN:
            return COMPARED, other.attr
    return "", ast.unparse(around).partition("\n")[0]


def _number(loop: ast.For, layers: str) -> str:
    """What a loop over the layers calls their number; empty where it does not count, or is over something else."""
    target, call = loop.target, loop.iter
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "enumerate":
        return ""
    is_theirs = any(ast.unparse(one) == f"self.{layers}" for one in ast.walk(call))
    first = target.elts[0] if isinstance(target, ast.Tuple) else None
    return first.id if is_theirs and isinstance(first, ast.Name) else ""


def _uses(node: ast.AST, around: ast.AST, number: str) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Each use of a number below a node, with the smallest index or comparison that it stands in."""
    if isinstance(node, ast.Name) and node.id == number:
        yield node, around
    inner = node if isinstance(node, ast.Subscript | ast.Compare) else around
    for child in ast.iter_child_nodes(node):
        yield from _uses(child, inner, number)
