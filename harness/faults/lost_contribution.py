"""`lost-contribution`: what the rank adds to a sum is lost."""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.faults.call import NEEDS, OF_A_CALL, REDUCING, CallFault


class LostContributionFault(CallFault):
    """What the rank adds to a sum is lost."""

    does: ClassVar = "has the rank add zeros to one sum in place of its own"
    needs: ClassVar = NEEDS
    properties: ClassVar = OF_A_CALL
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: lost-contribution-3, kind: lost-contribution, ranks: [1], operation: all_reduce,"
        " nth: 3}"
    )
    effect: ClassVar = "silent"
    what: ClassVar = "lost"
    verb: ClassVar = "added zeros"
    only: ClassVar = REDUCING
    alters: ClassVar = True

    kind: Literal["lost-contribution"]
