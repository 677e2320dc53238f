"""The JSON Schema of a scenario, for editors."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from harness.checks import KINDS as CHECKS
from harness.faults import KINDS as FAULTS
from harness.plugins import Registry
from harness.scenario.model import Scenario

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "Rankproof scenario"
REGISTRIES: dict[str, Registry[Any]] = {"checks": CHECKS, "faults": FAULTS}


def json_schema(tree: object = None) -> dict[str, Any]:
    """Build the JSON Schema (draft 2020-12) of a scenario file from the models.

    Args:
        tree: a scenario: of plug-ins, those are described whose kinds it names, or that were imported before. None
            describes every kind, and imports every plug-in.
    """
    for section, registry in REGISTRIES.items():
        items = tree.get(section) if isinstance(tree, dict) else None
        kinds = [item.get("kind") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        for kind in registry.names if tree is None else kinds:
            registry.reason(str(kind))
    return _schema_of(*(tuple(registry.described) for registry in REGISTRIES.values()))


@cache
def _schema_of(*_kinds: tuple[str, ...]) -> dict[str, Any]:
    """The schema with the kinds that are described, which the arguments name."""
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
    definitions["Input"]["oneOf"] = _exactly_one("path", "hub", "layouts", "made")
    definitions["Measure"]["oneOf"] = _exactly_one("event", "probe")
    return schema


def schema_text() -> str:
    """Return the JSON Schema as text: sorted keys, two spaces, one line feed at the end."""
    return json.dumps(json_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


class _Plain(GenerateJsonSchema):
    """Leave out the titles that pydantic makes from names of attributes: they say nothing new."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  # pydantic's signature
        return False


def _exactly_one(*names: str) -> list[dict[str, Any]]:
    return [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]
