"""`reorder-calls`: a call of the rank and the next one change places.

The call is held back, and made as soon as the rank has made another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from harness.faults.call import NEEDS, OF_A_CALL, CallFault
from harness.forms.strict_json import JSON
from harness.ledger.file import OPERATIONS


class ReorderCallsFault(CallFault):
    """A call of the rank and the next one change places."""

    does: ClassVar = "makes one of the rank's calls behind the one that follows it"
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_CALL
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: reorder-calls-3, kind: reorder-calls, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "breaking"
    what: ClassVar = "reorder"
    verb: ClassVar = "came behind the next"
    unordered: ClassVar = True

    kind: Literal["reorder-calls"]

    def unproved(self, values: Mapping[str, JSON]) -> str:
        return "" if values.get("overtaken_by") in OPERATIONS else "no other call came before it"

    def shown(self, values: Mapping[str, JSON]) -> str:
        return (
            f", {values.get('overtaken_by')} at"
            f" {values.get('by_site') or 'a place that is not known'}"
        )
