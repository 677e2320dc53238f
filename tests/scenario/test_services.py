"""Services of a scenario: what lint says of those that could not be started, asked or struck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.run.farm.farm import refusal as farm_refusal
from harness.run.machines.over_machines import refusal
from harness.scenario import load_scenario, parse_scenario

GOOD = """
schema: 1
id: served
title: The server gives the right answer
question: Does the server give the right answer?
services:
  engine:
    program: [python, server.py, "{port}"]
subject:
  entry: subject:ask
  control:
    services: {engine: {flags: [--wrong], env: {A: "2"}}}
    must_fail: {check: right, ranks: every}
matrix: {ranks: [2], backend: [none]}
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: right, kind: equal, ranks: every, value: answer.text, to: right}
  - {id: engine-serves, kind: served, service: engine}
"""
KILL = "{id: dies, kind: kill, service: engine, ranks: [0], at: request.begin}"


def struck(fault: str) -> str:
    return GOOD.replace("checks:\n", f"faults:\n  - {fault}\nchecks:\n")


@pytest.mark.parametrize("text", [GOOD, struck(KILL)], ids=["good", "struck"])
def test_a_scenario_with_a_service_is_read(problems: Any, text: str) -> None:
    """Without a problem."""
    assert problems(text) == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"{port}"]', '"80"]', "does not state on which port to listen"),
        ("service: engine}", "service: engin}", "is not a service of this scenario"),
        ("{engine: {flags", "{engin: {flags", "is not a service of this scenario, but control"),
        ("  - {id: engine-serves, kind: served, service: engine}\n", "", "may fail unnoticed"),
        ("backend: [none]}", "backend: [none]}\nworld: {hosts: 2}", "runs on this machine"),
        ('"{port}"]', '"{port}"]\n    processes: 17', "17"),
        ('"{port}"]', '"{port}"]\n    starts: 2', "is only for keep: cell"),
        ('"{port}"]', '"{port}"]\n    ready: {http: health}', "must be the path of a URL"),
    ],
)
def test_a_slip_is_told_with_what_to_do(problems: Any, old: str, new: str, message: str) -> None:
    """At its place in the file."""
    assert old in GOOD
    text = GOOD.replace(old, new)
    found = "\n".join(str(problem) for problem in problems(text))
    assert message in found


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("keep: cell", "1 clean starts of its services only bound the failure rate at 95.0%"),
        ("processes: 2", "cannot find each other"),
    ],
)
def test_what_may_be_meant_is_noted(tmp_path: Path, addition: str, message: str) -> None:
    """A run makes it all the same."""
    text = GOOD.replace('"{port}"]', f'"{{port}}"]\n    {addition}')
    (tmp_path / "scenario.yaml").write_text(text)
    (tmp_path / "subject.py").write_text("def ask(context): ...\n")
    notes = load_scenario(tmp_path).notes
    assert message in "\n".join(map(str, notes))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (KILL.replace("[0]", "[1]"), "names process 1"),
        (KILL.replace("engine,", "engin,"), "is not a service of this scenario"),
        (
            "{id: f, kind: raise, service: engine, ranks: [0], at: a.b, error: OSError}",
            "cannot have a fault of this kind",
        ),
        (
            "{id: f, kind: partition, service: engine, ranks: [0], at: a.b}",
            "needs test hosts, which the wire is between; add services.engine: {hosts: 2}",
        ),
    ],
)
def test_a_fault_that_cannot_strike_a_service_is_refused(
    problems: Any, fault: str, message: str
) -> None:
    """Whatever ranks there are."""
    found = "\n".join(str(problem) for problem in problems(struck(fault)))
    assert message in found


def test_a_fault_on_a_service_that_is_kept_is_refused(problems: Any) -> None:
    """Later trials would be asked of a server that was harmed."""
    text = struck(KILL).replace('"{port}"]', '"{port}"]\n    keep: cell')
    found = "\n".join(str(problem) for problem in problems(text))
    assert "is kept for later trials" in found


def test_processes_is_no_argument_of_the_subject() -> None:
    """It is an axis of the services alone."""
    text = GOOD.replace("backend: [none]}", "backend: [none], processes: [1, 2]}")
    scenario = parse_scenario(text.encode(), name="s.yaml", overrides=())
    assert scenario.matrix.further == ()
    assert [values["processes"] for values in scenario.matrix.combinations()] == [1, 2]


def test_an_arm_changes_program_flags_and_variables() -> None:
    """Flags come last, variables are added."""
    text = GOOD.replace('"{port}"]', '"{port}"]\n    env: {A: "1", B: "1"}')
    scenario = parse_scenario(text.encode(), name="s.yaml", overrides=())
    service = scenario.services_of("control")["engine"]
    assert service.program == ("python", "server.py", "{port}", "--wrong")
    assert service.env == {"A": "2", "B": "1"}
    assert scenario.services_of("candidate")["engine"].env == {"A": "1", "B": "1"}


def test_services_are_on_one_machine() -> None:
    """So a hostfile and a cluster are refused."""
    scenario = parse_scenario(GOOD.encode(), name="s.yaml", overrides=())
    assert "its services would run on one machine" in refusal(scenario)
    assert "it has services" in str(farm_refusal(scenario, environments=()))


def test_a_change_that_changes_nothing_leaves_the_arms_alike(problems: Any) -> None:
    """No control is then known to be broken."""
    text = GOOD.replace('{flags: [--wrong], env: {A: "2"}}', "{}")
    text = text.replace("  entry: subject:ask\n", "  entry: subject:ask\n  of: installed\n")
    found = "\n".join(str(problem) for problem in problems(text))
    assert "runs the same code with the same arguments" in found
