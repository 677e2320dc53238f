"""What a backend is, declared once, in its file here. No property has a default: none can be left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PeerGone:
    """An error that tells of another rank: its peer is gone, or does not listen.

    Attributes:
        type: name of the exception's type.
        message: regular expression that is found in its message.
    """

    type: str
    message: str


@dataclass(frozen=True, kw_only=True)
class BackendProperties:
    """What a backend is.

    Attributes:
        modules: what a rank imports for it.
        makes_a_group: its ranks are one group; without it nobody meets anybody, and programs need no more.
        portable: needs nothing of the machine beside its libraries, so that an arm's environment may bring them.
        peer_gone: what it raises in a rank whose peer is gone: a consequence of another rank's end, and no cause.
    """

    modules: tuple[str, ...]
    makes_a_group: bool
    portable: bool
    peer_gone: tuple[PeerGone, ...]

    @property
    def libraries(self) -> tuple[str, ...]:
        """The packages that hold the modules, each once."""
        return tuple(dict.fromkeys(module.partition(".")[0] for module in self.modules))

    def says_that_a_peer_is_gone(self, types: Sequence[str], message: str) -> bool:
        """Whether an error is one of `peer_gone`.

        Args:
            types: name of its type, and of those it descends from where they are known.
            message: its message.
        """
        return any(one.type in types and re.search(one.message, message) for one in self.peer_gone)


# What Python's own sockets, pipes and HTTP raise when the process at the other end is killed, refuses, or is gone.
OF_PYTHON = (
    PeerGone("ConnectionResetError", r"Connection reset by peer"),
    PeerGone("BrokenPipeError", r"Broken pipe"),
    PeerGone("ConnectionRefusedError", r"Connection refused|Connect call failed"),
    PeerGone("RemoteDisconnected", r"Remote end closed connection"),
    PeerGone("URLError", r"Connection refused|Connection reset by peer"),
    PeerGone("IncompleteRead", r"more expected"),
    PeerGone("IncompleteReadError", r"bytes read on a total of"),
    PeerGone("EOFError", r"^$"),  # multiprocessing.connection's; EOFErrors of other makers have a message
)
# What torch.distributed's store raises when rank 0, which serves it, is gone.
OF_TORCHS_STORE = (
    PeerGone("DistNetworkError", r"Connection was likely closed|Connection reset by peer|Broken pipe"),
    PeerGone("DistNetworkError", r"while trying to connect to|failed to connect to any network address"),
)
