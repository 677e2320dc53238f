"""Rules for a comparison of two arms: something is compared, and every defect is one that a check can see."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from harness.checks.close import CloseCheck
from harness.checks.equal import EqualCheck
from harness.forms.problem import Problem, closest
from harness.forms.text import listed
from harness.scenario.compare import against_a, seen_by
from harness.scenario.lint.draft import Draft

COMPARE = ("subject", "compare")
CONTROL = "control"


def stands_alone(draft: Draft) -> Iterator[Problem]:
    """A comparison has no other faults and no control, and is not about programs."""
    if not draft.has(*COMPARE):
        return
    if draft.has("subject", "program"):
        message = "changes what b reports from inside a rank of Python, and a program has nothing of ours inside"
        yield draft.problem(COMPARE, f"{message}: state a candidate and a control", at_key=True)
    if draft.at("faults"):
        message = "strike b alone, and a as it is would be compared with it; ask without them"
        yield draft.problem(("faults",), f"cannot stand beside subject.compare: they {message}", at_key=True)
    if draft.has("hub"):
        message = "cannot stand beside subject.compare: its log and faults are those of one world at a time; remove one"
        yield draft.problem(("hub",), message, at_key=True)
    for index, row in draft.measure.items():
        if row.against == CONTROL:
            message = "names the control, and in a comparison that is b again, with the defect; remove it"
            yield draft.problem(("measure", index, "against"), message)


def something_is_compared(draft: Draft) -> Iterator[Problem]:
    """A check compares b with a."""
    stated = draft.at("checks")
    whole = isinstance(stated, list) and len(draft.checks) == len(stated)
    if draft.has(*COMPARE) and whole and not against_a(draft.checks.values()):
        yield draft.problem(COMPARE, "compares nothing: no check says against: a", at_key=True)


def defects_can_be_seen(draft: Draft) -> Iterator[Problem]:
    """What a defect changes is compared, on a rank that is changed, by a check that can tell; and by one defect."""
    if draft.compare is None:
        return
    compared = against_a(draft.checks.values())
    for defect, path in zip(draft.compare.defect, draft.defects(), strict=False):
        key = "value" if defect.artefact is None else "artefact"
        checks = seen_by(defect, draft.checks.values())
        if compared and not checks:
            names = list(dict.fromkeys(str(getattr(one, key)) for one in compared if getattr(one, key, None)))
            message = f"is nothing that a check compares with a, so no check could see the defect; {key}s compared: "
            message += listed(names) if names else "none"
            yield draft.problem((*path, key), message, suggestion=closest(defect.what, names))
        for check in checks:
            if defect.one == "character" and not isinstance(check, EqualCheck):
                message = f"is for texts, and the check {check.id} compares numbers; give absolute, relative or ulp"
                yield draft.problem((*path, "one"), message)
            if isinstance(check, CloseCheck) and _is_within(check, defect.absolute):
                message = f"is within what the check {check.id} allows ({check.allows}), so it cannot be seen"
                yield draft.problem((*path, "absolute"), message, kind="note")
            for size in draft.sizes():
                try:
                    asked = set(check.ranks.of(size)) & set(defect.ranks.of(size))
                except ValueError:
                    break  # ranks_exist has reported it
                if not asked:
                    message = f"are none of those that the check {check.id} asks in a world of {size}; make them meet"
                    yield draft.problem((*path, "ranks"), message, at_key=True)
                    break
    for (one, _), (two, path) in combinations(zip(draft.compare.defect, draft.defects(), strict=False), 2):
        if one.what == two.what:
            yield draft.problem(path, f"changes {two.what} as another defect does; keep one of them", at_key=True)


def _is_within(check: CloseCheck, size: float | None) -> bool:
    """Whether a change of that size is allowed, whatever the numbers are."""
    return size is not None and size <= check.atol


COMPARE_RULES = (stands_alone, something_is_compared, defects_can_be_seen)
