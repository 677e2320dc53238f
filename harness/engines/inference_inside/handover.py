"""Hidden states and chosen tokens on their way between stages of a pipeline: by torch's calls,
sealed, or by sockets of ours.

`Handover` is torch's send, recv and broadcast as they are, and loads nothing of
`harness._integrity`. `Sealed` sends a seal after each tensor: what changed on its way is one error.
`Carried` uses neither, but a transport that sends again what was lost, doubled or changed, over
connections that it makes anew.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch
from torch import Tensor


def handover(level: str, *, distributed: Any, rank: int, size: int, folder: str) -> Handover:
    """Return what a level asks for.

    Args:
        level: `off`, `light` or `full`.
        distributed: the module torch.distributed, with a group joined.
        rank: of this stage.
        size: how many there are.
        folder: that all ranks share, and that is empty at first; where they find each other's
            sockets.
    """
    if level == "off" or size == 1:
        return Handover(distributed, rank=rank, size=size)
    if level == "light":
        return Sealed(distributed, rank=rank, size=size)
    return Carried(distributed, rank=rank, size=size, folder=folder)


class Handover(AbstractContextManager["Handover"]):
    """Torch's calls over the default group.

    Args:
        distributed: the module torch.distributed, with a group joined.
        rank, size: of this stage.
    """

    failures: tuple[type[Any], ...] = ()
    """What it raises of messages that are lost or changed; each says of which."""

    def __init__(self, distributed: Any, *, rank: int, size: int) -> None:
        self._distributed = distributed
        self._rank = rank
        self._size = size

    def begin(self, *, vocabulary: int) -> None:
        """Begin a prompt, of a vocabulary of so many tokens."""

    def send(self, state: Tensor) -> None:
        """Hand a hidden state to the next stage."""
        self._distributed.send(state.contiguous(), dst=self._rank + 1)

    def receive(self, state: Tensor) -> None:
        """Fill a contiguous tensor with the hidden state of the stage before."""
        self._distributed.recv(state, src=self._rank - 1)

    def agree(self, token: int | None) -> int:
        """Return the token that the last stage chose, on every rank; the others give None."""
        chosen = torch.tensor([-1 if token is None else token])
        self._distributed.broadcast(chosen, src=self._size - 1)
        return int(chosen)

    def mended(self) -> dict[str, int] | None:
        """Return what was met on the way and made good, by name; None where nothing can be."""
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hand nothing more on."""


class Sealed(Handover):
    """Torch's calls, each tensor with a seal: its digest, number and epoch.

    Nothing can be sent again.

    Raises (from `receive` and `agree`):
        MessageCorrupt: what came is not what was sent.
        OutOfStep: it is not the next one, or the token is not one of the vocabulary.
    """

    def __init__(self, distributed: Any, *, rank: int, size: int) -> None:
        super().__init__(distributed, rank=rank, size=size)
        from harness._integrity import TorchTensors, TransferFailed
        from harness._integrity.tensors import torch_bytes

        self.failures = (TransferFailed,)
        self._tensors = TorchTensors(rank=rank)
        self._chosen = torch.zeros(1, dtype=torch.int64)
        # The same memory: a call of torch's costs more than ours.
        self._token = torch_bytes(self._chosen).cast("q")

    def send(self, state: Tensor) -> None:
        """See `Handover`."""
        self._tensors.send(state, to=self._rank + 1)

    def receive(self, state: Tensor) -> None:
        """See `Handover`."""
        self._tensors.receive(state, source=self._rank - 1)

    def agree(self, token: int | None) -> int:
        """See `Handover`: to each rank by itself, for a collective has no place for a seal."""
        last = self._size - 1
        if self._rank < last:
            self._tensors.receive(self._chosen, source=last)
            return int(self._token[0])
        assert token is not None
        self._token[0] = token
        for rank in range(last):
            self._tensors.send(self._chosen, to=rank)
        return token


