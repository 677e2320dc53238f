"""What a good scenario becomes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from harness.checks import Check
from harness.checks.agree import AgreeCheck
from harness.checks.equal import EqualCheck
from harness.checks.event import WithinCheck
from harness.forms.model import RankSet
from harness.scenario import Scenario, StatedShare, parse_scenario


def test_the_example_of_the_design_is_whole(full: str, problems: Any) -> None:
    """Every line of the design's example is understood, its faults and measurements included."""
    assert not problems(full)


def test_the_example_reads_as_it_is_written(scenario: Scenario) -> None:
    """Units become seconds, bytes and fractions; names and lists stay what they are."""
    assert scenario.schema_ == 1
    assert scenario.needs.memory == 2 * 2**30
    assert (scenario.world.deadline, scenario.world.after_failure) == (60.0, 2.0)
    assert scenario.world.env == {"OMP_NUM_THREADS": "1"}
    assert scenario.seed == "20260103"
    assert scenario.trials.accept.failure_rate_below == 0.05
    assert scenario.trials.accept.confidence == 0.95
    assert scenario.trials.max_voids == 2
    assert scenario.subject.entry == "subject:warm_up"
    assert scenario.subject.candidate.with_ == {"loader": "every-rank"}
    assert scenario.subject.control is not None
    must_fail = scenario.subject.control.must_fail
    assert (must_fail.check, must_fail.error, must_fail.source) == (
        "tokenizer-ready",
        "AssertionError",
        "assert tokenizer",
    )
    assert must_fail.ranks == RankSet("nonzero")
    assert must_fail.share == StatedShare(every=True, at_least=1.0)
    assert [check.kind for check in scenario.checks] == [
        "event",
        "agree",
        "equal",
        "exit",
        "no-survivors",
    ]


def test_a_value_is_split_at_its_last_dot(scenario: Scenario) -> None:
    """What follows the last dot is the key, the rest is the event."""
    agree, equal = scenario.checks[1], scenario.checks[2]
    assert isinstance(agree, AgreeCheck)
    assert isinstance(equal, EqualCheck)
    assert (agree.event, agree.key) == ("tokenizer", "identity")
    assert (equal.event, equal.key, equal.to) == ("decode", "text", "Hello world")
    long = AgreeCheck.model_validate(
        {"id": "a", "kind": "agree", "ranks": "every", "value": "a.b.c"}
    )
    assert (long.event, long.key) == ("a.b", "c")


def test_a_time_limit_starts_at_the_beginning_of_the_rank(good: str) -> None:
    """A check with a time limit measures from rank.begin unless it says otherwise."""
    text = (
        good + "  - {id: fast, kind: within, ranks: [0, 1], event: tokenizer.ready, limit: 2min}\n"
    )
    text = text.replace("60s", "5min")
    check: Check = parse_scenario(text.encode(), name="s.yaml").checks[-1]
    assert isinstance(check, WithinCheck)
    assert (check.from_, check.event, check.limit) == ("rank.begin", "tokenizer.ready", 120.0)
    assert check.ranks.of(2) == (0, 1)


def test_a_scenario_cannot_be_changed(scenario: Scenario) -> None:
    """A model is frozen: what was signed is what runs."""
    with pytest.raises(ValidationError, match="frozen"):
        scenario.title = "another"  # type: ignore[misc]


def test_axes_keep_the_order_of_the_file(good: str) -> None:
    """Cells follow the file, also where a further axis stands before the ranks."""
    text = good.replace("matrix:\n", "matrix:\n  prompt: [short, long]\n")
    axes = parse_scenario(text.encode(), name="s.yaml").matrix.axes
    assert list(axes.items()) == [
        ("prompt", ("short", "long")),
        ("ranks", (2, 3, 4)),
        ("backend", ("gloo", "mlx-ring")),
    ]


def test_what_is_left_out_has_the_defaults_of_the_design() -> None:
    """The smallest claim runs 59 + 5 warm trials over gloo, at 5% and 95%."""
    text = """
        schema: 1
        id: smallest
        title: t
        question: q
        subject:
          entry: m:f
          control: {file: broken.py, must_fail: {check: c, ranks: every}}
        matrix: {ranks: [2]}
        checks: [{id: c, kind: event, ranks: every, event: done}]
    """
    scenario = parse_scenario(text.encode(), name="s.yaml")
    assert (scenario.role, scenario.seed, scenario.subject.path) == ("claim", "0", ".")
    assert (scenario.trials.candidate, scenario.trials.control, scenario.trials.max_voids) == (
        59,
        5,
        2,
    )
    assert (scenario.world.start, scenario.world.deadline, scenario.world.after_failure) == (
        "warm",
        60.0,
        2.0,
    )
    assert scenario.matrix.backend == ("gloo",)


@pytest.mark.parametrize(
    ("ranks", "size", "expected"),
    [("every", 3, (0, 1, 2)), ("nonzero", 3, (1, 2)), ("nonzero", 1, ()), ((2, 0), 3, (0, 2))],
)
def test_a_set_of_ranks_is_known_beforehand(
    ranks: Any, size: int, expected: tuple[int, ...]
) -> None:
    """Every set of ranks becomes a fixed list for a world size."""
    assert RankSet(ranks).of(size) == expected


def test_a_rank_that_a_world_lacks_is_an_error() -> None:
    """A set never silently loses a rank."""
    with pytest.raises(ValueError, match="a world of 2 has no rank 3"):
        RankSet((0, 3)).of(2)
