"""Backends: what makes a set of processes one group. One file each, named in `MODULES`.

A backend has two halves in one file. In the harness: `refusal` says why it cannot run here, `prepare` makes what the
ranks need to find each other. In the rank: `join` makes the group from it. A backend whose file is not there yet is
refused by name, so adding one means adding its file, and its declaration in `harness.backends`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

from harness.backends import KINDS, BackendProperties
from harness.forms.strict_json import JSON
from harness.rank.context import Group
from harness.rank.spec import RankSpec
from harness.reason import Skip, SkipCode

if TYPE_CHECKING:  # it needs filelock, and a rank imports this in an environment that may not have it
    from harness.world.ports import PortLease

MODULES = {name: name.replace("-", "_") for name in KINDS}


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """What a backend prepared for one world.

    Attributes:
        ranks: per rank, the JSON its `join` will read. A value `{"descriptor": i}` stands for `descriptors[i]`.
        descriptors: open descriptors of the harness that are handed to the ranks and closed here once they are.
        env: per rank, variables set before the backend's library looks at them.
    """

    ranks: Sequence[Mapping[str, JSON]]
    descriptors: Sequence[int] = ()
    env: Sequence[Mapping[str, str]] = field(default=())


class Backend(Protocol):
    """One way to make processes a group. What it is stands in `harness.backends`."""

    name: str
    properties: BackendProperties

    def refusal(self, *, size: int) -> Skip | None:
        """Why a world of `size` cannot run on this machine, or None. A refused cell is SKIPPED with this reason."""
        ...

    def prepare(self, *, size: int, ports: PortLease) -> Rendezvous:
        """Make the rendezvous in the harness, before any rank is forked.

        Raises:
            OSError: a port or descriptor could not be had: an error of the harness, so the trial is void.
        """
        ...

    def join(self, spec: RankSpec) -> Group:
        """Join the group, in the rank. May block until every rank is there."""
        ...


def find(name: str) -> Backend | None:
    """Return the backend of that name, or None where this version has none."""
    module = f"{__name__}.{MODULES[name]}" if name in MODULES else ""
    if not module or importlib.util.find_spec(module) is None:
        return None
    return cast("Backend", importlib.import_module(module).BACKEND)


def refusal(name: str, *, size: int) -> Skip | None:
    """Why a cell with this backend cannot run here, or None."""
    backend = find(name)
    if backend is None:
        return Skip(SkipCode.BACKEND_UNKNOWN, "not in this version yet")
    return backend.refusal(size=size)
