"""`repeat-call`: a call of the rank is made twice.

The second time meets the others' next call.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.faults.call import NEEDS, OF_A_CALL, CallFault


class RepeatCallFault(CallFault):
    """A call of the rank is made twice."""

    does: ClassVar = "makes one of the rank's calls twice, one after the other"
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_CALL
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: repeat-call-3, kind: repeat-call, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "breaking"
    what: ClassVar = "repeat"
    verb: ClassVar = "was made twice"

    kind: Literal["repeat-call"]
