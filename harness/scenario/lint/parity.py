"""Rules about the checks that compare inference with a reference: what would let anything pass."""

from __future__ import annotations

from collections.abc import Iterator

from harness.checks.equivalent import EquivalentCheck
from harness.checks.shards_cover import ShardsCoverCheck
from harness.forms.problem import Problem
from harness.scenario.lint.draft import Draft

USUAL = {"margin": 2.0, "middle": 2.0, "layers": 3.0}
"""Times the reference's own noise: so much two runs with the same noise may differ by."""


def wide(check: EquivalentCheck) -> str:
    """That a check allows more than noise explains, in words; empty where it does not."""
    most = {key: found for key, usual in USUAL.items() if (found := getattr(check, key) or 0.0) > usual}
    if not most:
        return ""
    said = " and ".join(
        f"{found:g} times the reference's noise ({key}, usually {USUAL[key]:g})" for key, found in most.items()
    )
    return f"check {check.id} allows {said}"


def slack(draft: Draft) -> Iterator[Problem]:
    """A margin that is larger than what noise explains lets defects of that size pass."""
    for index, check in draft.checks.items():
        if isinstance(check, EquivalentCheck) and (words := wide(check)):
            key = next(key for key in USUAL if f"({key}," in words)
            yield draft.problem(("checks", index, key), words, kind="note")


def size_to_be_seen(draft: Draft) -> Iterator[Problem]:
    """Noise that was measured of another thing is found out by a defect of known size alone."""
    for index, check in draft.checks.items():
        if isinstance(check, EquivalentCheck) and check.sees is None:
            message = (
                "states no size of defect that has to be seen (sees): where the reference's noise is not noise, "
                "anything within it passes"
            )
            yield draft.problem(("checks", index), message, at_key=True, kind="note")


def something_is_split(draft: Draft) -> Iterator[Problem]:
    """A pattern that matches every name asks for nothing."""
    for index, check in draft.checks.items():
        for number, pattern in enumerate(check.replicated if isinstance(check, ShardsCoverCheck) else ()):
            if not pattern.strip("*?"):
                message = "matches every tensor, so that none has to be split; name those that lie on several ranks"
                yield draft.problem(("checks", index, "replicated", number), message)


PARITY_RULES = (slack, size_to_be_seen, something_is_split)
