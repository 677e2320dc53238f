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
    oldest, untaken = out.oldest, out.untaken
    if oldest is not None:
        message, which, tried = oldest.message, f"to {peer}", f"sent {oldest.times} times, "
    elif conversation.incoming.ended:
        message, which, tried = out.messages, f"to {peer}", ""  # the one that somebody is about to send
    else:
        message, which, tried = conversation.incoming.messages, f"from {peer}", ""
    last = f"; last trouble: {conversation.trouble}" if conversation.trouble else ""
    if untaken is not None and oldest is None:
        last += f"; messages {untaken[0]} to {untaken[1]} had come there and are not known to have been taken"
    elif untaken is not None and untaken[1] > message:
        last += f"; messages up to {untaken[1]} had been sent after it"
    return MessageLost(
        f"message {message} {which} is lost: {why} ({tried}{connections} connection{'s' * (connections != 1)}, "
        f"time-out {conversation.round_trip.timeout():.3g} s, epoch {conversation.epoch}{last})",
        peer=peer,
        sequence=untaken[0] if untaken is not None and oldest is None else message,
        epoch=conversation.epoch,
    )
