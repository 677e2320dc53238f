"""What a report would say of a defect that was tried on every rung: the attribution, by the
harness's own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from harness.checks import Finding, RankFinding
from harness.engines.inference_inside.engine import AT_ONE
from harness.history import History
from harness.scenario import Cell, Scenario, parse_scenario
from harness.stats.attribution import ONE, Attribution, attribute, on_rungs
from harness.stats.outcome import Failure, Trial
from harness.stats.tally import Tally
from tests.ladder.cases import CLEAN

SCENARIO: Scenario = parse_scenario(
    b"""
schema: 1
id: walk
title: A defect on every rung
question: Which is the first world that is wrong?
subject:
  entry: subject:run
  candidate: {with: {defect: none}}
  control: {with: {defect: some}, must_fail: {check: same, ranks: every}}
  reference: {with: {defect: none}}
matrix: {ranks: [1, 2, 3, 4], backend: [gloo]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 1, control: 1, accept: {failure_rate_below: 99%}}
checks: [{id: same, kind: equivalent, ranks: every, against: reference, middle: 1.25}]
""",
    name="scenario.yaml",
    overrides=[],
)
SAME = "same"
Walk = Mapping[int, str]
"""What was said on each rung, by its ranks."""


def attributed(walk: Walk, defect: str) -> str:
    """What is wrong with the attributions of a walk, one for each rung that is DIVERGENT.

    Empty where all are right.

    A defect of a single rank has to be `already wrong in a world with one rank` on each rung, of any other
    a world with one rank has to be excluded, and two ranks the smallest world that is wrong.
    """
    rungs = [
        (Cell(f"ranks={ranks}", "", ranks, "gloo"), tally(word))
        for ranks, word in sorted(walk.items())
    ]
    begins, compared = 1 if defect in AT_ONE else 2, dict[str, Attribution]()
    for cell, counts in rungs:
        if cell.ranks < begins and not counts.failed:
            continue
        parts = tuple(
            RankFinding(rank=rank, passed=not counts.failed) for rank in range(cell.ranks)
        )
        finding, seen = (
            Finding(check=SAME, kind="equivalent", ranks=parts),
            History([], size=cell.ranks),
        )
        found = attribute(SCENARIO, 0, "", [finding], seen)
        if found is None:
            return f"over {cell.ranks} nothing is wrong"
        compared[cell.id] = found
        found = on_rungs(found, cell, rungs, compared=compared)
        word = next(cause.word for cause in found.causes if cause.what == ONE)
        if (word, found.first_rung) != ("found" if begins == 1 else "excluded", begins):
            return f"{ONE}: {word}; first wrong: {found.first_rung}"
    return ""


def tally(word: str) -> Tally:
    """Of a trial of which that was said."""
    wrong, right = int(word.startswith("DIVERGENT")), int(word in ("EQUIVALENT", "IDENTICAL"))
    failures = [Failure(check=SAME, ranks=[0], reasons=[word])] * wrong
    # Who could not be compared is neither wrong nor right: a trial that does not count.
    outcome: Any = "fail" if wrong else "pass" if right else "void"
    made = Trial(index=0, seed="1", evidence="", ms=1.0, outcome=outcome, failures=failures)
    voids = 1 - wrong - right
    return Tally(
        trials=[made], counted=1 - voids, failed=wrong, voids=voids, upper=1.0, upper_with_voids=1.0
    )


def walks(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Of each defect, how many seeds were walked from a world of one, and of how many the
    attribution is right.
    """
    said: defaultdict[tuple[str, ...], dict[int, str]] = defaultdict(dict)
    for row in rows:
        if row["defect"] != CLEAN:
            key = tuple(str(row[name]) for name in ("engine", "model", "dtype", "defect", "seed"))
            said[key][row["ranks"]] = row["said"]
    found: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for (engine, model, dtype, defect, _seed), walk in said.items():
        if 1 in walk and 2 in walk:
            rungs = "-".join(map(str, sorted(walk)))
            found[engine, model, dtype, defect, rungs][attributed(walk, defect)] += 1
    for (engine, model, dtype, defect, rungs), words in sorted(found.items()):
        others = ", ".join(f"{many} x {word}" for word, many in words.most_common() if word)
        start = f"{engine:12} {model:11} {dtype:8} {rungs:7} {defect:16}"
        yield f"{start} {words['']:3} of {words.total():3} {others}".rstrip()
