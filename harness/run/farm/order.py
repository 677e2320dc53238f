"""What a farm is asked to make: the order for its nodes, and the farm that carries it out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.forms.strict_json import JSON
from harness.record.facts import HOME_INPUT
from harness.run.farm import cargo
from harness.run.farm.farm import Farm, FarmError, Where, refusal
from harness.run.interrupt import Interrupt
from harness.run.preparation import Preparation
from harness.run.worlds import Worlds
from harness.scenario import Cell, Scenario
from harness.world.starters.ray import Cluster


@dataclass(frozen=True, kw_only=True)
class Order:
    """What every node is given.

    Attributes:
        text: the scenario's file.
        overrides: given beside it, as the record keeps them.
        preparation: code, inputs and cells.
        files: per arm, path to sha256 of its code.
        recipes: per arm, the digest of what its trials are made of.
        declared: per arm, the distributions that its repository declares.
    """

    text: bytes
    overrides: Sequence[str]
    preparation: Preparation
    files: Mapping[str, Mapping[str, str]]
    recipes: Mapping[str, str]
    declared: Mapping[str, Collection[str]]

    def manifest(self) -> dict[str, Any]:
        """As nodes read it, but for the number of the node and its lanes."""
        inputs = self.preparation.inputs
        return {
            "scenario": self.text.decode(),
            "overrides": list(self.overrides),
            "arms": {name: cargo.arm(one, self.files[name]) for name, one in self.preparation.arms.items()},
            "inputs": {name: one.facts for name, one in inputs.items()},
            "single": [name for name, one in inputs.items() if name != HOME_INPUT and one.path.is_file()],
            "recipes": dict(self.recipes),
            "declared": {name: sorted(names) for name, names in self.declared.items()},
            "cells": [cell.id for cell in self.preparation.runnable],
        }

    def sources(self) -> dict[str, Path]:
        """Where each file lies here, by its digest."""
        arms = {name: (one, self.files[name]) for name, one in self.preparation.arms.items()}
        return cargo.sources(arms, self.preparation.inputs)


def opened(where: Where, scenario: Scenario, order: Order, *, interrupt: Interrupt, worlds: Worlds) -> Farm:
    """The farm of a run, joined to its cluster; no node has anything yet.

    Raises:
        FarmError: the scenario is not one whose trials are farmed.
        NoCluster: there is no cluster.
    """
    if why := refusal(scenario, environments=order.preparation.environments):
        raise FarmError(f"its trials cannot be farmed: {why}: run it with --on local")

    def expects(cell: Cell, arm: str, index: int) -> Mapping[str, JSON]:
        launch = worlds.launch(cell, arm, index)
        program = {"program": True} if launch.program else {}
        return {**launch.about, **program, "size": launch.size, "backend": launch.backend}

    cluster = Cluster(where.address)
    return Farm(
        cluster,
        where=where,
        scenario=scenario,
        cancel=interrupt.descriptor,
        expects=expects,
        manifest=order.manifest(),
        sources=order.sources(),
        start=worlds.start,
        machine=order.preparation.machine,
    )
