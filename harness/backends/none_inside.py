"""Half of `none` inside a rank."""

from __future__ import annotations

from dataclasses import dataclass

from harness.rank.spec import RankSpec


class NoGroup(RuntimeError):
    """Refusal: the subject asked ranks without a group to communicate."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Group of a rank that has none; `native` is None.

    No backend could report rank and size: they are what the harness said.
    """

    rank: int
    size: int
    native: None = None

    def barrier(self) -> None:
        if self.size > 1:  # one rank alone is a whole group, as a reference is
            raise NoGroup(self._refusal("barrier"))

    def all_gather(self, data: bytes) -> list[bytes]:
        if self.size > 1:
            raise NoGroup(self._refusal("all_gather"))
        return [data]

    def leave(self) -> None:
        """Nothing was joined."""

    def _refusal(self, call: str) -> str:
        return (
            f"{call}: the ranks of backend 'none' have no group; set another backend in"
            " matrix.backend, such as gloo"
        )


def join(spec: RankSpec) -> Apart:
    """Join nobody."""
    return Apart(rank=spec.rank, size=spec.size)
