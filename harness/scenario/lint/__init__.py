"""Rules that span several keys of a scenario. Each rule is a small function.

What it cannot see it passes over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.backends import KINDS as BACKENDS
from harness.checks import KINDS as CHECKS
from harness.checks.accounted import AccountedCheck
from harness.checks.arrays import AgainstCheck
from harness.faults import KINDS as FAULTS
from harness.faults.call import CallFault
from harness.forms.problem import Path, Problem, closest, shown
from harness.forms.text import listed
from harness.plugins import PluginFailed
from harness.scenario.environment import bare
from harness.scenario.lint.arms import ARM_RULES, COMPARE_RULES, CONTROL, MUST_FAIL_RULES
from harness.scenario.lint.draft import ScenarioDraft
from harness.scenario.lint.faults import FAULT_RULES
from harness.scenario.lint.ready import is_of_the_ranks, ready
from harness.scenario.lint.services import SERVICE_RULES
from harness.scenario.lint.sufficiency import TOLERANCE_RULES, TRIAL_RULES, UNSHOWN_RULES
from harness.scenario.matrix import OF_THE_WORLD, same
from harness.scenario.override import FILE as OVERRIDE


def lint(draft: ScenarioDraft) -> list[Problem]:
    """Return all problems that span several keys, advice (kind ``note``) among them."""
    return [problem for rule in RULES for problem in rule(draft)]


def unique_ids(draft: ScenarioDraft) -> Iterator[Problem]:
    """Checks, faults and measurements are told apart by their ids."""
    for section in ("checks", "faults", "measure"):
        first: dict[str, int] = {}
        for path, name in draft.ids(section):
            if name in first:
                line = draft.document.marks.value((section, first[name], "id")).line
                yield draft.problem(
                    path, f"is used twice (first in line {line}); rename one of them"
                )
            else:
                first[name] = int(path[1])


def role_and_verdict(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a self-test says what it expects, a claim expects to PASS, and both have a
    control.
    """
    if draft.role == "self-test" and draft.expects is None:
        yield draft.problem(
            ("expects",), "is missing; set it to the verdict that this self-test must end with"
        )
    if draft.role == "claim" and draft.expects is not None:
        yield draft.problem(
            ("expects",),
            "is only for a self-test, because a claim is expected to PASS; remove it, or set role:"
            " self-test",
            at_key=True,
        )
    stated = draft.has(*CONTROL) or draft.has("subject", "compare")
    if draft.role in ("claim", "self-test") and draft.at("subject") is not None and not stated:
        why = (
            "a validation that cannot fail proves nothing, so add the broken code and state how it"
            " must fail"
        )
        yield draft.problem(CONTROL, f"is missing; {why}")


