"""How a conversation ends by an error: what is known of it, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.integrity.problem import MessageLost, PeerRestarted

if TYPE_CHECKING:
    from harness.integrity.conversation import Conversation


def restarted(conversation: Conversation, epoch: int) -> PeerRestarted:
    """The peer began again. It remembers nothing of us; what became of what it was sent, nobody can say."""
    peer, incoming, lost = conversation.peer, conversation.incoming, conversation.outgoing.untaken
    sent = "everything sent to it had been taken"
    if lost is not None:
        sent = f"messages {lost[0]} to {lost[1]} had been sent to it and are not known to have been taken"
    return PeerRestarted(
        f"{peer} began again (epoch {epoch} after {conversation.peer_epoch}): {sent}; of its own, "
        f"message {incoming.messages} and those after it did not come. "
        f"Call renew({peer!r}) to begin with it anew",
        peer=peer,
        sequence=lost[0] if lost is not None else incoming.messages,
        epoch=conversation.peer_epoch,
    )


def given_up(conversation: Conversation, why: str) -> MessageLost:
    """This side tries no longer."""
    out, peer, connections = conversation.outgoing, conversation.peer, conversation.counters.connections
    oldest = out.oldest
    message = oldest.message if oldest is not None else conversation.incoming.messages
    which = f"message {message} to {peer}" if oldest is not None else f"message {message} from {peer}"
    tried = f"sent {oldest.times} times, " if oldest is not None else ""
    last = f"; last trouble: {conversation.trouble}" if conversation.trouble else ""
    if out.untaken is not None and out.untaken[1] > message:
        last += f"; messages up to {out.untaken[1]} had been sent after it"
    return MessageLost(
        f"{which} is lost: {why} ({tried}{connections} connection{'s' * (connections != 1)}, "
        f"time-out {conversation.round_trip.timeout():.3g} s, epoch {conversation.epoch}{last})",
        peer=peer,
        sequence=message,
        epoch=conversation.epoch,
    )