class Carried(Handover):
    """Transport of the integrity library, over sockets between the stages; the group is not used.

    Raises (from `send`, `receive`, `agree`, and where it ends):
        TransferFailed: a message was given up on after 30 s; it names the message.
        OutOfStep: a state has another size than is due, or a token is not the next one of this
            prompt.
    """

    def __init__(self, distributed: Any, *, rank: int, size: int, folder: str) -> None:
        super().__init__(distributed, rank=rank, size=size)
        from harness._integrity import (
            DeviceCommunicationManager,
            FolderStore,
            OutOfStep,
            TransferFailed,
            name_of,
        )
        from harness._integrity.tensors import torch_bytes

        self.failures = (TransferFailed,)
        # Asked for once: the library looks its names up each time.
        self._out_of_step = OutOfStep
        self._bytes = torch_bytes
        self._room = torch.empty(0)
        self._view = self._bytes(self._room)
        # A text among texts.
        store = FolderStore(os.path.join(folder, "integrity"))  # noqa: PTH118
        self._lines = DeviceCommunicationManager(
            store=store,
            rank=rank,
            world_size=size,
            address=listening(),
            # Whoever reads the trial's folder is of this world; the first rank makes the key.
            key=store.claim("key", os.urandom(32)),
        )
        # Not by the lines' own functions: each that is called after a decode step is read from
        # memory anew.
        self._transport = self._lines.transport
        self._names = [name_of(other) for other in range(size)]
        self._prompt = -1

    def begin(self, *, vocabulary: int) -> None:
        """See `Handover`."""
        from harness._integrity import BareTokens, TokenValidator

        self._prompt += 1
        tokens = TokenValidator(vocabulary=vocabulary)
        self._tokens = BareTokens(tokens=tokens, maker=self._size - 1, stream=str(self._prompt))

    def send(self, state: Tensor) -> None:
        """See `Handover`."""
        room, view = self._room_of(state)
        room.copy_(state)
        self._transport.send(bytes(view), to=self._names[self._rank + 1])

    def receive(self, state: Tensor) -> None:
        """See `Handover`."""
        came = self._transport.receive(source=self._names[self._rank - 1]).data
        if len(came) != state.nbytes:
            raise self._out_of_step(
                f"{len(came)} bytes arrived from rank {self._rank - 1}, but a hidden state of"
                f" {state.nbytes} bytes was expected"
            )
        room, view = self._room_of(state)
        view[:] = came
        state.copy_(room)

    def _room_of(self, state: Tensor) -> tuple[Tensor, memoryview]:
        """Return a tensor of that shape and dtype, and its bytes: a view of the state's own would
        be made anew for each.
        """
        if state.shape != self._room.shape or state.dtype is not self._room.dtype:
            self._room = torch.empty(state.shape, dtype=state.dtype)
            self._view = self._bytes(self._room)
        return self._room, self._view

    def agree(self, token: int | None) -> int:
        """See `Handover`: each rank checks the token it is sent, and its place in the stream."""
        last = self._size - 1
        if self._rank < last:
            return self._tokens.taken(self._transport.receive(source=self._names[last]).data)
        assert token is not None
        message = self._tokens.made(token)
        for rank in range(last):
            self._transport.send(message, to=self._names[rank])
        return token

    def mended(self) -> dict[str, int]:
        """See `Handover`."""
        return self._lines.transport.monitor.mended()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait until every stage has what it was sent; after an error only a moment."""
        self._lines.__exit__(kind, error, trace)


def listening() -> tuple[str, int] | str:
    """Return where this rank listens: by a name where all ranks are of this host, which takes half
    of TCP's time.
    """
    host = address()
    # A NUL in front: the name is no file, so nothing stays where a rank is killed.
    if sys.platform == "linux" and host.startswith("127."):
        return f"\0rankproof-integrity-{os.getpid()}-{os.urandom(8).hex()}"
    return host, 0


def address() -> str:
    """Return where other ranks reach this one: the address from which it reaches rank 0's host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ.get("MASTER_ADDR", "127.0.0.1"), 9))  # sends nothing
        return str(probe.getsockname()[0])
