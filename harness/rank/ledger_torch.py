"""The ledger's place in torch: before the kernels of c10d, through which every call of a process group goes.

So `torch.distributed`'s functions, its functional collectives, DTensor, asynchronous and batched calls and those of
other threads are seen, whoever imported which function when. Only the kernels whose schema stands here are understood:
with another release of torch that has others the ledger says so, and shows nothing. What goes past the dispatcher (a
backend's own object) is found when the subject has returned: gloo counts its calls too.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.ledger.file import RECEIVE, SEND, TEXTS_MOST, Group
from harness.rank.ledger import Book

# What the dispatcher asks last before the kernel of a device, whatever the tensors and modes are: below autograd and
# fake tensors, and not left out under inference_mode.
KEY = "BackendSelect"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation of c10d.

    Attributes:
        name: as `torch.distributed` calls it.
        arguments: names and types of its schema, those that every call has.
        own: place of this rank's tensors.
        stated: place of the tensors whose elements every member has to state alike.
        root: place of the root or of the other end; None where there is none.
        tag: place of the tag.
        counted: what gloo adds to its own count for one: 1; `members`, as many as the group has; None where its ranks
            count differently.
    """

    name: str
    arguments: str
    own: int = 0
    stated: int = 0
    root: int | None = None
    tag: int | None = None
    counted: Literal[1, "members"] | None = 1

    @property
    def reduction(self) -> int | None:
        """Place of the reduction."""
        places = [place for place, one in enumerate(self.arguments.split(", ")) if one.startswith("ReduceOp ")]
        return places[0] if places else None

    @property
    def group(self) -> int:
        """Place of the group."""
        return next(place for place, one in enumerate(self.arguments.split(", ")) if one.startswith("ProcessGroup "))

    @property
    def asynchronous(self) -> int | None:
        """Place of `async_op`; None where the operation always comes back at once."""
        places = [place for place, one in enumerate(self.arguments.split(", ")) if one.startswith("bool async_op")]
        return places[0] if places else None


_GROUP, _OP = "ProcessGroup process_group", "ReduceOp reduce_op"
_ASYNC, _TIMEOUT = "bool async_op=True", "int timeout=-1"


def _operation(name: str, *arguments: str, **places: Any) -> Operation:
    return Operation(name=name, arguments=", ".join(arguments), **places)


