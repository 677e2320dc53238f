"""Rules about what a scenario observes."""

from __future__ import annotations

from collections.abc import Iterator

from harness.backends import KINDS as BACKENDS
from harness.forms.problem import Problem
from harness.scenario.draft import Draft


def observed(draft: Draft) -> Iterator[Problem]:
    """Calls are observed in ranks of Python, of backends whose library is known."""
    if not draft.has("observe"):
        return
    if draft.has("subject", "program"):
        message = "stands in functions of Python; nothing of ours is inside a program: remove it"
        yield draft.problem(("observe",), message, at_key=True)
    for index, name in enumerate(draft.axes().get("backend", [])):
        known = BACKENDS.get(name) if isinstance(name, str) else None
        if known is not None and known.unobserved:
            message = f"cannot be had beside observe: {known.unobserved}; leave it out"
            yield draft.problem(("matrix", "backend", index), message)
