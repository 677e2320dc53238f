"""Digests of what torch's process groups send and receive: taken before a kernel, and when the call
is done.

A call is done when it comes back, where its caller would wait at once; else when Python waits for
it, or when the functional collectives do. Of one that nobody waits for in these ways nobody knows
when its arrays are filled: it is not digested, and the ledger says so.

Arrays are read where they lie, by their address: a NumPy array of a tensor would keep its storage
from being resized.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from harness.ledger.call import SUMS
from harness.ledger.file import NOTHING
from harness.ledger.inside.book import Book, Taking
from harness.ledger.inside.digests import (
    FEW,
    SKETCHED,
    STEP,
    TOGETHER,
    Digester,
    NotDigested,
    Taken,
    few_weights,
    hasher,
    sketched,
    weight_power,
)
from harness.ledger.inside.operations_torch import Operation
from harness.ledger.inside.payload_torch import Members, sides_of

WAIT = "_c10d_functional::wait_tensor"
KEY = "BackendSelect"
# Calls whose end is waited for; of more, those that came first are given up.
MOST_PENDING = 512
# Numbers of elements whose weights are kept, and of bytes whose type is.
MOST_WEIGHTS = 8
MOST_SIZES = 256
# Elements that are added at a time: as doubles they stay in a core's own cache.
BLOCK = 1 << 15


class TorchDigests:
    """Digests of one rank's calls, as they are taken.

    Attributes:
        wait: waits for a `Work`, as torch does.
    """

    def __init__(self, book: Book, torch: Any) -> None:
        """Begin.

        Args:
            book: the ledger.
            torch: the module.
        """
        self.wait: Callable[[Any], Any] = torch.distributed.Work.wait
        self._book = book
        self._torch = torch
        self._pending: dict[int, PendingDigests] = {}
        self._filled: dict[int, int] = {}
        self._kinds: dict[Any, NumberForm] = {}
        self._weights: dict[tuple[int, int], tuple[list[Any], list[Any]]] = {}
        self._absolute: Any = None
        self._sizes: dict[int, Any] = {}
        self._why = ""
        self._library: Any = None
        try:
            self._hash = hasher()
            self._digester = Digester(book, self._look)
            self._see_who_waits()
        except NotDigested as why:
            self._why = str(why)
        except Exception as error:  # noqa: BLE001 - whatever another release does, the rank goes on
            self._why = f"torch {torch.__version__}: {type(error).__name__}: {error}"

    def take(
        self,
        operation: Operation,
        arguments: tuple[Any, ...],
        members: Members,
        at: int,
        reduction: str,
    ) -> Taken | None:
        """Write what a call sends, before it is made.

        Args:
            operation: of c10d.
            arguments: of its kernel.
            members: of its group.
            at: what `Book.begin` returned.
            reduction: such as `sum`, else empty.

        Returns:
            What `done` or `expect` takes; None where nothing is received, or it cannot be digested,
            which the ledger says.
        """
        try:
            if self._why:
                raise NotDigested(self._why)  # noqa: TRY301 - said of each call
            sent, received = sides_of(operation, arguments, members)
            # Those that state no reduction add.
            sketches = operation.name in SUMS and reduction in ("", SKETCHED)
            call = self._book.number(at)
            if sent:
                self._digester.write(call, 0, sent, sketches=sketches)
            return Taken(sketches, received, call) if received else None
        except NotDigested as why:
            self._book.undigested(f"{operation.name}: {why}")
        # Whatever goes wrong costs the digests, and never the call.
        except Exception as error:  # noqa: BLE001
            self._book.undigested(f"{operation.name}: {type(error).__name__}: {error}")
        return None

    def done(self, taken: Taken) -> None:
        """Write what a call received that is done."""
        self._digester.done(taken)

    def expect(self, taken: Taken, boxed: Any) -> None:
        """Digest what a call receives once somebody waits for it.

        Whatever goes wrong costs the digests.
        """
        try:
            work = self._torch.distributed.Work.unbox(boxed)
            place = _storage(taken.received[0][1])
        except Exception as error:  # noqa: BLE001 - see above
            self._book.undigested(f"{type(error).__name__}: {error}")
            return
        while len(self._pending) >= MOST_PENDING:
            self._give_up(next(iter(self._pending)))
        # The object stays the same one for whoever asks for it, as long as it is held.
        self._pending[id(work)] = PendingDigests(work, taken, place)
        self._filled[place] = id(work)

    def conclude(self) -> None:
        """When the subject has returned: what nobody waited for was not digested."""
        for work in list(self._pending):
            self._give_up(work)

    def _look(self, tensor: Any, sketches: bool, gives: bool) -> Taking:
        """Return what the ledger gets of a tensor.

        Raises:
            NotDigested: its elements cannot be read.
        """
        width, is_plain, form, power = self._kinds.get(tensor.dtype) or self._kind(tensor.dtype)
        if not (is_plain and tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg()):
            tensor = self._whole(tensor)
        count = tensor.numel()
        memory = (self._sizes.get(count * width) or self._size(count * width)).from_address(
            tensor.data_ptr()
        )
        digest = self._hash(memory)
        if not sketches or form is None:
            return digest, NOTHING, 0.0, 0.0
        # Through numpy, whose steps take a tenth of torch's.
        elements = form(memory, tensor)
        weights, spare = self._weights.get((count, power)) or self._weights_of(count, power=power)
        # Taken and given back: several threads call. To ask the system for memory takes longer than
        # to add.
        scratch = spare.pop() if spare else weights[0].copy()
        total = size = at = 0
        for block in weights:
            exact = scratch if len(block) == len(scratch) else scratch[: len(block)]
            exact[:] = elements if len(weights) == 1 else elements[at : at + len(block)]
            total += block.dot(exact).item()
            if gives and power:
                size += block.dot(self._absolute(exact, exact)).item()
            at += len(block)
        spare.append(scratch)
        return sketched(digest, total, size)

    def _whole(self, tensor: Any) -> Any:
        """Return the tensor with its elements in the order of their indices.

        Raises:
            NotDigested: they lie elsewhere, or nowhere.
        """
        if tensor.layout is not self._torch.strided or tensor.device.type != "cpu":
            raise NotDigested("its tensor is sparse, or is not in CPU memory")
        return tensor.detach().resolve_conj().resolve_neg().contiguous()

    def _size(self, size: int) -> Any:
        """Return the type of so many bytes."""
        if len(self._sizes) >= MOST_SIZES:
            self._sizes.clear()
        kind = self._sizes[size] = ctypes.c_char * size
        return kind

    def _kind(self, dtype: Any) -> NumberForm:
        """Return what is known of the elements of a type."""
        name = str(dtype).removeprefix("torch.")
        form = None
        if name == "bfloat16":  # numpy has none
            form = _as_doubles
        elif name in SUMMED:
            import numpy as np

            form = functools.partial(_as_numbers, np.frombuffer, np.dtype(SUMMED[name]))
        power = weight_power(dtype.itemsize) if dtype.is_floating_point else 0
        kind = self._kinds[dtype] = NumberForm(dtype.itemsize, not dtype.is_complex, form, power)
        return kind

    def _weights_of(self, count: int, *, power: int) -> tuple[list[Any], list[Any]]:
        """Return weights in blocks, with a list of memory for them: between -1 and 1, or odd whole
        numbers.

        Each follows from its index and the number of elements alone.
        """
        import numpy as np

        self._absolute = np.absolute
        weights = np.arange(count, dtype=np.int64) * STEP
        if power and count <= FEW:
            weights = np.array(few_weights(count, power=power))
        elif power:
            weights = (np.floor((weights % 2**32) * (count / 2**32 / TOGETHER)) + 1.0) ** -power
        else:
            weights |= 1
        if len(self._weights) >= MOST_WEIGHTS:
            self._weights.clear()
        blocks = [weights[at : at + BLOCK] for at in range(0, max(count, 1), BLOCK)]
        known = self._weights[count, power] = (blocks, [])
        return known

    def _give_up(self, work: int) -> None:
        if self._forget(work) is not None:
            self._book.undigested("no Python code waited for it")

    def _waited(self, work: int) -> None:
        if (known := self._forget(work)) is not None:
            self._digester.done(known.taken)

    def _forget(self, work: int) -> PendingDigests | None:
        known = self._pending.pop(work, None)
        if known is not None and self._filled.get(known.place) == work:
            self._filled.pop(known.place, None)
        return known

    def _see_who_waits(self) -> None:
        """Have `Work.wait` and the functional collectives' own wait tell that arrays are filled."""
        torch = self._torch
        pending = self._pending
        filled = self._filled
        original = self.wait

        @functools.wraps(original)
        def wait(this: Any, *arguments: Any, **options: Any) -> Any:
            result = original(this, *arguments, **options)
            if pending:
                self._waited(id(this))
            return result

        torch.distributed.Work.wait = wait
        kernel = torch.ops._c10d_functional.wait_tensor.default  # noqa: SLF001 - where torch has it
        key = getattr(torch._C.DispatchKey, KEY)  # noqa: SLF001 - torch has no other name for it
        below = torch._C._dispatch_keyset_full_after(key)  # noqa: SLF001
        self._library = torch.library.Library("_c10d_functional", "IMPL")

        def wait_tensor(keys: Any, tensor: Any) -> Any:
            result = kernel.redispatch(keys & below, tensor)
            if filled:
                # A compiler comes by with tensors that lie nowhere: nothing was called for them.
                with contextlib.suppress(Exception):
                    self._waited(filled.get(_storage(tensor), 0))
            return result

        self._library.impl("wait_tensor", wait_tensor, KEY, with_keyset=True)


class PendingDigests(NamedTuple):
    """Call for which somebody is to wait.

    Attributes:
        work: what it gave.
        taken: what is known of it.
        place: where what it receives lies.
    """

    work: Any
    taken: Taken
    place: int


class NumberForm(NamedTuple):
    """Form of the elements of a type.

    Attributes:
        width: bytes.
        is_plain: whether they always lie as they are read: none waits to be conjugated.
        form: of memory and its tensor the elements as NumPy's; None of a type whose sums have no
            sketch.
        power: how fast the weights fall; 0 of whole numbers.
    """

    width: int
    is_plain: bool
    form: Callable[[Any, Any], Any] | None
    power: int


# Types whose sums have a sketch, beside bfloat16, and how NumPy reads them: whole numbers are added
# modulo 2**64.
SUMMED = {
    **{name: name for name in ("float16", "float32", "float64")},
    **{name: name for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")},
    "uint64": "int64",
}


def _as_numbers(frombuffer: Any, read: Any, memory: Any, _: Any) -> Any:
    return frombuffer(memory, read)


def _as_doubles(_: Any, tensor: Any) -> Any:
    return tensor.double().numpy().reshape(-1)


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())
