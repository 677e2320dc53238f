"""Tensors over the send and recv of an engine, each with a seal: what came is what was sent, or it
is one clear error.

An engine's recv cannot be tried again: the sender has gone on, and a second call takes the next
message. So nothing is sent twice here; a mismatch is detected and said. Bytes that have to survive
a bad wire go by ReliableMessageTransport.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import Any

from .digest import digest, digest_of
from .problem import MessageCorrupt, Misused, OutOfStep

SEAL = 7
"""Words of 32 bits: sequence, epoch, length in bytes modulo 2^32, digest in two, form, xor of the
six before.
"""
WORD = 2**32
SALT = 0x5EA1
TOGETHER = 64 * 1024
"""Bytes of a tensor up to which torch sends the seal with it in one message: a call costs more than
a copy.
"""
ROOMS = 8
"""Sizes of small tensors whose buffers are kept: a decode step sends the same sizes again and
again.
"""
QUANTIZED = "it is quantized; send tensor.int_repr() and its scale"
Words = Sequence[int]
Room = tuple[Any, memoryview, memoryview, Any, int]
_WORDS = struct.Struct(f"={SEAL}q")  # as torch lays out its int64


class _Seals:
    """Numbers of what goes to and comes from each rank."""

    def __init__(self, *, rank: int, epoch: int) -> None:
        self.rank = rank
        self.epoch = epoch % 2**31
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}

    def seal(self, data: Any, *, form: int, to: int) -> Words:
        """Return what is sent after the bytes."""
        sequence = self._sent.get(to, 0)
        self._sent[to] = sequence + 1
        number = sequence % 2**31
        size = memoryview(data).nbytes % WORD
        high, low = divmod(digest(data), WORD)
        check = number ^ self.epoch ^ size ^ high ^ low ^ form ^ SALT
        return [number, self.epoch, size, high, low, form, check]

    def check(self, data: Any, words: Words, *, form: int, of: Any, source: int) -> None:
        """Hold what came, as the tensor `of`, against its seal.

        Raises:
            MessageCorrupt: it has changed.
            OutOfStep: it is another message than the next.
            Misused: it is of another dtype or shape.
        """
        sequence = self._received.get(source, 0)
        self._received[source] = sequence + 1
        size = memoryview(data).nbytes
        came = digest(data)
        number, epoch, length, high, low, sealed, check = words
        if number ^ epoch ^ length ^ high ^ low ^ sealed ^ SALT != check:
            number = -1
        elif (number, epoch, length) == (
            sequence % 2**31,
            self.epoch,
            size % WORD,
        ) and high * WORD + low == came:
            if sealed == form:
                return
            raise Misused(
                f"tensor {sequence} from rank {source} to rank {self.rank} arrived unchanged"
                f" ({size} bytes), but was sent {_differs(of, sealed, form)}; both ranks must use"
                " the same shape and dtype"
            )
        which = f"tensor {sequence} from rank {source} to rank {self.rank}"
        if number < 0:
            raise MessageCorrupt(
                f"the metadata of {which} arrived damaged, so the digest it was sent with is not"
                " known",
                peer=f"rank {source}",
                sequence=sequence,
                epoch=self.epoch,
            )
        if number != sequence % 2**31 or epoch != self.epoch:
            raise OutOfStep(
                f"{which} was expected in epoch {self.epoch}, but tensor {number} of epoch {epoch}"
                " arrived, so the two ranks are out of step"
            )
        raise MessageCorrupt(
            f"{which} changed in transit: {size} bytes arrived with digest {came:016x}, but"
            f" {length} were sent with {high * WORD + low:016x}. Tensors are not resent over an"
            " engine's send and recv",
            peer=f"rank {source}",
            sequence=sequence,
            epoch=self.epoch,
        )


def form_of(*tensors: Any) -> int:
    """Return the dtypes and the shapes of tensors that go together in a word: half of it is of
    each.
    """
    dtypes = " ".join(str(tensor.dtype) for tensor in tensors)
    return _half(dtypes) << 16 | _half(" ".join(repr(tuple(tensor.shape)) for tensor in tensors))


def _half(said: str) -> int:
    return digest_of(said.encode()) % 2**16


def _differs(of: Any, sealed: int, form: int) -> str:
    """Return in what a sender's tensor was another than the receiver's, in words."""
    if sealed >> 16 == form >> 16:
        return f"in a shape other than {tuple(of.shape)}"
    kind = type(of.dtype)
    values = vars(sys.modules[kind.__module__]).values()
    known = {str(value) for value in values if type(value) is kind}
    sent = next((name for name in sorted(known) if _half(name) == sealed >> 16), "another dtype")
    return f"as {sent} and received as {of.dtype}"


class TorchTensors:
    """Over torch.distributed's send and recv.

    Give it the group's epoch: the same on all ranks, greater at each start.

    A thread may send while another receives; two that send to one rank, or receive from one, get in
    each other's way.

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
        """Send a tensor of any shape, strides, dtype and device to a rank.

        One on a GPU is copied to be digested.

        Raises:
            Misused: it is not a tensor, or not one whose elements lie in memory (sparse, quantized,
                on "meta"); nothing was sent.
        """
        distributed = self._torch.distributed
        try:
            if tensor.nbytes <= TOGETHER:
                key = tensor.shape, tensor.dtype
                # A room is taken out while it is used, so that no other thread has it.
                room = self._rooms.pop(key, None) or self._room(tensor)
                both, data, place, like, form = room
                like.copy_(tensor.detach() if tensor.requires_grad else tensor)
            else:
                room = None
                whole = tensor.detach().resolve_conj().resolve_neg().contiguous()
                data = torch_bytes(whole)
                form = form_of(tensor)
        except (AttributeError, TypeError, RuntimeError) as error:
            raise Misused(_no_tensor(tensor, "sent", error)) from error
        words = self._seals.seal(data, form=form, to=to)
        if room is not None:
            _WORDS.pack_into(place, 0, *words)
            moved = both if tensor.is_cpu else both.to(tensor.device)
            distributed.send(moved, dst=to, group=self._group)
            self._keep(key, room)
            return
        distributed.send(whole, dst=to, group=self._group)
        distributed.send(
            self._torch.tensor(words, dtype=self._torch.int64, device=whole.device),
            dst=to,
            group=self._group,
        )

    def receive(self, tensor: Any, *, source: int) -> None:
        """Fill a contiguous tensor, of the shape and dtype that is sent, from a rank.

        Raises:
            MessageCorrupt: it is not what was sent; the tensor holds what came.
            OutOfStep: it is not the next one.
            Misused: the tensor cannot be filled (it is not contiguous, sparse, on "meta"), and
                nothing was received; or another dtype or shape was sent, and the tensor holds what
                came.
        """
        torch = self._torch
        try:
            if not tensor.is_contiguous():
                raise Misused(
                    "a tensor to receive into must be contiguous; this tensor has strides"
                    f" {tensor.stride()}"
                )
            small = tensor.nbytes <= TOGETHER
            cpu = tensor.is_cpu
            key = tensor.shape, tensor.dtype
            room = (self._rooms.pop(key, None) or self._room(tensor)) if small else None
            refused = tensor.layout is not torch.strided or (not cpu and tensor.is_meta)
            refused = refused or (not small and (tensor.is_conj() or tensor.is_neg()))
        except (AttributeError, TypeError, RuntimeError) as error:
            raise Misused(_no_tensor(tensor, "filled", error)) from error
        if refused:
            raise Misused(
                _no_tensor(
                    tensor,
                    "filled",
                    "it does not own memory, or it is a conjugated or negated view",
                )
            )
        if room is None:
            torch.distributed.recv(tensor, src=source, group=self._group)
            seal = torch.empty(SEAL, dtype=torch.int64, device=tensor.device)
            torch.distributed.recv(seal, src=source, group=self._group)
            words = [int(word) for word in seal.tolist()]
            self._seals.check(
                torch_bytes(tensor), words, form=form_of(tensor), of=tensor, source=source
            )
            return
        both, data, place, like, form = room
        if cpu:
            torch.distributed.recv(both, src=source, group=self._group)
        else:
            came = torch.empty(8 * SEAL + tensor.nbytes, dtype=torch.uint8, device=tensor.device)
            torch.distributed.recv(came, src=source, group=self._group)
            both.copy_(came)
        (tensor.detach() if tensor.requires_grad else tensor).copy_(like)
        self._seals.check(data, _WORDS.unpack_from(place), form=form, of=tensor, source=source)
        self._keep(key, room)

    def _keep(self, key: tuple[Any, Any], room: Room) -> None:
        if len(self._rooms) >= ROOMS:
            self._rooms.clear()
        self._rooms[key] = room

    def _room(self, tensor: Any) -> Room:
        """Return where a seal and so many bytes are made or taken: whole, the bytes, the seal, the
        bytes as that tensor, form.

        Torch copies into and out of the last but one, for a view of a tensor's own bytes would be
        made anew for each.

        Raises:
            TypeError: the elements of such a tensor do not lie in memory as they are.
        """
        if tensor.is_quantized:
            raise TypeError(QUANTIZED)
        both = self._torch.empty(8 * SEAL + tensor.nbytes, dtype=self._torch.uint8)
        view = torch_bytes(both)
        like = both[8 * SEAL :].view(tensor.dtype).view(tensor.shape)
        return both, view[8 * SEAL :], view[: 8 * SEAL], like, form_of(tensor)


