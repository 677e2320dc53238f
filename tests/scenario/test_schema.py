"""The JSON Schema for editors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.forms.document import parse_document
from harness.scenario import json_schema, schema_text

EXPORTED = Path(__file__).parents[2] / "scenarios" / "scenario.schema.json"


def test_the_exported_schema_is_the_one_of_the_models() -> None:
    """scenarios/scenario.schema.json is what `rankproof list schema` prints.

    Export it again after a change.
    """
    assert EXPORTED.read_text(encoding="utf-8") == schema_text()
    assert json.loads(schema_text()) == json_schema()


def test_every_key_has_a_description() -> None:
    """An editor, and the generated documentation, can explain every key."""
    schema = json_schema()
    bare = [
        f"{name}.{key}"
        for name, node in {"Scenario": schema, **schema["$defs"]}.items()
        for key, value in node.get("properties", {}).items()
        if "description" not in value and key != "kind"
    ]
    assert bare == []


def test_every_mapping_is_closed() -> None:
    """No object of the schema lets unknown keys pass, but for those whose keys are names."""
    schema = json_schema()
    opened = [
        name
        for name, node in schema["$defs"].items()
        if node.get("additionalProperties", True) is not False
    ]
    assert sorted(opened) == ["JsonValue", "Matrix"]
    assert schema["additionalProperties"] is False


def test_python_names_do_not_leak() -> None:
    """Keys are named as in the file: with, from, for and schema."""
    assert re.findall(r'"\w+_": ', schema_text()) == []
    assert {"schema", "seed", "checks"} <= set(json_schema()["properties"])


def test_the_example_is_valid(full: str) -> None:
    """The example of the design satisfies the schema as a validator of JSON Schema sees it."""
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(json_schema())
    jsonschema.Draft202012Validator(json_schema()).validate(
        parse_document(full.encode(), name="s").tree
    )


@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [
        (
            ("WorldSettings", "deadline"),
            ["60s", "200ms", "2min", "1h", "1.5s"],
            ["60", "60 s", "m", "5m", "010s", "1.s"],
        ),
        (("Accept", "confidence"), ["95%", "99.9%"], ["95", "%", "0.95"]),
        (("MustFail", "share"), ["every", ">=20%"], ["20%", "all"]),
    ],
)
def test_units_have_patterns(path: tuple[str, str], good: list[str], bad: list[str]) -> None:
    """An editor knows what a duration, a percentage and a share look like."""
    node: dict[str, Any] = json_schema()["$defs"][path[0]]["properties"][path[1]]
    assert all(re.search(node["pattern"], text) for text in good)
    assert not any(re.search(node["pattern"], text) for text in bad)
    assert re.search(node["pattern"], node["default"])
