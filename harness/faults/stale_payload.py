"""`stale-payload`: a call of the rank sends what the one before it sent.

As a library that reads a buffer before it was written.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.faults.call import GIVING, NEEDS, OF_A_CALL, CallFault


class StalePayloadFault(CallFault):
    """A call of the rank sends what the one before it sent."""

    does: ClassVar = (
        "has one of the rank's calls send the payload of the one before it, as the ledger does"
        " not see"
    )
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_CALL
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: stale-payload-3, kind: stale-payload, ranks: [1], operation: all_gather, nth: 3}"
    )
    effect: ClassVar = "silent"
    what: ClassVar = "stale"
    verb: ClassVar = "sent the payload of the one before it"
    only: ClassVar = GIVING
    alters: ClassVar = True

    kind: Literal["stale-payload"]
