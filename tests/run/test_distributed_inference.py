"""DistributedInferenceValidator: what it asks is run for real, and its reports can be judged
again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.run import distributed_inference
from harness.run.distributed_inference import DistributedInferenceValidator, StressTestResult
from harness.run.run import Finished
from harness.scenario import LoadedScenario, ScenarioError, load_scenario
from harness.trust.key import find_signer
from harness.world.hosts import host as hosts
from tests.kit.commands import run_command

RESET = Path(__file__).parents[2] / "scenarios" / "corruption-and-recovery" / "reset.yaml"
PROMPTS = [[40, 41, 42, 43], [164, 70, 194, 96, 208, 181, 246, 220]]


def compared(validator: DistributedInferenceValidator) -> Finished:
    return validator.compare_single_vs_distributed(PROMPTS)


def sampled(validator: DistributedInferenceValidator) -> Finished:
    return validator.run_deterministic_test(1, "Hello world")


def stressed(validator: DistributedInferenceValidator) -> Finished:
    (finished,) = validator.stress_test_pipeline(timedelta()).runs
    return finished


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
        compared,
        sampled,
        pytest.param(
            stressed,
            marks=pytest.mark.skipif(
                hosts.refusal() is not None, reason="this machine cannot have test hosts"
            ),
        ),
    ],
)
def test_each_question_is_a_signed_run_with_a_control_that_failed(
    tmp_path: Path, question: Callable[[DistributedInferenceValidator], Finished]
) -> None:
    """PASS, with every fault proved, and a report that is judged the same again by whoever verifies
    it.
    """
    signer = find_signer()
    finished = question(asking(tmp_path, signer=signer))
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
        ("compare", "hf-pipeline", [], "must contain at least one"),
        ("compare", "hf-pipeline", [[]], "must be a list of strings or lists of token ids"),
        ("sample", "hf-pipeline", [[-1]], "must be a list of strings or lists of token ids"),
        (
            "stress",
            "hf-tensor",
            PROMPTS,
            "can only be used with pipelines, whose stages pass states on",
        ),
        ("stress", "mlx-pipeline", PROMPTS, "carried.made_anew"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_any_rank_starts(
    tmp_path: Path, question: str, engine: str, prompts: list[list[int]], why: str
) -> None:
    """No prompts, none with tokens, and a stress test of an engine that cannot mend what it hands
    on.
    """
    validator = asking(tmp_path, engine=engine)
    questions: dict[str, Callable[[], object]] = {
        "compare": lambda: validator.compare_single_vs_distributed(prompts),
        "sample": lambda: validator.run_deterministic_test(1, prompts),
        "stress": lambda: validator.stress_test_pipeline(timedelta(), prompt=prompts),
    }
    with pytest.raises(ScenarioError, match=why.replace(".", "[.]")):
        questions[question]()
    assert not (tmp_path / "results").exists()


class Asked:
    """Takes the place of `run`: keeps the scenarios that would be run, and gives verdicts.

    Attributes:
        scenarios: those that were asked.
        verdicts: of the runs, in their order; the last one stays.
        now: the clock that the validator reads; each run takes a minute of it.
    """

    def __init__(self) -> None:
        self.scenarios: list[LoadedScenario] = []
        self.verdicts = ["PASS"]
        self.now = 0.0

    def run(self, scenario: LoadedScenario, *_: object, **__: object) -> SimpleNamespace:
        self.now += 60
        verdict = self.verdicts[min(len(self.scenarios), len(self.verdicts) - 1)]
        self.scenarios.append(scenario)
        return SimpleNamespace(record=SimpleNamespace(judgement=SimpleNamespace(verdict=verdict)))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What would be run."""
    made = Asked()
    clock = SimpleNamespace(monotonic=lambda: made.now)
    monkeypatch.setattr(distributed_inference, "run", made.run)
    monkeypatch.setattr(distributed_inference, "time", clock)
    return made


def test_titles_and_questions_fit(tmp_path: Path, asked: Asked) -> None:
    """Lint accepts each scenario that is written, and no title is a question."""
    validator = asking(tmp_path)
    compared(validator)
    sampled(validator)
    stressed(validator)
    assert [list(one.scenario.overlong()) for one in asked.scenarios] == [[], [], []]
    assert not any(one.scenario.title.startswith("Do") for one in asked.scenarios)


def test_a_text_is_a_prompt(tmp_path: Path, asked: Asked) -> None:
    """One text, several, and lists of token ids are each taken as prompts."""
    validator = asking(tmp_path)
    for prompt in ("Hello world", ["Hello world", "Hello"], PROMPTS):
        validator.run_deterministic_test(7, prompt)
    given = [one.scenario.subject.candidate.with_ for one in asked.scenarios]
    assert [one["prompts"] for one in given] == [
        ["Hello world"],
        ["Hello world", "Hello"],
        PROMPTS,
    ]
    assert {one["seed"] for one in given} == {7}


@pytest.mark.parametrize(("minutes", "runs"), [(0, 1), (1, 1), (1.5, 2), (10, 10)])
def test_a_stress_test_lasts_as_long_as_it_is_told(
    tmp_path: Path, asked: Asked, minutes: float, runs: int
) -> None:
    """Runs begin until the time is over, at least one, each with a seed of its own."""
    result = asking(tmp_path).stress_test_pipeline(timedelta(minutes=minutes))
    assert len(result.runs) == len(asked.scenarios) == runs
    assert result.duration == timedelta(minutes=runs)
    assert result.duration >= timedelta(minutes=minutes)
    assert len({one.scenario.seed for one in asked.scenarios}) == runs


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        (["PASS"], "PASS"),
        (["PASS", "INCONCLUSIVE", "PASS"], "INCONCLUSIVE"),
        (["FAIL", "PASS"], "FAIL"),
        (["INCONCLUSIVE", "FAIL", "PASS"], "FAIL"),
    ],
)
def test_no_run_of_a_stress_test_is_left_out(
    tmp_path: Path, asked: Asked, verdicts: list[str], verdict: str
) -> None:
    """A run that failed neither ends the test nor is made good by those after it."""
    asked.verdicts = verdicts
    result: StressTestResult = asking(tmp_path).stress_test_pipeline(timedelta(minutes=5))
    assert len(result.runs) == 5
    assert result.verdict == verdict


def test_a_reset_strikes_the_rank_that_receives_and_nothing_else_counts(
    tmp_path: Path, asked: Asked
) -> None:
    """gloo may never wake a rank that sends: the stress test and the shipped scenario strike the
    one after it.
    """
    stressed(asking(tmp_path))
    for scenario in (one.scenario for one in (*asked.scenarios, load_scenario(RESET))):
        (struck,) = [fault for fault in scenario.faults if fault.kind == "reset"]
        assert (struck.ranks.of(2), struck.at) == ((1,), "decode.begin")
        assert scenario.subject.control.must_fail.message == "by peer"
