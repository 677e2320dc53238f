"""`swapped-halves`: a call of the rank sends the halves of its payload in the other order.

As a ring that sends the wrong half.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.faults.call import GIVING, NEEDS, OF_A_CALL, CallFault


class SwappedHalvesFault(CallFault):
    """A call of the rank sends the halves of its payload in the other order."""

    does: ClassVar = "has one of the rank's calls send the halves of its payload in the other order"
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_CALL
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: swapped-halves-3, kind: swapped-halves, ranks: [1], operation: all_gather, nth: 3}"
    )
    effect: ClassVar = "silent"
    what: ClassVar = "halves"
    verb: ClassVar = "sent the halves of its payload in the other order"
    only: ClassVar = GIVING
    alters: ClassVar = True

    kind: Literal["swapped-halves"]
