"""`doubled-contribution`: what the rank adds to a sum is added twice."""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.faults.call import NEEDS, OF_A_CALL, REDUCING, CallFault


class DoubledContributionFault(CallFault):
    """What the rank adds to a sum is added twice."""

    does: ClassVar = "has the rank add to one sum twice what it was to add"
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_CALL
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: doubled, kind: doubled-contribution, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "silent"
    what: ClassVar = "doubled"
    verb: ClassVar = "added twice its own"
    only: ClassVar = REDUCING
    alters: ClassVar = True

    kind: Literal["doubled-contribution"]
