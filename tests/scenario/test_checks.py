"""Checks that could never fail, or never hold, are told before a run.

So is a bound that no backend has.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.forms.problem import ScenarioError
from harness.scenario import load_scenario

KILL = "id: dies, kind: kill, ranks: [1], at: tokenizer.load.begin"
PROGRESS = "kind: progress, ranks: every, event: step, limit: 1s"
NOTICED = "kind: detected-within, ranks: every, fault: dies, limit: 1s"
ENDS = "kind: survivors-end, ranks: every, fault: dies, limit: 2s"


def with_check(good: str, check: str, *, fault: str = KILL) -> str:
    """The example with one check more, and this fault instead of its own."""
    text = re.sub(r"(?m)^faults:.*\n(  - .*\n)+", f"faults:\n  - {{{fault}}}\n", good)
    return text.replace("checks:\n", f"checks:\n  - {{id: more, {check}}}\n")


@pytest.mark.parametrize(
    "check",
    [
        PROGRESS,
        f"{PROGRESS}, counter: number, from: rank.begin, until: decode.end, at_least: 3",
        NOTICED,
        ENDS,
        f"{ENDS}, error: RuntimeError, message: closed by peer",
        (
            "kind: environment-agrees, ranks: every, parts: [threads, clock], but: [threads.cores],"
            " clock: 20ms"
        ),
    ],
)
def test_each_kind_is_read(good: str, problems: Any, check: str) -> None:
    """A check of every new kind, with all its options, is read without a problem."""
    assert [one for one in problems(with_check(good, check)) if one.kind == "error"] == []


@pytest.mark.parametrize(
    ("check", "key", "words"),
    [
        (PROGRESS.replace("1s", "60s"), "limit", "it never fails"),
        (PROGRESS.replace("1s", "0s"), "limit", "more than 0s"),
        (PROGRESS.replace("event: step", "event: step, at_least: 0"), "at_least", "at least 1"),
        (NOTICED.replace("dies", "dyes"), "fault", "must be the id of a fault"),
        (NOTICED.replace("1s", "2min"), "limit", "no rank can be late"),
        (ENDS.replace("2s", "3s"), "limit", "world.after_failure (2s)"),
        (
            "kind: environment-agrees, ranks: every, but: [TZ]",
            "but[0]",
            "must be a part and a name",
        ),
        (
            "kind: environment-agrees, ranks: every, parts: [weather]",
            "parts[0]",
            "must be versions",
        ),
    ],
)
def test_a_check_that_cannot_be_judged_is_an_error(
    good: str, problems: Any, check: str, key: str, words: str
) -> None:
    """Each mistake is named at its key, and it is the only one."""
    found = [one for one in problems(with_check(good, check)) if one.kind == "error"]
    assert [one.key for one in found] == [f"checks[0].{key}"]
    assert words in found[0].message


def test_a_fault_of_one_arm_cannot_be_noticed_by_both(good: str, tmp_path: Path) -> None:
    """A check that asks both arms about a fault of one of them fails in the other, which is said.

    It may be meant.
    """
    text = with_check(good, NOTICED, fault=f"{KILL}, arm: candidate").replace(
        "role: claim", "role: upstream"
    )
    (tmp_path / "scenario.yaml").write_text(text)
    notes = load_scenario(tmp_path).notes
    assert any(one.key == "checks[0].fault" and "in the other arm" in one.message for one in notes)


def test_a_program_has_no_runtime_that_tells(good: str, problems: Any) -> None:
    """Programs emit no `subject.begin`, and nothing of ours tells what they run in."""
    text = good.replace("entry: subject:warm_up", "program: [sh]").replace(
        "backend: [gloo, mlx-ring]", "backend: [none]"
    )
    words = [(one.key, one.message) for one in problems(with_check(text, PROGRESS))]
    assert any(key == "checks[0].from" and "no subject.begin" in message for key, message in words)
    words = [
        (one.key, one.message)
        for one in problems(with_check(text, "kind: environment-agrees, ranks: every"))
    ]
    assert any(
        key == "checks[0].kind" and "which a program does not have" in message
        for key, message in words
    )


@pytest.mark.parametrize(
    ("backend", "timeout", "words"),
    [
        ("[gloo]", "5s", ""),
        ("[mlx-ring]", "5s", "cannot be used with mlx-ring, because MLX's ring has no timeout"),
        ("[nccl]", "5s", "cannot be used with nccl"),
        ("[gloo]", "60s", "less than world.deadline"),
        ("[gloo]", "0s", "more than 0s"),
    ],
)
def test_only_a_backend_that_has_a_bound_can_be_given_one(
    good: str, problems: Any, backend: str, timeout: str, words: str
) -> None:
    """`world.collective_timeout` is refused where it would do nothing, with the reason."""
    text = good.replace("[gloo, mlx-ring]", backend).replace(
        "deadline: 60s", f"deadline: 60s, collective_timeout: {timeout}"
    )
    text = re.sub(r"(?m)^  exclude:.*\n", "", text)
    found = [one for one in problems(text) if one.kind == "error"]
    assert [one.key for one in found] == (["world.collective_timeout"] if words else [])
    assert not words or words in found[0].message


REFERENCE = "  reference: {with: {}}\n"


@pytest.mark.parametrize(
    ("check", "key", "words"),
    [
        (
            "kind: equivalent, margin: 100, sees: 0.01",
            "margin",
            "allows 100 times the reference's noise (margin",
        ),
        (
            "kind: equivalent, middle: 3, sees: 0.01",
            "middle",
            "allows 3 times the reference's noise (middle",
        ),
        (
            "kind: equivalent, layers: 4, sees: 0.01",
            "layers",
            "allows 4 times the reference's noise (layers",
        ),
        ("kind: equivalent", "", "does not set sees, the size of a defect that it must detect"),
        ('kind: shards-cover, replicated: [norm, "*"]', "replicated[1]", "matches every tensor"),
        ('kind: shards-cover, replicated: ["?*"]', "replicated[0]", "matches every tensor"),
    ],
)
def test_a_comparison_that_would_let_anything_pass_is_told(
    good: str, tmp_path: Path, check: str, key: str, words: str
) -> None:
    """A margin of a hundred, noise that nothing holds to account, a pattern that asks nobody for a
    split.
    """
    place = f"checks[0].{key}".rstrip(".")
    assert (place, words) in [
        (one, message[: len(words)]) for one, message in _said(good, tmp_path, check)
    ]
    usual = _said(
        good, tmp_path, "kind: equivalent, sees: 0.01, margin: 2, middle: 1.25, layers: 3"
    )
    assert not any(one.startswith("checks[0]") for one, _ in usual)


def _said(good: str, folder: Path, check: str) -> list[tuple[str, str]]:
    """Key and message of all that is said of a scenario with this check against a reference,
    without its own name.
    """
    text = with_check(good, f"{check}, ranks: every, against: reference")
    (folder / "scenario.yaml").write_text(text.replace("  control:", f"{REFERENCE}  control:", 1))
    try:
        found: Any = load_scenario(folder).notes
    except ScenarioError as refused:
        found = refused.problems
    return [(one.key, one.message.removeprefix("check more ")) for one in found]
