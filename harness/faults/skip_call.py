"""`skip-call`: a call of the rank is not made.

The rank returns from it at once, and goes on with what it had: one step ahead of the others.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.faults.call import NEEDS, OF_A_CALL, CallFault


class SkipCallFault(CallFault):
    """A call of the rank is not made."""

    does: ClassVar = (
        "does not make one of the rank's calls: the subject goes on as if it had been made"
    )
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_CALL
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: skip-call-3, kind: skip-call, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "breaking"
    what: ClassVar = "skip"
    verb: ClassVar = "was not made"

    kind: Literal["skip-call"]
