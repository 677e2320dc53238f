"""DistributedInferenceValidator: what it asks is run for real, and its reports can be judged
again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.run import distributed_inference
from harness.run.distributed_inference import DistributedInferenceValidator
from harness.scenario import LoadedScenario, ScenarioError, load_scenario
from harness.trust.key import find_signer
from harness.world.hosts import host as hosts
from tests.kit.commands import run_command

RESET = Path(__file__).parents[2] / "scenarios" / "corruption-and-recovery" / "reset.yaml"
PROMPTS = [[40, 41, 42, 43], [164, 70, 194, 96, 208, 181, 246, 220]]


def asking(folder: Path, **given: Any) -> DistributedInferenceValidator:
    """One that asks of a small model."""
    places = {"folder": folder / "asked", "results": folder / "results"}
    return DistributedInferenceValidator(
        model={"made": "llama"}, **places, **{"signer": None, **given}
    )


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize(
    "question",
    [
        "compare_single_vs_distributed",
        "run_deterministic_test",
        pytest.param(
            "stress_test_pipeline",
            marks=pytest.mark.skipif(
                hosts.refusal() is not None, reason="this machine cannot have test hosts"
            ),
        ),
    ],
)
def test_each_question_is_a_signed_run_with_a_control_that_failed(
    tmp_path: Path, question: str
) -> None:
    """PASS, with every fault proved, and a report that is judged the same again by whoever verifies
    it.
    """
    signer = find_signer()
    finished = getattr(asking(tmp_path, signer=signer), question)(PROMPTS)
    judged = finished.record.judgement
    assert judged.verdict == "PASS", judged.reasons
    (cell,) = judged.cells
    assert (cell.candidate.counted, cell.candidate.failed) == (5, 0)
    assert (cell.control.counted, cell.control.as_stated) == (2, 2)
    assert all(strike.proved for trial in cell.candidate.trials for strike in trial.strikes)
    assert (
        run_command(tmp_path, "verify", str(finished.report), "--signer", signer.fingerprint).code
        == 0
    )


@pytest.mark.parametrize(
    ("question", "engine", "prompts", "why"),
    [
        ("compare_single_vs_distributed", "hf-pipeline", [], "must contain at least one"),
        (
            "compare_single_vs_distributed",
            "hf-pipeline",
            [[]],
            "must be a list of strings or lists of token ids",
        ),
        (
            "run_deterministic_test",
            "hf-pipeline",
            [[-1]],
            "must be a list of strings or lists of token ids",
        ),
        (
            "stress_test_pipeline",
            "hf-tensor",
            PROMPTS,
            "can only be used with pipelines, whose stages pass states on",
        ),
        ("stress_test_pipeline", "mlx-pipeline", PROMPTS, "carried.made_anew"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_any_rank_starts(
    tmp_path: Path, question: str, engine: str, prompts: list[list[int]], why: str
) -> None:
    """No prompts, none with tokens, and a stress test of an engine that cannot mend what it hands
    on.
    """
    with pytest.raises(ScenarioError, match=why.replace(".", "[.]")):
        getattr(asking(tmp_path, engine=engine), question)(prompts)
    assert not (tmp_path / "results").exists()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[LoadedScenario]:
    """The scenarios that would be run."""
    scenarios = list[LoadedScenario]()
    monkeypatch.setattr(
        distributed_inference, "run", lambda scenario, *_, **__: scenarios.append(scenario)
    )
    return scenarios


def test_titles_and_questions_fit(tmp_path: Path, asked: list[LoadedScenario]) -> None:
    """Lint accepts each scenario that is written, and no title is a question."""
    validator = asking(tmp_path)
    validator.compare_single_vs_distributed(PROMPTS)
    validator.run_deterministic_test(PROMPTS)
    validator.stress_test_pipeline(PROMPTS)
    assert [list(one.scenario.overlong()) for one in asked] == [[], [], []]
    assert not any(one.scenario.title.startswith("Do") for one in asked)


def test_a_reset_strikes_the_rank_that_receives_and_nothing_else_counts(
    tmp_path: Path, asked: list[LoadedScenario]
) -> None:
    """gloo may never wake a rank that sends: the stress test and the shipped scenario strike the
    one after it.
    """
    asking(tmp_path).stress_test_pipeline(PROMPTS)
    for scenario in (one.scenario for one in (*asked, load_scenario(RESET))):
        (struck,) = [fault for fault in scenario.faults if fault.kind == "reset"]
        assert (struck.ranks.of(2), struck.at) == ((1,), "decode.begin")
        assert scenario.subject.control.must_fail.message == "by peer"