# torch 2.13
OPERATIONS = {
    "allreduce_": _operation("all_reduce", "Tensor[] tensors", _GROUP, _OP, "Tensor? sparse_indices", _ASYNC, _TIMEOUT),
    "allreduce_coalesced_": _operation("all_reduce_coalesced", "Tensor[] tensors", _GROUP, _OP, _ASYNC, _TIMEOUT),
    "broadcast_": _operation(
        "broadcast", "Tensor[] tensors", _GROUP, "int root_rank", "int root_tensor", _ASYNC, _TIMEOUT, root=2
    ),
    "reduce_": _operation(
        "reduce", "Tensor[] tensors", _GROUP, _OP, "int root_rank", "int root_tensor", _ASYNC, _TIMEOUT, root=3
    ),
    "allgather_": _operation(
        "all_gather", "Tensor[][] output_tensors", "Tensor[] input_tensors", _GROUP, _ASYNC, _TIMEOUT, own=1
    ),
    "_allgather_base_": _operation(
        "all_gather_into_tensor", "Tensor output_tensor", "Tensor input_tensor", _GROUP, _ASYNC, _TIMEOUT, own=1
    ),
    "allgather_coalesced_": _operation(
        "all_gather_coalesced", "Tensor[][] output_lists", "Tensor[] input_list", _GROUP, _ASYNC, own=1
    ),
    "allgather_into_tensor_coalesced_": _operation(
        "all_gather_into_tensor_coalesced", "Tensor[] outputs", "Tensor[] inputs", _GROUP, _ASYNC, own=1
    ),
    "gather_": _operation(
        *("gather", "Tensor[][] output_tensors", "Tensor[] input_tensors", _GROUP, "int root_rank", _ASYNC, _TIMEOUT),
        own=1,
        stated=1,
        root=3,
    ),
    "scatter_": _operation(
        *("scatter", "Tensor[] output_tensors", "Tensor[][] input_tensors", _GROUP, "int root_rank", _ASYNC, _TIMEOUT),
        root=3,
    ),
    "reduce_scatter_": _operation(
        *("reduce_scatter", "Tensor[] output_tensors", "Tensor[][] input_tensors", _GROUP, _OP, _ASYNC, _TIMEOUT),
        stated=1,
        counted="members",
    ),
    "_reduce_scatter_base_": _operation(
        *("reduce_scatter_tensor", "Tensor output_tensor", "Tensor input_tensor", _GROUP, _OP, _ASYNC, _TIMEOUT),
        stated=1,
    ),
    "reduce_scatter_tensor_coalesced_": _operation(
        *("reduce_scatter_tensor_coalesced", "Tensor[] outputs", "Tensor[] inputs", _GROUP, _OP, _ASYNC, _TIMEOUT),
        stated=1,
    ),
    "alltoall_": _operation(
        "all_to_all", "Tensor[] output_tensors", "Tensor[] input_tensors", _GROUP, _ASYNC, _TIMEOUT, own=1
    ),
    "alltoall_base_": _operation(
        *("all_to_all_single", "Tensor output", "Tensor input", _GROUP),
        *("int[] output_split_sizes", "int[] input_split_sizes", _ASYNC, _TIMEOUT),
        own=1,
    ),
    "barrier": _operation("barrier", "Tensor tensor", _GROUP, "int[] device_ids", _ASYNC, _TIMEOUT),
    "monitored_barrier_": _operation(
        *("monitored_barrier", "Tensor tensor", _GROUP, "int[] device_ids", "int timeout", "bool wait_all_ranks"),
        counted=None,
    ),
    "send": _operation(SEND, "Tensor[] tensors", _GROUP, "int dst", "int tag", root=2, tag=3),
    "recv_": _operation(RECEIVE, "Tensor[] tensors", _GROUP, "int src", "int tag", root=2, tag=3),
    "recv_any_source_": _operation(RECEIVE, "Tensor[] tensors", _GROUP, "int tag", tag=2),
}
NOT_CALLS = frozenset({"check_for_nan"})
BARRIERS = frozenset({"barrier", "monitored_barrier"})


