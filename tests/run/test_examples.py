"""The documentation: its examples run, and no key of a scenario is left unexplained."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.scenario import json_schema
from tests.kit.commands import ROOT, Ran, needs_packages

EXAMPLES = sorted(path.parent for path in (ROOT / "docs" / "examples").rglob("scenario.yaml"))


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_every_example_ends_as_it_says(rankproof: Callable[..., Ran], folder: Path) -> None:
    """An example lints without a note, and its verdict is the one it expects."""
    linted = rankproof("lint", str(folder))
    assert linted.code == 0, linted.err
    ran = rankproof("run", str(folder))
    needs_packages(ran)
    assert ran.code == 0, ran.out + ran.err
    assert ran.record.judgement.as_expected


def test_every_key_is_explained() -> None:
    """Each key that the schema knows stands in docs/scenarios.md."""
    text = (ROOT / "docs" / "scenarios.md").read_text()
    words = set(re.findall(r"[a-z][a-z0-9_-]+|(?<=`)[a-z](?=`)", text))
    assert set(keys(json_schema())) - words == set()


def keys(schema: Any) -> Iterator[str]:
    """Names of the properties of every object of a schema."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for value in schema.values():
            yield from keys(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from keys(value)
