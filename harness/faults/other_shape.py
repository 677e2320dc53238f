"""`other-shape`: a call of the rank is made with an element less."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from harness.faults.call import NEEDS, OF_A_CALL, STATING, CallFault
from harness.forms.strict_json import JSON


class OtherShapeFault(CallFault):
    """A call of the rank is made with an element less."""

    does: ClassVar = "makes one of the rank's calls with the last element of its arrays left out"
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_CALL
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: other-shape-3, kind: other-shape, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "breaking"
    what: ClassVar = "shape"
    verb: ClassVar = "was made with an element less"
    only: ClassVar = STATING

    kind: Literal["other-shape"]

    def unproved(self, values: Mapping[str, JSON]) -> str:
        before = values.get("before")
        after = values.get("after")
        is_told = (
            isinstance(before, list) and isinstance(after, list) and len(before) == len(after) == 2
        )
        return "" if is_told and before[1] != after[1] else "it states what it stated before"  # type: ignore[index]

    def shown(self, values: Mapping[str, JSON]) -> str:
        return f": {values.get('before')} became {values.get('after')}"
