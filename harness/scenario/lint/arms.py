"""Rules about the arms of a scenario: that they differ, how the control must fail, and what a
comparison sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from harness.checks.check import Check, FailsAt
from harness.checks.close import CloseCheck
from harness.checks.distribution import DistributionCheck
from harness.checks.equal import EqualCheck
from harness.checks.equivalent import EquivalentCheck
from harness.checks.influence import InfluenceCheck
from harness.forms.problem import Path, Problem, closest, shown
from harness.forms.text import listed
from harness.history import LEAST
from harness.scenario.lint.draft import ScenarioDraft
from harness.scenario.matrix import OF_THE_WORLD, same
from harness.scenario.model import WorldSettings
from harness.scenario.override import FILE as OVERRIDE
from harness.scenario.subject import against_a, seen_by

CONTROL = ("subject", "control")
ALIKE = "runs the same code with the same arguments as the candidate"


def axes_and_arguments(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that an axis is passed to the subject as an argument, so no argument has the same
    name.
    """
    for place in draft.arms().values():
        arguments = draft.at(*place, "with")
        for axis in draft.axes() if isinstance(arguments, dict) else ():
            if axis in arguments and axis not in OF_THE_WORLD:
                message = (
                    "is also an axis of the matrix, which is passed to the subject under this"
                    " name; rename one"
                )
                yield draft.problem((*place, "with", axis), message, at_key=True)