def _no_tensor(tensor: Any, what: str, why: object) -> str:
    kind = type(tensor)
    said = str(why).partition("\n")[0].rstrip(".")
    return (
        f"{kind.__module__}.{kind.__qualname__} cannot be {what}: {said}. Use a tensor whose"
        " elements are stored in memory as they are (tensor.to_dense(), torch.from_numpy(array))"
    )


def torch_bytes(tensor: Any) -> memoryview:
    """Return the bytes of a tensor of any shape, strides and dtype, in the order of its indices.

    Those of a contiguous one in the CPU's memory are where they lie; others are copied.

    Raises:
        Misused: its elements do not lie in memory as they are.
    """
    # By numpy where it has the dtype: each call of torch's takes several times as long as one of
    # numpy's, and those take as long as one of Python's own.
    try:
        array = tensor.numpy()
        try:
            return memoryview(array).cast("B")
        except TypeError:
            pass  # of no elements, not contiguous
    # On another device; bfloat16, and floats of 8 bits; a gradient.
    except (AttributeError, TypeError, RuntimeError):
        array = _copied(tensor)
    return memoryview(array.ravel().view("u1"))


def _copied(tensor: Any) -> Any:
    import torch

    if getattr(tensor, "is_quantized", False):
        raise Misused(_no_tensor(tensor, "sent", QUANTIZED))
    try:
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        return plain.reshape(-1).view(torch.uint8).numpy()
    except (AttributeError, TypeError, RuntimeError) as error:
        raise Misused(_no_tensor(tensor, "sent", error)) from error


