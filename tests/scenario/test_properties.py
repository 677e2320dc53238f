"""Properties: whatever is thrown at it, a text is a scenario or a ScenarioError."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.forms.document import parse_document
from harness.forms.text import visible_lines
from harness.scenario import Scenario, ScenarioError, cells, parse_scenario

QUICK = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def outcome(data: bytes, *, overrides: tuple[str, ...] = ()) -> Scenario | ScenarioError:
    """Parse; let anything but a ScenarioError through.

    Problems must be printable and have a place.
    """
    refusal: ScenarioError
    try:
        return parse_scenario(data, name="s.yaml", overrides=overrides)
    except ScenarioError as error:
        refusal = error
    assert refusal.problems
    for problem in refusal.problems:
        assert problem.line >= 1
        assert problem.column >= 1
        assert "\n" not in str(problem)
        assert visible_lines(str(problem)) == str(problem)
    return refusal


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_words(data: bytes) -> None:
    """No bytes raise anything but ScenarioError."""
    assert isinstance(outcome(data), ScenarioError)


@QUICK
@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`#?,~ \n\t0.=<\\", max_size=80))
def test_any_punctuation_is_refused_in_words(text: str) -> None:
    """No text made of YAML's own signs raises anything but ScenarioError."""
    assert isinstance(outcome(text.encode()), ScenarioError)


@QUICK
@given(st.integers(), st.integers(1, 6))
def test_a_damaged_scenario_loads_or_is_refused_in_words(good: str, seed: int, count: int) -> None:
    """Characters and lines lost, doubled or exchanged never raise anything but ScenarioError."""
    chance = random.Random(seed)
    lines = good.splitlines(keepends=True)
    for _ in range(count):
        at = chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                lines[at] = ""
            case 1:
                lines[at] *= 2
            case 2:
                cut = chance.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:cut] + chance.choice("{}[]:,'\"-#&* \n\0é") + lines[at][cut:]
            case _:
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
    outcome("".join(lines).encode())


@pytest.mark.slow
@settings(QUICK, max_examples=30)
@given(st.data())
def test_any_value_anywhere_loads_or_is_refused_in_words(good: str, data: st.DataObject) -> None:
    """Any value at any place of the example never raises anything but ScenarioError, and keeps
    cells readable.
    """
    tree: Any = yaml.load(good, Loader=yaml.BaseLoader)  # noqa: S506  # BaseLoader makes texts only
    paths = list(walk(tree, ()))
    path = data.draw(st.sampled_from(paths))
    node = tree
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = data.draw(JSON)
    result = outcome(yaml.dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass"))
    if isinstance(result, Scenario):
        assert cells(result)


@QUICK
@given(
    st.text(max_size=30),
    st.sampled_from(["trials.candidate", "matrix.x", "checks[0].id", "world.env.A", ""]),
)
def test_any_override_applies_or_is_refused_in_words(good: str, value: str, key: str) -> None:
    """No override raises anything but ScenarioError."""
    outcome(good.encode(), overrides=(f"{key}={value}", value))


@QUICK
@given(st.dictionaries(st.text("abcä中", min_size=1, max_size=6), JSON, min_size=1, max_size=5))
def test_marks_point_at_what_they_mark(tree: dict[str, Any]) -> None:
    """At the place of every key of a flow mapping stands that key."""
    text = "{" + ",\n ".join(f"{key}: {index}" for index, key in enumerate(tree)) + "}"
    document = parse_document(text.encode(), name="s")
    lines = text.splitlines()
    for index, key in enumerate(tree):
        at, value = document.marks.keys[(key,)], document.marks.values[(key,)]
        assert lines[at.line - 1][at.column - 1 :].startswith(f"{key}: ")
        assert lines[value.line - 1][value.column - 1 :].startswith(str(index))


def walk(tree: Any, here: tuple[str | int, ...]) -> Any:
    """Yield the paths of all values below the top."""
    pairs = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in pairs:
        yield (*here, key)
        yield from walk(value, (*here, key))