class Hook:
    """Writes the calls of torch's process groups into a rank's ledger."""

    def __init__(self, book: Book, torch: Any) -> None:
        self._book = book
        self._torch = torch
        self._distributed: Any = torch.distributed
        self._groups: dict[str, tuple[dict[int, int], int, tuple[int, ...], Count]] = {}
        self._shapes: dict[Any, int] = {}
        self._dtypes: dict[Any, int] = {}
        self._reductions: dict[Any, int] = {}
        self._library: Any = None

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
        for name, (ranks, _, _, count) in list(self._groups.items()):
            group = next((one for one in getattr(world, "pg_map", ()) if one.group_name == name), None)
            if group is None or count.unknown or self._ranks(group) is not ranks:
                continue  # the subject ended it
            counted = group._get_sequence_number_for_group()  # noqa: SLF001 - torch shows it nowhere else
            if not count.seen - count.failed <= counted <= count.seen:
                self._book.refuse(f"{counted} calls were made in group {name} of torch, and {count.seen} were seen")

    def try_to_conclude(self) -> None:
        """The same, whatever the subject has left of the library."""
        try:
            self.conclude()
        except Exception as error:  # noqa: BLE001 - see above
            self._book.refuse(f"what gloo counted cannot be read: {type(error).__name__}: {error}")

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
            self._library.impl(short, self._before(operation, kernel), KEY, with_keyset=True)

    def _before(self, operation: Operation, kernel: Any) -> Callable[..., Any]:
        """What is called before a kernel, and calls it. Without the GIL, which gloo's threads may be waiting for."""
        torch, work = self._torch, self._distributed.Work
        below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, KEY))  # noqa: SLF001
        book, place, redispatch = self._book, operation.asynchronous, kernel.redispatch
        begin, has_waited = self._beginning(operation), operation.counted is None

        def call(keys: Any, *arguments: Any, **options: Any) -> Any:
            at, count, many = begin(arguments)
            try:
                result = redispatch(keys & below, *arguments, **options)
                if place is None or len(arguments) <= place or arguments[place]:
                    if has_waited:
                        book.end(at)
                    else:
                        book.started(at)
                    return result
                # The caller would wait at once: here the end is seen.
                work.unbox(result[-1] if isinstance(result, tuple) else result).wait()
            except BaseException:
                if count is not None:
                    count.lose(many)
                book.end(at, failed=True)
                raise
            book.end(at)
            return result

        return call

    def _beginning(self, operation: Operation) -> Callable[[Sequence[Any]], tuple[int | None, Count | None, int]]:
        """What writes that a call begins. Whatever goes wrong costs the ledger, and never the call.

        It returns what ends the call in the ledger, the count of its group, and what it adds to that.
        """
        book, name = self._book, operation.name
        number, barrier, sends = book.text(name), operation.name in BARRIERS, operation.name == SEND
        own, stated, root, tagged = operation.own, operation.stated, operation.root, operation.tag
        group_at, reduction_at, counted = operation.group, operation.reduction, operation.counted

        def begin(arguments: Sequence[Any]) -> tuple[int | None, Count | None, int]:
            count, many = None, 0
            try:
                group, ranks, count = self._group(arguments[group_at])
                many = count.add(len(ranks) if counted == "members" else counted)
                peer = -1 if root is None else ranks[arguments[root]]
                tag = 0 if tagged is None else arguments[tagged]
                tensor = _first(arguments[own])
                at = book.begin(
                    number,
                    group,
                    peer=peer,
                    tag=tag,
                    channel=() if tagged is None else (peer, tag, sends),
                    elements=0 if barrier else _elements(arguments[stated]),
                    shape=0 if barrier else self._shape(tensor.shape),
                    dtype=0 if barrier else self._dtype(tensor.dtype),
                    reduction=0 if reduction_at is None else self._reduction(arguments[reduction_at]),
                    depth=3,
                )
            except Exception as error:  # noqa: BLE001 - see above
                book.refuse(f"a call of {name} could not be written: {type(error).__name__}: {error}")
                return None, count, many
            return at, count, many

        return begin

    def _group(self, boxed: Any) -> tuple[int, Sequence[int], Count]:
        """The number of a group in the ledger, its members, and the count of its calls.

        The group itself is not kept: whoever ends it has it gone.
        """
        group = self._distributed.ProcessGroup.unbox(boxed)
        name, ranks = group.group_name, self._ranks(group)
        known = self._groups.get(name)
        if known is None or known[0] is not ranks:
            members = tuple(sorted(ranks, key=ranks.__getitem__))
            known = ranks, self._book.text(Group("torch", name, members).text()), members, Count()
            self._groups[name] = known
        return known[1:]

    def _ranks(self, group: Any) -> dict[int, int]:
        """The members of a group as torch keeps them: rank of the world to rank of the group."""
        found: dict[int, int] = self._distributed.distributed_c10d._world.pg_group_ranks[group]  # noqa: SLF001
        return found

    def _shape(self, shape: Any) -> int:
        if (number := self._shapes.get(shape)) is None:
            number = self._book.text("x".join(map(str, shape)) or "scalar", needed=False)
            if len(self._shapes) < TEXTS_MOST:
                self._shapes[shape] = number
        return number

    def _dtype(self, dtype: Any) -> int:
        if (number := self._dtypes.get(dtype)) is None:
            number = self._dtypes[dtype] = self._book.text(str(dtype).removeprefix("torch."))
        return number

    def _reduction(self, boxed: Any) -> int:
        reduction = boxed.op()
        if (number := self._reductions.get(reduction)) is None:
            kinds = self._distributed.ReduceOp.RedOpType.__members__
            words = [word.lower() for word, kind in kinds.items() if int(kind) == int(reduction)]
            number = self._reductions[reduction] = self._book.text(words[0] if words else str(reduction))
        return number


@dataclass
class Count:
    """How many calls of a group gloo must have counted: between those seen that did not fail, and all.

    `unknown` where one of them is counted differently from rank to rank.
    """

    seen: int = 0
    failed: int = 0
    unknown: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, many: int | None) -> int:
        """Count a call that begins, of which gloo counts so many; returns how many are known to be counted."""
        with self._lock:
            self.seen += many or 0
            self.unknown |= many is None
        return many or 0

    def lose(self, many: int) -> None:
        """Count a call that failed: gloo may have counted it, or not."""
        with self._lock:
            self.failed += many


def _first(given: Any) -> Any:
    """The first tensor of a tensor, a list of them, or a list of lists."""
    while isinstance(given, list):
        given = given[0]
    return given


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
    return hook.try_to_conclude
