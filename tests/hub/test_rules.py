"""The rules file: every mistake is named with its place."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.hub import RulesError, load_rules, parse_rules

HEAD = "schema: 1\nrules:\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            HEAD + "  - {id: a, fault: {kind: reset}, rol: tree}",
            '3:35: rules[0].rol: is no key of this mapping; did you mean "role"?',
        ),
        (HEAD + "  - id: a", "3:5: rules[0].fault: is missing"),
        (HEAD + "  - {id: A, fault: {kind: reset}}", "3:6: rules[0].id: string should match pattern"),
        (HEAD + "  - {id: a, fault: {kind: nothing}}", "3:13: rules[0].fault: input tag 'nothing'"),
        (HEAD + "  - {id: a, role: tokens, fault: {kind: reset}}", "3:13: rules[0].role: must be one of model_info"),
        (HEAD + "  - {id: a, fault: {kind: latency, for: 5}}", "3:36: rules[0].fault.for: must be a duration"),
        (HEAD + "  - {id: a, fault: {kind: error, status: 404}}", "3:34: rules[0].fault.status: "),
        (HEAD + "  - {id: a, method: HEAD, fault: {kind: truncate}}", "rules[0]: method: truncate changes a body"),
        (
            HEAD + "  - {id: a, fault: {kind: reset}, when: {quota: 3}}",
            "rules[0].when: quota and window stand together",
        ),
        (
            HEAD + "  - {id: a, fault: {kind: reset}, when: {requests: [3, 1]}}",
            "rules[0].when.requests: must be [first",
        ),
        (HEAD + "  - {id: a, fault: {kind: reset}}\n" * 2, 'two rules have the id "a"'),
        (HEAD + "  - {id: a, id: b}", "3:13: rules[0].id: is given twice"),
        ("schema: 2", "1:1: schema: input should be 1"),
        ("", "is empty"),
        ("schema: [", "is not valid YAML"),
        ("a: &x 1\nb: *x", "has an anchor or alias"),
        ("[" * 50 + "]" * 50, "nested deeper"),
        ("[" + "1," * 30_000 + "]", "holds more than"),
        ("1: 2", "a key that is not a text"),
        ("- 1", "1:1: "),
    ],
)
def test_mistakes_are_named_with_line_and_column(text: str, wanted: str) -> None:
    """A mistake is told with file, line, column, key and what is allowed."""
    with pytest.raises(RulesError) as caught:
        parse_rules(text, name="r.yaml")
    assert any(wanted in problem and problem.startswith("r.yaml:") for problem in caught.value.problems), caught.value


def test_all_mistakes_come_at_once() -> None:
    """Two mistakes are two problems, in the order of the file."""
    with pytest.raises(RulesError) as caught:
        parse_rules(HEAD + "  - {id: a, fault: {kind: short, share: 2}}\n  - {id: b, foult: {kind: reset}}")
    assert [problem.split(" ")[0] for problem in caught.value.problems] == ["rules:3:34:", "rules:4:5:", "rules:4:13:"]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """A file that is absent, huge or not UTF-8 is an error of its own."""
    with pytest.raises(RulesError, match="cannot be read"):
        load_rules(tmp_path / "absent")
    (tmp_path / "huge").write_bytes(b"#" * (1 << 21))
    with pytest.raises(RulesError, match="larger than"):
        load_rules(tmp_path / "huge")
    with pytest.raises(RulesError, match="not UTF-8"):
        parse_rules(b"\xff\xfe")


@pytest.mark.slow
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever a rules file holds, reading it gives rules or RulesError."""
    for whole in (text, HEAD + "  - " + text):
        with contextlib.suppress(RulesError):
            parse_rules(whole.encode("utf-8", "surrogatepass"))
