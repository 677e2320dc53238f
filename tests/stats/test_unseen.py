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
    "the reference tried no defect of known size: nothing shows how small a one check same sees, or"
    " that the noise it allows is noise"
)
NO_CHUNK = (
    "no rank told of a boundary between two chunks of a prompt (prefill.boundary): nothing shows"
    " that any was longer"
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
            ["the checkpoint is kept in bfloat16 and was computed with in float32: what bfloat16 "],
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
        word + "rounds is not seen" for word in words
    ]


def test_the_smallest_defect_that_would_have_been_seen_is_told() -> None:
    """With the largest that would not have been.

    And where none was tried, or none would be seen, that.
    """
    seen = told(sized((0.1, 1e-2), (0.01, 1e-7)))
    few = "one of few positions may be larger, and unseen"
    smallest = "layer 1 too large by 0.1 (0.01 would not have been)"
    assert seen == [f"check same is shown to see no smaller defect than {smallest}; {few}"]
    assert told(sized((0.1, 1e-7))) == [
        "of the defects of known size that the reference tried, check same would have seen none"
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
    assert "prompts 0, 1 gave the same logits to the bit: they are one prompt" in told(twice)
    last = Reference()
    last.kept = {
        name: values[-1:] if "prefill" in name else values for name, values in last.kept.items()
    }
    assert "of each prompt one position was compared" in told(last)
    prefill = Reference()
    prefill.kept = {name: values for name, values in prefill.kept.items() if "decode" not in name}
    assert "no logits of decode were compared" in told(prefill)
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
    assert (
        "the reference ran a.py as well as the ranks: what is wrong there on both sides is not seen"
        in said
    )
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

    And that ranks say themselves which bytes they compute with.
    """
    word = "which bytes it computes with, a rank says itself (check covers)"
    assert covered(ROWS, [LEFT, WHOLE_NORM], [RIGHT, WHOLE_NORM]) == [word]
    whole = shard("w", ROWS, (0, 4), (0, 6))
    found = covered(ROWS, [whole, WHOLE_NORM], [whole, WHOLE_NORM])
    assert found == [
        "100% of the checkpoint lie on several ranks, as replicated of check covers allows",
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
        "69% of the checkpoint lie on several ranks, as the plan of hf-tensor has it (check covers)"
        in found
    )


def test_combinations_that_were_left_out_are_named() -> None:
    """A failing cell can be left out of the matrix: the report says which are."""
    scenario = parse_scenario(TEXT.replace("CHECK", SAME).encode(), name="it")
    assert left_out(scenario) == "matrix.exclude leaves out what nothing is shown about: ranks=3"
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
            (
                ": nothing beyond that was looked at, and how requests were batched and sampled is"
                " not told"
            ),
        ),
        (
            "entry: subject:run",
            "use: hf-tensor",
            ", at batch size 1 with greedy sampling: nothing beyond that was looked at",
        ),
        (
            "entry: subject:run",
            "entry: subject:run\n  beside: mlx-tensor",
            ", at batch size 1 with greedy sampling: nothing beyond that was looked at",
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
