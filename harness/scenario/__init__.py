"""Scenarios: the YAML file as closed, typed models, and the plan that follows from it.

``load_scenario`` and ``parse_scenario`` give a ``Scenario`` or raise ``ScenarioError``, the one
exception of this package, with all problems of the file: file, line, column, key, what was found,
what is allowed, what to do. ``cells`` turns the matrix into the plan of a run.
"""

from harness.forms.problem import Problem, ScenarioError
from harness.scenario.arm import Arm, End, HangsAt, MustFail, StatedShare
from harness.scenario.environment import Environment
from harness.scenario.lint.sufficiency import SIGNIFICANT, trials_needed
from harness.scenario.load import LoadedScenario, load_scenario, parse_scenario, scenario_files
from harness.scenario.model import Input, Measure, Needs, Scenario, json_schema, schema_text
from harness.scenario.plan import (
    Cell,
    ReferencePlan,
    cells,
    derive_seed,
    processes_of,
    reference_of,
)
from harness.scenario.subject import CALLED, SeesDefects

__all__ = [
    "CALLED",
    "SIGNIFICANT",
    "Arm",
    "Cell",
    "End",
    "Environment",
    "HangsAt",
    "Input",
    "LoadedScenario",
    "Measure",
    "MustFail",
    "Needs",
    "Problem",
    "ReferencePlan",
    "Scenario",
    "ScenarioError",
    "SeesDefects",
    "StatedShare",
    "cells",
    "derive_seed",
    "json_schema",
    "load_scenario",
    "parse_scenario",
    "processes_of",
    "reference_of",
    "scenario_files",
    "schema_text",
    "trials_needed",
]
