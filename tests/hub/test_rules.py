"""The rules file: every mistake is named with its place."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import tokenizer
from harness.cli.commands import parser
from harness.gate.policy import parse_policy
from harness.hub import RulesError, load_rules, parse_rules
from harness.scenario import ScenarioError, json_schema, parse_scenario

HEAD = "schema: 1\nrules:\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            HEAD + "  - {id: a, answer: {kind: reset}, rol: tree}",
            "3:36: rules[0].rol: is not a known key here; allowed: id, role, ",
        ),
        (HEAD + "  - id: a", "3:5: rules[0].answer: is missing"),
        (
            HEAD + "  - {id: A, answer: {kind: reset}}",
            "3:10: rules[0].id: must have 1 to 63 lower-case",
        ),
        (
            HEAD + "  - {id: a, answer: {kind: nothing}}",
            "3:28: rules[0].answer.kind: must be one of missing, ",
        ),
        (
            HEAD + "  - {id: a, role: tokens, answer: {kind: reset}}",
            "3:19: rules[0].role: must be model_info, tree, ",
        ),
        (
            HEAD + "  - {id: a, answer: {kind: latency, for: 5}}",
            "3:42: rules[0].answer.for: must have a unit (ms, s, min, h or d), for example 60s",
        ),
        (
            HEAD + "  - {id: a, answer: {kind: error, status: 404}}",
            "3:43: rules[0].answer.status: must be at least 500",
        ),
        (
            HEAD + "  - {id: a, method: HEAD, answer: {kind: truncate}}",
            "rules[0].method: truncate changes a body",
        ),
        (
            HEAD + "  - {id: a, answer: {kind: reset}, when: {quota: 3}}",
            "rules[0].when.quota: quota and window must be set together",
        ),
        (
            HEAD + "  - {id: a, answer: {kind: reset}, when: {requests: [3, 1]}}",
            "rules[0].when.requests: must be [first",
        ),
        (HEAD + "  - {id: a, answer: {kind: reset}}\n" * 2, 'rules: two rules have the id "a"'),
        (HEAD + "  - {id: a, id: b}", "3:13: rules[0].id: appears twice"),
        ("schema: 2", "1:9: schema: must be 1"),
        ("", "must be a mapping of keys to values"),
        ("schema: [", "is not valid YAML"),
        ("a: &x 1\nb: *x", "1:4: a: has an anchor"),
        ("a: &x 1\nb: *x", "2:4: b: is an alias"),
        ("[" * 50 + "]" * 50, "nested deeper"),
        ("[" + "1," * 30_000 + "]", "contains more than"),
        ("1: 2", "a key that is not a string"),
        ("- 1", "1:1: "),
    ],
)
def test_mistakes_are_named_with_line_and_column(text: str, wanted: str) -> None:
    """A mistake is named with file, line, column, key and what is allowed."""
    with pytest.raises(RulesError) as caught:
        parse_rules(text, name="r.yaml")
    assert any(
        wanted in problem and problem.startswith("r.yaml:") for problem in caught.value.problems
    ), caught.value


SCENARIO = """
schema: 1
id: s
title: t
question: q?
role: upstream
subject: {{entry: "subject:go"}}
matrix: {{ranks: [2], backend: [none]}}
world: {{deadline: 30min}}
inputs: {{files: {{layouts: [gpt2]}}}}
hub: {{serve: files}}
faults:
  - {{id: a, kind: delay, ranks: [1], at: begin, for: {given}}}
  - {{id: b, kind: hub, ranks: [1], answer: {{kind: latency, for: {given}}}}}
checks: [{{id: c, kind: exit, ranks: every, code: 0}}]
"""
POLICY = """
schema: 1
max_age: {given}
signers: {{roles: {{ci: [x@example.org]}}}}
require: [{{scenario: s}}]
"""


RIGHT = ("5min", "200ms", "1.5s", "0.01h", "1d")
WRONG = ("5m", "5 min", "010s", "1.s", ".5s", "10", "5S", "٥s")


@pytest.mark.parametrize("given", RIGHT + WRONG)
def test_a_duration_is_written_in_one_way_everywhere(given: str) -> None:
    """A rank's fault, the hub's fault beside it, a rules file, a policy and the command line agree
    on a duration.
    """

    def refused(read: Callable[[], object]) -> bool:
        try:
            read()
        except (RulesError, ScenarioError, SystemExit):
            return True
        return False

    hub = HEAD + f"  - {{id: a, answer: {{kind: reset}}, when: {{quota: 3, window: {given}}}}}"
    words = ["tokenizer", "lock", "org/name", "--deadline", given]
    assert refused(lambda: parse_rules(hub)) == (given in WRONG)
    assert refused(lambda: parse_policy(POLICY.format(given=given).encode(), name="p")) == (
        given in WRONG
    )
    assert refused(lambda: parser("tokenizer", tokenizer.arguments).parse_args(words)) == (
        given in WRONG
    )
    messages = {}
    try:
        parse_scenario(SCENARIO.format(given=given).encode(), name="s")
    except ScenarioError as error:
        messages = {
            problem.key: problem.message for problem in error.problems if "unit" in problem.message
        }
    assert list(messages) == (["faults[0].for", "faults[1].answer.for"] if given in WRONG else [])
    assert len(set(messages.values())) <= 1
    pattern = json_schema()["$defs"]["Latency"]["properties"]["for"]["pattern"]
    assert (re.search(pattern, given) is None) == (given in WRONG)


@pytest.mark.parametrize("given", ["010", "1.", "+3", "0x3", "1_0", "3.0"])
def test_a_number_is_what_it_is_in_a_scenario(given: str) -> None:
    """What is not a whole number of JSON is not one in a rules file either: `010` is neither 10 nor
    8.
    """
    with pytest.raises(RulesError, match=r"rules\[0\]\.when\.times: "):
        parse_rules(HEAD + f"  - {{id: a, answer: {{kind: reset}}, when: {{times: {given}}}}}")


def test_all_mistakes_come_at_once() -> None:
    """Two mistakes are two problems, in the order of the file."""
    with pytest.raises(RulesError) as caught:
        parse_rules(
            HEAD + "  - {id: a, answer: {kind: short, share: 2}}\n  - {id: b, foult: {kind: reset}}"
        )
    assert [problem.split(" ")[0] for problem in caught.value.problems] == [
        "rules:3:42:",
        "rules:4:5:",
        "rules:4:13:",
    ]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """A file that is absent, huge or not UTF-8 is an error of its own."""
    with pytest.raises(RulesError, match="cannot be read"):
        load_rules(tmp_path / "absent")
    (tmp_path / "huge").write_bytes(b"#" * (1 << 21))
    with pytest.raises(RulesError, match="too large"):
        load_rules(tmp_path / "huge")
    with pytest.raises(RulesError, match="UTF-16"):
        parse_rules(b"\xff\xfe")


@pytest.mark.slow
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever a rules file holds, reading it gives rules or RulesError."""
    for whole in (text, HEAD + "  - " + text):
        with contextlib.suppress(RulesError):
            parse_rules(whole.encode("utf-8", "surrogatepass"))
