"""Rules about what a scenario asks of its backends."""

from __future__ import annotations

from collections.abc import Iterator

from harness.backends import KINDS as BACKENDS
from harness.faults.call import CallFault
from harness.forms.problem import Problem
from harness.scenario.lint.draft import Draft


def observed(draft: Draft) -> Iterator[Problem]:
    """Calls are observed in ranks of Python, of backends whose library is known."""
    if not draft.has("observe"):
        return
    if draft.has("subject", "program"):
        message = "stands in functions of Python; nothing of ours is inside a program: remove it"
        yield draft.problem(("observe",), message, at_key=True)
    for index, name in enumerate(draft.axes().get("backend", [])):
        known = BACKENDS.get(name) if isinstance(name, str) else None
        if known is not None and known.properties.unobserved:
            message = f"cannot be had beside observe: {known.properties.unobserved}; leave it out"
            yield draft.problem(("matrix", "backend", index), message)


def backends_have_the_bound(draft: Draft) -> Iterator[Problem]:
    """A bound on how long collectives wait is for backends that have one, and acts before the world is stopped."""
    path = ("world", "collective_timeout")
    if draft.world is None or (bound := draft.world.collective_timeout) is None:
        return
    if not 0 < bound < draft.world.deadline:
        message = f"must be more than 0s and less than world.deadline ({draft.world.deadline:g}s), or it never acts"
        yield draft.problem(path, message)
    for backend in draft.axes().get("backend", []):
        known = BACKENDS.get(backend) if isinstance(backend, str) else None
        if known is not None and known.properties.unbounded:
            message = (
                f"cannot be had with {backend}: {known.properties.unbounded}. Give that backend a scenario of its own"
            )
            yield draft.problem(path, message, at_key=True)


def digests_can_be_had(draft: Draft) -> Iterator[Problem]:
    """Digests are of calls; those of a library that runs calls later are asked for by name; and xxhash is there."""
    words = draft.at("observe")
    asked = [str(word) for word in words] if isinstance(words, list) else []
    given, eager = "digests" in asked, "eager-digests" in asked
    if not (given or eager):
        return
    if "collectives" not in asked:
        yield draft.problem(("observe",), "digests are part of a ledger; add collectives", at_key=True)
    if given and eager:
        yield draft.problem(("observe",), "eager-digests are digests already; leave one of them out", at_key=True)
    for name in draft.axes().get("backend", []):
        known = BACKENDS.get(name) if isinstance(name, str) else None
        if known is not None and known.properties.runs_calls_later and not eager:
            message = f"needs eager-digests, which evaluate: {known.properties.runs_calls_later}"
            yield draft.problem(("observe",), message, at_key=True)


def calls_run_in_order(draft: Draft) -> Iterator[Problem]:
    """A fault that makes calls change places is for backends that run a call when it is made."""
    for index, fault in draft.faults.items():
        if not (isinstance(fault, CallFault) and fault.unordered):
            continue
        for name in draft.axes().get("backend", []):
            known = BACKENDS.get(name) if isinstance(name, str) else None
            if known is not None and (why := known.properties.runs_calls_later):
                message = f"cannot be done to calls of {name}: {why}; give that backend a scenario without it"
                yield draft.problem(("faults", index, "kind"), message)


BACKEND_RULES = (observed, digests_can_be_had, calls_run_in_order, backends_have_the_bound)
