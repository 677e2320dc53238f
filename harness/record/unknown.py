"""Kinds that a scenario names and this version does not know: another version, or a plug-in, can judge such a record.

Without this, a record from a newer version would read as if its signer had changed it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from harness import backends, checks, faults
from harness.forms.document import parse_document
from harness.scenario import ScenarioError, override
from harness.subjects import READY

SCHEMA = 1


def unknown_kinds(text: bytes, *, overrides: Sequence[str]) -> list[str]:
    """Every kind that a scenario names and this version does not know, in words; empty where it cannot be read at all.

    Args:
        text: the scenario's file.
        overrides: what was given beside it.
    """
    try:
        document = parse_document(text, name="")
        override.apply(document, overrides)
    except ScenarioError:
        return []
    tree = document.tree
    return list(_unknown(tree)) if isinstance(tree, dict) else []


def _unknown(tree: dict[Any, Any]) -> Iterator[str]:
    schema = tree.get("schema")
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA:
        yield f"schema {schema}"
    subject, matrix = tree.get("subject"), tree.get("matrix")
    if isinstance(subject, dict):
        yield from _beyond("subject", [subject.get("use")], READY)
    if isinstance(matrix, dict):
        given = matrix.get("backend")
        yield from _beyond("backend", given if isinstance(given, list) else [given], backends.KINDS)
    for key, what, known in (("checks", "check", checks.KINDS), ("faults", "fault", faults.KINDS)):
        listed = tree.get(key)
        kinds = [one.get("kind") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        yield from _beyond(what, kinds, known)


def _beyond(what: str, named: Sequence[object], known: Collection[str]) -> Iterator[str]:
    unknown = {name for name in named if isinstance(name, str) and name not in known}
    return (f"{what} {name!r}" for name in sorted(unknown))
