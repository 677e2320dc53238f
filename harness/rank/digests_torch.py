"""Digests of what torch's process groups send and receive: taken before a kernel, and when the call is done.

A call is done when it comes back, where its caller would wait at once; else when Python waits for it, or when the
functional collectives do. Of one that nobody waits for in these ways nobody knows when its arrays are filled: it is
not digested, and the ledger says so.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from harness.rank.digests import (
    REDUCING,
    SKETCHED,
    STEP,
    TOGETHER,
    WHOLE,
    Array,
    Digester,
    NotDigested,
    Taken,
    hasher,
    weight_power,
)
from harness.rank.ledger import STARTED, Book
from harness.rank.operations_torch import BARRIERS, Operation
from harness.rank.seam_torch import reduction_of

WAIT = "_c10d_functional::wait_tensor"
KEY = "BackendSelect"
# Calls whose end is waited for; of more, those that came first are given up.
MOST_PENDING = 512


class Digests:
    """Takes the digests of one rank's calls."""

    def __init__(self, book: Book, torch: Any, members: Callable[[Any], tuple[int, ...]]) -> None:
        """Begin.

        Args:
            book: the ledger.
            torch: the module.
            members: of a group, in their order there, as ranks of the world.
        """
        self._book, self._torch, self._members = book, torch, members
        self._now = threading.local()
        self._pending: dict[int, tuple[Any, Taken]] = {}
        self._filled: dict[int, Taken] = {}
        self._weights: dict[tuple[int, int], Any] = {}
        self._why = ""
        self._library: Any = None
        try:
            self._hash = hasher()
            self._digester = Digester(book, digest=self._digest, sketch=self._sketch)
            self._see_who_waits()
        except NotDigested as why:
            self._why = str(why)
        except Exception as error:  # noqa: BLE001 - whatever another release does, the rank goes on
            self._why = f"torch {torch.__version__}: {type(error).__name__}: {error}"

    def begin(self, *given: Any) -> int | None:
        """`Book.begin`, and what the call sends."""
        at = self._book.begin(*given)
        taken: Taken | None = getattr(self._now, "taken", None)
        if at is not None and taken is not None and not taken.call:
            taken.at_once = given[-1] != STARTED
            self._digester.sent(taken, self._book.number(at))
        return at

    def around(self, operation: Operation, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call that is digested. `call` writes the ledger by `begin` and calls the kernel."""
        if operation.name in BARRIERS:
            return call
        takes, now = self._take, self._now

        def digested(keys: Any, *arguments: Any) -> Any:
            before = getattr(now, "taken", None)
            now.taken = taken = takes(operation, arguments)
            try:
                result = call(keys, *arguments)
            except BaseException:
                if taken is not None and taken.received:
                    self._book.undigested(f"a call of {operation.name} failed")
                raise
            finally:
                now.taken = before
            if taken is not None and taken.call and taken.received:
                if taken.at_once:
                    self._digester.done(taken)
                else:
                    self._expect(taken, result[-1] if isinstance(result, tuple) else result)
            return result

        return digested

    def conclude(self) -> None:
        """When the subject has returned: what nobody waited for was not digested."""
        for _, taken in list(self._pending.values()):
            self._give_up(taken)
        self._pending.clear()
        self._filled.clear()

    def _take(self, operation: Operation, arguments: tuple[Any, ...]) -> Taken | None:
        """What is known of a call before it is made; None where it cannot be digested, which the ledger says."""
        try:
            if self._why:
                raise NotDigested(self._why)  # noqa: TRY301 - said of each call
            sent, received = self._arrays(operation, arguments)
            sketches = operation.name in REDUCING
            if sketches and operation.reduction is not None:
                sketches = reduction_of(self._torch, arguments[operation.reduction].op()) == SKETCHED
            return Taken(sketches=sketches, sent=self._digester.taking(sent, sketches=sketches), received=received)
        except NotDigested as why:
            self._book.undigested(f"{operation.name}: {why}")
        except Exception as error:  # noqa: BLE001 - whatever goes wrong costs the digests, and never the call
            self._book.undigested(f"{operation.name}: {type(error).__name__}: {error}")
        return None

    def _arrays(self, operation: Operation, arguments: tuple[Any, ...]) -> tuple[list[Array], list[Array]]:  # noqa: PLR0912
        """What a call sends and receives.

        Raises:
            NotDigested: nobody can say.
        """
        name, group = operation.name, arguments[operation.group]
        order = self._members(group)
        me = self._torch.distributed.ProcessGroup.unbox(group).rank()
        root = None if operation.root is None else order[arguments[operation.root]]
        is_root = root == order[me]
        given, out = arguments[operation.tensors[-1]], arguments[0]
        if name.endswith("coalesced"):
            raise NotDigested("it has several tensors for each rank")
        match name:
            case "send":
                return [(root, _one(out))], []
            case "recv":
                if root is None:
                    raise NotDigested("it takes from whoever sends")
                return [], [(root, _one(out))]
            case "broadcast":
                return ([(None, _one(out))], []) if is_root else ([], [(root, _one(out))])
            case "all_reduce":
                return [(None, _one(out))], [(None, _one(out))]
            case "reduce":
                return [(None, _one(out))], [(None, _one(out))] if is_root else []
            case "all_gather":
                return [(None, _one(given))], list(zip(order, out[0], strict=True))
            case "all_gather_into_tensor":
                return [(None, given)], list(zip(order, _rows(out, len(order)), strict=True))
            case "gather":
                return [(root, _one(given))], list(zip(order, out[0], strict=True)) if is_root else []
            case "scatter":
                return list(zip(order, given[0], strict=True)) if is_root else [], [(root, _one(out))]
            case "reduce_scatter":
                return list(zip(order, given[0], strict=True)), [(None, _one(out))]
            case "reduce_scatter_tensor":
                return list(zip(order, _rows(given, len(order)), strict=True)), [(None, out)]
            case "all_to_all":
                return list(zip(order, given, strict=True)), list(zip(order, out, strict=True))
            case "all_to_all_single":
                outs, ins = arguments[3], arguments[4]
                sent = given.split(list(ins)) if ins else _rows(given, len(order))
                received = out.split(list(outs)) if outs else _rows(out, len(order))
                return list(zip(order, sent, strict=True)), list(zip(order, received, strict=True))
        raise NotDigested("what it sends is not known")

    def _digest(self, tensor: Any) -> int:
        whole = self._whole(tensor)
        size = whole.numel() * whole.element_size()
        return self._hash((ctypes.c_char * size).from_address(whole.data_ptr()) if size else b"")

    def _whole(self, tensor: Any) -> Any:
        """The tensor with its elements in the order of their indices.

        Raises:
            NotDigested: they lie elsewhere, or nowhere.
        """
        if tensor.layout is not self._torch.strided or tensor.device.type != "cpu":
            raise NotDigested("its tensor is sparse, or not in the memory of the CPU")
        return tensor.detach().resolve_conj().resolve_neg().contiguous()

    def _sketch(self, tensor: Any) -> tuple[float | int, float] | None:
        kind = tensor.dtype
        if kind is self._torch.bool or kind.is_complex or tensor.is_quantized:
            return None
        power = weight_power(kind.itemsize) if kind.is_floating_point else 0
        flat = self._whole(tensor).reshape(-1)
        weights = self._weights_of(flat.numel(), power=power)
        if power:
            # Through numpy, whose steps take a tenth of torch's; it has no bfloat16.
            exact = flat.double().numpy() if kind is self._torch.bfloat16 else flat.numpy().astype("float64")
            return float(weights @ exact), float(weights @ abs(exact))
        return int((flat.numpy().astype("int64") * weights).sum()) % WHOLE, 0.0

    def _weights_of(self, count: int, *, power: int) -> Any:
        """Between -1 and 1, or odd whole numbers: each follows from its index and the number of elements alone."""
        found = self._weights.get((count, power))
        if found is None:
            import numpy as np

            steps = np.arange(count, dtype=np.int64) * STEP
            falling = (np.floor((steps % 2**32) * (count / 2**32 / TOGETHER)) + 1.0) ** -power
            found = falling if power else steps | 1
            if len(self._weights) > 8:
                self._weights.clear()
            self._weights[count, power] = found
        return found

    def _expect(self, taken: Taken, boxed: Any) -> None:
        """Digest what a call receives once somebody waits for it."""
        work = self._torch.distributed.Work.unbox(boxed)
        while len(self._pending) >= MOST_PENDING:
            self._give_up(self._pending.pop(next(iter(self._pending)))[1])
        # The object stays the same one for whoever asks for it, as long as it is held.
        self._pending[id(work)] = (work, taken)
        self._filled[_storage(taken.received[0][1])] = taken

    def _give_up(self, taken: Taken) -> None:
        self._filled.pop(_storage(taken.received[0][1]), None)
        self._book.undigested("nobody waited for it where Python sees it")

    def _waited(self, taken: Taken) -> None:
        self._filled.pop(_storage(taken.received[0][1]), None)
        self._digester.done(taken)

    def _see_who_waits(self) -> None:
        """Have `Work.wait` and the functional collectives' own wait tell that arrays are filled."""
        work, torch, pending = self._torch.distributed.Work, self._torch, self._pending
        original = work.wait

        @functools.wraps(original)
        def wait(this: Any, *arguments: Any, **options: Any) -> Any:
            result = original(this, *arguments, **options)
            known = pending.pop(id(this), None)
            if known is not None:
                self._waited(known[1])
            return result

        work.wait = wait
        kernel = torch.ops._c10d_functional.wait_tensor.default  # noqa: SLF001 - where torch has it
        below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, KEY))  # noqa: SLF001
        self._library = torch.library.Library("_c10d_functional", "IMPL")

        def wait_tensor(keys: Any, tensor: Any) -> Any:
            result = kernel.redispatch(keys & below, tensor)
            taken = self._filled.get(_storage(tensor))
            if taken is not None:
                for known in [one for one, (_, held) in list(pending.items()) if held is taken]:
                    pending.pop(known, None)
                self._waited(taken)
            return result

        self._library.impl("wait_tensor", wait_tensor, KEY, with_keyset=True)


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _one(given: Any) -> Any:
    """The only tensor of a list.

    Raises:
        NotDigested: it has more.
    """
    if isinstance(given, list):
        if len(given) != 1:
            raise NotDigested("it has several tensors")
        return given[0]
    return given


def _rows(tensor: Any, count: int) -> Sequence[Any]:
    """As many equal rows as there are members, in the order of the elements."""
    rows: Sequence[Any] = tensor.detach().contiguous().reshape(count, -1).unbind(0)
    return rows
