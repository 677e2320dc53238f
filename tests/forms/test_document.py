"""YAML as a tree with marks."""

from __future__ import annotations

from typing import Any

import pytest

from harness.forms.document import Document, Mark, parse_document
from harness.scenario import ScenarioError


def parse(text: str) -> Document:
    """Parse a text."""
    return parse_document(text.encode(), name="s.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("True", "True"),
        ("017", "017"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("12:30:45", "12:30:45"),
        ("2026-01-03", "2026-01-03"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("+5", "+5"),
        ("=", "="),
        ("null", None),
        ("~", None),
        ("", None),
        ("Null", "Null"),
        ("true", True),
        ("false", False),
        ("0", 0),
        ("-12", -12),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        ("9007199254740991", 2**53 - 1),
        ('"1"', "1"),
        ("'null'", "null"),
        ("5%", "5%"),
        ("60s", "60s"),
    ],
)
def test_only_what_json_knows_is_special(text: str, value: Any) -> None:
    """A plain text is null, true, false or a JSON number, or else it stays a text."""
    tree = parse(f"key: {text}\n").tree
    assert tree == {"key": value}
    assert type(tree["key"]) is type(value)


def test_every_key_and_value_has_its_place() -> None:
    """Lines and columns count from 1 and point at the first character."""
    marks = parse("a: 1\nb:\n  - x\n  - {c: [y, 'z']}\n").marks
    assert marks.keys[("b",)] == Mark("s.yaml", 2, 1)
    assert marks.value(("b",)) == Mark("s.yaml", 3, 3)
    assert marks.value(("b", 1)) == Mark("s.yaml", 4, 5)
    assert marks.keys[("b", 1, "c")] == Mark("s.yaml", 4, 6)
    assert marks.value(("b", 1, "c", 1)) == Mark("s.yaml", 4, 13)
    assert marks.value(("b", 1, "missing")) == marks.value(("b", 1))
    assert marks.value(()) == Mark("s.yaml", 1, 1)


def test_columns_count_characters_not_bytes() -> None:
    """Text outside ASCII before a value does not move its column."""
    assert parse("{ä𝄞: ü, b: x}\n").marks.value(("b",)).column == 12


def test_windows_line_ends_do_not_move_lines() -> None:
    """A file with CRLF has the same places as one with LF."""
    assert parse("a: 1\r\nb:\r\n  c: 2\r\n").marks.value(("b", "c")) == Mark("s.yaml", 3, 6)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "appears twice (first in line 1, column 1)"),
        ("a: &x 1\n", 1, 4, "anchor"),
        ("a: 1\nb: *x\n", 2, 4, "alias"),
        ("a:\n  <<: {b: 1}\n", 2, 3, "merge key"),
        ("a: !!str 1\n", 1, 4, "tag"),
        ("a: ! 1\n", 1, 4, "tag"),
        ("a: !x 1\n", 1, 4, "tag"),
        ("!!map {a: 1}\n", 1, 1, "tag"),
        ("&x a: 1\n", 1, 1, "anchor"),
        ("a: 1\n1: 2\n", 2, 1, "key that is not a string"),
        ("a: 1\n~: 2\n", 2, 1, "key that is not a string"),
        ("true: 2\n", 1, 1, "key that is not a string"),
        ("? [a]\n: 1\n", 1, 3, "list or a mapping as a key"),
        ("? {a: b}\n: 1\n", 1, 3, "list or a mapping as a key"),
        ("%YAML 1.1\n---\na: 1\n", 1, 1, "directive"),
        ("a: 12345678901234567890\n", 1, 4, "quote it"),
        ("a: " + "9" * 9999 + "\n", 1, 4, "quote it"),
        ("a: 1e999\n", 1, 4, "quote it"),
        ('a: "\\ud800"\n', 1, 4, "surrogate"),
        ('"\\ud800": 1\n', 1, 1, "surrogate"),
    ],
)
def test_what_a_scenario_does_without_is_named_at_its_place(
    text: str, line: int, column: int, words: str
) -> None:
    """Anchors, aliases, merge keys, tags, odd keys and duplicates are errors, and the rest is still
    read.
    """
    document = parse(text)
    assert any(
        (p.line, p.column) == (line, column) and words in p.message for p in document.problems
    )
    assert all((p.line, p.column) == (line, column) for p in document.problems)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: 1\n---\nb: 2\n", 2, 1, "second document"),
        ("a: b: c\n", 1, 5, "in quotes"),
        ("a: @b\n", 1, 4, "in quotes"),
        ("a: [1, 2\n", 1, 4, "[ is opened here, but ] is missing before the end"),
        (
            "id: x\nm: {r: [2]\ns: 7\n",
            2,
            4,
            "{ is opened here, but } or a comma is missing before line 3, column 1",
        ),
        (
            "m: {r: [2, 3\ns: 7\n",
            1,
            8,
            "[ is opened here, but ] or a comma is missing before line 2, column 2",
        ),
        (
            "m: {r: [2],\ns:\n  - x\n",
            1,
            4,
            "{ is opened here, but } or a comma is missing before line 3, column 3",
        ),
        ("l:\n  - {a: 1\n  - {b: 2}\n", 2, 5, "{ is opened here"),
        ("l: [1, a: 2\nb: 3\n", 1, 4, "[ is opened here"),
        ("a: {\n", 1, 4, "{ is opened here"),
        ("a: {b: 1 c: 2}\n", 1, 11, "expected ',' or '}'"),
        ("a: {b: [1}\n", 1, 10, "expected ',' or ']'"),
        ('a: "x\nb: 1\n', 1, 4, '" is opened here but never closed'),
        ("a: 1\nb: 'x\n", 2, 4, "' is opened here but never closed"),
        ("a:\n\t- 1\n", 2, 1, "a tab"),
        ("a: 'x\ty'\n", 1, 6, "a tab"),
        ("a: x\0y\n", 1, 5, "a NUL"),
        ("a: x\x1by\n", 1, 5, "cannot be seen"),
        ("a: x\u202ey\n", 1, 5, "cannot be seen"),
        ("a: 1\nb: x\u2028y\n", 2, 5, "line separator"),
        ("a: x\ry\n", 1, 5, "carriage return"),
        ("a: \ufeffx\n", 1, 4, "byte order mark"),
        ('a: "\\U00110000"\n', 1, 7, "not valid YAML"),
        ("a: " + "[" * 21, 1, 23, "nested deeper"),
        ("- a\n" * 10_001, 10_000, 3, "more than 10000 values"),
    ],
)
def test_what_cannot_be_passed_over_stops_the_parser_at_its_place(
    text: str, line: int, column: int, words: str
) -> None:
    """Syntax, forbidden characters and limits are refused with line, column and what to do."""
    with pytest.raises(ScenarioError) as caught:
        parse(text)
    problem = caught.value.problems[-1]
    assert words in problem.message
    assert (problem.line, problem.column) == (line, column)


def test_all_duplicates_are_reported_and_the_first_value_stays() -> None:
    """Several duplicate keys, also nested ones, are all named.

    What follows them is read as usual.
    """
    document = parse("a: {x: 1, x: 2}\nb: 1\na: {y: {}, y: 2}\nb: [1]\nc: 5\n")
    assert [(p.line, p.column, p.key) for p in document.problems] == [
        (1, 11, "a.x"),
        (3, 1, "a"),
        (4, 1, "b"),
    ]
    assert document.tree == {"a": {"x": 1}, "b": 1, "c": 5}


def test_text_in_any_language_is_fine() -> None:
    """Chinese, emoji and right-to-left text are text."""
    text = "中文 🙂 עברית a\u200fb"
    document = parse(f'a: "{text}"\n')
    assert document.tree == {"a": text}
    assert not document.problems
