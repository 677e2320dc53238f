"""Hook of the ledger in torch: before the kernels of c10d, through which every call of a process
group goes.

So `torch.distributed`'s functions, its functional collectives, DTensor, asynchronous and batched
calls and those of other threads are seen, whoever imported which function when. Only the kernels
whose schema stands here are understood: with another release of torch that has others the ledger
says so, and shows nothing. What goes past the dispatcher (a backend's own object) is found when the
subject has returned: gloo counts its calls too.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from harness.ledger.call import BARRIERS, SEND, CallGroup
from harness.ledger.file import TEXTS_MOST
from harness.ledger.inside.book import OPEN, STARTED, Book
from harness.ledger.inside.digests import SKETCHED as SUM
from harness.ledger.inside.digests_torch import TorchDigests
from harness.ledger.inside.operations_torch import (
    NOT_CALLS,
    OPERATIONS,
    Counted,
    Operation,
)
from harness.ledger.inside.payload_torch import Members, sharing_of
from harness.ledger.inside.seam import KernelBehindLedger, reduction_of, with_faults

# What the dispatcher asks last before the kernel of a device, whatever the tensors and modes are:
# below autograd and fake tensors, and not left out under inference_mode.
KEY = "BackendSelect"


class TorchHook:
    """Writer of the calls of torch's process groups into a rank's ledger."""

    frames = staticmethod(sys._getframe)  # noqa: SLF001 - what every tracer uses
    """Frame so many above the one that asks.

    Whoever stands between a kernel and its caller leaves itself out.
    """

    def __init__(self, book: Book, torch: Any) -> None:
        self._book = book
        self._torch = torch
        self._distributed: Any = torch.distributed
        self._unbox = torch.distributed.ProcessGroup.unbox
        self._members: dict[Any, dict[int, int]] = {}
        self._groups: dict[int, Known] = {}
        self._only: Known | None = None
        self._shapes: dict[Any, tuple[Any, int, int, int]] = {}
        self._library: Any = None
        self._digests = TorchDigests(book, torch) if book.digests else None

    def install(self) -> None:
        """Stand in front of every kernel, or say in the ledger why not. To be called once."""
        try:
            why = self._cannot()
            if not why:
                self._stand_before_kernels()
                self._count_before_groups_end()
        except Exception as error:  # noqa: BLE001 - whatever another release does, the rank goes on
            why = f"torch {self._torch.__version__}: {type(error).__name__}: {error}"
        if why:
            self._book.refuse(why)

    def conclude(self) -> None:
        """When the subject has returned: hold what was seen of each group against what its backend
        counted.
        """
        world = getattr(self._distributed.distributed_c10d, "_world", None)
        for group in list(getattr(world, "pg_map", ())):
            known = self._groups.get(id(self._ranks(group)))
            seen = 0
            failed = 0
            if known is not None:
                number, _, _, count, _ = known
                if count.unknown:
                    continue  # it cannot be told
                seen = self._book.made(number) + count.more
                failed = count.failed
            # Torch has no other name for it.
            counted = group._get_sequence_number_for_group()  # noqa: SLF001
            name = group.group_name
            if not seen - failed <= counted <= seen:
                self._book.refuse(
                    f"torch made {counted} calls in group {name}, but {seen} were observed"
                )

    def try_to_conclude(self) -> None:
        """Conclude, whatever the subject has left of the library."""
        try:
            self.conclude()
        except Exception as error:  # noqa: BLE001 - see above
            self._book.refuse(f"gloo's counters cannot be read: {type(error).__name__}: {error}")

    def leave(self) -> None:
        """When the subject has returned."""
        self.try_to_conclude()
        if self._digests is not None:
            self._digests.conclude()

    def _count_before_groups_end(self) -> None:
        """Conclude before a group is destroyed: what gloo has counted of it is gone with it."""
        original = self._distributed.destroy_process_group

        @functools.wraps(original)
        def destroy_process_group(*arguments: Any, **options: Any) -> Any:
            self.try_to_conclude()
            return original(*arguments, **options)

        for module in (self._distributed, self._distributed.distributed_c10d):
            module.destroy_process_group = destroy_process_group

    def _cannot(self) -> str:
        """Why this torch is not understood; empty where it is."""
        torch = self._torch
        schemas = {
            schema.name: schema
            for schema in torch._C._jit_get_all_schemas()  # noqa: SLF001
            if schema.name.startswith("c10d::")
        }
        for name, schema in sorted(schemas.items()):
            short = name.removeprefix("c10d::")
            if short in NOT_CALLS:
                continue
            stated = str(schema).partition("(")[2].rpartition(") -> ")[0]
            stated = stated.replace("__torch__.torch.classes.c10d.", "")
            if torch._C._dispatch_has_kernel_for_dispatch_key(name, KEY):  # noqa: SLF001
                return f"torch {torch.__version__} already has a handler for c10d::{short}"
            if short not in OPERATIONS or OPERATIONS[short].arguments != stated:
                return (
                    f"torch {torch.__version__} has a c10d::{short} that this version does not know"
                )
        if missing := sorted(OPERATIONS.keys() - {name.removeprefix("c10d::") for name in schemas}):
            return f"torch {torch.__version__} has no c10d::{missing[0]}"
        return ""

    def _stand_before_kernels(self) -> None:
        torch = self._torch
        # It lives as long as the rank: with it what is registered would be taken back.
        self._library = torch.library.Library("c10d", "IMPL")
        for short, operation in OPERATIONS.items():
            kernel = getattr(torch.ops.c10d, short).default
            self._library.impl(short, self._layered(operation, kernel), KEY, with_keyset=True)
        if self._book.recorder is not None:
            self._book.in_c()

    def _layered(self, operation: Operation, kernel: Any) -> Callable[..., Any]:
        """Return what is called before a kernel; nothing stands there that was not asked for."""
        if not self._book.is_struck:
            return self._before(operation, kernel)
        behind = KernelBehindLedger(kernel)
        call = self._before(operation, behind)
        return with_faults(self._torch, operation, kernel, call, behind=behind, book=self._book)

    # One thing after another.
    def _before(self, operation: Operation, kernel: Any) -> Callable[..., Any]:  # noqa: PLR0915
        """Return what is called before a kernel, and calls it.

        Without the GIL, which gloo's threads may be waiting for.
        """
        torch = self._torch
        work = self._distributed.Work
        key = getattr(torch._C.DispatchKey, KEY)  # noqa: SLF001 - torch has no other name for it
        below = torch._C._dispatch_keyset_full_after(key)  # noqa: SLF001
        book = self._book
        place = operation.asynchronous
        redispatch = kernel.redispatch
        # Where the operation takes no `async_op` it comes back at once, but for one that waits
        # itself.
        waits = operation.counted is None
        never = place is None and operation.counted is not None
        name = operation.name
        root = operation.root
        tagged = operation.tag
        own = operation.own
        stated = operation.stated
        number = book.text(name)
        barrier = name in BARRIERS
        sends = name == SEND
        odd = operation.counted != 1
        group_at = operation.group
        reduction_at = operation.reduction
        shapes = self._shapes
        group_of = self._group
        begin = book.begin
        counters = book.counters
        counter_of = book.counter
        digests = self._digests
        raw = torch._C.DispatchKeySet.raw_repr  # noqa: SLF001 - torch has no other name for it
        narrowed = dict[int, Any]()
        unbox = work.unbox
        wait = work.wait if digests is None else digests.wait
        frames = self.frames
        reductions = Reductions(torch, book, name)
        reduction_of = reductions.of
        shared = sharing_of(operation, book.text)
        quick = self._quick(operation, reductions)
        write = None if quick is None else quick.write
        end = book.end if book.recorder is None else book.recorder.end

        # It runs before every call, in caches that a large tensor has just gone through: it does as
        # little as it can.
        def call(keys: Any, *arguments: Any) -> Any:  # noqa: PLR0912, PLR0915 - see above
            comes_back = never or (
                place is not None and (len(arguments) <= place or arguments[place])
            )
            at = count = taken = None
            try:
                frame = frames(1)
                state = STARTED if comes_back else OPEN
                # What was met before is written as it was then: see `recorder.c`.
                written = None if write is None else write(frame, arguments, state)
                if written is not None:
                    at, (count, members, word) = written
                else:
                    group, order, counter, count, members = group_of(arguments[group_at])
                    peer = -1
                    tag = 0
                    elements = 0
                    shape = 0
                    kind = 0
                    reduction = 0
                    word = ""
                    if root is not None:
                        peer = order[arguments[root]]
                    if tagged is not None:
                        tag = arguments[tagged]
                        key = group, peer, tag, sends
                        counter = counters.get(key) or counter_of(key)
                    if not barrier:
                        given = tensor = arguments[own]
                        while isinstance(tensor, list):
                            tensor = tensor[0]
                        size = tensor.shape
                        dtype = tensor.dtype
                        known = shapes.get(size)
                        if known is None or known[0] is not dtype:
                            known = self._shape(size, dtype)
                        _, shape, elements, kind = known
                        if stated != own or (
                            tensor is not given and (len(given) > 1 or given[0] is not tensor)
                        ):
                            elements = _elements(arguments[stated])
                        if shared is not None:
                            tag = shared(arguments, len(order))
                        if reduction_at is not None:
                            reduction, word = reduction_of(frame, arguments[reduction_at])
                    at = begin(
                        frame,
                        number,
                        group,
                        next(counter),
                        peer,
                        tag,
                        elements,
                        shape,
                        kind,
                        reduction,
                        state,
                    )
                    if (
                        quick is not None
                        and at is not None
                        and (reduction_at is None or reductions.is_held)
                    ):
                        quick.remember(frame, arguments, state, at, counter, (count, members, word))
                if digests is not None and at is not None and not barrier:
                    taken = digests.take(operation, arguments, members, at, word)
            # Whatever goes wrong costs the ledger, and never the call.
            except Exception as error:  # noqa: BLE001
                book.refuse(
                    f"a call of {name} could not be recorded: {type(error).__name__}: {error}"
                )
            try:
                left = narrowed.get(raw(keys))
                if left is None:
                    left = narrowed[raw(keys)] = keys & below
                result = redispatch(left, *arguments)
                if odd and count is not None:
                    count.note(operation.counted)
                if comes_back:
                    if digests is not None and taken is not None:
                        digests.expect(taken, result[-1] if isinstance(result, tuple) else result)
                    return result
                if not waits:
                    # The caller would wait at once: here the end is seen.
                    wait(unbox(result[-1] if isinstance(result, tuple) else result))
            except BaseException:
                if count is not None:
                    count.note_failed(operation.counted)
                book.end(at, failed=True)
                if taken is not None:
                    book.undigested(f"a call of {name} failed")
                raise
            if at is not None:
                end(at)
            if digests is not None and taken is not None:
                digests.done(taken)
            return result

        return call

    def _quick(self, operation: Operation, reductions: Reductions) -> Any:
        """Return what writes the calls of an operation that were met before; None where Python has
        to look at each of them.
        """
        recorder = self._book.recorder
        reduces = operation.reduction is not None
        is_barrier = operation.name in BARRIERS
        if recorder is None or (reduces and not reductions.code):
            return None
        if not is_barrier and (
            operation.stated != operation.own or sharing_of(operation, self._book.text) is not None
        ):
            return None
        return recorder.operation(
            self._unbox,
            reductions.code if reduces else None,
            reductions.sum,
            -1 if is_barrier else operation.own,
            operation.group,
            -1 if operation.root is None else operation.root,
            -1 if operation.tag is None else operation.tag,
        )

    def _group(self, boxed: Any) -> Known:
        """Return what is known of a group.

        The group itself is not kept: whoever ends it has it gone. Torch's list of its members is,
        which is its own.
        """
        members = self._members
        only = self._only
        # Of one group there is nothing to find out: what is called in another one gloo's count
        # gives away.
        if only is not None and len(members) == 1 and next(iter(members.values())) is only[3].ranks:
            return only
        group = self._unbox(boxed)
        ranks_there = members.get(group)
        known = None if ranks_there is None else self._groups.get(id(ranks_there))
        if known is None:
            ranks = self._ranks(group)
            order = tuple(sorted(ranks, key=ranks.__getitem__))
            name = group.group_name
            number = self._book.text(CallGroup("torch", name, order).text())
            counter = self._book.counter((number,))
            count = Count(name=name, ranks=ranks)
            known = self._groups[id(ranks)] = (
                number,
                order,
                counter,
                count,
                Members(order, group.rank()),
            )
        self._only = known
        return known

    def _ranks(self, group: Any) -> dict[int, int]:
        """Return the members of a group as torch keeps them: rank of the world to rank of the
        group.
        """
        self._members = self._distributed.distributed_c10d._world.pg_group_ranks  # noqa: SLF001
        if self._book.recorder is not None:
            self._book.recorder.look(self._members)
        return self._members[group]

    def _shape(self, shape: Any, dtype: Any) -> tuple[Any, int, int, int]:
        """Return the type last met with a shape, the number of the shape's text, its elements, the
        number of the type's.
        """
        text = self._book.text
        number = text("x".join(map(str, shape)) or "scalar", needed=False)
        kind = text(str(dtype).removeprefix("torch."))
        known = dtype, number, int(shape.numel()), kind
        if len(self._shapes) < TEXTS_MOST or shape in self._shapes:
            self._shapes[shape] = known
        return known


class Reductions:
    """Reductions of the calls of one operation.

    To ask torch for it takes a third of a call's whole time in the hook, for it goes through the
    interpreter of its scripts. Its own function of the operation's name has what it was given in a
    variable, which is as good.
    """

    def __init__(self, torch: Any, book: Book, name: str) -> None:
        """Take the operation."""
        self._torch = torch
        self._text = book.text
        self._known: dict[int, tuple[int, str]] = {}
        self.sum: Any = torch.distributed.ReduceOp.SUM
        self._addition = book.text(SUM), SUM
        function = getattr(torch.distributed.distributed_c10d, name, None)
        self.code = getattr(getattr(function, "__wrapped__", None), "__code__", None)
        self.is_held = False

    def of(self, frame: FrameType, boxed: Any) -> tuple[int, str]:
        """Return the number of a reduction's text, and the text.

        Args:
            frame: that made the call.
            boxed: the reduction, as the kernel has it.
        """
        if frame.f_code is self.code and frame.f_locals.get("op") is self.sum and self.is_held:
            return self._addition
        # Its method at once: to have it looked up by its name takes as long again.
        value = boxed._get_method("op")()  # noqa: SLF001
        known = self._known.get(value)
        if known is None:
            word = reduction_of(self._torch, value)
            known = self._known[value] = self._text(word), word
        if frame.f_code is self.code and frame.f_locals.get("op") is self.sum:
            # Once they were held against each other: another release may do something else with the
            # variable.
            self.is_held = known == self._addition
        return known


@dataclass
class Count:
    """Difference between what gloo counts of a group's calls and what the ledger does.

    Attributes:
        name: of the group.
        ranks: its members, as torch keeps them.
        more: how much more gloo has counted.
        unknown: whether one of the calls is counted differently from rank to rank.
        failed: how many of them gloo may have counted or not, for they failed.
    """

    name: str
    ranks: dict[int, int]
    more: int = 0
    unknown: bool = False
    failed: int = 0
    # Threads of a rank note calls of one group at the same time, and `+=` is two steps.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, counted: Counted) -> None:
        """Take a call that gloo does not count once."""
        with self._lock:
            self.unknown |= counted is None
            self.more += len(self.ranks) - 1 if counted == "members" else 0

    def note_failed(self, counted: Counted) -> None:
        """Take a call that failed."""
        with self._lock:
            self.failed += len(self.ranks) if counted == "members" else 1


Known = tuple[int, tuple[int, ...], Iterator[int], Count, Members]
"""Of a group: its number in the ledger, its ranks of the world in their order there, what gives its
collectives their index, what gloo counts otherwise, and who is in it. Plain, for it is taken apart
at every call.
"""


def _elements(given: Any) -> int:
    """Return how many elements tensors have together, however deep their lists are."""
    if isinstance(given, list):
        return sum(map(_elements, given))
    return int(given.numel())


def install(book: Book, torch: Any) -> Callable[[], None]:
    """Begin to write torch's calls; returns what is to be called when the subject has returned."""
    hook = TorchHook(book, torch)
    hook.install()
    return hook.leave
