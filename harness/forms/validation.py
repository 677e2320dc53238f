"""Reading of a document as a closed model: every mistake in plain words, at the key or value that
it is about.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.forms.document import Document, parse_document
from harness.forms.model import in_words
from harness.forms.problem import PROBLEM_LIMIT, Path, Problem, ScenarioError, closest, shown
from harness.forms.strict_json import JSON
from harness.forms.text import listed

M = TypeVar("M", bound=BaseModel)

TYPES = {
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "string_too_long": "is too long; at most {max_length} characters are allowed",
    "string_too_short": "is empty; write a string of at least one character",
    "too_short": "is empty; add at least one item",
}
MAPPINGS = ("dict_type", "model_type", "model_attributes_type")


def parse_mapping(text: bytes, *, name: str) -> Document:
    """Parse the bytes of a file that holds a mapping.

    Raises:
        ScenarioError: it cannot be parsed, or holds something else.
    """
    document = parse_document(text, name=name)
    if not isinstance(document.tree, dict):
        message = "must be a mapping of keys to values, starting with schema: 1"
        top = document.marks.problem((), message, found=shown(document.tree))
        raise ScenarioError([*document.problems, top])
    return document


def parse_model(model: type[M], text: bytes, *, name: str) -> M:
    """Read the bytes of a file as a model.

    Raises:
        ScenarioError: every problem of the file, each with line, column and what is allowed.
    """
    document = parse_mapping(text, name=name)
    try:
        valid = model.model_validate(document.tree)
    except ValidationError as error:
        raise ScenarioError(
            [*document.problems, *problems_of(error, document, schema=schema_of(model))]
        ) from None
    if document.problems:
        raise ScenarioError(document.problems)
    return valid


@cache
def schema_of(model: type[BaseModel]) -> Schema:
    """Return the JSON Schema of a model's files; asked for only when something is wrong."""
    return model.model_json_schema(by_alias=True)


def problems_of(failure: ValidationError, document: Document, *, schema: Schema) -> list[Problem]:
    """Turn all errors of one validation into problems, leaving out those that follow from another
    one.
    """
    problems: list[Problem] = []
    explained: set[Path] = set()
    missing: list[Path] = []
    for error in failure.errors(include_url=False):
        path = without_tags(error["loc"], document.tree, schema)
        in_a_hole = any(path[:length] in document.holes for length in range(len(path) + 1))
        if len(problems) > PROBLEM_LIMIT or in_a_hole or _follows(error):
            continue
        if error["type"] == "missing":
            missing.append(path)
        elif error["type"] == "extra_forbidden":
            problem = _unknown_key(path, document, schema)
            problems.append(problem)
            if problem.suggestion is not None:
                explained.add((*path[:-1], problem.suggestion))
        else:
            problems.append(_problem(error, path, document, schema))
    problems += [
        document.marks.problem(path, "is missing; add it here")
        for path in missing
        if path not in explained
    ]
    return problems


def _follows(error: ErrorDetails) -> bool:
    """Say whether a list is called too short only because its items were refused, which is reported
    by itself.
    """
    return error["type"] == "too_short" and bool(error["input"])


def _unknown_key(path: Path, document: Document, schema: Schema) -> Problem:
    container = value_at(document.tree, path[:-1])
    allowed = allowed_keys(path[:-1], document.tree, schema)
    free = [name for name in allowed if not isinstance(container, dict) or name not in container]
    may = f"allowed: {', '.join(allowed)}" if allowed else "no key is allowed here"
    return document.marks.problem(
        path, f"is not a known key here; {may}", at_key=True, suggestion=closest(path[-1], free)
    )