def arms_differ(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a control is other code, or the same code with other arguments; and so are a and
    b.
    """
    if not _are_alike(draft) or lacks_revisions(draft):
        return
    if draft.compare is not None:
        message = (
            "has identical code, arguments and environments for a and b, so they cannot differ"
        )
        yield draft.problem(("subject", "compare"), message, at_key=True)
        return
    message = f"{ALIKE}; a control must be the broken code"
    if draft.environments()["control"] is not None:
        message = f"{message}, or the same code in another environment"
    yield draft.problem(CONTROL, message, at_key=True)


def revisions_are_given(draft: ScenarioDraft) -> Iterator[Problem]:
    """Let a scenario leave to the command line which two revisions it compares."""
    if lacks_revisions(draft):
        message = (
            f"{ALIKE}. Such a scenario is SKIPPED unless a run names two revisions (--candidate"
            " and --control)"
        )
        yield draft.problem(
            CONTROL, f"{message}; otherwise add the broken code here", at_key=True, kind="note"
        )


def lacks_revisions(draft: ScenarioDraft) -> bool:
    """Return whether only revisions that a run may be given set the arms apart.

    Otherwise arms that are alike are a slip.
    """
    # What was stated to set them apart and does not, code that has no revisions, and arms that no
    # option names.
    slips: list[Path] = [(*CONTROL, key) for key in ("file", "rev", "patch", "environment")]
    slips += [("subject", key) for key in ("use", "of", "compare")]
    return not any(draft.has(*path) for path in slips) and _are_alike(draft)


def _are_alike(draft: ScenarioDraft) -> bool:
    """Return whether both arms are one code with one set of arguments, by what the file and the
    command line say.
    """
    other = draft.control if draft.compare is None else draft.compare.a
    if draft.candidate is None or other is None or draft.role == "self-test":
        return False
    given = [(*arm, key) for arm in draft.arms().values() for key in ("repo", "rev")]
    if any(
        draft.has(*path) and draft.document.marks.value(path).file == OVERRIDE for path in given
    ):
        # Two names there may be one tree: what was laid out is compared, and the verdict says so.
        return False
    if draft.has("faults") and draft.document.marks.value(("faults",)).file == OVERRIDE:
        # Somebody asks what happens without the fault: the verdict says that the arms are alike.
        return False
    if any(fault.arm is not None for fault in draft.faults.values()):
        # What differs is what is done to them; a claim must not, and hears of that from its own
        # rule.
        return False
    environments = draft.environments()
    older = environments["control" if draft.compare is None else "reference"]
    return (
        environments["candidate"] == older
        and all(
            same_json(getattr(draft.candidate, name), getattr(other, name))
            for name in ("with_", "file", "repo", "rev", "patch")
        )
        and all(
            service.changed(draft.candidate.services.get(name))
            == service.changed(other.services.get(name))
            for name, service in draft.services.items()
        )
    )


def same_json(left: object, right: object) -> bool:
    """Compare two JSON values by type and content: 1, 1.0 and true are three arguments."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    return same(left, right)


def file_needs_an_entry(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a file can take the place of a module only where there is one."""
    for arm in draft.arms().values():
        if draft.has(*arm, "file") and not any(
            draft.has("subject", key) for key in ("entry", "use")
        ):
            message = (
                "replaces the module of subject.entry, but there is no entry; add subject.entry"
            )
            yield draft.problem((*arm, "file"), message, at_key=True)


ARM_RULES = (axes_and_arguments, arms_differ, revisions_are_given, file_needs_an_entry)


# -- how a control must fail: what is stated can happen, and shows that it was the bug -------------


MUST_FAIL = ("subject", "control", "must_fail")
LEAST_WITHIN = 2 * LEAST
"""A world is watched for all of `within`, in seconds: longer than the shortest window by which
others are proved.
"""


def names_a_check(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that the control fails a check that exists."""
    path = (*MUST_FAIL, "check")
    name = draft.at(*path)
    known = [check for _, check in draft.ids("checks")]
    if isinstance(name, str) and known and name not in known:
        yield draft.problem(
            path,
            f"must be the id of a check: {listed(dict.fromkeys(known))}",
            suggestion=closest(name, known),
        )


def names_its_end(draft: ScenarioDraft) -> Iterator[Problem]:
    """Where ranks fail by how they end, an end that nobody names does not count: any slip ends a
    rank.
    """
    stated = draft.must_fail
    if stated is None or stated.says_how:
        return
    for check in draft.checks.values():
        if check.id != stated.check or not check.properties.of_an_end:
            continue
        ends_alone = not check.properties.needs_an_event
        if ends_alone and getattr(check, "code", 0) == 0:
            message = (
                f"does not state how the ranks end, but {check.id} checks nothing else; set error"
                " (with source or message), signal or code"
            )
            yield draft.problem(MUST_FAIL, message, at_key=True)
        elif not ends_alone:
            message = (
                "does not state how the ranks end, so only a rank that returns without the event"
                " counts; if the control raises, set error with source or message"
            )
            yield draft.problem(MUST_FAIL, message, kind="note", at_key=True)


def wants_what_its_check_compares(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a control can fail for want of a comparison only at a check that compares."""
    stated = draft.must_fail
    if stated is None or not stated.want:
        return
    for check in draft.checks.values():
        if check.id != stated.check or _may_want(check, stated.want):
            continue
        message = f"is never the reason why {check.id} (kind: {check.kind}) fails; remove it"
        yield draft.problem((*MUST_FAIL, stated.want), message, at_key=True)


def _may_want(check: Check, want: str) -> bool:
    if want == "missing":
        return check.properties.compares
    numeric = isinstance(check, CloseCheck | DistributionCheck | EquivalentCheck)
    return numeric or (want == "nonfinite" and isinstance(check, InfluenceCheck))


def fails_where_it_is_asked(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that the control can fail only on ranks that its check asks."""
    if draft.must_fail is None:
        return
    by_axis = draft.must_fail.ranks_by or {}
    sets = [
        draft.must_fail.ranks,
        *(one for by_value in by_axis.values() for one in by_value.values()),
    ]
    for check in draft.checks.values():
        if check.id != draft.must_fail.check or not hasattr(check, "ranks"):
            continue
        for size in draft.sizes():
            try:
                stated = {rank for ranks in sets for rank in ranks.of(size)}
                lost = stated - set(check.ranks.of(size))
            except ValueError:
                return  # ranks_exist has reported it
            if lost:
                message = (
                    f"contains rank {min(lost)}, which the check {check.id} does not cover in a"
                    f" world of {size}"
                )
                yield draft.problem((*MUST_FAIL, "ranks"), f"{message}; change one of them")
                return


def hangs_where_it_can_be_seen(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a hang of a program is told by its last event, one of Python by its stacks.

    And there is time to prove it.
    """
    stated = draft.must_fail
    if stated is None or stated.hang is None:
        return
    is_program = draft.at("subject", "program") is not None
    if is_program and stated.hang.after is None:
        message = (
            "cannot be located by source or function in a program; set after, the last event"
            " that the rank emits"
        )
        yield draft.problem((*MUST_FAIL, "hang"), message, at_key=True)
    if not is_program and stated.hang.after is not None:
        message = (
            "is only for programs; set source or function, which are looked up in the rank's stacks"
        )
        yield draft.problem((*MUST_FAIL, "hang", "after"), message, at_key=True)
    if (named := stated.hang.fails) is not None:
        known = {check.id: check.properties for check in draft.checks.values()}
        fitting = [
            name
            for name, properties in known.items()
            if properties.compares_ranks and properties.wrong is FailsAt.WORLD_END
        ]
        if named not in fitting:
            message = (
                "must be a check that compares the ledgers of stopped ranks, such as ledger-agrees"
            )
            suggestion = closest(named, fitting)
            yield draft.problem((*MUST_FAIL, "hang", "fails"), message, suggestion=suggestion)
    if is_program and stated.hang.polls:
        message = (
            "is only for Python ranks, because a program's threads are not observed; remove it"
        )
        yield draft.problem((*MUST_FAIL, "hang", "polls"), message, at_key=True)
    if stated.within < LEAST_WITHIN:
        yield draft.problem(
            (*MUST_FAIL, "within"),
            "is too short, because one trial of each cell is watched for this long; set it to"
            f" {LEAST_WITHIN:g}s or more",
        )
    deadline = (draft.world or WorldSettings()).deadline
    if stated.within >= deadline:
        message = (
            f"must be less than world.deadline ({deadline:g}s); otherwise the world is stopped"
            " before the hang is proved"
        )
        path = (*MUST_FAIL, "within") if draft.has(*MUST_FAIL, "within") else MUST_FAIL
        yield draft.problem(
            path, f"{message}; within is {stated.within:g}s", at_key=path == MUST_FAIL
        )


def axis_of_ranks_exists(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that the axis by which ranks are stated is one of the matrix, with these values."""
    stated = draft.must_fail
    if stated is None or stated.ranks_by is None or draft.matrix is None:
        return
    axes = draft.axes()
    for axis, by_value in stated.ranks_by.items():
        path = (*MUST_FAIL, "ranks_by", axis)
        if axis not in axes:
            message = f"is not an axis of the matrix; its axes: {', '.join(axes)}"
            yield draft.problem(path, message, at_key=True, suggestion=closest(axis, list(axes)))
            continue
        known = [str(value) for value in axes[axis]]
        for value in by_value:
            if value not in known:
                message = f"is not a value of the axis {axis}: {listed(known)}"
                yield draft.problem((*path, value), message, at_key=True)


def cells_exist(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that the cells in which the control must fail are cells of the matrix, and not all of
    them.
    """
    stated = draft.must_fail
    matrix = draft.matrix
    if stated is None or stated.cells is None or matrix is None:
        return
    path = (*MUST_FAIL, "cells")
    axes = draft.axes()
    for axis, values in stated.cells.items():
        if axis not in axes:
            message = f"is not an axis of the matrix; its axes: {', '.join(axes)}"
            yield draft.problem(
                (*path, axis), message, at_key=True, suggestion=closest(axis, list(axes))
            )
            continue
        for index, value in enumerate(values):
            if not any(same(value, other) for other in axes[axis]):
                allowed = [shown(other) for other in axes[axis]]
                message = f"is not a value of the axis {axis}: {listed(allowed)}"
                yield draft.problem(
                    (*path, axis, index), message, suggestion=closest(shown(value), allowed)
                )
    where = [stated.applies(values) for values in matrix.combinations()]
    if stated.cells.keys() <= axes.keys() and not any(where):
        message = (
            "excludes every cell, so nothing would show that the checks can fail; keep at least"
            " one cell"
        )
        yield draft.problem(path, message, at_key=True)
    if where and all(where):
        yield draft.problem(path, "matches every cell; remove it", at_key=True, kind="note")


MUST_FAIL_RULES = (
    cells_exist,
    axis_of_ranks_exists,
    names_a_check,
    names_its_end,
    wants_what_its_check_compares,
    fails_where_it_is_asked,
    hangs_where_it_can_be_seen,
)


# -- a comparison: something is compared, and a check can see every defect -------------------------


COMPARE = ("subject", "compare")


def stands_alone(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a comparison has no other faults and no control, and is not about programs."""
    if not draft.has(*COMPARE):
        return
    if draft.has("subject", "program"):
        message = "changes b's values inside a Python rank, but this subject is a program"
        yield draft.problem(
            COMPARE, f"{message}; use a candidate and a control instead", at_key=True
        )
    if draft.at("faults"):
        message = "act on b only, so a and b would not be comparable"
        yield draft.problem(
            ("faults",),
            f"cannot be combined with subject.compare, because they {message}; remove them",
            at_key=True,
        )
    if draft.has("hub"):
        message = (
            "cannot be combined with subject.compare, because its log and faults belong to one"
            " world at a time; keep one of them"
        )
        yield draft.problem(("hub",), message, at_key=True)
    for index, row in draft.measure.items():
        if row.against == "control":
            message = (
                "cannot be control, because in a comparison the control is b with the"
                " defect; remove it"
            )
            yield draft.problem(("measure", index, "against"), message)


def something_is_compared(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a check compares b with a."""
    stated = draft.at("checks")
    whole = isinstance(stated, list) and len(draft.checks) == len(stated)
    if draft.has(*COMPARE) and whole and not against_a(draft.checks.values()):
        yield draft.problem(
            COMPARE, "compares nothing, because no check has against: a", at_key=True
        )


def defects_can_be_seen(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that what a defect changes is compared, on a changed rank, by a check that can tell.

    And by one defect.
    """
    if draft.compare is None:
        return
    compared = against_a(draft.checks.values())
    for defect, path in zip(draft.compare.defect, draft.defects(), strict=False):
        key = "value" if defect.artefact is None else "artefact"
        checks = seen_by(defect, draft.checks.values())
        if compared and not checks:
            names = list(
                dict.fromkeys(
                    str(getattr(check, key)) for check in compared if getattr(check, key, None)
                )
            )
            message = (
                f"is not compared with a by any check, so no check can detect the defect; {key}s"
                " that are compared: "
            )
            message += listed(names) if names else "none"
            yield draft.problem((*path, key), message, suggestion=closest(defect.what, names))
        for check in checks:
            if defect.one == "character" and not isinstance(check, EqualCheck):
                message = (
                    f"changes a character of a string, but the check {check.id} compares numbers;"
                    " set absolute, relative or ulp instead"
                )
                yield draft.problem((*path, "one"), message)
            if isinstance(check, CloseCheck) and _is_within(check, defect.absolute):
                message = (
                    f"is within the tolerance of the check {check.id} ({check.allows}), so it"
                    " cannot be detected"
                )
                yield draft.problem((*path, "absolute"), message, kind="note")
            for size in draft.sizes():
                try:
                    asked = set(check.ranks.of(size)) & set(defect.ranks.of(size))
                except ValueError:
                    break  # ranks_exist has reported it
                if not asked:
                    message = (
                        f"are not covered by the check {check.id} in a world of {size}; change one"
                        " of them"
                    )
                    yield draft.problem((*path, "ranks"), message, at_key=True)
                    break
    for (first, _), (second, path) in combinations(
        zip(draft.compare.defect, draft.defects(), strict=False), 2
    ):
        if first.what == second.what:
            yield draft.problem(
                path,
                f"changes {second.what}, which another defect also changes; keep one of them",
                at_key=True,
            )


def _is_within(check: CloseCheck, size: float | None) -> bool:
    """Return whether a change of that size is allowed, whatever the numbers are."""
    return size is not None and size <= check.atol


COMPARE_RULES = (stands_alone, something_is_compared, defects_can_be_seen)
