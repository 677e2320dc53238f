"""The JSON Schema of a scenario, for editors, and what it allows at a path, for messages."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from harness.forms.problem import Path
from harness.scenario.model import Scenario

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "Rankproof scenario"


def json_schema() -> dict[str, Any]:
    """Build the JSON Schema (draft 2020-12) of a scenario file from the models."""
    schema = Scenario.model_json_schema(by_alias=True, schema_generator=_Plain)
    claims = {"properties": {"role": {"const": "claim"}}}
    schema |= {
        "$schema": DIALECT,
        "title": TITLE,
        "allOf": [
            {
                "if": {"properties": {"role": {"const": "self-test"}}, "required": ["role"]},
                "then": {"required": ["expects"]},
            },
            {"if": claims, "then": {"properties": {"expects": {"type": "null"}}}},
        ],
    }
    definitions = schema["$defs"]
    definitions["Subject"]["oneOf"] = _exactly_one("entry", "program", "use")
    definitions["Input"]["oneOf"] = _exactly_one("path", "hub", "layouts")
    definitions["Measure"]["oneOf"] = _exactly_one("event", "probe")
    return schema


def schema_text() -> str:
    """Return the JSON Schema as text: sorted keys, two spaces, one line feed at the end."""
    return json.dumps(json_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def allowed_keys(path: Path, tree: Any, *, schema: dict[str, Any] | None = None) -> list[str]:
    """List the keys that a mapping at a path of the document may have; empty where any key may stand.

    The document decides between the kinds of a check or fault. Without `schema`, it is a scenario's.
    """
    root = _cached() if schema is None else schema
    node: dict[str, Any] | None = root
    for part in path:
        node = _step(_resolved(node, tree, root), part)
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            tree = None
    properties: dict[str, Any] = _resolved(node, tree, root).get("properties", {})
    return list(properties)


def kinds(path: Path) -> list[str]:
    """List the kinds that a check, a fault, or a hub's answer at this path may have."""
    return list(_mapping(path))


def every_key(path: Path) -> set[str]:
    """Return the keys that a check, a fault, or a hub's answer at this path may have, of any kind."""
    models = [_resolved({"$ref": reference}, None, _cached()) for reference in _mapping(path).values()]
    return {key for model in models for key in model["properties"]}


def _mapping(path: Path) -> dict[str, str]:
    if len(path) > 2:
        found: dict[str, str] = _cached()["$defs"]["HubFault"]["properties"][path[2]]["discriminator"]["mapping"]
    else:
        found = _cached()["properties"][path[0]]["items"]["discriminator"]["mapping"]
    return found


class _Plain(GenerateJsonSchema):
    """Leave out the titles that pydantic makes from names of attributes: they say nothing new."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  # pydantic's signature
        return False


def _exactly_one(*names: str) -> list[dict[str, Any]]:
    return [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]


@cache
def _cached() -> dict[str, Any]:
    return json_schema()


def _resolved(node: dict[str, Any] | None, tree: Any, root: dict[str, Any]) -> dict[str, Any]:
    """Follow references, nullable fields and the kind of a check or fault until an object or a list is reached."""
    while node:
        if "$ref" in node:
            node = root["$defs"][node["$ref"].rpartition("/")[2]]
        elif "discriminator" in node:
            kind = tree.get("kind") if isinstance(tree, dict) else None
            mapping = node["discriminator"]["mapping"]
            node = {"$ref": mapping[kind]} if isinstance(kind, str) and kind in mapping else None
        elif "anyOf" in node:
            node = next((one for one in node["anyOf"] if one.get("type") != "null"), None)
        else:
            return node
    return {}


def _step(node: dict[str, Any], part: str | int) -> dict[str, Any] | None:
    if isinstance(part, int):
        return node.get("items") or None
    found = node.get("properties", {}).get(part, node.get("additionalProperties"))
    return found if isinstance(found, dict) else None
