"""The catalogue of the matrix: no kind is forgotten, and what a cell must show follows from the
kind's effect.
"""

from __future__ import annotations

import pytest

from harness import checks, faults
from harness.backends import KINDS as BACKENDS
from harness.faults.fault import EFFECTS
from harness.scenario import parse_scenario
from harness.series import matrix
from harness.series.matrix.case import HANG
from harness.series.matrix.catalogue import CASES, SENTINELS
from harness.series.matrix.facts import unlike
from harness.series.series import Nothing

CELLS = {(case.name, backend) for case in CASES for backend in case.backends}


def test_every_kind_of_fault_has_a_case_and_an_effect() -> None:
    """A kind that is added to the registry without either is found here."""
    own = [kind for kind in faults.KINDS if kind not in faults.KINDS.plugins]
    lacking = set(own) - {case.kind for case in CASES}
    assert lacking == set(matrix.ELSEWHERE), "give it a case in harness/series/matrix/catalogue.py"
    assert all(faults.KINDS[kind].effect in EFFECTS for kind in own)


def test_every_kind_of_check_is_needed_on_every_backend() -> None:
    """A check that no cell can do without could be one that never fails.

    A new kind without a cell is found here.
    """
    lacking = matrix.unused(matrix.chosen(only=[], backends=[], sample=False))
    # Of machines: scenarios/host-lost has a control that it alone sees. Of services:
    # tests/run/test_services.py has servers that it alone sees end.
    assert [kind for kind in lacking if kind.partition(" ")[0] not in checks.KINDS.plugins] == [
        "host-lost",
        "served",
    ]


def test_cases_are_told_apart_and_leave_no_backend_out_without_a_reason() -> None:
    """A backend on which a case is not tried is named in the report, with the reason."""
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        assert set(case.backends) <= set(matrix.BACKENDS) <= set(BACKENDS)
        assert bool(case.why_not) == (set(case.backends) != set(matrix.BACKENDS)), case.name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_case_demands_can_come_true(case: object) -> None:
    """Its scenario has no mistake, and a title that fits.

    Only a masked fault, or one that a defect takes badly, strikes both.
    """
    (case,) = [one for one in CASES if one is case]
    backend = case.backends[-1]
    (part,) = matrix.parts([(case, backend)], seeds=2, seed="1")
    scenario = parse_scenario(
        case.scenario(backend, trials=part.trials, seed=part.seed), name=case.name
    )
    assert unlike(part, scenario) == ""
    assert list(scenario.overlong()) == []
    (fault,) = scenario.faults
    assert fault.kind == case.kind
    assert (fault.arm is None) == (case.is_masked or bool(case.defect))
    assert scenario.subject.control is not None
    sees = case.seen_by(backend)
    assert bool(sees) != case.is_masked
    assert sees.keys() - {HANG} <= {check.id for check in scenario.checks}
    assert (HANG in sees) == (scenario.subject.control.must_fail.hang is not None)
    assert case.says.keys() <= sees.keys() or case.is_masked


def test_the_sample_is_eight_cells_of_every_effect() -> None:
    """Sentinels are cells of the catalogue, half of them on each backend, and every effect is among
    them.
    """
    assert len(SENTINELS) == 8
    assert SENTINELS <= CELLS
    assert {case.does for case in CASES for name, _ in SENTINELS if case.name == name} == set(
        EFFECTS
    )
    assert sorted(backend for _, backend in SENTINELS) == ["gloo"] * 4 + ["mlx-ring"] * 4


@pytest.mark.parametrize("seeds", [1, 25, 26, 100])
def test_every_cell_has_exactly_its_seeds(seeds: int) -> None:
    """Parts share the seeds of a cell out: none is made twice, for no two have one root."""
    asked = matrix.chosen(only=["kill", "pause"], backends=["gloo"], sample=False)
    parts = matrix.parts(asked, seeds=seeds, seed="s")
    assert len({part.name for part in parts}) == len(parts)
    for case, backend in asked:
        own = [part for part in parts if (part.case, part.backend) == (case.name, backend)]
        assert sum(part.trials for part in own) == seeds
        assert max(part.trials for part in own) <= matrix.BATCH
        assert len({part.seed for part in own}) == len(own)


def test_what_was_asked_for_in_vain_is_named() -> None:
    """A kind or backend that is not there is no empty matrix."""
    with pytest.raises(Nothing, match="did you mean kill"):
        matrix.chosen(only=["kil"], backends=[], sample=False)
    with pytest.raises(Nothing, match="gloo and mlx-ring"):
        matrix.chosen(only=[], backends=["nccl"], sample=False)
    with pytest.raises(Nothing, match="no case"):
        matrix.chosen(only=["torch-settings"], backends=["mlx-ring"], sample=False)
