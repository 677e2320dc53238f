"""What a node says of itself at the begin of a connection, and why the other end refuses to talk to
it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import frame
from .digest import digest
from .records import NodeId

DIGITS = 20
SHOWN = 80
"""Characters of a name that somebody else said."""


class Greeting(NamedTuple):
    """The payload of a HELLO: a line each.

    Attributes:
        node, peer: who says it, and to whom.
        message: bytes of the longest message that it takes; None where it did not say.
    """

    node: NodeId
    peer: NodeId
    message: int | None

    def packed(self) -> bytes:
        return f"{self.node}\n{self.peer}\n{self.message}".encode()


def greeting_of(payload: Any) -> Greeting:
    """Return what a HELLO says, whatever it does."""
    node, peer, message, *_ = [*bytes(payload).decode(errors="replace").split("\n"), "", "", ""]
    whole = message.isascii() and message.isdecimal() and len(message) < DIGITS
    return Greeting(node, peer, int(message) if whole else None)


class Refusal(NamedTuple):
    """Why nobody here talks to whoever greeted.

    Attributes:
        words: said to him, and to who waits here for somebody.
        flags: of the frame.
    """

    words: str
    flags: int = frame.REFUSED

    def packed(self, *, toward: int) -> tuple[bytes, bytes]:
        """Header and payload of the frame that says so to a start of somebody."""
        said = self.words.encode()
        made = digest(said)
        kind = frame.Kind.FAIL
        return (
            frame.packed(
                kind=kind,
                flags=self.flags,
                length=len(said),
                epoch=0,
                toward=toward,
                payload_digest=made,
            ),
            said,
        )


def begun_before(node: NodeId, epoch: int, peer: NodeId, met: int) -> str:
    """A node begins under an epoch that is before one that its peer knows."""
    return (
        f"{node} began under epoch {epoch}, and {peer} has met its epoch {met}: each start takes a"
        f" greater one than all before, as next_epoch(store, {node!r}) does, and a name is one"
        " process's at a time"
    )


def too_long(node: NodeId, peer: NodeId, *, ours: int, both: int, size: int, message: int) -> str:
    """Return a message that one of both does not take."""
    whose = f"{node} may send" if both == ours else f"{peer} takes ({node}: {ours})"
    return (
        f"message {message} of {size} bytes for {peer} is longer than {both}, which is what"
        f" {whose}: send it in parts, or give both Limits(message={size}) or more"
    )
