"""What a bisect refuses before anything is downloaded or run."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import USAGE
from harness.forms.problem import ScenarioError
from harness.scenario import load_scenario
from harness.series.bisect.aim import Aim, aim
from tests.series.bisect.wobbly import SCENARIO, WITH_CONTROL, Bisect, Offer

COMPARED = SCENARIO.replace(
    '  candidate: {environment: {packages: {wobbly: "1.9"}}}\n',
    '  compare: {a: {environment: {packages: {wobbly: "1.8"}}}, b: {environment: {packages: {wobbly:'
    ' "1.9"}}}, defect: {value: asked.answer, absolute: 1}}\n',
).replace(
    "{id: answered, kind: event, ranks: every, event: answered}",
    "{id: same, kind: equal, ranks: every, value: asked.answer, against: a}",
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (COMPARED, "scenario.yaml:10:3: subject.compare: cannot be bisected"),
        (
            WITH_CONTROL.replace('{environment: {packages: {wobbly: "1.9"}}}', "{}"),
            "wobbly is only in the environment of the control",
        ),
        (
            SCENARIO.replace("wobbly: ", "steady: "),
            "does not list wobbly, so no versions of it can",
        ),
        (
            SCENARIO.replace('wobbly: "1.9"', "wobbly: {path: ., rev: HEAD}"),
            "builds wobbly from a checkout",
        ),
    ],
)
def test_a_scenario_that_cannot_be_bisected_is_refused_at_its_place(
    tmp_path: Path, text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names file, line and key, and what to write instead."""
    monkeypatch.setattr("harness.series.bisect.aim.supply.find", lambda *_, **__: None)
    (tmp_path / "scenario.yaml").write_text(text)
    with pytest.raises(ScenarioError) as raised:
        aim(load_scenario(tmp_path), "Wobbly")
    (problem,) = raised.value.problems
    assert why in str(problem)
    assert problem.line > 1


def test_the_environment_of_both_arms_changes_where_they_share_it(tmp_path: Path) -> None:
    """A package of `subject.environment` is changed there, for every arm without its own; extras
    are kept, or typed.
    """
    text = WITH_CONTROL.replace(
        "  candidate: {environment",
        '  environment: {packages: {"wobbly[x]": "1.9"}}\n  candidate: {with',
    ).replace('{with: {packages: {wobbly: "1.9"}}}', "{}")
    (tmp_path / "scenario.yaml").write_text(text)
    found = aim(load_scenario(tmp_path), "wobbly")
    assert (found.key, found.written) == ("subject.environment", "wobbly[x]")
    assert found.control is not None
    assert found.alike
    both = aim_of(
        tmp_path, text.replace('environment: {packages: {wobbly: "1.4"}}', "with: {broken: true}")
    )
    assert (both.key, both.control, both.alike) == ("subject.environment", None, False)
    (tmp_path / "scenario.yaml").write_text(text)
    assert aim(load_scenario(tmp_path), "wobbly[y]").written == "wobbly[y]"


def aim_of(folder: Path, text: str) -> Aim:
    (folder / "scenario.yaml").write_text(text)
    return aim(load_scenario(folder), "wobbly")


@pytest.mark.whole
def test_the_command_line_is_refused_with_what_there_is(bisect: Bisect, offer: Offer) -> None:
    """torch, an unknown version, a yanked one and an environment that is too large are refused, and
    nothing is run.
    """
    env = offer()
    unknown = bisect("1.0", "7.0", env=env)
    assert (unknown.code, "pip finds no wobbly 7.0" in unknown.err) == (USAGE, True)
    yanked = bisect("1.5", "1.9", env=env)
    assert (yanked.code, "wobbly 1.5 cannot be tried (yanked)" in yanked.err) == (USAGE, True)
    torch = bisect("2.0", "2.1", "--package", "torch", env=env)
    assert (torch.code, "torch cannot be bisected, because " in torch.err) == (USAGE, True)
    assert not list((unknown.results).rglob("report.md"))
