"""Which rank is on which test host, as a scenario writes it, or on which machine, as who runs it
says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from harness.forms.model import MOST_RANKS
from harness.forms.problem import closest, complaint
from harness.forms.units import written

MOST_HOSTS = MOST_RANKS
RULES = ("round-robin", "blocks")
"""round-robin: rank r is on host r modulo their number.

Blocks: ranks that follow one another are together.
"""


def placement(value: Any) -> str | tuple[int, ...]:
    """Read round-robin, blocks, or a list with the host of each rank."""
    if isinstance(value, str) and value in RULES:
        return value
    wanted = "must be round-robin, blocks, or a list with the host of each rank, like [0, 1, 1]"
    if not isinstance(value, list | tuple) or not value:
        raise complaint(wanted, suggestion=closest(value, list(RULES)))
    for index, host in enumerate(value):
        if type(host) is not int or not 0 <= host < MOST_HOSTS:
            raise complaint("must be a host: a whole number from 0", at=index)
    return tuple(value)


def hosts_of(rule: str | tuple[int, ...], *, hosts: int, size: int) -> tuple[int, ...]:
    """The host of each rank of a world; of a list that is too short, what there is."""
    if isinstance(rule, tuple):
        return rule[:size]
    if rule == "blocks":
        return tuple(rank * hosts // size for rank in range(size))
    return tuple(rank % hosts for rank in range(size))


MACHINE_RULES = ("spread", "pack")
"""spread: each further rank on the next machine that has room.

Pack: each machine is filled before the next.
"""


def machines_of(
    rule: str | Sequence[int], *, slots: Sequence[int], size: int, hosts: int | None = None
) -> tuple[int, ...] | None:
    """The machine of each rank of a world, by its place in the hostfile; None where there is no
    room.

    Args:
        rule: spread, pack, or the machine of each rank.
        slots: for how many ranks each machine has room.
        size: world size.
        hosts: on how many machines ranks have to be: of a rule, the first ones; None is as many as
            it comes to.
    """
    if hosts is not None:
        machines = machines_of(
            rule, slots=slots[:hosts] if isinstance(rule, str) else slots, size=size
        )
        return machines if machines is not None and len(set(machines)) == hosts else None
    left = list(slots)
    placed = list[int]()
    if not isinstance(rule, str):
        placed = list(rule[:size])
    elif size <= sum(slots):
        while len(placed) < size:
            for machine, room in enumerate(left):
                taken = min(room, 1 if rule == "spread" else size, size - len(placed))
                placed += [machine] * taken
                left[machine] -= taken
    enough = len(placed) == size and all(
        placed.count(machine) <= room for machine, room in enumerate(slots)
    )
    return (
        tuple(placed) if enough and all(0 <= machine < len(slots) for machine in placed) else None
    )


_HOST = {"type": "integer", "minimum": 0, "maximum": MOST_HOSTS - 1}
_SCHEMA = {"anyOf": [{"enum": list(RULES)}, {"type": "array", "items": _HOST, "minItems": 1}]}
Placement = Annotated[str | tuple[int, ...], *written(placement, _SCHEMA)]