class MlxTensors:
    """Over mlx.core.distributed's send, recv and all_gather.

    Args:
        rank: of this process in the group.
        epoch: of the group: the same on all ranks, greater at each start.
        group: an `mlx.core.distributed.Group`; None: the default one.
        over: what has `send`, `recv` and `all_gather`; None: `mlx.core.distributed`.
    """

    def __init__(self, *, rank: int, epoch: int = 1, group: Any = None, over: Any = None) -> None:
        import mlx.core as mx

        self._mx: Any = mx
        self._over = mx.distributed if over is None else over
        self._seals = _Seals(rank=rank, epoch=epoch)
        self._gathers = _Seals(rank=rank, epoch=epoch)
        self._group = group

    def send(self, array: Any, *, to: int) -> None:
        """Send an array to a rank; it is evaluated.

        Raises:
            Misused: it is not an array of MLX; nothing was sent.
        """
        seal = self._seal(self._seals, array, to=to)
        self._mx.eval(self._over.send(array, to, group=self._group))
        self._mx.eval(self._over.send(seal, to, group=self._group))

    def receive(self, *, shape: tuple[int, ...], dtype: Any, source: int) -> Any:
        """Return an array of that shape and dtype from a rank.

        Raises:
            MessageCorrupt: it is not what was sent.
            OutOfStep: it is not the next one.
            Misused: another dtype or shape was sent, of as many bytes.
        """
        array = self._over.recv(shape, dtype, source, group=self._group)
        self._mx.eval(array)
        seal = self._over.recv((SEAL,), self._mx.uint32, source, group=self._group)
        self._check(self._seals, array, seal, source=source)
        return array

    def gather(self, array: Any) -> Any:
        """Return the arrays of all ranks, one after the other, as `all_gather`.

        Raises:
            MessageCorrupt: a part of it is not what its rank gave.
            OutOfStep: a rank gave another one than the next.
            Misused: it is not an array of MLX; nothing was sent.
        """
        # Everybody's seal goes to everybody, so the sequence is one for all.
        seal = self._seal(self._gathers, array, to=-1)
        whole = self._over.all_gather(array, group=self._group)
        self._mx.eval(whole)
        seals = self._over.all_gather(seal, group=self._group).reshape(-1, SEAL)
        for source in range(seals.shape[0]):
            size = array.shape[0] if array.ndim else 1
            part = whole[source * size : (source + 1) * size].reshape(array.shape)
            self._check(self._gathers, part, seals[source], source=source)
        return whole

    def _seal(self, seals: _Seals, array: Any, *, to: int) -> Any:
        if not isinstance(array, self._mx.array):
            kind = f"{type(array).__module__}.{type(array).__qualname__}"
            raise Misused(
                f"{kind} cannot be sent, because it is not an MLX array; pass mx.array(…)"
            )
        self._mx.eval(array)
        words = seals.seal(mlx_bytes(array), form=form_of(array), to=to)
        return self._mx.array(list(words), dtype=self._mx.uint32)

    def _check(self, seals: _Seals, array: Any, seal: Any, *, source: int) -> None:
        self._mx.eval(array)
        words = [int(word) for word in seal.tolist()]
        seals.check(mlx_bytes(array), words, form=form_of(array), of=array, source=source)


def mlx_bytes(array: Any) -> Any:
    """Return the bytes of an evaluated array, in the order of its indices."""
    import mlx.core as mx

    flat: Any = mx.contiguous(array).reshape(-1).view(mx.uint8)
    return memoryview(flat).cast("B")
