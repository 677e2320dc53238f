"""Two parsers of YAML, one answer: what libyaml reads faster is what the parser in Python reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.forms.document import parse_document
from harness.forms.problem import ScenarioError

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path for top in ("scenarios", "docs", "tests") for path in (ROOT / top).rglob("*.yaml")
)
SOUND = (
    "a: b",
    "- a",
    "{a: b}",
    "'q'",
    '"d"',
    "|\n  x",
    "a:\n",
    "  b: 1",
    "#c",
    "[a: b, c]",
    "{a:}",
)
REFUSED = ("&a x", "*a", "!t v", "<<: x", '"\\U00110000"', "%YAML 1.1", "...", "---  ", "{", "]")
DISPUTED = (
    "[a, b?]",
    "? x",
    "{a:  , b: 1}",
    "|#",
    ">#}",
    "\t",
    "a :b",
    '"\\/"',
    "\x85",
    "\ufeff",
    "{? a: b}",
)
PIECES = st.sampled_from((*SOUND, *REFUSED, *DISPUTED))
needs_libyaml = pytest.mark.skipif(not yaml.__with_libyaml__, reason="this PyYAML has no libyaml")


def read(text: str) -> object:
    """All that is known of a text."""
    try:
        found = parse_document(text.encode(), name="f")
    except ScenarioError as error:
        return error.problems
    return found.tree, found.marks, found.problems, found.holes


def read_in_python(text: str) -> object:
    """The same without libyaml."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(yaml, "CSafeLoader", raising=False)
        return read(text)


@pytest.mark.slow
@needs_libyaml
def test_every_file_of_ours_reads_alike() -> None:
    """Tree, places and problems are the same, of each scenario and example."""
    assert len(FILES) > 50
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert read(text) == read_in_python(text), path


@needs_libyaml
@settings(deadline=None, max_examples=200)
@example("---  ")
@example("a: >#}")
@example("a: {b: c?}")
@example("a: [b:  , c]")
@given(
    st.lists(PIECES, max_size=5).flatmap(
        lambda some: st.sampled_from(("\n", " ", "")).map(lambda by: by.join(some))
    )
)
def test_hostile_texts_read_alike(text: str) -> None:
    """Whatever the text is, both ways give the same tree, the same places and the same messages."""
    assert read(text) == read_in_python(text)


@needs_libyaml
def test_a_healthy_file_never_meets_the_slow_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shipped scenarios are read by libyaml alone."""
    monkeypatch.delattr(yaml, "SafeLoader")
    monkeypatch.setattr(yaml, "SafeLoader", None, raising=False)
    for path in (ROOT / "scenarios").rglob("*.yaml"):
        assert parse_document(path.read_bytes(), name="f").problems == []
