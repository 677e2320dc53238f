"""`equivalent`: a reference that cannot answer, or could not have shown its stated defect, decides
nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.checks.equivalent import EquivalentCheck
from harness.events import Event
from harness.history import ARTEFACTS_ACCOUNTED, History
from harness.reason import VerdictCode
from tests.checks import worlds
from tests.checks.worlds import Reference, judged

CHECK = {"kind": "equivalent"}


def doubts(
    reference: Reference,
    *,
    first_said: list[tuple[str, dict[str, Any]]] | None = None,
    **options: Any,
) -> list[tuple[VerdictCode, str]]:
    """Why the reference cannot answer, by its second run, which gave the same.

    And said it, where nothing is given.
    """
    check = worlds.CHECK.validate_python(
        {"id": "it", "ranks": "every", "against": "reference", **CHECK, **options}
    )
    assert isinstance(check, EquivalentCheck)
    events: list[Event] = []

    def take(values: dict[str, Any]) -> dict[str, Any]:
        events.append(Event(ns=4, by="harness", name=ARTEFACTS_ACCOUNTED, values=values))
        return values

    judged({**CHECK, **options}, reference, [reference.kept], change=take, arm="reference")
    first = worlds.history([reference.kept], [first_said or reference.events], arm="reference")
    second = worlds.history([reference.kept], [reference.events], reference=first, arm="reference")
    return list(
        check.doubts(
            History([*(one.event for one in second.seen), *events], size=1, reference=first)
        )
    )


def with_sensitivity(*moved: tuple[float, float]) -> Reference:
    """A reference that measured defects of these sizes, and what they move."""
    reference = Reference()
    for number, (size, distance) in enumerate(moved):
        reference.events.append(
            ("sensitivity", {"defect": number, "size": size, "what": "a layer is too large"})
        )
        for name, values in reference.answer.items():
            reference.kept[f"sensitivity.{number}.{name}"] = values + np.float32(distance)
    return reference


def test_a_run_that_could_not_have_seen_its_stated_defect_decides_nothing() -> None:
    """The smallest defect that was measured is told.

    One inside the noise, or none measured, is not enough.
    """
    reference = with_sensitivity((0.1, 1e-2), (0.01, 1e-7))
    assert doubts(reference) == []
    assert doubts(reference, sees=0.1) == []
    ((code, why),) = doubts(reference, sees=0.01)
    assert code is VerdictCode.REFERENCE_TOO_COARSE
    smallest = "size 0.1 (a layer is too large; size 0.01 was not detected)"
    assert f"the smallest that it would detect: {smallest}" in why
    assert "none was" in doubts(Reference(), sees=0.01)[0][1]


def test_a_variant_that_is_another_computation_is_named() -> None:
    """Moshi keeps the last keys alone, and reads a prompt at once after all: nobody said that its
    chunks are other.
    """
    reference = with_sensitivity((0.01, 1e-2))
    for number, words in enumerate(("two threads", "prefill in chunks of 4")):
        reference.events.append(("envelope", {"number": number, "prompt": 1, "order": words}))
    assert doubts(reference, sees=0.01) == []
    for name in reference.answer:
        reference.kept[f"envelope.1.{name}"][1:] += np.float32(0.1)
    ((code, why),) = doubts(reference, sees=0.01)
    assert code is VerdictCode.REFERENCE_TOO_COARSE
    assert (
        "its variant 'prefill in chunks of 4' is more than 1000 times as far from it in prefill"
        in why
    )


def test_defects_of_two_sizes_with_the_same_bits_decide_nothing() -> None:
    """One of them has not the size that it is said to have, so that what has to be seen was not
    tried.
    """
    same = with_sensitivity((0.1, 1e-2), (0.01, 1e-2))
    ((code, why),) = doubts(same, sees=0.01)
    assert (code, why) == (
        VerdictCode.REFERENCE_FAILED,
        "returned the same bits for defects of 0.01 and 0.1, so one of them does not have the stated size",
    )
    assert doubts(same) == []  # where nothing has to be seen, nothing rests on them
    nothing = with_sensitivity((0.1, 1e-2), (0.01, 1e-3), (0.001, 0.0), (0.0001, 0.0))
    assert doubts(nothing, sees=0.01) == []  # in 16 bits what is too small moves nothing at all


def test_defects_that_have_other_sizes_in_the_second_run_decide_nothing() -> None:
    """What has to be seen rests on what the reference says of sizes, in both of its runs."""
    reference = with_sensitivity((0.1, 1e-2))
    other = [
        (name, {**values, "size": 0.01} if name == "sensitivity" else values)
        for name, values in reference.events
    ]
    ((code, why),) = doubts(reference, first_said=other)
    assert (code, why) == (
        VerdictCode.REFERENCE_DIFFERS,
        "returned different results in two runs: check it: its defects of known size have different sizes",
    )


def test_a_reference_without_noise_or_with_too_little_to_judge_decides_nothing() -> None:
    """Variants that are the same to the bit measure nothing; nor do a few positions."""
    reference = Reference()
    silent = Reference()
    silent.kept |= {
        name: silent.kept[name.split(".", 2)[2]]
        for name in silent.kept
        if name.startswith("envelope")
    }
    assert [code for code, _ in doubts(silent)] == [VerdictCode.REFERENCE_FAILED] * 2
    assert (
        "has 22 positions to judge, but check it requires 23: give more or longer prompts, or a"
        " lower positions" in doubts(reference, positions=23)[0][1]
    )
    bare = Reference()
    bare.kept = bare.answer
    assert "starting with the array envelope.0.prefill.logits.0" in doubts(bare)[0][1]
