"""Cells, trials and seeds."""

from __future__ import annotations

import doctest

import pytest

from harness.scenario import Scenario, ScenarioError, cells, derive_seed, parse_scenario, plan


def of_matrix(good: str, matrix: str) -> Scenario:
    """Return the example with another matrix."""
    lines = good.splitlines(keepends=True)
    start = lines.index("matrix:\n")
    end = lines.index("\n", start)
    return parse_scenario(
        "".join([*lines[:start], f"matrix: {matrix}\n", *lines[end:]]).encode(), name="s.yaml"
    )


def test_cells_are_the_product_without_what_is_excluded(scenario: Scenario) -> None:
    """The example has five cells: three world sizes, two backends, one combination left out."""
    assert [(cell.id, cell.slug) for cell in cells(scenario)] == [
        ("ranks=2,backend=gloo", "ranks-2-backend-gloo"),
        ("ranks=2,backend=mlx-ring", "ranks-2-backend-mlx-ring"),
        ("ranks=3,backend=gloo", "ranks-3-backend-gloo"),
        ("ranks=3,backend=mlx-ring", "ranks-3-backend-mlx-ring"),
        ("ranks=4,backend=gloo", "ranks-4-backend-gloo"),
    ]
    first = cells(scenario)[0]
    assert (first.ranks, first.backend, dict(first.axes)) == (2, "gloo", {})


def test_hosts_say_what_a_world_is(good: str) -> None:
    """On how many machines a world is belongs to its cell, and is nobody's argument.

    Without it nothing is said.
    """
    found = cells(of_matrix(good, "{ranks: [3], hosts: [1, 3]}"))
    assert [(cell.id, cell.hosts, dict(cell.axes)) for cell in found] == [
        ("ranks=3,hosts=1,backend=gloo", 1, {}),
        ("ranks=3,hosts=3,backend=gloo", 3, {}),
    ]
    assert found[1].values == {"ranks": 3, "hosts": 3, "backend": "gloo"}
    with pytest.raises(ScenarioError, match="would leave a machine without a rank"):
        of_matrix(good, "{ranks: [2, 3], hosts: [1, 3]}")
    assert (
        len(
            cells(
                of_matrix(good, "{ranks: [2, 3], hosts: [1, 3], exclude: [{ranks: 2, hosts: 3}]}")
            )
        )
        == 3
    )


def test_values_are_told_apart_by_type(good: str) -> None:
    """1, 1.0, true and "1" are four values: each has a cell, an id and a file name of its own."""
    scenario = of_matrix(
        good, '{ranks: [2], x: [1, 1.0, true, "1", A, a, "a b", "a-b", "中"], exclude: [{x: 1.0}]}'
    )
    found = cells(scenario)
    assert [cell.axes["x"] for cell in found] == [1, True, "1", "A", "a", "a b", "a-b", "中"]
    assert (
        len({cell.id for cell in found}) == len({cell.slug.lower() for cell in found}) == len(found)
    )
    assert all(
        cell.slug.isascii() and cell.slug == cell.slug.lower() and len(cell.slug) <= 80
        for cell in found
    )
    assert all(set(cell.slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for cell in found)


def test_too_many_combinations_are_refused(good: str) -> None:
    """A matrix that would take days is refused before a cell is made."""
    with pytest.raises(Exception, match="at most 256"):
        of_matrix(
            good,
            f"{{ranks: [2, 3], a: {list(range(50))}, b: {list(range(50))}, c: {list(range(50))}}}",
        )


def test_seeds_are_what_they_always_were() -> None:
    """Derived seeds never change: an old report can be run again."""
    assert (
        derive_seed("20260103", "tokenizer-on-every-rank", "ranks=2,backend=gloo", 0)
        == 9187211130543718118
    )
    assert (
        derive_seed("20260103", "tokenizer-on-every-rank", "ranks=2,backend=gloo", 0, 1)
        == 16724270901128152303
    )
    assert doctest.testmod(plan).failed == 0


def test_seeds_are_distinct(scenario: Scenario) -> None:
    """No two trials or ranks of a run share a seed, and parts cannot be shifted into each other."""
    seeds = [
        derive_seed(scenario.seed, scenario.id, cell.id, trial, rank)
        for cell in cells(scenario)
        for trial in range(59)
        for rank in (None, 0, 1, 2, 3)
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert derive_seed("a", "bc", "d", 1) != derive_seed("ab", "c", "d", 1)
    assert derive_seed("a", "b", "c", 11) != derive_seed("a", "b", "c", 1, 1)
