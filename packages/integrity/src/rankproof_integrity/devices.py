"""Ranks of a group and the lines between them: each finds the others by a store, and again
after a restart.
"""

from __future__ import annotations

import functools
import json
from types import TracebackType
from typing import Any, Self

from .barrier import DistributedBarrier, Membership
from .incoming import Message
from .link import LinkHealth, TransportLimits
from .problem import Misused
from .records import EnhancedTokenChunk
from .store import SharedStore, next_epoch
from .token_stream import chunk_bytes, chunk_of
from .transport import ReliableMessageTransport
from .wire import Address, address_of

EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - refused


class DeviceCommunicationManager:
    """One rank's lines to all others.

    A rank connects to those below it, and is connected to by those above. Where each listens is in
    the store.

    Args:
        store: what the ranks share.
        rank, world_size: of this rank.
        address: where to listen: a host that the others reach, and a port (0: any); or a path.
        key: of the group, as `ReliableMessageTransport` has it.
        group: the group's name.
        limits: bounds of each line.

    Raises:
        Misused: the address is every address of this host, which says nothing to the others; or
            other machines can reach it, and there is no key.

    Attributes:
        membership: this rank's place, with its epoch.
        transport: what carries the messages.
    """

    # Seven arguments: who this rank is in which group (4), where it listens (2), its bounds.
    def __init__(
        self,
        *,
        store: SharedStore,
        rank: int,
        world_size: int,
        address: Address = ("127.0.0.1", 0),
        key: bytes | None = None,
        group: str = "world",
        limits: TransportLimits | None = None,
    ) -> None:
        address = address_of(address)
        if address[0] in EVERYWHERE:
            raise Misused(
                f"other ranks cannot connect to {address[0]!r}; use an address of this host that"
                " they can reach"
            )
        self.membership = Membership(store=store, rank=rank, world_size=world_size, group=group)
        self._store = store
        self._group = group
        # Not the membership's: a line that is renewed needs a later one too, and the group's view
        # is still the same.
        later = functools.partial(next_epoch, store, f"lines/{group}/{rank}")
        self.transport = ReliableMessageTransport(
            node=name_of(rank), key=key, epoch=later, limits=limits
        )
        try:
            self._begin(address, world_size)
        except BaseException:
            # Who tries again finds its threads and descriptors free.
            self.transport.close(timeout=0)
            raise

    def _begin(self, address: Address, world_size: int) -> None:
        rank = self.membership.rank
        listens = self.transport.listen(address)
        for other in range(world_size):
            if other > rank:
                self.transport.expect(name_of(other))
            elif other < rank:
                self.transport.connect(name_of(other), functools.partial(self._address, other))
        # Last: whoever reads it connects, and is expected by then.
        self._store.set(self._key(rank), json.dumps(listens).encode())

    def _key(self, rank: int) -> str:
        return f"address/{self._group}/{rank}"

    def _address(self, rank: int) -> Address:
        """Return where a rank listens now: after a restart it is another port.

        Raises:
            ConnectionError: it has not said.
        """
        text = self._store.get(self._key(rank))
        if text is None:
            raise ConnectionError(f"{name_of(rank)} has not announced its address")
        address = json.loads(text)
        return address if isinstance(address, str) else (str(address[0]), int(address[1]))

    def send(self, data: Any, *, to: int, timeout: float | None = None) -> int:
        """As `ReliableMessageTransport.send`, to a rank."""
        return self.transport.send(data, to=name_of(to), timeout=timeout)

    def receive(self, *, source: int, timeout: float | None = None) -> Message:
        """As `ReliableMessageTransport.receive`, from a rank."""
        return self.transport.receive(source=name_of(source), timeout=timeout)

    def send_token(
        self, chunk: EnhancedTokenChunk, *, to: int, timeout: float | None = None
    ) -> int:
        """Send a token with the checksum that its maker gave it.

        Raises:
            Misused: it has none, or is not what its checksum was made of: what is wrong here is not
                sent on.
        """
        return self.transport.send(chunk_bytes(chunk), to=name_of(to), timeout=timeout)

    def receive_token(self, *, source: int, timeout: float | None = None) -> EnhancedTokenChunk:
        """Return the next message of a rank, which is a token.

        Raises:
            MessageCorrupt: it is not as its maker made it.
            TransferFailed: as `receive`.
        """
        peer = name_of(source)
        return chunk_of(self.transport.receive(source=peer, timeout=timeout).data, peer=peer)

    def renew(self, rank: int) -> None:
        """Begin anew with a rank whose line ended by an error, wherever it listens now."""
        self.transport.renew(name_of(rank))

    def barrier(self, name: str = "barrier") -> DistributedBarrier:
        """Return a barrier of all ranks of this group."""
        return DistributedBarrier(membership=self.membership, name=name)

    def health(self) -> list[LinkHealth]:
        """How every line does, by rank."""
        others = [
            rank for rank in range(self.membership.world_size) if rank != self.membership.rank
        ]
        return [self.transport.health(name_of(rank)) for rank in others]

    def close(self, *, timeout: float | None = None) -> None:
        """As `ReliableMessageTransport.close`."""
        self.transport.close(timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.transport.__exit__(kind, error, trace)


@functools.cache
def name_of(rank: int) -> str:
    """Return the name under which a rank is known to others."""
    return f"rank {rank}"
