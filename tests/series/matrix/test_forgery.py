"""What a signer may try with the evidence of a matrix, each refused by what it says of itself or
counted as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.record.facts import SOURCE_FOLDER, RepositoryFacts
from harness.record.model import RecordError, read_model
from harness.scenario import Scenario, parse_scenario
from harness.series import matrix
from harness.series.matrix import MatrixSeries
from harness.series.matrix.case import HANG
from harness.series.matrix.catalogue import CASES
from harness.series.matrix.facts import (
    FORMAT,
    STANDARD,
    MatrixFacts,
    MatrixPart,
    flaw,
    other_code,
    unlike,
)
from harness.series.matrix.facts import PATH as FACTS
from harness.series.matrix.record import assemble, counted
from harness.series.replay import refusal
from harness.series.series import Nothing, code
from harness.stats.outcome import Failure, Strike, Trial

SEEDS = 2 * matrix.BATCH
NOWHERE = RepositoryFacts(
    commit=None, tree=None, dirty=None, untracked=None, origin=None, scenario=None
)


def facts(*only: str, seeds: int = SEEDS) -> MatrixFacts:
    """What an honest signer plans."""
    return MatrixFacts(
        format=FORMAT,
        rankproof="0.1.0",
        id="20261122T120000Z-00000000",
        made="2026-11-22T12:00:00Z",
        signer=None,
        source=NOWHERE,
        code=code(),
        seeds=seeds,
        seed=matrix.SEED,
        sample=False,
        only=list(only),
        backends=[],
        **matrix.planned(only=only, backends=[], sample=False, seeds=seeds, seed=matrix.SEED),
    )


def scenario_of(part: MatrixPart) -> Scenario:
    case = matrix.case_of(part)
    assert case is not None
    return parse_scenario(
        case.scenario(part.backend, trials=part.trials, seed=part.seed), name=part.name
    )


def without(honest: MatrixFacts, gone: Callable[[MatrixPart], bool]) -> MatrixFacts:
    return honest.model_copy(update={"parts": [part for part in honest.parts if not gone(part)]})


def told_otherwise(honest: MatrixFacts, **update: Any) -> MatrixFacts:
    """The same with another word about each of its parts."""
    return honest.model_copy(
        update={"parts": [part.model_copy(update=update) for part in honest.parts]}
    )


def trial(part: MatrixPart, *, proved: bool = True) -> Trial:
    """One in which all was seen as it must be, and the fault is proved or not."""
    strike = Strike(
        fault="struck", rank=1, struck=True, undone=False, proved=proved, description="", lines=[]
    )
    failures = [
        Failure(check=name, ranks=ranks, reasons=[part.says.get(name, "")])
        for name, ranks in part.sees.items()
        if name != HANG
    ]
    about: dict[str, Any] = {
        "index": 0,
        "seed": "0",
        "evidence": "",
        "ms": 1.0,
        "strikes": [strike],
    }
    return Trial(**about, outcome="fail", failures=failures, as_stated=True)


def test_what_an_honest_plan_says_of_itself_agrees() -> None:
    """Its parts have their seeds, and its plan matches this version."""
    honest = facts("kill", "pause")
    assert (flaw(honest), refusal(MatrixSeries(), honest), MatrixSeries().other_plan(honest)) == (
        "",
        "",
        "",
    )


def test_a_case_left_out_is_refused_or_told() -> None:
    """Of this very code it is refused.

    Whoever names other code is told what this version would have made.
    """
    short = without(facts("kill/plain", "exit", seeds=1), lambda part: part.kind == "kill")
    assert "this version's plan differs: it lacks kill-gloo-00, kill-mlx-ring-00" in refusal(
        MatrixSeries(), short
    )
    other = short.model_copy(update={"code": "0" * 64})
    assert (refusal(MatrixSeries(), other), MatrixSeries().other_plan(other)) == (
        "",
        "it lacks kill-gloo-00, kill-mlx-ring-00",
    )
    honest = facts("kill", seeds=1)
    assert "it lacks exit-gloo-00" in refusal(
        MatrixSeries(), honest.model_copy(update={"only": ["kill", "exit"]})
    )
    assert "the checks that no case needs" in refusal(
        MatrixSeries(), honest.model_copy(update={"unused": []})
    )


@pytest.mark.parametrize(
    ("update", "why"),
    [
        (
            {"sees": {"all-finished": [0, 1, 2]}, "says": {}},
            "the checks that must detect the fault, which start with struck-finishes",
        ),
        ({"sees": {}, "says": {}}, "the checks that must detect the fault"),
        ({"masked": True, "sees": {}, "says": {}}, "whether its fault is tolerated"),
        ({"masked": True, "effect": "masked", "sees": {}, "says": {}}, "strikes both arms"),
        ({"checks": {"struck-finishes": "exit"}}, "its checks"),
        ({"kind": "partition", "case": "partition"}, "its kind of fault"),
        ({"struck": [0]}, "the ranks that are struck"),
        ({"trials": 100}, "its trials"),
        ({"backend": "mlx-ring"}, "its backend"),
        ({"seed": "another"}, "its seed"),
    ],
)
def test_a_part_is_counted_as_what_it_ran(update: dict[str, Any], why: str) -> None:
    """Another label, other checks, another backend, more trials: the scenario of the part says
    otherwise.
    """
    part = facts("kill/plain", seeds=1).parts[0]
    assert part.backend == "gloo"
    assert why in unlike(part.model_copy(update=update), scenario_of(part))


def test_fewer_checks_that_have_to_see_it_are_refused() -> None:
    """The first is in the scenario, the others in the plan: without one of them it is not this
    code's matrix.
    """
    honest = facts("kill/plain", seeds=1)
    lax = told_otherwise(honest, sees={"struck-finishes": [1]})
    assert "it plans a different part for kill-gloo-00, kill-mlx-ring-00" in refusal(
        MatrixSeries(), lax
    )


def test_a_part_dropped_is_missed() -> None:
    """From the folder, or from the plan as well, whatever code is said to have made it."""
    honest = facts("kill/plain")
    written = honest.model_dump_json().encode()
    with pytest.raises(RecordError, match="a part is missing: evidence/parts/kill-gloo-01"):
        assemble(
            lambda _: written, [part.path for part in honest.parts if part.name != "kill-gloo-01"]
        )
    short = without(honest, lambda part: part.name == "kill-gloo-01")
    assert flaw(short) == "kill on gloo has 25 trials, but the matrix plans 50 for each cell"


def test_a_part_counted_twice_is_refused() -> None:
    """Under another name, or under another name and seed.

    So is one that asks less than its fellows.
    """
    honest = facts("kill/plain")
    twin = honest.parts[0].model_copy(update={"name": "kill-gloo-01"})
    first, *rest = (part for part in honest.parts if part.name != twin.name)
    assert "two parts have one scenario" in flaw(
        honest.model_copy(update={"parts": [first, twin, *rest]})
    )
    changed = twin.model_copy(update={"scenario": "0" * 64})
    assert "two parts of kill on gloo have the same seed" in flaw(
        honest.model_copy(update={"parts": [first, changed, *rest]})
    )
    lax = changed.model_copy(update={"seed": "another", "sees": {"struck-finishes": [1]}})
    assert "differ in their settings" in flaw(
        honest.model_copy(update={"parts": [first, lax, *rest]})
    )


def test_a_void_is_not_proved() -> None:
    """A fault without proof is counted as put in, and not as proved.

    A trial that is left out is missed.
    """
    part, *_ = facts("kill/plain", seeds=3).parts
    good, void = (
        trial(part),
        trial(part, proved=False).model_copy(update={"outcome": "void", "as_stated": None}),
    )
    clean = [trial(part).model_copy(update={"outcome": "pass", "failures": [], "strikes": []})] * 3
    whole = counted([part], struck=[good] * 3, clean=clean, broken=[])
    assert (whole.verdict, whole.proved, whole.named) == ("PASS", 3, 3)
    one = counted([part], struck=[good, good, void], clean=clean, broken=[])
    assert (one.verdict, one.injected, one.proved, one.named) == ("INCONCLUSIVE", 3, 2, 2)
    for struck, kept in (([good, good], clean), ([good] * 3, clean[:2])):
        less = counted([part], struck=struck, clean=kept, broken=[])
        assert (less.verdict, less.lacking) == ("INCONCLUSIVE", ["1 trial planned but not run"])
    named_otherwise = good.model_copy(update={"failures": good.failures[:-1]})
    assert (
        counted([part], struck=[good, good, named_otherwise], clean=clean, broken=[]).verdict
        == "FAIL"
    )


def test_code_beside_the_standard_one_is_refused() -> None:
    """A file of a name of the standard library's would be imported in its place."""
    honest = facts("kill/plain", seeds=1)
    scenario = scenario_of(honest.parts[0])
    listed = {
        f"{SOURCE_FOLDER}/{arm}/{STANDARD}": honest.subject for arm in ("candidate", "control")
    }
    assert other_code(scenario, listed, honest) == ""
    assert other_code(scenario, {**listed, f"{SOURCE_FOLDER}/control/hashlib.py": "0" * 64}, honest)
    assert other_code(scenario, {**listed, f"{SOURCE_FOLDER}/control/{STANDARD}": "0" * 64}, honest)
    linear = facts("perturb/logits", seeds=1)
    assert "not a file of standard subjects" in other_code(
        scenario_of(linear.parts[0]), listed, honest
    )


def test_a_record_of_another_format_is_refused() -> None:
    """There is one format, and its number is 1; the message names the key."""
    other = facts("kill").model_dump_json().replace('"format":1', '"format":2')
    with pytest.raises(RecordError, match="format"):
        read_model(MatrixFacts, other.encode(), name=FACTS)


def test_one_case_can_be_chosen_alone() -> None:
    """By kind and variant; the kind alone means all of its cases, and what was left out is not told
    as lacking.
    """
    assert len({case.choice for case in CASES}) == len(CASES)
    assert {part.case for part in facts("perturb/text", seeds=1).parts} == {"perturb-text"}
    assert {part.case for part in facts("perturb/plain", seeds=1).parts} == {"perturb"}
    assert {part.case for part in facts("perturb", seeds=1).parts} >= {
        "perturb",
        "perturb-text",
        "perturb-logits",
    }
    assert facts("reorder-calls/plain", seeds=1).without == {
        "reorder-calls on mlx-ring": "MLX runs a call when its result is evaluated, so the fault"
        " cannot set the order"
    }
    with pytest.raises(
        Nothing, match="perturb does not have this case; its cases: perturb/plain, perturb/text"
    ):
        facts("perturb/txt")
