"""Tensors over the send and recv of an engine, each with a seal: what came is what was sent, or it is one clear error.

An engine's recv cannot be tried again: the sender has gone on, and a second call takes the next message. So nothing is
sent twice here; a mismatch is detected and said. Bytes that have to survive a bad wire go by ReliableMessageTransport.
"""

from __future__ import annotations

import struct
from typing import Any

from harness.integrity.digest import digest
from harness.integrity.problem import MessageCorrupt, Misused, OutOfStep

SEAL = 6
"""Words of 32 bits: sequence, epoch, length in bytes modulo 2^32, digest in two, xor of the five before."""
WORD, SALT = 2**32, 0x5EA1
TOGETHER = 64 * 1024
"""Bytes of a tensor up to which torch sends the seal with it in one message: a call costs more than a copy."""
ROOMS = 8
"""Sizes of small tensors whose buffers are kept: a decode step sends the same sizes again and again."""
Words = list[int]
Room = tuple[Any, memoryview, memoryview, Any]
_WORDS = struct.Struct(f"={SEAL}q")  # as torch lays out its int64


class _Seals:
    """The numbers of what goes to and comes from each rank."""

    def __init__(self, *, rank: int, epoch: int) -> None:
        self.rank, self.epoch = rank, epoch % 2**31
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}

    def seal(self, data: Any, *, to: int) -> Words:
        """What is sent after the bytes."""
        sequence = self._sent.get(to, 0)
        self._sent[to] = sequence + 1
        number, found, size = sequence % 2**31, digest(data), memoryview(data).nbytes % WORD
        high, low = found // WORD, found % WORD
        return [number, self.epoch, size, high, low, number ^ self.epoch ^ size ^ high ^ low ^ SALT]

    def check(self, data: Any, words: Words, *, source: int) -> None:
        """Hold what came against its seal.

        Raises:
            MessageCorrupt: it has changed.
            OutOfStep: it is another message than the next.
        """
        sequence = self._received.get(source, 0)
        self._received[source] = sequence + 1
        size, found = memoryview(data).nbytes, digest(data)
        number, epoch, length, high, low, check = words
        if number ^ epoch ^ length ^ high ^ low ^ SALT != check:
            number = -1
        elif (number, epoch, length) == (sequence % 2**31, self.epoch, size % WORD) and high * WORD + low == found:
            return
        which = f"tensor {sequence} from rank {source} to rank {self.rank}"
        if number < 0:
            raise MessageCorrupt(
                f"the seal of {which} came damaged; what it was sent with is not known",
                peer=f"rank {source}",
                sequence=sequence,
                epoch=self.epoch,
            )
        if number != sequence % 2**31 or epoch != self.epoch:
            raise OutOfStep(
                f"{which} was expected under epoch {self.epoch}, and tensor {number} of epoch {epoch} came: the "
                f"two ranks are not in step"
            )
        raise MessageCorrupt(
            f"{which} changed on its way: {size} bytes came with digest {found:016x}, and {length} were sent with "
            f"{high * WORD + low:016x}. It is not sent again over an engine's send and recv",
            peer=f"rank {source}",
            sequence=sequence,
            epoch=self.epoch,
        )


