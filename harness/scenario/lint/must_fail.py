"""Rules about how a control must fail: that what is stated can happen, and shows that it was the bug."""

from __future__ import annotations

from collections.abc import Iterator

from harness.checks.check import Check, FailsAt
from harness.checks.close import CloseCheck
from harness.checks.distribution import DistributionCheck
from harness.checks.equivalent import EquivalentCheck
from harness.checks.influence import InfluenceCheck
from harness.forms.problem import Problem, closest, shown
from harness.forms.text import listed
from harness.history import LEAST
from harness.scenario.lint.draft import Draft
from harness.scenario.matrix import same
from harness.scenario.model import World

MUST_FAIL = ("subject", "control", "must_fail")
LEAST_WITHIN = 2 * LEAST
"""A world is watched for all of `within`, in seconds: longer than the shortest window by which others are proved."""


def names_a_check(draft: Draft) -> Iterator[Problem]:
    """The control fails a check that exists."""
    path = (*MUST_FAIL, "check")
    name, known = draft.at(*path), [name for _, name in draft.ids("checks")]
    if isinstance(name, str) and known and name not in known:
        yield draft.problem(
            path, f"must be the id of a check: {listed(dict.fromkeys(known))}", suggestion=closest(name, known)
        )


def names_its_end(draft: Draft) -> Iterator[Problem]:
    """Where ranks fail by how they end, an end that nobody names does not count: any slip ends a rank."""
    stated = draft.must_fail
    if stated is None or stated.says_how:
        return
    for check in draft.checks.values():
        if check.id != stated.check or not check.properties.of_an_end:
            continue
        ends_alone = not check.properties.needs_an_event
        if ends_alone and getattr(check, "code", 0) == 0:
            message = (
                f"names no end, and {check.id} fails only by one: give error with source or message, or signal, or code"
            )
            yield draft.problem(MUST_FAIL, message, at_key=True)
        elif not ends_alone:
            message = (
                "names no end, so only a rank that returns without the event counts; "
                "where the control raises, give error with source or message"
            )
            yield draft.problem(MUST_FAIL, message, kind="note", at_key=True)


def wants_what_its_check_compares(draft: Draft) -> Iterator[Problem]:
    """A control can fail for want of a comparison only at a check that compares."""
    stated = draft.must_fail
    if stated is None or not stated.want:
        return
    for check in draft.checks.values():
        if check.id != stated.check or _may_want(check, stated.want):
            continue
        message = f"is never why {check.id} (kind: {check.kind}) fails; remove it"
        yield draft.problem((*MUST_FAIL, stated.want), message, at_key=True)


def _may_want(check: Check, want: str) -> bool:
    if want == "missing":
        return check.properties.compares
    numeric = isinstance(check, CloseCheck | DistributionCheck | EquivalentCheck)
    return numeric or (want == "nonfinite" and isinstance(check, InfluenceCheck))


def fails_where_it_is_asked(draft: Draft) -> Iterator[Problem]:
    """The control can fail only on ranks that its check asks."""
    if draft.must_fail is None:
        return
    for check in draft.checks.values():
        if check.id != draft.must_fail.check or not hasattr(check, "ranks"):
            continue
        for size in draft.sizes():
            try:
                lost = set(draft.must_fail.ranks.of(size)) - set(check.ranks.of(size))
            except ValueError:
                return  # ranks_exist has reported it
            if lost:
                message = f"holds rank {min(lost)}, which the check {check.id} does not ask in a world of {size}"
                yield draft.problem((*MUST_FAIL, "ranks"), f"{message}; make them fit")
                return


def hangs_where_it_can_be_seen(draft: Draft) -> Iterator[Problem]:
    """A hang of a program is told by its last event, one of Python by its stacks; and there is time to prove it."""
    stated = draft.must_fail
    if stated is None or stated.hang is None:
        return
    is_program = draft.at("subject", "program") is not None
    if is_program and stated.hang.after is None:
        message = "cannot be seen in a program; give after: the last event that the rank emits"
        yield draft.problem((*MUST_FAIL, "hang"), message, at_key=True)
    if not is_program and stated.hang.after is not None:
        message = "is for programs; give source or function, which are looked for on the rank's stacks"
        yield draft.problem((*MUST_FAIL, "hang", "after"), message, at_key=True)
    if (named := stated.hang.fails) is not None:
        known = {check.id: check.properties for check in draft.checks.values()}
        fitting = [one for one, found in known.items() if found.compares_ranks and found.wrong is FailsAt.WORLD_END]
        if named not in fitting:
            message = "is not a check that compares what ranks left when they were stopped, as ledger-agrees does"
            suggestion = closest(named, fitting)
            yield draft.problem((*MUST_FAIL, "hang", "fails"), message, suggestion=suggestion)
    if is_program and stated.hang.polls:
        message = "is for Python: nobody knows the threads of a program; remove it"
        yield draft.problem((*MUST_FAIL, "hang", "polls"), message, at_key=True)
    if stated.within < LEAST_WITHIN:
        yield draft.problem(
            (*MUST_FAIL, "within"),
            f"is too short: one trial of a cell is watched for all of it, which takes {LEAST_WITHIN:g}s or more",
        )
    deadline = (draft.world or World()).deadline
    if stated.within >= deadline:
        message = f"must be less than world.deadline ({deadline:g}s), or the world is stopped before it is proved"
        path = (*MUST_FAIL, "within") if draft.has(*MUST_FAIL, "within") else MUST_FAIL
        yield draft.problem(path, f"{message}; within is {stated.within:g}s", at_key=path == MUST_FAIL)


def cells_exist(draft: Draft) -> Iterator[Problem]:
    """The cells in which the control must fail are cells of the matrix, and not all of them."""
    stated, matrix = draft.must_fail, draft.matrix
    if stated is None or stated.cells is None or matrix is None:
        return
    path, axes = (*MUST_FAIL, "cells"), draft.axes()
    for axis, values in stated.cells.items():
        if axis not in axes:
            message = f"is not an axis of the matrix; its axes: {', '.join(axes)}"
            yield draft.problem((*path, axis), message, at_key=True, suggestion=closest(axis, list(axes)))
            continue
        for index, value in enumerate(values):
            if not any(same(value, one) for one in axes[axis]):
                allowed = [shown(one) for one in axes[axis]]
                message = f"is not a value of the axis {axis}: {listed(allowed)}"
                yield draft.problem((*path, axis, index), message, suggestion=closest(shown(value), allowed))
    where = [stated.applies(values) for values in matrix.combinations()]
    if stated.cells.keys() <= axes.keys() and not any(where):
        message = "leaves no cell in which the control must fail: nothing would show that the checks can"
        yield draft.problem(path, message, at_key=True)
    if where and all(where):
        yield draft.problem(path, "names every cell; remove it", at_key=True, kind="note")


MUST_FAIL_RULES = (
    cells_exist,
    names_a_check,
    names_its_end,
    wants_what_its_check_compares,
    fails_where_it_is_asked,
    hangs_where_it_can_be_seen,
)
