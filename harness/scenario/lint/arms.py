"""Rules about the arms of a scenario: that they differ, and that each can be called."""

from __future__ import annotations

from collections.abc import Iterator

from harness.forms.problem import Path, Problem
from harness.scenario.lint.draft import Draft
from harness.scenario.matrix import OF_THE_WORLD, same
from harness.scenario.override import FILE as OVERRIDE

CONTROL = ("subject", "control")
ALIKE = "runs the same code with the same arguments as the candidate"


def axes_and_arguments(draft: Draft) -> Iterator[Problem]:
    """An axis is passed to the subject as an argument, so no argument has the same name."""
    for place in draft.arms().values():
        arguments = draft.at(*place, "with")
        for axis in draft.axes() if isinstance(arguments, dict) else ():
            if axis in arguments and axis not in OF_THE_WORLD:
                message = "is an axis of the matrix too, which is passed to the subject under this name; rename one"
                yield draft.problem((*place, "with", axis), message, at_key=True)


def arms_differ(draft: Draft) -> Iterator[Problem]:
    """A control is other code, or the same code with other arguments; and so are a and b."""
    if not _are_alike(draft) or lacks_revisions(draft):
        return
    if draft.compare is not None:
        message = "a and b are the same code with the same arguments in the same environment: they cannot differ"
        yield draft.problem(("subject", "compare"), message, at_key=True)
        return
    message = f"{ALIKE}; a control must be the broken code"
    if draft.environments()["control"] is not None:
        message = f"{message}, or the same code in another environment"
    yield draft.problem(CONTROL, message, at_key=True)


def revisions_are_given(draft: Draft) -> Iterator[Problem]:
    """A scenario may leave to the command line which two revisions it compares."""
    if lacks_revisions(draft):
        message = f"{ALIKE}: a run takes two revisions from --candidate and --control, and skips the scenario without"
        yield draft.problem(CONTROL, f"{message}; otherwise give the broken code here", at_key=True, kind="note")


def lacks_revisions(draft: Draft) -> bool:
    """Whether only revisions that a run may be given set the arms apart; otherwise arms that are alike are a slip."""
    # What was stated to set them apart and does not, code that has no revisions, and arms that no option names.
    slips: list[Path] = [(*CONTROL, key) for key in ("file", "rev", "patch", "environment")]
    slips += [("subject", key) for key in ("use", "of", "compare")]
    return not any(draft.has(*path) for path in slips) and _are_alike(draft)


def _are_alike(draft: Draft) -> bool:
    """Whether both arms are one code with one set of arguments, by what the file and the command line say."""
    other = draft.control if draft.compare is None else draft.compare.a
    if draft.candidate is None or other is None or draft.role == "self-test":
        return False
    given = [(*arm, key) for arm in draft.arms().values() for key in ("repo", "rev")]
    if any(draft.has(*path) and draft.document.marks.value(path).file == OVERRIDE for path in given):
        return False  # two names there may be one tree: what was laid out is compared, and the verdict says so
    if draft.has("faults") and draft.document.marks.value(("faults",)).file == OVERRIDE:
        return False  # somebody asks what happens without the fault: the verdict says that the arms are alike
    if any(fault.arm is not None for fault in draft.faults.values()):
        return False  # what differs is what is done to them; a claim must not, and hears of that from its own rule
    environments = draft.environments()
    older = environments["control" if draft.compare is None else "reference"]
    return environments["candidate"] == older and all(
        same_json(getattr(draft.candidate, name), getattr(other, name))
        for name in ("with_", "file", "repo", "rev", "patch")
    )


def same_json(left: object, right: object) -> bool:
    """Compare two JSON values by type and content: 1, 1.0 and true are three arguments."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    return same(left, right)


def file_needs_an_entry(draft: Draft) -> Iterator[Problem]:
    """A file can take the place of a module only where there is one."""
    for arm in draft.arms().values():
        if draft.has(*arm, "file") and not any(draft.has("subject", key) for key in ("entry", "use")):
            message = "takes the place of the module that subject.entry names, and there is none; give an entry"
            yield draft.problem((*arm, "file"), message, at_key=True)


ARM_RULES = (axes_and_arguments, arms_differ, revisions_are_given, file_needs_an_entry)
