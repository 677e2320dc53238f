"""Operations of torch's c10d as the ledger knows them: the schema of each, with its places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from harness.ledger.call import BARRIERS, RECEIVE, SEND

Counted = Literal[1, "members"] | None


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Operation of c10d.

    Attributes:
        name: as `torch.distributed` calls it.
        arguments: names and types of its schema, those that every call has.
        own: place of this rank's tensors.
        stated: place of the tensors whose elements every member has to state alike.
        root: place of the root or of the other end; None where there is none.
        tag: place of the tag.
        counted: what gloo adds to its own count for one: 1; `members`, as many as the group has;
            None where its ranks count differently.
    """

    name: str
    arguments: str
    own: int = 0
    stated: int = 0
    root: int | None = None
    tag: int | None = None
    counted: Counted = 1

    @property
    def reduction(self) -> int | None:
        """Place of the reduction."""
        return self._place("ReduceOp ")

    @property
    def tensors(self) -> tuple[int, ...]:
        """Places of the tensors; what the rank gives to others is the last of them."""
        if self.name in BARRIERS:
            return ()
        kinds = ("Tensor ", "Tensor[] ", "Tensor[][] ")
        arguments = enumerate(self.arguments.split(", "))
        return tuple(place for place, argument in arguments if argument.startswith(kinds))

    @property
    def group(self) -> int:
        """Place of the group."""
        place = self._place("ProcessGroup ")
        assert place is not None
        return place

    @property
    def asynchronous(self) -> int | None:
        """Place of `async_op`; None where the operation always comes back at once."""
        return self._place("bool async_op")

    def _place(self, begin: str) -> int | None:
        """Return the place of the argument whose type, or type and name, begin so."""
        for place, argument in enumerate(self.arguments.split(", ")):
            if argument.startswith(begin):
                return place
        return None


_GROUP = "ProcessGroup process_group"
_OP = "ReduceOp reduce_op"
_ASYNC = "bool async_op=True"
_TIMEOUT = "int timeout=-1"


def _operation(name: str, *arguments: str, **places: Any) -> Operation:
    return Operation(name=name, arguments=", ".join(arguments), **places)


# torch 2.13
OPERATIONS = {
    "allreduce_": _operation(
        "all_reduce", "Tensor[] tensors", _GROUP, _OP, "Tensor? sparse_indices", _ASYNC, _TIMEOUT
    ),
    "allreduce_coalesced_": _operation(
        "all_reduce_coalesced", "Tensor[] tensors", _GROUP, _OP, _ASYNC, _TIMEOUT
    ),
    "broadcast_": _operation(
        "broadcast",
        "Tensor[] tensors",
        _GROUP,
        "int root_rank",
        "int root_tensor",
        _ASYNC,
        _TIMEOUT,
        root=2,
    ),
    "reduce_": _operation(
        "reduce",
        "Tensor[] tensors",
        _GROUP,
        _OP,
        "int root_rank",
        "int root_tensor",
        _ASYNC,
        _TIMEOUT,
        root=3,
    ),
    "allgather_": _operation(
        "all_gather",
        "Tensor[][] output_tensors",
        "Tensor[] input_tensors",
        _GROUP,
        _ASYNC,
        _TIMEOUT,
        own=1,
    ),
    "_allgather_base_": _operation(
        "all_gather_into_tensor",
        "Tensor output_tensor",
        "Tensor input_tensor",
        _GROUP,
        _ASYNC,
        _TIMEOUT,
        own=1,
    ),
    "allgather_coalesced_": _operation(
        "all_gather_coalesced",
        "Tensor[][] output_lists",
        "Tensor[] input_list",
        _GROUP,
        _ASYNC,
        own=1,
    ),
    "allgather_into_tensor_coalesced_": _operation(
        "all_gather_into_tensor_coalesced",
        "Tensor[] outputs",
        "Tensor[] inputs",
        _GROUP,
        _ASYNC,
        own=1,
    ),
    "gather_": _operation(
        "gather",
        "Tensor[][] output_tensors",
        "Tensor[] input_tensors",
        _GROUP,
        "int root_rank",
        _ASYNC,
        _TIMEOUT,
        own=1,
        stated=1,
        root=3,
    ),
    "scatter_": _operation(
        "scatter",
        "Tensor[] output_tensors",
        "Tensor[][] input_tensors",
        _GROUP,
        "int root_rank",
        _ASYNC,
        _TIMEOUT,
        root=3,
    ),
    "reduce_scatter_": _operation(
        "reduce_scatter",
        "Tensor[] output_tensors",
        "Tensor[][] input_tensors",
        _GROUP,
        _OP,
        _ASYNC,
        _TIMEOUT,
        stated=1,
        counted="members",
    ),
    "_reduce_scatter_base_": _operation(
        "reduce_scatter_tensor",
        "Tensor output_tensor",
        "Tensor input_tensor",
        _GROUP,
        _OP,
        _ASYNC,
        _TIMEOUT,
        stated=1,
    ),
    "reduce_scatter_tensor_coalesced_": _operation(
        "reduce_scatter_tensor_coalesced",
        "Tensor[] outputs",
        "Tensor[] inputs",
        _GROUP,
        _OP,
        _ASYNC,
        _TIMEOUT,
        stated=1,
    ),
    "alltoall_": _operation(
        "all_to_all",
        "Tensor[] output_tensors",
        "Tensor[] input_tensors",
        _GROUP,
        _ASYNC,
        _TIMEOUT,
        own=1,
    ),
    "alltoall_base_": _operation(
        "all_to_all_single",
        "Tensor output",
        "Tensor input",
        _GROUP,
        "int[] output_split_sizes",
        "int[] input_split_sizes",
        _ASYNC,
        _TIMEOUT,
        own=1,
    ),
    "barrier": _operation("barrier", "Tensor tensor", _GROUP, "int[] device_ids", _ASYNC, _TIMEOUT),
    "monitored_barrier_": _operation(
        "monitored_barrier",
        "Tensor tensor",
        _GROUP,
        "int[] device_ids",
        "int timeout",
        "bool wait_all_ranks",
        counted=None,
    ),
    "send": _operation(SEND, "Tensor[] tensors", _GROUP, "int dst", "int tag", root=2, tag=3),
    "recv_": _operation(RECEIVE, "Tensor[] tensors", _GROUP, "int src", "int tag", root=2, tag=3),
    "recv_any_source_": _operation(RECEIVE, "Tensor[] tensors", _GROUP, "int tag", tag=2),
}
NOT_CALLS = frozenset({"check_for_nan"})