def finding_is_shown(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a finding is about other people's code, and that an arm shows it."""
    if not draft.has("finding"):
        return
    if draft.role != "upstream":
        message = "is only for role: upstream; set the role, or remove it"
        yield draft.problem(("finding",), message, at_key=True)
    if draft.at("subject") is not None and not draft.has(*CONTROL):
        message = "needs a control that has the defect; add it, and state how it must fail"
        yield draft.problem(("finding",), message, at_key=True)


def ranks_exist(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a list of ranks holds only ranks of the smallest world, and is never empty in any
    world.
    """
    if not (sizes := draft.sizes()):
        return
    smallest = sizes[0]
    for path, ranks in draft.rank_sets():
        if ranks.which == "nonzero" and smallest == 1:
            yield draft.problem(
                path, "selects no rank in a world of 1; leave 1 out of matrix.ranks"
            )
        if isinstance(ranks.which, str):
            continue
        for index, rank in enumerate(ranks.which):
            if rank >= smallest:
                allowed = (
                    f"a world of {smallest} has ranks 0 to {smallest - 1}"
                    if smallest > 1
                    else "a world of 1 has rank 0"
                )
                yield draft.problem(
                    (*path, index), f"is not a rank of the smallest world; {allowed}"
                )


def plugins_can_be_used(draft: ScenarioDraft) -> Iterator[Problem]:
    """Name a kind that a plug-in would bring, if it could be used."""
    for section, registry in (("checks", CHECKS), ("faults", FAULTS)):
        items = draft.at(section)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            kind = item.get("kind") if isinstance(item, dict) else None
            if isinstance(kind, str) and (why := registry.reason(kind)):
                yield draft.problem((section, index, "kind"), why)


def kinds_own_rules(draft: ScenarioDraft) -> Iterator[Problem]:
    """Yield what the kinds themselves say about their checks and faults."""
    for items, registry in ((draft.checks, CHECKS), (draft.faults, FAULTS)):
        by_kind: dict[str, dict[int, Any]] = {}
        for index, item in items.items():
            by_kind.setdefault(item.kind, {})[index] = item
        for name in registry.names if by_kind else ():
            if (of_kind := by_kind.get(name)) is None:
                continue
            kind = registry[name]
            try:
                with registry.guarded(name):
                    problems = list(kind.lint(of_kind, draft))
                    if not all(isinstance(problem, Problem) for problem in problems):
                        raise TypeError("its lint yielded an object that is not a Problem")
            except PluginFailed as error:
                section = "checks" if registry is CHECKS else "faults"
                problems = [
                    draft.problem((section, index, "kind"), f"failed: {error}") for index in of_kind
                ]
            yield from problems


def reference_is_used(draft: ScenarioDraft) -> Iterator[Problem]:
    """Something is compared with the reference, and what it is called with and by is not taken
    twice.
    """
    reference = draft.at("subject", "reference")
    if not isinstance(reference, dict):
        return
    place = ("subject", "reference")
    if not any(
        isinstance(check, AccountedCheck)
        or (isinstance(check, AgainstCheck) and check.of[0] == "reference")
        for check in draft.checks.values()
    ):
        yield draft.problem(
            place, "is not used, because no check has against: reference", at_key=True, kind="note"
        )
    if draft.has("inputs", "reference"):
        message = "is reserved for the reference; rename this input"
        yield draft.problem(("inputs", "reference"), message, at_key=True)
    if draft.has("subject", "program") and draft.has(*place, "entry"):
        yield draft.problem(
            (*place, "entry"),
            "cannot be combined with program, because the reference then runs the program too",
            at_key=True,
        )
    if draft.has("hub"):
        message = (
            "cannot be combined with a hub, because its faults and its log are only for the"
            " trials; keep one"
        )
        yield draft.problem(place, message, at_key=True)
    arguments = reference.get("with")
    axes = [axis for axis in draft.axes() if axis not in OF_THE_WORLD]
    of_what = [axis for axis in axes if not is_of_the_ranks(draft, axis)]
    if reference.get("once") == "scenario" and of_what:
        message = (
            f"cannot be scenario, because the reference depends on the axis {of_what[0]}; leave it"
            " at cell"
        )
        yield draft.problem((*place, "once"), message)
    for axis in axes:
        if isinstance(arguments, dict) and axis in arguments:
            message = (
                "is also an axis of the matrix, which is passed to the reference under this name;"
                " rename one"
            )
            yield draft.problem((*place, "with", axis), message, at_key=True)


def exclusions(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that what is excluded exists, and that something is left."""
    axes = draft.axes()
    rules = draft.at("matrix", "exclude")
    for index, rule in enumerate(rules if isinstance(rules, list) else []):
        for axis, value in rule.items() if isinstance(rule, dict) else ():
            path = ("matrix", "exclude", index, axis)
            if axis not in axes:
                message = f"is not an axis of the matrix; its axes: {', '.join(axes)}"
                yield draft.problem(
                    path, message, at_key=True, suggestion=closest(axis, list(axes))
                )
            elif isinstance(value, str | int | float) and not any(
                same(value, allowed) for allowed in axes[axis]
            ):
                values = [shown(allowed) for allowed in axes[axis]]
                message = f"is not a value of the axis {axis}: {listed(values)}"
                yield draft.problem(path, message, suggestion=closest(shown(value), values))
    if draft.matrix is not None and not draft.matrix.combinations():
        yield draft.problem(
            ("matrix", "exclude"), "leaves no cell; keep at least one combination", at_key=True
        )


def programs(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a program is started anew, joins no group, and has nothing of ours inside it."""
    if not draft.has("subject", "program"):
        return
    for index, backend in enumerate(draft.axes().get("backend", [])):
        if (known := BACKENDS.get(backend)) is not None and known.properties.makes_a_group:
            message = (
                "is only for Python subjects; a program joins no group, so leave backend out, or"
                " write [none]"
            )
            yield draft.problem(("matrix", "backend", index), message)
    if draft.at("world", "start") == "warm":
        message = (
            "is only for Python subjects, because programs are always started fresh; remove it"
        )
        yield draft.problem(("world", "start"), message)
    if draft.has("world", "preload"):
        message = (
            "is only for Python subjects, because a program imports its own modules; remove it"
        )
        yield draft.problem(("world", "preload"), message, at_key=True)
    for index, fault in draft.faults.items():
        if fault.properties.inside:
            message = (
                "acts only inside Python ranks, and this subject is a program; use pause or kill"
            )
            yield draft.problem(("faults", index, "kind"), message)


def environments(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that an environment is for functions of Python, with the library of the backend."""
    shared: Path = ("subject", "environment")
    stated = [shared, *((*arm, "environment") for arm in draft.arms().values())]
    places = [place for place in stated if draft.has(*place)]
    if draft.has("subject", "program"):
        message = "is only for Python subjects; name the program's own interpreter in program"
        yield from (draft.problem(place, message, at_key=True) for place in places)
        return
    for name, given in draft.environments().items():
        for backend in draft.axes().get("backend", []):
            known = BACKENDS.get(backend) if isinstance(backend, str) else None
            for library in (
                known.properties.libraries if known is not None and given is not None else ()
            ):
                if given is None or given.requirements or library in map(bare, given.packages):
                    continue
                of_the_arm = (*draft.arms()[name], "environment")
                message = f"lacks {library}, which the backend {backend} needs"
                yield draft.problem(
                    of_the_arm if draft.has(*of_the_arm) else shared,
                    f"{message}. Add it here, or set matrix.backend: [none]; otherwise those cells"
                    " are SKIPPED unless another package installs it",
                    at_key=True,
                    kind="note",
                )


def times(draft: ScenarioDraft) -> Iterator[Problem]:
    """Times fit into the deadline of a trial."""
    if draft.world is None:
        return
    deadline = draft.world.deadline
    if draft.world.after_failure >= deadline:
        yield draft.problem(
            ("world", "after_failure"), f"must be shorter than world.deadline ({deadline:g}s)"
        )
    for index, fault in draft.faults.items():
        length = fault.duration
        if length is not None and not 0 < length < deadline:
            message = f"must be more than 0s and less than world.deadline ({deadline:g}s)"
            yield draft.problem(("faults", index, "for"), message)


def reserved_variables(draft: ScenarioDraft) -> Iterator[Problem]:
    """No variable of the scenario speaks in the harness's name."""
    paths: list[tuple[str | int, ...]] = [("world", "env")]
    paths += [
        ("faults", index, fault.place.key)
        for index, fault in draft.faults.items()
        if fault.variables
    ]
    for path in paths:
        names = draft.at(*path)
        for name in names if isinstance(names, dict) else ():
            if name.upper().startswith("RANKPROOF_"):
                message = (
                    "is reserved, because names that start with RANKPROOF_ are for the harness;"
                    " rename it"
                )
                yield draft.problem((*path, name), message, at_key=True)


def paths_are_portable(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a scenario file names no folder of one machine."""
    places: list[tuple[Path, str]] = [
        (("inputs", name, "path"), f"--set inputs.{name}=… takes any path") for name in draft.inputs
    ]
    takes = "--repo takes any path" if draft.compare is None else "--set takes any path"
    places += [((*arm, "repo"), takes) for arm in draft.arms().values()]
    for path, instead in places:
        given = draft.at(*path)
        local = isinstance(given, str) and given.startswith(("/", "~"))
        if local and draft.document.marks.value(path).file != OVERRIDE:
            message = (
                "must be relative to the scenario's folder, because this path does not exist on"
                " other machines"
            )
            yield draft.problem(path, f"{message} ({instead})")


def made_exist(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a layout or a model is one that this version makes."""
    for name, given in draft.inputs.items():
        if given.made is not None:
            from harness.engines.models.catalogue import MODELS

            if given.made not in MODELS:
                message = f"is not the name of a model; known: {', '.join(MODELS)}"
                yield draft.problem(
                    ("inputs", name, "made"), message, suggestion=closest(given.made, list(MODELS))
                )
        if not given.layouts:
            continue
        from harness.hub.layouts import LAYOUTS

        for index, layout in enumerate(given.layouts):
            if layout not in LAYOUTS:
                message = f"is not a layout; known: {', '.join(LAYOUTS)}"
                path = ("inputs", name, "layouts", index)
                yield draft.problem(path, message, suggestion=closest(layout, list(LAYOUTS)))


# -- what is asked of backends ---------------------------------------------------------------------


def observed(draft: ScenarioDraft) -> Iterator[Problem]:
    """Calls are observed in ranks of Python, of backends whose library is known."""
    if not draft.has("observe"):
        return
    if draft.has("subject", "program"):
        message = "works only inside Python ranks, not in a program; remove it"
        yield draft.problem(("observe",), message, at_key=True)
    for index, name in enumerate(draft.axes().get("backend", [])):
        known = BACKENDS.get(name) if isinstance(name, str) else None
        if known is not None and known.properties.unobserved:
            message = (
                f"cannot be combined with observe, because {known.properties.unobserved}; remove it"
            )
            yield draft.problem(("matrix", "backend", index), message)


def backends_have_the_bound(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a bound on how long collectives wait is for backends that have one, and acts
    before the world is stopped.
    """
    path = ("world", "collective_timeout")
    if draft.world is None or (bound := draft.world.collective_timeout) is None:
        return
    if not 0 < bound < draft.world.deadline:
        message = (
            f"must be more than 0s and less than world.deadline ({draft.world.deadline:g}s);"
            " otherwise it has no effect"
        )
        yield draft.problem(path, message)
    for backend in draft.axes().get("backend", []):
        known = BACKENDS.get(backend) if isinstance(backend, str) else None
        if known is not None and known.properties.unbounded:
            message = (
                f"cannot be used with {backend}, because {known.properties.unbounded}. Put that"
                " backend into a separate scenario"
            )
            yield draft.problem(path, message, at_key=True)


def digests_can_be_had(draft: ScenarioDraft) -> Iterator[Problem]:
    """Digests are of calls; those of a library that runs calls later are asked for by name.

    And xxhash is there.
    """
    words = draft.at("observe")
    asked = [str(word) for word in words] if isinstance(words, list) else []
    given = "digests" in asked
    eager = "eager-digests" in asked
    if not (given or eager):
        return
    if "collectives" not in asked:
        yield draft.problem(
            ("observe",), "has digests, which need a ledger; add collectives", at_key=True
        )
    if given and eager:
        yield draft.problem(
            ("observe",), "has both digests and eager-digests; remove one of them", at_key=True
        )
    for name in draft.axes().get("backend", []):
        known = BACKENDS.get(name) if isinstance(name, str) else None
        if known is not None and known.properties.runs_calls_later and not eager:
            message = f"needs eager-digests, because {known.properties.runs_calls_later}"
            yield draft.problem(("observe",), message, at_key=True)


def calls_run_in_order(draft: ScenarioDraft) -> Iterator[Problem]:
    """Demand that a fault that makes calls change places is for backends that run a call when it is
    made.
    """
    for index, fault in draft.faults.items():
        if not (isinstance(fault, CallFault) and fault.unordered):
            continue
        for name in draft.axes().get("backend", []):
            known = BACKENDS.get(name) if isinstance(name, str) else None
            if known is not None and (why := known.properties.runs_calls_later):
                message = (
                    f"cannot act on calls of {name}, because {why}; use a separate scenario"
                    " without this fault for that backend"
                )
                yield draft.problem(("faults", index, "kind"), message)


RULES = (
    unique_ids,
    role_and_verdict,
    finding_is_shown,
    *MUST_FAIL_RULES,
    ranks_exist,
    plugins_can_be_used,
    kinds_own_rules,
    reference_is_used,
    *COMPARE_RULES,
    exclusions,
    *ARM_RULES,
    programs,
    observed,
    digests_can_be_had,
    calls_run_in_order,
    backends_have_the_bound,
    environments,
    *TRIAL_RULES,
    *TOLERANCE_RULES,
    times,
    *FAULT_RULES,
    *SERVICE_RULES,
    reserved_variables,
    paths_are_portable,
    made_exist,
    ready,
    *UNSHOWN_RULES,
)
