"""Base of the backends: each makes a set of processes one group.

A backend has two halves. In the harness, here: `refusal` says why it cannot run on this machine,
`prepare` makes what the ranks need to find each other. In the rank: the function `join` of the file
that `inside_file` names makes the group from it. A kind is an instance, named in
`harness.backends.KINDS` or by an entry point.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from harness.forms.strict_json import JSON
from harness.reason import Skip


@dataclass(frozen=True)
class PeerGone:
    """Error that tells of another rank: its peer is gone, or does not listen.

    Attributes:
        type: name of the exception's type.
        message: regular expression that is found in its message.
    """

    type: str
    message: str


@dataclass(frozen=True, kw_only=True)
class BackendProperties:
    """Properties of a backend. None has a default: none can be left out.

    Attributes:
        modules: what a rank imports for it.
        makes_a_group: its ranks are one group; without it nobody meets anybody, and programs need
            no more.
        portable: needs nothing of the machine beside its libraries, so that an arm's environment
            may bring them.
        unbounded: why `world.collective_timeout` cannot bound how long its ranks wait; empty where
            it can.
        unobserved: why the calls of its ranks cannot be observed (`observe: [collectives]`); empty
            where they can.
        runs_calls_later: why the order of its ranks' calls is not that in which they run; empty
            where it is.
        peer_gone: what it raises in a rank whose peer is gone: a consequence of another rank's end,
            and no cause.
    """

    modules: tuple[str, ...]
    makes_a_group: bool
    portable: bool
    unbounded: str
    unobserved: str
    runs_calls_later: str
    peer_gone: tuple[PeerGone, ...]

    @property
    def libraries(self) -> tuple[str, ...]:
        """Packages that hold the modules, each once."""
        return tuple(dict.fromkeys(module.partition(".")[0] for module in self.modules))

    def says_that_a_peer_is_gone(self, types: Sequence[str], message: str) -> bool:
        """Return whether an error is one of `peer_gone`.

        Args:
            types: name of its type, and of those it descends from where they are known.
            message: its message.
        """
        return any(
            reason.type in types and re.search(reason.message, message) for reason in self.peer_gone
        )


class Ports(Protocol):
    """Ports of loopback that nobody else takes, until the world is over."""

    def take(self, count: int) -> list[int]:
        """Lease so many.

        Raises:
            OSError: fewer are free.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Socket or table that is opened on a test host before its ranks are there.

    Attributes:
        rank: whose host it is.
        port: where a socket listens on the host's address; None for the host's table of TCP
            connections, a file.
        backlog: of the socket.
    """

    rank: int
    port: int | None = None
    backlog: int = 0


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """Meeting of the ranks of one world, as a backend prepared it.

    Attributes:
        ranks: per rank, the JSON its `join` will read. A value `{"descriptor": i}` stands for the
            i-th of `descriptors` and, after them, `opened`.
        descriptors: open descriptors of the harness that are handed to the ranks and closed here
            once they are.
        env: per rank, variables set before the backend's library looks at them.
        opened: what is opened on test hosts.
    """

    ranks: Sequence[Mapping[str, JSON]]
    descriptors: Sequence[int] = ()
    env: Sequence[Mapping[str, str]] = field(default=())
    opened: Sequence[Opened] = ()


class Backend:
    """One way to make processes a group.

    Attributes:
        description: what joins the ranks, one line.
        properties: what it is.
        inside_file: the file whose function `join(spec)` joins the group in a rank and returns it
            (see `harness.rank.context.Group`); it imports the standard library, `harness.rank` and
            the backend's own library.
    """

    description: ClassVar[str]
    properties: ClassVar[BackendProperties]
    inside_file: ClassVar[Path]

    def refusal(self, *, size: int) -> Skip | None:
        """Return why a world of `size` cannot run on this machine, or None.

        A refused cell is SKIPPED with this reason.
        """
        del size
        return None

    def prepare(self, *, size: int, ports: Ports) -> Rendezvous:
        """Make the rendezvous in the harness, before any rank is forked.

        Raises:
            OSError: a port or descriptor could not be had: an error of the harness, so the trial is
                void.
        """
        del ports
        return Rendezvous(ranks=[{}] * size)

    def prepare_across(self, *, addresses: Sequence[str]) -> Rendezvous:
        """Return the same for ranks on test hosts, before these are made.

        A backend that cannot join them leaves it out.

        The networks are new: every port is free, and nothing of the harness can be reached. The
        interface is `wire`.

        Args:
            addresses: the address of each rank's host.
        """
        raise NotImplementedError

    def prepare_over(
        self, *, addresses: Sequence[str], ports: Sequence[int], interfaces: Sequence[str]
    ) -> Rendezvous:
        """Return the same for ranks on several machines.

        A backend that cannot join them leaves it out.

        Nothing of the harness is handed to a rank; what is `opened` listens on the machine of its
        rank.

        Args:
            addresses: the address of each rank's machine.
            ports: for each rank, one of its machine's that nobody else takes.
            interfaces: for each rank, the network interface that has the address.
        """
        raise NotImplementedError


LOOPBACK = "127.0.0.1"
# Where ranks on test hosts meet: a network of their own, in which every port is free.
FIRST_PORT = 20_000
WIRE = "wire"
# What Python's own sockets, pipes and HTTP raise when the process at the other end is killed,
# refuses, or is gone.
OF_PYTHON = (
    PeerGone("ConnectionResetError", r"Connection reset by peer"),
    PeerGone("BrokenPipeError", r"Broken pipe"),
    PeerGone("ConnectionRefusedError", r"Connection refused|Connect call failed"),
    PeerGone("RemoteDisconnected", r"Remote end closed connection"),
    PeerGone("URLError", r"Connection refused|Connection reset by peer"),
    PeerGone("IncompleteRead", r"more expected"),
    PeerGone("IncompleteReadError", r"bytes read on a total of"),
    # multiprocessing.connection's; EOFErrors of other makers have a message.
    PeerGone("EOFError", r"^$"),
)
# What torch.distributed's store raises when rank 0, which serves it, is gone.
OF_TORCHS_STORE = (
    PeerGone(
        "DistNetworkError", r"Connection was likely closed|Connection reset by peer|Broken pipe"
    ),
    PeerGone(
        "DistNetworkError", r"while trying to connect to|failed to connect to any network address"
    ),
)
