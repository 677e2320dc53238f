"""Meeting of a listener and whoever connects, until it is known who that is. No clock, no socket."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from . import frame
from .conversation import Conversation
from .frame import SHOWN, Greeting, GreetingRefusal, Header, Kind, begun_before, greeting_of
from .proof import PATIENCE, Introduction, Session, Unproved, opened
from .records import NodeId

KEYLESS = "this node has no key; give both nodes the key of the group, or neither"
STRANGERS = 256
"""How many connections there may be at once on which nobody has said yet who they are."""
OLDEST = 16
"""Among how many of them it is chosen who makes room for another."""


class Stranger:
    """Somebody who connected, and has not said who it is.

    Args:
        key: of the group; None where nobody proves one.
        host: where it comes from.
        now: the time.

    Attributes:
        until: when its time is up.
    """

    def __init__(self, key: bytes | None, *, host: str, now: float) -> None:
        self.host = host
        self.until = now + PATIENCE
        self._introduction = None if key is None else Introduction(key, initiator=False)

    @property
    def session(self) -> Session | None:
        """Return what both ends have proved; None where they have not, or have no key."""
        return None if self._introduction is None else self._introduction.session

    @property
    def proved(self) -> int:
        """Return how far it has come."""
        if self._introduction is None:
            return 0
        return self._introduction.begun + (self._introduction.session is not None)

    def next_frame(self) -> tuple[bytes, bytes] | None:
        """Header and payload of what it is to be told now; None for nothing."""
        return None if self._introduction is None else self._introduction.next_frame()

    def came(self, header: Header, payload: Any) -> Greeting | None:
        """Take a frame of it; gives its greeting, once it greets.

        Raises:
            Unproved: it is not what is due.
        """
        introduction = self._introduction
        if introduction is not None and introduction.session is None:
            introduction.came(header, payload)
            return None
        if header.kind is Kind.NONCE:
            raise Unproved("a peer began with a proof of a key", answer=KEYLESS)
        words = opened(self.session, header, payload) if header.kind is Kind.HELLO else None
        if words is None:
            raise Unproved("a peer did not greet, or its greeting was not sealed")
        return greeting_of(words)


Name = TypeVar("Name", bound=Hashable)


class Strangers(Generic[Name]):
    """All of one transport, of whom there are at most `STRANGERS`."""

    def __init__(self) -> None:
        self._known: dict[Name, Stranger] = {}
        self._hosts = Counter[str]()

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Name]:
        return iter(list(self._known))

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __getitem__(self, name: Name) -> Stranger:
        return self._known[name]

    def add(self, name: Name, stranger: Stranger) -> None:
        """Add one."""
        self._known[name] = stranger
        self._hosts[stranger.host] += 1

    def remove(self, name: Name) -> Stranger:
        """Remove one that has met, or is gone."""
        stranger = self._known.pop(name)
        self._hosts[stranger.host] -= 1
        if not self._hosts[stranger.host]:
            del self._hosts[stranger.host]
        return stranger

    def crowded_out(self) -> Name | None:
        """Return who has to go before another is added; None while there is room.

        Of the oldest, who has proved least, and of those, one of the host that has most: so neither
        silence nor one host keeps a peer out.
        """
        if len(self._known) < STRANGERS:
            return None
        oldest = itertools.islice(self._known.items(), OLDEST)
        name, _ = min(oldest, key=lambda item: (item[1].proved, -self._hosts[item[1].host]))
        return name

    def first(self) -> Name | None:
        """Return who connected first."""
        return next(iter(self._known), None)

    def late(self, now: float) -> list[Name]:
        """Return those whose time is up."""
        return [name for name, stranger in self._known.items() if now >= stranger.until]

    @property
    def due(self) -> float | None:
        """When the time of the first is up."""
        first = next(iter(self._known.values()), None)
        return None if first is None else first.until


class Expected(Protocol):
    """A peer, as a listener looks for it.

    Attributes:
        waits: whether it is to connect to us.
        conversation: with it.
    """

    conversation: Conversation

    @property
    def waits(self) -> bool: ...


def refusal_of(
    greeting: Greeting, epoch: int, *, node: NodeId, peers: Mapping[NodeId, Expected]
) -> GreetingRefusal | None:
    """Return why nobody here talks to whoever greets so; None where somebody does.

    Args:
        greeting: what it said.
        epoch: its own.
        node: whose listener it is.
        peers: who is expected there.
    """
    here = f"{greeting.peer[:SHOWN]!r}"
    there = f"{greeting.node[:SHOWN]!r}"
    if greeting.peer != node:
        return GreetingRefusal(
            f"{there} wanted to connect to {here}, but {node!r} listens at this address; connect"
            f" to the address of {here}",
            frame.REFUSED | frame.ANOTHER,
        )
    peer = peers.get(greeting.node)
    if peer is None:
        return GreetingRefusal(
            f"{there} connected to {node!r}, which does not expect that name; call expect({there})"
            f" on {node!r}"
        )
    if not peer.waits:
        return GreetingRefusal(
            f"{there} and {node!r} both connect to each other; one of them must listen and expect"
            " the other"
        )
    met = peer.conversation.peer_epoch
    if epoch < met:
        return GreetingRefusal(
            begun_before(greeting.node, epoch, node, met), frame.REFUSED | frame.BEFORE
        )
    return None
