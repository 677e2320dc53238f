"""DistributedInferenceValidator: the questions that are asked of every split model, each as a run
with a signed report.

It writes a scenario with a ready subject, its control among it, and runs it as `rankproof run`
does: the scenario is in the report's evidence, so whoever reads that can change it and run it by
himself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from harness.run.plan import RunSettings
from harness.run.progress import Progress
from harness.run.run import Finished, run
from harness.scenario import load_scenario
from harness.scenario.arm import EVERY_TRIAL
from harness.scenario.lint.sufficiency import control_trials_needed
from harness.scenario.load import scenario_text
from harness.stats.tally import Word
from harness.stats.verdict import merge
from harness.trust.key import Signer

ALL_DONE = [
    {"id": "all-finished", "kind": "exit", "ranks": "every", "code": 0},
    {"id": "nobody-left", "kind": "no-survivors"},
]
SAME_TOKENS = {
    "id": "same-tokens",
    "kind": "equal",
    "ranks": "every",
    "value": "generated.ids",
    "against": "reference",
}
MADE_ANEW = {
    "id": "made-anew",
    "kind": "at-least",
    "ranks": [1],
    "value": "carried.made_anew",
    "to": 1,
}
Prompts = str | Sequence[str] | Sequence[Sequence[int]]
"""A text, or several prompts: texts, or lists of token ids."""
STRESSED: Prompts = ((40, 41, 42, 43), (164, 70, 194, 96, 208, 181, 246, 220))
SEED = 20261122
BROKEN = {"defect": "dropped-layer"}
"""What a control has: the same question, put to code that is wrong."""


@dataclass(frozen=True, kw_only=True)
class StressTestResult:
    """Runs of a stress test, one after the other. Each is signed and has its own control.

    Attributes:
        runs: all of them, in their order; none is left out of the verdict.
        duration: from the begin of the first to the end of the last.
    """

    runs: tuple[Finished, ...]
    duration: timedelta

    @property
    def verdict(self) -> Word:
        """FAIL if any run failed, else INCONCLUSIVE if any is inconclusive, else PASS."""
        return merge(finished.record.judgement.verdict for finished in self.runs)


class DistributedInferenceValidator:
    """Runs of one model, split over the ranks by one engine, beside the whole model in one process.

    Args:
        model: a folder as transformers loads it, or what an input of a scenario may say otherwise:
            `{"made": "llama"}`.
        folder: where the scenarios are written; they stay.
        results: the folder of all results.
        signer: who signs; None leaves reports unsigned.
        ranks: world sizes, each a cell of its own.
        engine: `hf-pipeline`, or another ready subject that infers and whose reference is the whole
            model.
        integrity: for a pipeline, how its stages hand on; see its argument of this name.
        trials: of the candidate in each cell; of the control as many as tell it from chance, 2
            beside 5.
        jobs: worlds at the same time.
        progress: hears how far a run is.

    Every method raises what `run` raises, and ScenarioError for what cannot be asked: no prompts,
    or a stress test of an engine whose ranks hand nothing on, say.
    """

    # Public: each argument is a choice that its reader makes, by name.
    def __init__(
        self,
        *,
        model: Path | dict[str, str],
        folder: Path,
        results: Path,
        signer: Signer | None,
        ranks: Sequence[int] = (2,),
        engine: str = "hf-pipeline",
        integrity: str = "full",
        trials: int = 5,
        jobs: int = 1,
        progress: Progress | None = None,
    ) -> None:
        self._model: Any = model if isinstance(model, dict) else {"path": str(model.resolve())}
        self._folder = folder
        self._results = results
        self._signer = signer
        self._ranks = list(ranks)
        self._engine = engine
        self._integrity = integrity
        self._trials = trials
        self._jobs = jobs
        self._progress = progress

    def compare_single_vs_distributed(
        self, prompt: Prompts, *, max_new_tokens: int = 8
    ) -> Finished:
        """Does every rank with logits give those of the whole model, but for the noise of its own
        arithmetic?

        In the control a layer is left out. That noise can be measured, 16 positions are needed in
        all.

        Args:
            prompt: a text, or several; or lists of token ids.
            max_new_tokens: after each.
        """
        given = {"prompts": _listed(prompt), "max_new_tokens": max_new_tokens}
        return self._run(
            "single-vs-distributed",
            "The split model computes the same results as the whole model",
            "Do the split model's logits match the whole model's at every position of prefill and"
            " decode?",
            candidate={**given, **self._carried, "follow": "reference"},
            control={**given, **self._carried, "follow": "reference", **BROKEN},
            reference={**given, "envelope": "keep"},
            stated={"check": "same-model", "ranks": "every"},
            checks=[
                {"id": "same-model", "kind": "equivalent", "ranks": "every", "against": "reference"}
            ],
        )

    def run_deterministic_test(
        self, seed: int, prompt: Prompts, *, max_new_tokens: int = 32
    ) -> Finished:
        """Does every trial, on every rank, draw the tokens that the whole model draws from the same
        seed?

        In the control a layer is left out.

        Args:
            seed: that tokens are drawn from.
            prompt: a text, or several; or lists of token ids.
            max_new_tokens: after each.
        """
        given = {
            "prompts": _listed(prompt),
            "max_new_tokens": max_new_tokens,
            "sampling": "seeded",
            "seed": seed,
        }
        return self._run(
            "deterministic",
            "In every trial, every rank samples the same tokens as the whole model",
            "In every trial, does every rank sample the same tokens as the whole model with the"
            " same seed?",
            candidate={**given, **self._carried},
            control={**given, **self._carried, **BROKEN},
            reference=given,
            stated={"check": "same-tokens", "ranks": "every"},
            checks=[SAME_TOKENS],
        )

    def stress_test_pipeline(
        self, duration: timedelta, *, prompt: Prompts = STRESSED, max_new_tokens: int = 32
    ) -> StressTestResult:
        """Does every rank end with the whole model's tokens, though links are slow and connections
        are reset, for as long as this?

        The same scenario is run again and again, each time with another seed, and no run begins
        after `duration`. It is run at least once, and whatever a run ends with, the next one
        follows. On test hosts, one for each rank. That connections were made anew is asked too. The
        control is the same run with `integrity: off`, which ends with an error of gloo that names
        the peer's reset, on every rank.

        Args:
            duration: how long runs begin; the last one ends later.
            prompt: a text, or several; or lists of token ids.
            max_new_tokens: after each.
        """
        given = {"prompts": _listed(prompt), "max_new_tokens": max_new_tokens}
        begin = time.monotonic()
        runs = [self._stressed(given, seed=SEED)]
        while time.monotonic() - begin < duration.total_seconds():
            runs.append(self._stressed(given, seed=SEED + len(runs)))
        return StressTestResult(
            runs=tuple(runs), duration=timedelta(seconds=time.monotonic() - begin)
        )

    def _stressed(self, given: dict[str, Any], *, seed: int) -> Finished:
        return self._run(
            "stress",
            "Slow links and connection resets do not change any token",
            "Does every rank generate the whole model's tokens while links are slow and every"
            " connection is reset?",
            candidate={**given, "integrity": "full"},
            control={**given, "integrity": "off"},
            reference=given,
            stated={
                "check": "same-tokens",
                "ranks": "every",
                "error": "RuntimeError",
                # Reset, or where a write of its own learned of it first, closed.
                "message": "by peer",
            },
            checks=[SAME_TOKENS, MADE_ANEW],
            world={"hosts": max(self._ranks), "after_failure": "8s"},
            faults=[
                {
                    "id": "slow",
                    "kind": "latency",
                    "ranks": [1],
                    "at": "prefill.begin",
                    "by": "2ms",
                    "jitter": "2ms",
                },
                # Before it receives: gloo may never wake one that sends
                # (scenarios/corruption-and-recovery/README.md).
                {"id": "cut", "kind": "reset", "ranks": [1], "at": "decode.begin", "for": "150ms"},
            ],
            seed=seed,
        )

    @property
    def _carried(self) -> dict[str, str]:
        return {"integrity": self._integrity} if self._engine.endswith("-pipeline") else {}

    # The sections of the scenario that is written, by their names in it.
    def _run(
        self,
        name: str,
        title: str,
        question: str,
        *,
        candidate: dict[str, Any],
        control: dict[str, Any],
        reference: dict[str, Any],
        stated: dict[str, Any],
        checks: list[dict[str, Any]],
        world: dict[str, Any] | None = None,
        faults: Sequence[dict[str, Any]] = (),
        seed: int = SEED,
    ) -> Finished:
        scenario = {
            "schema": 1,
            "id": f"{self._engine}-{name}",
            "title": title,
            "question": question,
            "role": "claim",
            "inputs": {"model": self._model},
            "subject": {
                "use": self._engine,
                "candidate": {"with": candidate},
                "control": {"with": control, "must_fail": stated},
                "reference": {"with": reference, "once": "scenario", "deadline": "600s"},
            },
            "matrix": {"ranks": self._ranks},
            "world": {"deadline": "120s", **(world or {})},
            "seed": str(seed),
            "trials": {
                "candidate": self._trials,
                "control": control_trials_needed(EVERY_TRIAL, candidate=self._trials),
                "accept": {"failure_rate_below": self._bound()},
            },
            **({"faults": list(faults)} if faults else {}),
            "checks": [*checks, *ALL_DONE],
        }
        path = self._folder / name / "scenario.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(scenario_text(scenario))
        return run(
            load_scenario(path),
            RunSettings(results=self._results, signer=self._signer, jobs=self._jobs),
            progress=self._progress,
        )

    def _bound(self) -> str:
        """Return the failure rate that so many clean trials exclude at 95 % confidence, rounded
        up.
        """
        return f"{min(99, int(100 * (1 - 0.05 ** (1 / self._trials))) + 1)}%"


def _listed(prompt: Prompts) -> list[str | list[int]]:
    prompts = [prompt] if isinstance(prompt, str) else prompt
    return [one if isinstance(one, str) else [int(token) for token in one] for one in prompts]
