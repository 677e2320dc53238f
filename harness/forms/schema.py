"""What a JSON Schema made from our models allows at a place of a document.

Standard library only.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]


def allowed_keys(path: tuple[str | int, ...], tree: Any, root: Schema) -> list[str]:
    """List the keys that a mapping at a path of the document may have.

    Empty where any key may stand.

    The document decides between the kinds of a mapping.
    """
    node = _at(path, tree, root)
    return list(_of_its_kind(node, value_at(tree, path), root).get("properties", {}))


def kinds(path: tuple[str | int, ...], tree: Any, root: Schema) -> dict[str, list[str]]:
    """The kinds that the mapping at a path may be of, each with its keys."""
    mapping = resolved(_at(path, tree, root), root).get("discriminator", {}).get("mapping", {})
    return {
        kind: list(resolved({"$ref": ref}, root)["properties"]) for kind, ref in mapping.items()
    }


def without_tags(loc: tuple[str | int, ...], tree: Any, root: Schema) -> tuple[str | int, ...]:
    """The path in the document that pydantic's location of an error means.

    Pydantic writes the kind of a mapping into it, the index of an item where a lone value stands
    for a list, and which form a value has that may be a text or a mapping: `[version]`, as our
    models call such forms.
    """
    path: list[str | int] = []
    node: Schema = root
    for part in loc:
        node = resolved(node, root)
        mapping = node.get("discriminator", {}).get("mapping", {})
        if part in mapping:
            node = {"$ref": mapping[part]}
            continue
        if isinstance(part, int) and not isinstance(tree, list):
            continue
        if _is_form(part) and not (isinstance(tree, dict) and part in tree):
            node = _of_its_kind(node, tree, root)
            continue
        path.append(part)
        node = _step(node, part)
        tree = value_at(tree, (part,))
    return tuple(path)


def value_at(tree: Any, path: tuple[str | int, ...]) -> Any:
    """The value at a path of a document, or None where there is none."""
    for part in path:
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def resolved(node: Schema, root: Schema) -> Schema:
    """Follow references and nullable values until an object, a list, a value or a choice of kinds
    is reached.
    """
    while "$ref" in node or ("anyOf" in node and "discriminator" not in node):
        if "$ref" in node:
            node = root["$defs"][node["$ref"].rpartition("/")[2]]
        else:
            node = next((form for form in node["anyOf"] if form.get("type") != "null"), {})
    return node


def _at(path: tuple[str | int, ...], tree: Any, root: Schema) -> Schema:
    node = root
    for depth, part in enumerate(path):
        node = _step(_of_its_kind(node, value_at(tree, path[:depth]), root), part)
    return node


def _is_form(part: str | int) -> bool:
    return isinstance(part, str) and part.startswith("[") and part.endswith("]") and part != "[key]"


def _of_its_kind(node: Schema, tree: Any, root: Schema) -> Schema:
    node = resolved(node, root)
    if "oneOf" in node and "discriminator" not in node:
        forms = [resolved(form, root) for form in node["oneOf"]]
        return next(
            (form for form in forms if (form.get("type") == "object") == isinstance(tree, dict)), {}
        )
    if "discriminator" in node:
        kind = tree.get("kind") if isinstance(tree, dict) else None
        reference = node["discriminator"]["mapping"].get(kind) if isinstance(kind, str) else None
        return resolved({"$ref": reference}, root) if reference else {}
    return node


def _step(node: Schema, part: str | int) -> Schema:
    if isinstance(part, int):
        return node.get("items") or {}
    patterns = (
        below
        for pattern, below in node.get("patternProperties", {}).items()
        if re.search(pattern, part)
    )
    below = node.get("properties", {}).get(part) or next(patterns, node.get("additionalProperties"))
    return below if isinstance(below, dict) else {}
