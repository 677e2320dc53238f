"""`other-dtype`: a call of the rank is made with the same bits as another type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from harness.faults.call import NEEDS, OF_A_CALL, STATING, CallFault
from harness.forms.strict_json import JSON


class OtherDtypeFault(CallFault):
    """A call of the rank is made with the same bits as another type."""

    does: ClassVar = (
        "makes one of the rank's calls with its arrays as another type of as many bytes: the same"
        " bits"
    )
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_CALL
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: other-dtype-3, kind: other-dtype, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "breaking"
    what: ClassVar = "dtype"
    verb: ClassVar = "was made with another type"
    only: ClassVar = STATING

    kind: Literal["other-dtype"]

    def unproved(self, values: Mapping[str, JSON]) -> str:
        before = values.get("before")
        after = values.get("after")
        is_told = (
            isinstance(before, list) and isinstance(after, list) and len(before) == len(after) == 2
        )
        return "" if is_told and before[0] != after[0] else "it states what it stated before"  # type: ignore[index]

    def shown(self, values: Mapping[str, JSON]) -> str:
        return f": {values.get('before')} became {values.get('after')}"
