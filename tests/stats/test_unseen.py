"""What comparing logits leaves open is told: how small a defect, which prompts, and whose word it
rests on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.scenario import parse_scenario
from harness.stats.unseen import left_out, unseen
from tests.checks import worlds
from tests.checks.test_shards import LEFT, NORM, RIGHT, ROWS, WHOLE_NORM, checkpoint, shard
from tests.checks.test_sharing_plan import LOWER, READY, TENSORS, UPPER, WHOLE, piece, plan
from tests.checks.worlds import Reference

TEXT = """
schema: 1
id: it
title: It
question: Does it?
subject:
  entry: subject:run
  candidate: {with: {defect: none}}
  control: {with: {defect: some}, must_fail: {check: same, ranks: every}}
  reference: {with: {}}
matrix: {ranks: [2, 3], backend: [gloo], exclude: [{ranks: 3}]}
trials: {candidate: 5, control: 2, accept: {failure_rate_below: 50%}}
checks:
  - CHECK
"""
SAME = "{id: same, kind: equivalent, ranks: every, against: reference}"
BOUNDARY: tuple[str, dict[str, Any]] = ("prefill.boundary", {"prompt": 0, "at": 3, "size": 3})
NO_SIZE = (
    "the reference tried no defect of known size, so this run does not show how small a defect check"
    " same detects, or that its limit allows only noise"
)
NO_CHUNK = (
    "no rank reported a boundary between two chunks of a prompt (prefill.boundary), so this run does"
    " not show that any prompt was longer than a chunk"
)
EXTENT = "logits were compared at "


def told(
    reference: Reference, *, check: str = SAME, said: list[tuple[str, dict[str, Any]]] | None = None
) -> list[str]:
    """What is left open where two ranks gave the reference's bits and said this beside the
    tokens.
    """
    scenario = parse_scenario(TEXT.replace("CHECK", check).encode(), name="it")
    own = [event for event in reference.events if event[0] == "generated"]
    events = [*own, *(said if said is not None else [BOUNDARY])]
    kept = [reference.answer, reference.answer]
    found = unseen(
        scenario, worlds.noted(scenario.checks[0], reference, kept, said=[events, events])
    )
    return [sentence for sentence in found if not sentence.startswith(EXTENT)]


def sized(*moved: tuple[float, float]) -> Reference:
    reference = Reference()
    for number, (size, distance) in enumerate(moved):
        reference.events.append(
            ("sensitivity", {"defect": number, "size": size, "what": "layer 1 too large"})
        )
        for name, values in reference.answer.items():
            reference.kept[f"sensitivity.{number}.{name}"] = values + np.float32(distance)
    return reference


@pytest.mark.parametrize(
    ("dtypes", "dtype", "words"),
    [
        (
            ["BF16"],
            "float32",
            ["the checkpoint is stored in bfloat16 and was computed in float32, so rounding in "],
        ),
        (["BF16", "F32"], "bfloat16", []),
        (["F32"], "float32", []),
        (["F32"], "bfloat16", []),
    ],
)
def test_another_dtype_than_the_checkpoint_is_kept_in_is_told(
    dtypes: list[str], dtype: str, words: list[str]
) -> None:
    """Who serves a model in bfloat16 and validates it in float32, which is the default, has not
    seen what is served.
    """
    said = [BOUNDARY, ("engine.ready", {"dtype": dtype}), ("shards", {"dtypes": dtypes})]
    open_ = told(sized((0.01, 1.0)), said=said)
    assert [sentence for sentence in open_ if "float" in sentence] == [
        word + "bfloat16 would not show up here" for word in words
    ]


def test_the_smallest_defect_that_would_have_been_seen_is_told() -> None:
    """With the largest that would not have been.

    And where none was tried, or none would be seen, that.
    """
    seen = told(sized((0.1, 1e-2), (0.01, 1e-7)))
    few = "A defect at few positions may be larger and still go undetected"
    smallest = "size 0.1 (layer 1 too large; size 0.01 was not detected)"
    known = "the smallest defect that check same is known to detect has"
    assert seen == [f"{known} {smallest}. {few}"]
    assert told(sized((0.1, 1e-7))) == [
        "check same would have detected none of the defects of known size that the reference tried"
    ]
    assert told(Reference()) == [NO_SIZE]


@pytest.mark.parametrize("slack", ["margin: 100", "middle: 100"])
def test_more_than_the_noise_is_told(slack: str) -> None:
    """By what the scenario states; the usual margin says nothing."""
    wide = told(Reference(), check=SAME.replace("}", f", {slack}}}"))
    key = slack.partition(":")[0]
    assert f"check same allows 100 times the reference's noise ({key}, usually 2)" in wide
    assert told(Reference(), check=SAME.replace("}", ", margin: 2, middle: 1.25}")) == [NO_SIZE]


def test_prompts_that_show_little_are_told() -> None:
    """One prompt asked twice, one position of each, a phase that nobody kept, chunks that nobody
    came to.
    """
    twice = Reference()
    for name in [one for one in twice.kept if one.endswith(".1")]:
        twice.kept[name] = twice.kept[f"{name[:-1]}0"]
    assert "prompts 0, 1 have bit-identical logits, so they count as one prompt" in told(twice)
    last = Reference()
    last.kept = {
        name: values[-1:] if "prefill" in name else values for name, values in last.kept.items()
    }
    assert "only one position of each prompt was compared" in told(last)
    prefill = Reference()
    prefill.kept = {name: values for name, values in prefill.kept.items() if "decode" not in name}
    assert "no decode logits were compared" in told(prefill)
    assert told(Reference(), said=[]) == [NO_SIZE, NO_CHUNK]


def test_code_that_the_reference_ran_too_is_named() -> None:
    """By name and content; a file of the same name with another content is other code."""
    modules = [
        {"module": name, "file": f"{name}.py", "sha256": digest}
        for name, digest in (("a", "1"), ("b", "2"))
    ]
    loaded = [("subject.loaded", {"modules": modules}), BOUNDARY]
    reference = Reference()
    reference.events.append(
        ("subject.loaded", {"modules": [modules[0], {**modules[1], "sha256": "3"}]})
    )
    said = told(reference, said=loaded)
    assert "the reference and the ranks share a.py, so a bug there would not show up here" in said
    reference.events[-1] = ("subject.loaded", {"modules": None})
    assert told(reference, said=loaded) == [NO_SIZE]


def covered(rows: Any, *said: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """What is left open by shards-cover alone, whose `replicated` allows everything but a name that
    is not there.
    """
    check = (
        '{id: covers, kind: shards-cover, ranks: every, against: reference, replicated: ["w",'
        " norm]}"
    )
    scenario = parse_scenario(
        TEXT.replace("check: same", "check: covers").replace("CHECK", check).encode(), name="it"
    )
    reference = Reference()
    reference.kept = {"checkpoint": checkpoint(w=rows, norm=NORM)}
    return unseen(scenario, worlds.noted(scenario.checks[0], reference, [{}, {}], said=list(said)))


def test_a_checkpoint_that_is_hardly_split_is_told() -> None:
    """Where most of it lies on several ranks.

    And that only each rank's own report says the bytes that it used.
    """
    word = "we rely on each rank's own report of the bytes that it used (check covers)"
    assert covered(ROWS, [LEFT, WHOLE_NORM], [RIGHT, WHOLE_NORM]) == [word]
    whole = shard("w", ROWS, (0, 4), (0, 6))
    found = covered(ROWS, [whole, WHOLE_NORM], [whole, WHOLE_NORM])
    assert found == [
        "100% of the checkpoint is on several ranks, as replicated of check covers allows",
        word,
    ]


def test_what_a_plan_leaves_whole_is_told() -> None:
    """As the plan's, and not the list's, which was not asked."""
    check = (
        "{id: covers, kind: shards-cover, ranks: every, against: reference, plan: reference,"
        " replicated: [norm]}"
    )
    scenario = parse_scenario(
        TEXT.replace("check: same", "check: covers").replace("CHECK", check).encode(), name="it"
    )
    reference = Reference()
    reference.kept = {"checkpoint": checkpoint(**TENSORS)}
    reference.events += plan("embed", *WHOLE)
    ranks = [
        [READY, *map(piece, ("embed", *WHOLE)), piece("layers.0.experts", rows)]
        for rows in (UPPER, LOWER)
    ]
    found = unseen(scenario, worlds.noted(scenario.checks[0], reference, [{}, {}], said=ranks))
    assert (
        "69% of the checkpoint is on several ranks, as the plan of hf-tensor states (check covers)"
        in found
    )


def test_combinations_that_were_left_out_are_named() -> None:
    """A failing cell can be left out of the matrix: the report says which are."""
    scenario = parse_scenario(TEXT.replace("CHECK", SAME).encode(), name="it")
    assert (
        left_out(scenario) == "combinations that matrix.exclude leaves out were not tested: ranks=3"
    )
    assert (
        left_out(
            parse_scenario(
                TEXT.replace("CHECK", SAME).replace(", exclude: [{ranks: 3}]", "").encode(), name=""
            )
        )
        == ""
    )


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            "",
            "",
            " only. It is unknown how requests were batched and sampled",
        ),
        (
            "entry: subject:run",
            "use: hf-tensor",
            " only, at batch size 1 with greedy sampling",
        ),
        (
            "entry: subject:run",
            "entry: subject:run\n  beside: mlx-tensor",
            " only, at batch size 1 with greedy sampling",
        ),
    ],
)
def test_how_far_logits_were_compared_is_told(before: str, after: str, words: str) -> None:
    """Positions and steps by what was kept.

    Batches and sampling where a ready subject asked, else that it is not.
    """
    text = (
        TEXT.replace("CHECK", SAME).replace(before, after, 1)
        if before
        else TEXT.replace("CHECK", SAME)
    )
    if "use: " in after:
        text = text.replace("with: {defect: none}", "with: {}").replace(
            "{defect: some}", "{defect: dropped-layer}"
        )
        text = text.replace("trials:", "inputs: {model: {made: llama}}\ntrials:")
    scenario = parse_scenario(text.encode(), name="it")
    reference = Reference()
    history = worlds.noted(scenario.checks[0], reference, [reference.answer] * 2)
    (found,) = [
        sentence for sentence in unseen(scenario, history, axes={}) if sentence.startswith(EXTENT)
    ]
    assert found == f"{EXTENT}positions 0 to 8 of 2 prompts and 4 decode steps{words}"
