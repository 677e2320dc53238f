"""The ledger's place in torch: before the kernels of c10d, through which every call of a process group goes.

So `torch.distributed`'s functions, its functional collectives, DTensor, asynchronous and batched calls and those of
other threads are seen, whoever imported which function when. Only the kernels whose schema stands here are understood:
with another release of torch that has others the ledger says so, and shows nothing. What goes past the dispatcher (a
backend's own object) is found when the subject has returned: gloo counts its calls too.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.ledger.file import SEND, TEXTS_MOST, Group
from harness.rank.digests_torch import Digests
from harness.rank.ledger import OPEN, STARTED, Book
from harness.rank.operations_torch import BARRIERS, NOT_CALLS, OPERATIONS, Counted, Operation
from harness.rank.seam_torch import Behind, reduction_of, with_faults

# What the dispatcher asks last before the kernel of a device, whatever the tensors and modes are: below autograd and
# fake tensors, and not left out under inference_mode.
KEY = "BackendSelect"


class Hook:
    """Writes the calls of torch's process groups into a rank's ledger."""

    def __init__(self, book: Book, torch: Any) -> None:
        self._book = book
        self._torch = torch
        self._distributed: Any = torch.distributed
        self._unbox = torch.distributed.ProcessGroup.unbox
        self._members: dict[Any, dict[int, int]] = {}
        self._groups: dict[int, Known] = {}
        self._only: Known | None = None
        self._shapes: dict[Any, tuple[int, int]] = {}
        self._dtypes: dict[Any, int] = {}
        self._reductions: dict[Any, int] = {}
        self._library: Any = None
        self._digests = Digests(book, torch, lambda group: self._group(group)[1]) if book.digests else None

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
        """When the subject has returned: hold what was seen of each group against what its backend counted."""
        world = getattr(self._distributed.distributed_c10d, "_world", None)
        for number, _, _, count in list(self._groups.values()):
            name = count.name
            group = next((one for one in getattr(world, "pg_map", ()) if one.group_name == name), None)
            if group is None or count.unknown or self._ranks(group) is not count.ranks:
                continue  # the subject ended it, or it cannot be told
            counted, seen = group._get_sequence_number_for_group(), self._book.made(number) + count.more  # noqa: SLF001
            if not seen - count.failed <= counted <= seen:
                self._book.refuse(f"{counted} calls were made in group {name} of torch, and {seen} were seen")

    def try_to_conclude(self) -> None:
        """The same, whatever the subject has left of the library."""
        try:
            self.conclude()
        except Exception as error:  # noqa: BLE001 - see above
            self._book.refuse(f"what gloo counted cannot be read: {type(error).__name__}: {error}")

    def leave(self) -> None:
        """When the subject has returned."""
        self.try_to_conclude()
        if self._digests is not None:
            self._digests.conclude()

    def _count_before_groups_end(self) -> None:
        """What gloo has counted of a group is gone with it."""
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
        schemas = {one.name: one for one in torch._C._jit_get_all_schemas() if one.name.startswith("c10d::")}  # noqa: SLF001
        for name, schema in sorted(schemas.items()):
            short = name.removeprefix("c10d::")
            if short in NOT_CALLS:
                continue
            stated = str(schema).partition("(")[2].rpartition(") -> ")[0]
            stated = stated.replace("__torch__.torch.classes.c10d.", "")
            if torch._C._dispatch_has_kernel_for_dispatch_key(name, KEY):  # noqa: SLF001
                return f"torch {torch.__version__} has something before c10d::{short} already"
            if short not in OPERATIONS or OPERATIONS[short].arguments != stated:
                return f"torch {torch.__version__} has another c10d::{short} than is known here"
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

    def _layered(self, operation: Operation, kernel: Any) -> Callable[..., Any]:
        """What is called before a kernel; nothing stands there that was not asked for."""
        behind = Behind(kernel) if self._book.is_struck else None
        call = self._before(operation, behind or kernel)
        if self._digests is not None:
            call = self._digests.around(operation, call)
        if behind is not None:
            call = with_faults(self._torch, operation, kernel, call, behind=behind, book=self._book)
        return call

    def _before(self, operation: Operation, kernel: Any) -> Callable[..., Any]:
        """What is called before a kernel, and calls it. Without the GIL, which gloo's threads may be waiting for."""
        torch, work = self._torch, self._distributed.Work
        below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, KEY))  # noqa: SLF001
        book, place, redispatch = self._book, operation.asynchronous, kernel.redispatch
        # Where the operation takes no `async_op` it comes back at once, but for one that waits itself.
        waits, never = operation.counted is None, place is None and operation.counted is not None
        name, root, tagged, own, stated = (
            operation.name,
            operation.root,
            operation.tag,
            operation.own,
            operation.stated,
        )
        number, barrier, sends, odd = book.text(name), name in BARRIERS, name == SEND, operation.counted != 1
        group_at, reduction_at = operation.group, operation.reduction
        shapes, dtypes, group_of = self._shapes, self._dtypes, self._group
        begin = book.begin if self._digests is None else self._digests.begin

        # It runs before every call, in caches that a large tensor has just gone through: it does as little as it can.
        def call(keys: Any, *arguments: Any, **options: Any) -> Any:
            comes_back = never or (place is not None and (len(arguments) <= place or arguments[place]))
            state, at, count = STARTED if comes_back else OPEN, None, None
            try:
                group, ranks, key, count = group_of(arguments[group_at])
                peer = -1 if root is None else ranks[arguments[root]]
                tag = 0
                if tagged is not None:
                    tag = arguments[tagged]
                    key = (group, peer, tag, sends)
                if barrier:
                    at = begin(number, group, key, peer, tag, 0, 0, 0, 0, state)
                else:
                    given = tensor = arguments[own]
                    while isinstance(tensor, list):
                        tensor = tensor[0]
                    size, dtype = tensor.shape, tensor.dtype
                    shape, elements = shapes.get(size) or self._shape(size)
                    if stated != own or (tensor is not given and (len(given) > 1 or given[0] is not tensor)):
                        elements = _elements(arguments[stated])
                    kind = dtypes.get(dtype) or self._dtype(dtype)
                    reduction = 0 if reduction_at is None else self._reduction(arguments[reduction_at])
                    at = begin(number, group, key, peer, tag, elements, shape, kind, reduction, state)
            except Exception as error:  # noqa: BLE001 - whatever goes wrong costs the ledger, and never the call
                book.refuse(f"a call of {name} could not be written: {type(error).__name__}: {error}")
            try:
                result = redispatch(keys & below, *arguments, **options)
                if odd and count is not None:
                    count.note(operation.counted)
                if comes_back:
                    return result
                if not waits:
                    # The caller would wait at once: here the end is seen.
                    work.unbox(result[-1] if isinstance(result, tuple) else result).wait()
            except BaseException:
                if count is not None:
                    count.note_failed(operation.counted)
                book.end(at, failed=True)
                raise
            book.end(at)
            return result

        return call

    def _group(self, boxed: Any) -> Known:
        """What is known of a group: its number in the ledger, its members, what its calls are counted by, its count.

        The group itself is not kept: whoever ends it has it gone. Torch's list of its members is, which is its own.
        """
        members, only = self._members, self._only
        if only is not None and len(members) == 1:
            # Of one group there is nothing to find out: what is called in another one gloo's count gives away.
            for ranks in members.values():
                if ranks is only[3].ranks:
                    return only
        group = self._unbox(boxed)
        found = members.get(group)
        known = None if found is None else self._groups.get(id(found))
        if known is None:
            ranks = self._ranks(group)
            order = tuple(sorted(ranks, key=ranks.__getitem__))
            name = group.group_name
            number = self._book.text(Group("torch", name, order).text())
            known = self._groups[id(ranks)] = (number, order, (number,), Count(name=name, ranks=ranks))
        self._only = known
        return known

    def _ranks(self, group: Any) -> dict[int, int]:
        """The members of a group as torch keeps them: rank of the world to rank of the group."""
        self._members = self._distributed.distributed_c10d._world.pg_group_ranks  # noqa: SLF001
        return self._members[group]

    def _shape(self, shape: Any) -> tuple[int, int]:
        """The number of a shape's text, and how many elements it has."""
        known = self._book.text("x".join(map(str, shape)) or "scalar", needed=False), int(shape.numel())
        if len(self._shapes) < TEXTS_MOST:
            self._shapes[shape] = known
        return known

    def _dtype(self, dtype: Any) -> int:
        number = self._dtypes[dtype] = self._book.text(str(dtype).removeprefix("torch."))
        return number

    def _reduction(self, boxed: Any) -> int:
        reduction = boxed.op()
        if (number := self._reductions.get(reduction)) is None:
            number = self._reductions[reduction] = self._book.text(reduction_of(self._torch, reduction))
        return number


@dataclass
class Count:
    """What gloo counts otherwise of a group's calls than the ledger does.

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


Known = tuple[int, tuple[int, ...], tuple[int, ...], Count]


def _elements(given: Any) -> int:
    """How many elements tensors have together."""
    if isinstance(given, list):
        return (
            int(given[0].numel()) if len(given) == 1 and not isinstance(given[0], list) else sum(map(_elements, given))
        )
    return int(given.numel())


def install(book: Book, torch: Any) -> Callable[[], None]:
    """Begin to write torch's calls; returns what is to be called when the subject has returned."""
    hook = Hook(book, torch)
    hook.install()
    return hook.leave
