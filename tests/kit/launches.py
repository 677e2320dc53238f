"""Launches as tests write them: each value by its name, whichever part of a launch it is in."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from harness.world.control.launch import PARTS, Launch


def launch_of(**values: Any) -> Launch:
    """A launch with these values."""
    parts = {part: kind(**_taken(kind, values)) for part, kind in PARTS.items()}
    return Launch(**values, **parts)


def changed(launch: Launch, **values: Any) -> Launch:
    """The launch with other values."""
    parts = {
        part: replace(getattr(launch, part), **_taken(kind, values)) for part, kind in PARTS.items()
    }
    return replace(launch, **values, **parts)


def _taken(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Take out of the values those that a part of a launch has."""
    return {field.name: values.pop(field.name) for field in fields(kind) if field.name in values}
