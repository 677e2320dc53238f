"""The example of the design, and a way to ask for the problems of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from harness.scenario import Problem, Scenario, ScenarioError, parse_scenario
from tests.kit.problems import EXAMPLE, Problems


@pytest.fixture(scope="session")
def full() -> str:
    """Return the example of the design as it stands, with a fault and measurements."""
    return EXAMPLE.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def good(full: str) -> str:
    """Return the example without what this version cannot do: it has no problem at all."""
    return re.sub(r"(?m)^(measure):.*\n(  - .*\n)+", "", full)


@pytest.fixture(scope="session")
def scenario(good: str) -> Scenario:
    """Return the example as a model."""
    return parse_scenario(good.encode(), name="s.yaml")


@pytest.fixture(scope="session")
def problems() -> Problems:
    """Return a function from a text, and overrides, to all problems of it."""

    def of(text: str | bytes, *, overrides: Sequence[str] = ()) -> tuple[Problem, ...]:
        data = text if isinstance(text, bytes) else text.encode()
        try:
            parse_scenario(data, name="s.yaml", overrides=overrides)
        except ScenarioError as error:
            return error.problems
        return ()

    return of