class TorchTensors:
    """Over torch.distributed's send and recv. Give it the group's epoch: the same on all ranks, greater at each start.

    Args:
        rank: of this process in the default group.
        epoch: of the group.
        group: a process group; None: the default one.
    """

    def __init__(self, *, rank: int, epoch: int = 1, group: Any = None) -> None:
        import torch
        import torch.distributed

        self._torch: Any = torch
        self._seals = _Seals(rank=rank, epoch=epoch)
        self._group = group
        self._rooms: dict[tuple[Any, Any], Room] = {}

    def send(self, tensor: Any, *, to: int) -> None:
        """Send a tensor of any shape, dtype and device to a rank; one on a GPU is copied to be digested."""
        distributed = self._torch.distributed
        if tensor.nbytes <= TOGETHER:
            both, data, place, like = self._rooms.get((tensor.shape, tensor.dtype)) or self._room(tensor)
            like.copy_(tensor.detach() if tensor.requires_grad else tensor)
            _WORDS.pack_into(place, 0, *self._seals.seal(data, to=to))
            distributed.send(both if tensor.is_cpu else both.to(tensor.device), dst=to, group=self._group)
            return
        whole = tensor.detach().contiguous()
        words = self._seals.seal(torch_bytes(whole), to=to)
        distributed.send(whole, dst=to, group=self._group)
        distributed.send(
            self._torch.tensor(words, dtype=self._torch.int64, device=whole.device), dst=to, group=self._group
        )

    def receive(self, tensor: Any, *, source: int) -> None:
        """Fill a contiguous tensor, of the shape and dtype that is sent, from a rank.

        Raises:
            MessageCorrupt: it is not what was sent; the tensor holds what came.
            OutOfStep: it is not the next one.
            Misused: the tensor is not contiguous; nothing was received.
        """
        torch, size = self._torch, tensor.nbytes
        if not tensor.is_contiguous():
            raise Misused(f"a tensor that is to be filled must be contiguous; this one has strides {tensor.stride()}")
        if size > TOGETHER:
            torch.distributed.recv(tensor, src=source, group=self._group)
            seal = torch.empty(SEAL, dtype=torch.int64, device=tensor.device)
            torch.distributed.recv(seal, src=source, group=self._group)
            self._seals.check(torch_bytes(tensor), [int(word) for word in seal.tolist()], source=source)
            return
        both, data, place, like = self._rooms.get((tensor.shape, tensor.dtype)) or self._room(tensor)
        if tensor.is_cpu:
            torch.distributed.recv(both, src=source, group=self._group)
        else:
            came = torch.empty(8 * SEAL + size, dtype=torch.uint8, device=tensor.device)
            torch.distributed.recv(came, src=source, group=self._group)
            both.copy_(came)
        (tensor.detach() if tensor.requires_grad else tensor).copy_(like)
        self._seals.check(data, list(_WORDS.unpack_from(place)), source=source)

    def _room(self, tensor: Any) -> Room:
        """Where a seal and so many bytes are made or taken: whole, the bytes, the seal, and the bytes as that tensor.

        Torch copies into and out of the last, for a view of a tensor's own bytes would be made anew for each.
        """
        both = self._torch.empty(8 * SEAL + tensor.nbytes, dtype=self._torch.uint8)
        view = torch_bytes(both)
        like = both[8 * SEAL :].view(tensor.dtype).view(tensor.shape)
        if len(self._rooms) >= ROOMS:
            self._rooms.clear()
        found = self._rooms[tensor.shape, tensor.dtype] = both, view[8 * SEAL :], view[: 8 * SEAL], like
        return found


def torch_bytes(tensor: Any) -> memoryview:
    """The bytes of a contiguous tensor of any shape and dtype, where they lie if that is the CPU's memory.

    By numpy where it has the dtype: each call of torch's takes several times as long as one of numpy's, and those take
    as long as one of Python's own.
    """
    try:
        array = tensor.numpy()
        try:
            return memoryview(array).cast("B")
        except TypeError:
            pass  # of a complex dtype, of no elements, not contiguous
    except (TypeError, RuntimeError):  # on another device; bfloat16, and floats of 8 bits; with a gradient
        import torch

        array = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array.reshape(-1).view("u1"))


class MlxTensors:
    """Over mlx.core.distributed's send and recv.

    Args:
        rank: of this process in the group.
        epoch: of the group: the same on all ranks, greater at each start.
        group: an `mlx.core.distributed.Group`; None: the default one.
    """

    def __init__(self, *, rank: int, epoch: int = 1, group: Any = None) -> None:
        self._seals = _Seals(rank=rank, epoch=epoch)
        self._group = group

    def send(self, array: Any, *, to: int) -> None:
        """Send an array to a rank; it is evaluated."""
        import mlx.core as mx

        mx.eval(array)
        seal = self._seals.seal(_mlx_bytes(array), to=to)
        mx.eval(mx.distributed.send(array, to, group=self._group))
        mx.eval(mx.distributed.send(mx.array(seal, dtype=mx.uint32), to, group=self._group))

    def receive(self, *, shape: tuple[int, ...], dtype: Any, source: int) -> Any:
        """An array of that shape and dtype from a rank.

        Raises:
            MessageCorrupt: it is not what was sent.
            OutOfStep: it is not the next one.
        """
        import mlx.core as mx

        array = mx.distributed.recv(shape, dtype, source, group=self._group)
        mx.eval(array)
        seal = mx.distributed.recv((SEAL,), mx.uint32, source, group=self._group)
        mx.eval(seal)
        words: Any = seal.tolist()
        self._seals.check(_mlx_bytes(array), [int(word) for word in words], source=source)
        return array


def _mlx_bytes(array: Any) -> Any:
    """The bytes of an evaluated array, in the order of its indices."""
    import mlx.core as mx

    flat: Any = mx.contiguous(array).reshape(-1).view(mx.uint8)
    return memoryview(flat).cast("B")
