"""What a run was asked, as its record says it: the scenario in a few fields and words."""

from __future__ import annotations

from harness import faults
from harness.faults import Fault
from harness.forms.digest import sha256
from harness.record.model import FaultSummary, ScenarioSummary
from harness.scenario import CALLED, End, MustFail, Scenario, SeesDefects


def summary(scenario: Scenario, text: bytes) -> ScenarioSummary:
    """Return what is asked, by the scenario and the bytes of its file."""
    control = scenario.subject.control
    return ScenarioSummary(
        id=scenario.id,
        title=scenario.title,
        question=scenario.question,
        role=scenario.role,
        expects=scenario.expects,
        tags=list(scenario.tags),
        sha256=sha256(text),
        seed=scenario.seed,
        entry=scenario.subject.function,
        use=scenario.subject.use,
        of=scenario.subject.of,
        program=list(scenario.subject.program or ()),
        hosts=scenario.world.hosts,
        placement=_placement(scenario),
        accept_rate=scenario.trials.accept.failure_rate_below,
        accept_confidence=scenario.trials.accept.confidence,
        candidate_trials=scenario.trials.candidate,
        control_trials=scenario.trials.control if control else 0,
        must_fail=_must_fail(scenario) if control else None,
        faults=[
            FaultSummary(
                id=fault.id,
                kind=fault.kind,
                arm=fault.arm,
                description=_description(scenario, fault),
            )
            for fault in scenario.faults
        ],
        called=dict(CALLED) if scenario.subject.compare is not None else {},
    )


def _description(scenario: Scenario, fault: Fault) -> str:
    return faults.description(fault, whose="b" if scenario.subject.compare is not None else "")


def _placement(scenario: Scenario) -> str:
    placed = scenario.world.placement
    if scenario.world.hosts == 1:
        return ""
    return placed if isinstance(placed, str) else f"rank by rank: {', '.join(map(str, placed))}"


def _must_fail(scenario: Scenario) -> str:
    control = scenario.subject.control
    assert control is not None
    stated = control.must_fail
    if isinstance(stated, SeesDefects):
        parts = [
            f"check {check.id} (it allows {check.allows}) fails on ranks {defect.ranks}, "
            f"where an element of {defect.what} is {defect.size}"
            for check, defect in stated.pairs
        ]
        return f"{'; '.join(parts)}; in every trial"
    if stated.hang is not None:
        place = stated.hang.source or stated.hang.function or stated.hang.after
        where = (
            "in function" if stated.hang.function else "after event" if stated.hang.after else "at"
        )
        parts = [
            f"it hangs {where} {place!r}",
            f"on ranks: {stated.ranks}",
            f"proved within {stated.within:g} s",
        ]
    else:
        parts = [
            f"check {stated.check} fails",
            f"on ranks: {stated.ranks}",
            *_end(stated),
            *_want(stated),
        ]
    parts += [f"while ranks {also.ranks} may end {' '.join(_end(also))}" for also in stated.also]
    return (
        f"{', '.join(parts)}, in"
        f" {'every trial' if stated.share.every else f'{stated.share} of the trials'}"
    )


def _want(stated: MustFail) -> list[str]:
    """For want of what it fails, in words; nothing where something is compared."""
    words = {
        "missing": "because they do not report or keep what it compares",
        "shape": "because what they give has another shape",
        "nonfinite": "because whatever differs is not finite",
    }
    return [words[stated.want]] if stated.want else []


def _end(stated: End) -> list[str]:
    """How a rank ends, in words."""
    parts = (
        ("with {}", stated.error),
        ("at {!r}", stated.source),
        ("in {}", stated.file),
        ("saying {!r}", stated.message),
        ("by {}", stated.signal),
        ("with exit code {}", stated.code),
    )
    return [words.format(value) for words, value in parts if value is not None]
