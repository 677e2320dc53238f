"""Faults of what a call carries or states: `stale-payload`, `swapped-halves`, `other-shape`,
`other-dtype`, `lost-contribution` and `doubled-contribution`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from harness.faults.call import GIVING, STATING, CallFault
from harness.forms.strict_json import JSON
from harness.ledger.call import SUMS


# Like a library that reads a buffer before it was written.
class StalePayloadFault(CallFault):
    """A call of the rank sends what the one before it sent."""

    does: ClassVar = (
        "makes one of the rank's calls send the payload of the previous call, which the ledger"
        " does not see"
    )
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: stale-payload-3, kind: stale-payload, ranks: [1], operation: all_gather, nth: 3}"
    )
    effect: ClassVar = "silent"
    what: ClassVar = "stale"
    verb: ClassVar = "sent the payload of the previous call"
    only: ClassVar = GIVING
    alters: ClassVar = True

    kind: Literal["stale-payload"]


# Like a ring that sends the wrong half.
class SwappedHalvesFault(CallFault):
    """A call of the rank sends the halves of its payload in the other order."""

    does: ClassVar = (
        "makes one of the rank's calls send the halves of its payload in the other order"
    )
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


class StatingFault(CallFault):
    """A call of the rank states another dtype or shape than before."""

    only: ClassVar = STATING
    # Which of the two, dtype and shape, differs.
    differing: ClassVar[int]

    def unproved(self, values: Mapping[str, JSON]) -> str:
        stated: Any = [values.get("before"), values.get("after")]
        are_pairs = all(isinstance(pair, list) and len(pair) == 2 for pair in stated)
        differs = are_pairs and stated[0][self.differing] != stated[1][self.differing]
        return "" if differs else "its reported values did not change"

    def shown(self, values: Mapping[str, JSON]) -> str:
        return f": {values.get('before')} became {values.get('after')}"


class OtherShapeFault(StatingFault):
    """A call of the rank is made with an element less."""

    does: ClassVar = "makes one of the rank's calls without the last element of its arrays"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: other-shape-3, kind: other-shape, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "breaking"
    what: ClassVar = "shape"
    verb: ClassVar = "was made with one element less"
    differing: ClassVar = 1

    kind: Literal["other-shape"]


class OtherDtypeFault(StatingFault):
    """A call of the rank is made with the same bits as another type."""

    does: ClassVar = (
        "makes one of the rank's calls with its arrays reinterpreted as another type of the same"
        " size (same bits)"
    )
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: other-dtype-3, kind: other-dtype, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "breaking"
    what: ClassVar = "dtype"
    verb: ClassVar = "was made with another type"
    differing: ClassVar = 0

    kind: Literal["other-dtype"]


class LostContributionFault(CallFault):
    """What the rank adds to a sum is lost."""

    does: ClassVar = "makes the rank add zeros to one sum instead of its values"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: lost-contribution-3, kind: lost-contribution, ranks: [1], operation: all_reduce,"
        " nth: 3}"
    )
    effect: ClassVar = "silent"
    what: ClassVar = "lost"
    verb: ClassVar = "added zeros"
    only: ClassVar = SUMS
    alters: ClassVar = True

    kind: Literal["lost-contribution"]


class DoubledContributionFault(CallFault):
    """What the rank adds to a sum is added twice."""

    does: ClassVar = "makes the rank add its values to one sum twice"
    over_machines: ClassVar = True
    example: ClassVar = (
        "{id: doubled, kind: doubled-contribution, ranks: [1], operation: all_reduce, nth: 3}"
    )
    effect: ClassVar = "silent"
    what: ClassVar = "doubled"
    verb: ClassVar = "added its values twice"
    only: ClassVar = SUMS
    alters: ClassVar = True

    kind: Literal["doubled-contribution"]
