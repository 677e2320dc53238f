"""Faults of the order of calls: `skip-call`, `repeat-call` and `reorder-calls`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from harness.faults.call import CallFault
from harness.forms.strict_json import JSON
from harness.ledger.call import OPERATIONS


# The rank returns from the call at once with what it had, one step ahead of the others.
class SkipCallFault(CallFault):
    """A call of the rank is not made."""

    does: ClassVar = "skips one of the rank's calls; the subject continues as if it had been made"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: skip-call-3, kind: skip-call, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "breaking"
    what: ClassVar = "skip"
    verb: ClassVar = "was not made"

    kind: Literal["skip-call"]


# The second call meets the others' next one.
class RepeatCallFault(CallFault):
    """A call of the rank is made twice."""

    does: ClassVar = "makes one of the rank's calls twice, one after the other"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: repeat-call-3, kind: repeat-call, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "breaking"
    what: ClassVar = "repeat"
    verb: ClassVar = "was made twice"

    kind: Literal["repeat-call"]


# The call is held back and made once the rank has made another one.
class ReorderCallsFault(CallFault):
    """A call of the rank and the next one change places."""

    does: ClassVar = "makes one of the rank's calls after the following call"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: reorder-calls-3, kind: reorder-calls, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "breaking"
    what: ClassVar = "reorder"
    verb: ClassVar = "came after the next call"
    unordered: ClassVar = True

    kind: Literal["reorder-calls"]

    def unproved(self, values: Mapping[str, JSON]) -> str:
        operation = values.get("overtaken_by")
        known = isinstance(operation, str) and operation in OPERATIONS
        return "" if known else "no other call came before it"

    def shown(self, values: Mapping[str, JSON]) -> str:
        return f", {values.get('overtaken_by')} at {values.get('by_site') or 'an unknown place'}"
