"""Nodes without Ray: the same relay and the same process of ours, each with its own folder, on this
machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from harness.world.starters.ray import ClusterNode
from harness.world.starters.ray_relay import NodeLost, RayRelay

Spoil = Callable[[int, bytes], bytes]
LOOKED_AT = 4096  # of what a node is asked for; files are longer


class Local:
    """A relay that is called and not sent."""

    def __init__(
        self, relay: RayRelay, *, number: int, spoil: Spoil | None, lost_at: int | None
    ) -> None:
        self._relay = relay
        self._number = number
        self._spoil = spoil
        self._left = lost_at
        self._numbers = itertools.count()
        self.is_killed = False

    def read(self, wait: float) -> bytes | None:
        """As Ray's actor: a node that is lost answers nothing any more."""
        part = self._relay.read(wait)
        if self._left == 0:
            raise NodeLost("the test cut it off")
        return self._spoil(self._number, part) if self._spoil is not None and part else part

    def write(self, content: bytes) -> None:
        if self._left and b'"ask": "trial"' in content[:LOOKED_AT]:
            self._left -= 1
        self._relay.write(content, next(self._numbers))

    def said(self) -> str:
        return self._relay.said()

    def kill(self) -> None:
        """What it started hears that its channel is closed, as when an actor is killed."""
        self.is_killed = True
        self._relay.close()


@dataclass
class LocalCluster:
    """In place of `harness.world.starters.ray.Cluster`.

    Attributes:
        count: of nodes.
        spoil: changes what a node sends.
        lost: node to the number of the trial that it takes along: it is asked for it, and never
            answers.
    """

    where: str = "ray"
    count: int = 2
    spoil: Spoil | None = None
    lost: dict[int, int] = field(default_factory=dict)
    version: str = "none"
    made: list[Local] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def places(self) -> list[ClusterNode]:
        return [
            ClusterNode(id=str(number), name=f"secret-host-{number}", cores=2)
            for number in range(self.count)
        ]

    def start(self, place: ClusterNode, program: str, **more: Any) -> Local:
        relay = RayRelay(program, **more)
        number = int(place.id)
        made = Local(relay, number=number, spoil=self.spoil, lost_at=self.lost.get(number))
        self.made.append(made)
        return made
