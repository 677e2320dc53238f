"""none: no group. Ranks that do not communicate over anything the harness knows of: programs, independent processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.backends.none import PROPERTIES
from harness.rank.spec import RankSpec
from harness.reason import Skip
from harness.world.backends import Backend, Rendezvous

if TYPE_CHECKING:  # it needs filelock, and a rank imports this in an environment that may not have it
    from harness.world.ports import PortLease


class NoGroup(RuntimeError):
    """The subject asked ranks without a group to communicate."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """What a rank without a group is told; `native` is None.

    There is no backend that could report rank and size: they are what the harness said.
    """

    rank: int
    size: int
    native: None = None

    def barrier(self) -> None:
        raise NoGroup(self._refusal("barrier"))

    def all_gather(self, data: bytes) -> list[bytes]:
        del data
        raise NoGroup(self._refusal("all_gather"))

    def leave(self) -> None:
        """Nothing was joined."""

    def _refusal(self, call: str) -> str:
        return f"{call}: the ranks of backend 'none' have no group; name one in matrix.backend, such as gloo"


class Nothing:
    """See the module."""

    name = "none"
    properties = PROPERTIES

    def refusal(self, *, size: int) -> Skip | None:
        del size
        return None

    def prepare(self, *, size: int, ports: PortLease) -> Rendezvous:
        del ports
        return Rendezvous(ranks=[{}] * size)

    def join(self, spec: RankSpec) -> Apart:
        return Apart(rank=spec.rank, size=spec.size)


BACKEND: Backend = Nothing()