def _problem(error: ErrorDetails, path: Path, document: Document, schema: Schema) -> Problem:
    kind = error["type"]
    value = error["input"]
    context = error.get("ctx", {})
    at_key = bool(path) and path[-1] == "[key]"
    if at_key:
        path = path[:-1]
    if kind == "complaint":
        path, value, at_key = _narrowed(path, value, context, document)
        message = str(context["message"])
        suggestion = context.get("suggestion")
    elif kind == "union_tag_not_found":
        known = kinds(path, document.tree, schema)
        keys = {key for names in known.values() for key in names}
        near = next((key for key in value if key not in keys and closest(key, ["kind"])), None)
        where = (*path, near or "kind")
        message = f'has no kind; add "kind: " with one of {listed(known)}'
        return document.marks.problem(
            where, message, at_key=near is not None, suggestion="kind" if near else None
        )
    elif kind == "union_tag_invalid":
        path = (*path, "kind")
        value = value_at(document.tree, path)
        words = re.findall("'([^']*)'", str(context["expected_tags"]))
        message = f"must be one of {listed(words)}"
        suggestion = closest(value, words)
    elif kind == "value_error":
        message = str(context["error"])
        suggestion = None
    elif kind == "literal_error":
        words = re.findall("'([^']*)'", str(context["expected"])) or [str(context["expected"])]
        message = f"must be {listed(words)}"
        suggestion = closest(value, words)
    else:
        message, suggestion = _sentence(kind, value, context)
        if kind in MAPPINGS:
            known_keys = allowed_keys(path, document.tree, schema) or ["name"]
            message = f"{message}, like {{{', '.join(f'{key}: …' for key in known_keys[:2])}}}"
    return document.marks.problem(
        path, message, at_key=at_key, found=shown(value), suggestion=suggestion
    )


def _narrowed(
    path: Path, value: Any, context: Mapping[str, JSON], document: Document
) -> tuple[Path, Any, bool]:
    """Move an error of a whole mapping or list to the key or item that it is about."""
    at = context.get("at")
    if at is None:
        return path, value, False
    path = (*path, at)
    return path, value_at(document.tree, path), isinstance(at, str)


def _sentence(kind: str, value: Any, context: Mapping[str, JSON]) -> tuple[str, str | None]:
    """Say what is allowed, and what was probably meant."""
    match kind:
        case "string_type" if isinstance(value, bool | int | float):
            return "must be a string; put it in quotes", f'"{shown(value)}"'
        case "bool_type" if isinstance(value, str):
            truth = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(
                value.lower(), value.lower()
            )
            return TYPES[kind], truth if truth in ("true", "false") else None
        case "int_type" if isinstance(value, str) and re.fullmatch("-?[0-9]{1,15}", value):
            return "must be a whole number; remove the quotes or leading zeros", str(int(value))
        case "tuple_type" if isinstance(value, str | int | float):
            return "must be a list", f"[{value}]"
        case "string_pattern_mismatch":
            return in_words(str(context["pattern"])), None
    return TYPES.get(kind, f"is not allowed ({kind.replace('_', ' ')})").format(**context), None


Schema: TypeAlias = dict[str, JSON]


def allowed_keys(path: tuple[str | int, ...], tree: Any, root: Schema) -> list[str]:
    """List the keys that a mapping at a path of the document may have.

    Empty where any key may stand.

    The document decides between the kinds of a mapping.
    """
    node = _at(path, tree, root)
    return list(_of_its_kind(node, value_at(tree, path), root).get("properties", {}))


def kinds(path: tuple[str | int, ...], tree: Any, root: Schema) -> dict[str, list[str]]:
    """List the kinds that the mapping at a path may be of, each with its keys."""
    mapping = resolved(_at(path, tree, root), root).get("discriminator", {}).get("mapping", {})
    return {
        kind: list(resolved({"$ref": ref}, root)["properties"]) for kind, ref in mapping.items()
    }


def without_tags(loc: tuple[str | int, ...], tree: Any, root: Schema) -> tuple[str | int, ...]:
    """Find the path in the document that pydantic's location of an error means.

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
    """Return the value at a path of a document, or None where there is none."""
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
