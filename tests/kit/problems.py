"""The example of the design, and a way to ask for the problems of a text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.scenario import Problem

EXAMPLE = Path(__file__).parents[1] / "scenario" / "example.yaml"

Problems = Callable[..., tuple[Problem, ...]]
