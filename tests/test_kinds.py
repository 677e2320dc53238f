"""One declaration beside each kind of check, fault and backend, and no registry without it."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest

from harness import backends, checks, faults
from harness.backends import BackendProperties
from harness.scenario.check import Check
from harness.scenario.fault import Fault
from harness.scenario.kinds import CheckProperties, FaultProperties
from harness.scenario.matrix import Backend
from harness.world import backends as joining

CHECKS, FAULTS = (get_args(get_args(union)[0]) for union in (Check, Fault))


def kind_of(model: Any) -> str:
    """The one word that a model takes for its kind."""
    (word,) = get_args(model.model_fields["kind"].annotation)
    return str(word)


@pytest.mark.parametrize("properties", [CheckProperties, FaultProperties, BackendProperties])
def test_no_property_can_be_left_out(properties: Any) -> None:
    """No property has a default: a made-up kind that leaves any one of them out cannot be declared."""
    names = [field.name for field in dataclasses.fields(properties)]
    for left_out in names:
        with pytest.raises(TypeError, match=left_out):
            properties(**dict.fromkeys(set(names) - {left_out}))
    with pytest.raises(TypeError):
        properties(*names)


def test_each_check_is_declared_and_registered_once() -> None:
    """Every kind of check that a scenario may hold has one registration, with a declaration of its own."""
    assert {kind_of(model): model for model in CHECKS} == {name: kind.options for name, kind in checks.KINDS.items()}
    assert len(CHECKS) == len(checks.KINDS)
    for model in CHECKS:
        assert isinstance(vars(model)["properties"], CheckProperties), model
        assert checks.KINDS[kind_of(model)].properties is model.properties


def test_a_check_is_what_its_options_show() -> None:
    """What is declared of a check is not at odds with the options it takes."""
    for model in CHECKS:
        assert model.properties.needs_an_event == (hasattr(model, "event") or "event" in model.model_fields), model
        assert not model.properties.compares_ranks or "ranks" in model.model_fields, model
        assert not model.properties.reports_a_value or model.properties.wrong is not None, model


def test_each_fault_is_declared_and_registered_once() -> None:
    """Every kind of fault that a scenario may hold has one registration, with a declaration of its own."""
    assert {kind_of(model) for model in FAULTS} == faults.KINDS.keys()
    assert len(FAULTS) == len(faults.KINDS)
    for model in FAULTS:
        assert isinstance(vars(model)["properties"], FaultProperties), model
        assert faults.KINDS[kind_of(model)].properties is model.properties
        assert model.properties.needs_a_gate == ("at" in model.model_fields), model


def test_each_backend_is_declared_once() -> None:
    """Every backend that a scenario may name has one declaration, which the one that joins ranks carries."""
    assert set(get_args(Backend)) == backends.KINDS.keys() == joining.MODULES.keys()
    for name, properties in backends.KINDS.items():
        found = joining.find(name)
        assert found is not None
        assert found.properties is properties
        assert properties.makes_a_group == bool(properties.modules)
        assert properties.peer_gone
