"""The order for the nodes of a farm, made of a run's plan, and the farm that carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.forms.strict_json import JSON
from harness.record.facts import HOME_INPUT
from harness.run.farm import cargo
from harness.run.farm.farm import Farm, FarmError, Order, refusal
from harness.run.plan import RayNodes, RunPlan
from harness.run.worlds import Interrupt, Worlds
from harness.scenario import Cell
from harness.world.starters.ray import Cluster


def manifest_of(plan: RunPlan) -> dict[str, Any]:
    """Return the manifest as nodes read it, but for the number of the node and its lanes."""
    inputs = plan.preparation.inputs
    return {
        "scenario": plan.loaded.text.decode(),
        "overrides": list(plan.overrides),
        "arms": {
            name: cargo.arm(staged, plan.files(name))
            for name, staged in plan.preparation.arms.items()
        },
        "inputs": {name: resolved.facts for name, resolved in inputs.items()},
        "single": [
            name
            for name, resolved in inputs.items()
            if name != HOME_INPUT and resolved.path.is_file()
        ],
        "recipes": dict(plan.trials.recipes),
        "declared": {name: sorted(names) for name, names in plan.trials.declared.items()},
        "cells": [cell.id for cell in plan.runnable],
    }


def opened(plan: RunPlan, nodes: RayNodes, *, interrupt: Interrupt, worlds: Worlds) -> Farm:
    """Return the farm of a run, joined to its cluster; no node has anything yet.

    Raises:
        FarmError: the scenario is not one whose trials are farmed.
        NoCluster: there is no cluster.
    """
    preparation = plan.preparation
    if why := refusal(plan.scenario, environments=preparation.environments):
        raise FarmError(f"its trials cannot be farmed: {why}: run it with --on local")

    def expects(cell: Cell, arm: str, index: int) -> Mapping[str, JSON]:
        launch = worlds.launch(cell, arm, index)
        program = {"program": True} if launch.subject.program else {}
        return {**launch.about, **program, "size": launch.size, "backend": launch.backend}

    files = {name: (staged, plan.files(name)) for name, staged in preparation.arms.items()}
    return Farm(
        Cluster(nodes.address),
        nodes,
        plan.scenario,
        cancel=interrupt.descriptor,
        expects=expects,
        order=Order(
            manifest=manifest_of(plan),
            sources=cargo.sources(files, preparation.inputs),
            start=worlds.start,
            machine=preparation.machine,
        ),
    )
