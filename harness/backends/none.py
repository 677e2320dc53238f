"""none: no group. What its ranks have between them is their own: Python's sockets, pipes, HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from harness.backends.backend import OF_PYTHON, Backend, BackendProperties, Rendezvous


class NoBackend(Backend):
    """Ranks that do not communicate over anything the harness knows of: programs, independent
    processes.
    """

    description: ClassVar = "no group: programs, and ranks whose channels are their own"
    properties: ClassVar = BackendProperties(
        modules=(),
        makes_a_group=False,
        portable=True,
        unbounded="its ranks have no collectives: what they wait for is their own",
        unobserved="",
        runs_calls_later="",
        peer_gone=OF_PYTHON,
    )
    inside_file: ClassVar = Path(__file__).with_name("none_inside.py")

    def prepare_across(self, *, addresses: Sequence[str]) -> Rendezvous:
        return Rendezvous(ranks=[{}] * len(addresses))

    def prepare_over(
        self, *, addresses: Sequence[str], ports: Sequence[int], interfaces: Sequence[str]
    ) -> Rendezvous:
        del ports, interfaces
        return Rendezvous(ranks=[{}] * len(addresses))
