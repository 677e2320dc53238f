"""Context of a rank: what the subject is given, its group and calls with known payloads.

Subjects that try collectives themselves begin coded calls, of whose payload every element is known:

```python
coded = context.coded(torch)
call = coded.call("all_gather", elements=1000, dtype="bfloat16")
rows = [call.blank() for _ in range(context.size)]
dist.all_gather(rows, call.given)
call.received(rows)
coded.done()
```

Every rank begins the same calls in the same order; one that takes no part in a call says `skip()`.
What came is told as digests, and whether it is right is worked out by the check
`collective-correct`.
"""

from __future__ import annotations

import hashlib
import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.forms.strict_json import JSON
from harness.history import ARTEFACT_KEPT, CODED, CODED_END, ENVIRONMENT_TOLD, FAULT_IN_CALL
from harness.ledger import coded
from harness.ledger.inside.seam import mlx_elements, torch_elements
from harness.rank import artefacts
from harness.rank.emit import Emitter
from harness.rank.groups import MADE

Emit = Callable[[str, dict[str, Any]], None]
# Calls that one event tells of.
TOGETHER = 64
# What the runtime says of a rank's life; a subject that says it by mistake would make a trial look
# finished.
RESERVED = frozenset(
    {
        *(
            "rank.begin",
            "backend.ready",
            "subject.loaded",
            "subject.begin",
            "subject.end",
            "rank.error",
            "rank.exited",
        ),
        MADE,
        ARTEFACT_KEPT,
        ENVIRONMENT_TOLD,
        FAULT_IN_CALL,
        CODED,
        CODED_END,
        "fault.perturbed",
    }
)


class Coded:
    """Calls of one rank whose payloads are known.

    Attributes:
        rank: this rank.
        size: world size.
    """

    def __init__(self, library: Any, *, rank: int, size: int, emit: Emit) -> None:
        """Begin.

        Args:
            library: `torch` or `mlx.core`.
            rank: this rank.
            size: world size.
            emit: emits an event.
        """
        if library.__name__ not in ("torch", "mlx.core"):
            raise ValueError(
                "coded payloads must be torch tensors or mlx.core arrays, not arrays from"
                f" {library.__name__}"
            )
        if size > coded.LARGEST_WORLD:
            raise ValueError(
                f"coded payloads are supported only in worlds of at most {coded.LARGEST_WORLD}"
                " ranks"
            )
        self.rank = rank
        self.size = size
        self._library = library
        self._emit = emit
        self._sequence = 0
        self._waiting: list[dict[str, Any]] = []

    def call(
        self,
        operation: str,
        *,
        elements: int,
        dtype: str = "float32",
        other: int = 0,
        reduction: str = "sum",
    ) -> CodedCall:
        """Begin the next call.

        Args:
            operation: all_reduce, all_gather, broadcast, reduce_scatter, all_to_all, send or recv.
            elements: of what the rank gives; of `reduce_scatter` and `all_to_all`, to each rank.
            dtype: as the library calls it.
            other: the root of a broadcast, or the other end.
            reduction: sum, max or min.

        Raises:
            ValueError: one of them is not possible.
        """
        if (
            operation not in coded.OPERATIONS
            or dtype not in coded.MOST
            or reduction not in coded.REDUCTIONS
        ):
            raise ValueError(f"context.coded does not support {operation} of {dtype} ({reduction})")
        if not 0 <= elements <= coded.MOST_ELEMENTS or not 0 <= other < self.size:
            raise ValueError(
                f"a coded {operation} takes 0 to {coded.MOST_ELEMENTS} elements and must name a"
                f" rank of this world, but got {elements} elements and rank {other}"
            )
        self._sequence += 1
        frame = sys._getframe(1)  # noqa: SLF001 - what every tracer uses
        values = {
            "operation": operation,
            "elements": elements,
            "dtype": dtype,
            "other": other,
            "reduction": reduction,
        }
        site = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        return CodedCall(self, {"sequence": self._sequence, **values, "site": site})

    def skip(self) -> None:
        """Take no part in the next call."""
        self._sequence += 1
        self.tell({"sequence": self._sequence, "operation": "skip"})

    def done(self) -> None:
        """Tell that these were all. Without it the check does not hold."""
        self._flush()
        self._emit(CODED_END, {"calls": self._sequence})

    def tell(self, values: dict[str, Any]) -> None:
        """Tell of a call, at once where something of it is wrong."""
        self._waiting.append(values)
        if len(self._waiting) >= TOGETHER or "first" in values:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._emit(CODED, {"calls": self._waiting})
            self._waiting = []

    def array(self, data: bytes, dtype: str) -> Any:
        """Make an array of the library with these elements."""
        kind = getattr(self._library, dtype)
        if not data:
            return self._library.zeros(0, dtype=kind)
        if self._library.__name__ == "torch":
            return self._library.frombuffer(bytearray(data), dtype=kind)
        return self._library.array(memoryview(bytearray(data))).view(kind)

    def data(self, array: Any) -> bytes:
        """Return the elements of an array, or of several, one after the other."""
        if isinstance(array, list | tuple):
            return b"".join(map(self.data, array))
        if self._library.__name__ == "torch":
            return torch_elements(array)
        return mlx_elements(self._library, array)


class CodedCall:
    """One coded call of one rank.

    Attributes:
        given: the array that the rank puts in, of one dimension. Of a receive, and of a broadcast
            from elsewhere, it is one of zeros into which the library may write.
    """

    def __init__(self, calls: Coded, values: dict[str, Any]) -> None:
        self._calls = calls
        self._values = values
        operation = values["operation"]
        if operation == "recv" or (operation == "broadcast" and values["other"] != calls.rank):
            self.given = self.blank()
        else:
            data = coded.given(
                operation,
                rank=calls.rank,
                size=calls.size,
                **{key: values[key] for key in ("sequence", "elements", "dtype")},
            )
            self.given = calls.array(data, values["dtype"])
        if operation == "send":
            calls.tell({**values, "parts": []})

    def blank(self) -> Any:
        """Make an array of zeros, of as many elements as one rank gives another."""
        dtype = self._values["dtype"]
        return self._calls.array(bytes(self._values["elements"] * coded.width(dtype)), dtype)

    def received(self, arrays: Any) -> None:
        """Tell what the call gave: one array, or one for each rank, in their order."""
        values = self._values
        data = self._calls.data(arrays)
        operation = values["operation"]
        dtype = values["dtype"]
        sources = coded.sources(operation, size=self._calls.size, other=values["other"])
        step = values["elements"] * coded.width(dtype)
        parts = [data[at * step : (at + 1) * step] for at in range(len(sources))]
        result = {
            **values,
            "bytes": len(data),
            "parts": [hashlib.sha256(part).hexdigest() for part in parts],
        }
        known = {key: values[key] for key in ("sequence", "elements", "dtype", "reduction")}
        known |= {"rank": self._calls.rank, "size": self._calls.size}
        for place, (source, part) in enumerate(zip(sources, parts, strict=True)):
            right = coded.expected(operation, source, **known)
            if part != right:
                result["first"] = _first(part, right, dtype, place)
                break
        self._calls.tell(result)


def _first(part: bytes, right: bytes, dtype: str, place: int) -> dict[str, Any]:
    """Find the first element of a part that is not right: its index, and its bytes."""
    step = coded.width(dtype)
    if part[: len(right)] == right:
        return {"part": place, "index": len(part) // step, "got": ""}
    # By halves: beginnings that are right are shorter than all that are not.
    index = bisect_left(
        range(len(right) // step),
        True,
        key=lambda at: part[: (at + 1) * step] != right[: (at + 1) * step],
    )
    return {"part": place, "index": index, "got": part[index * step : (index + 1) * step].hex()}


class Group(Protocol):
    """A joined group of ranks, the same for every backend.

    `native` is the backend's own handle (for gloo the `torch.distributed` module), for whatever the
    three calls here do not cover.
    """

    @property
    def rank(self) -> int:
        """This rank's number, as the backend itself reports it."""
        ...

    @property
    def size(self) -> int:
        """World size, as the backend itself reports it: a mis-set rank must not become a silent
        group of one.
        """
        ...

    @property
    def native(self) -> Any:
        """The backend's own handle."""
        ...

    def barrier(self) -> None:
        """Return once every rank has called it."""
        ...

    def all_gather(self, data: bytes) -> list[bytes]:
        """Return every rank's bytes (lengths may differ), in rank order."""
        ...

    def leave(self) -> None:
        """Leave the group; called by the harness after the subject returned."""
        ...


@dataclass(frozen=True, kw_only=True)
class Context:
    """First argument of every subject.

    Attributes:
        rank: 0 <= rank < size.
        size: world size.
        backend: name of the backend, such as `gloo`.
        group: the joined group.
        inputs: name of a scenario's input to its absolute path.
        seed: 64-bit seed of this rank in this trial; `random`, numpy and torch are seeded with it
            already.
        shared: absolute path of a folder that all ranks of this trial share; empty at first,
            removed afterwards.
    """

    rank: int
    size: int
    backend: str
    group: Group
    inputs: Mapping[str, str]
    seed: int
    shared: str
    _emitter: Emitter = field(repr=False)
    _kept: Path = field(repr=False)

    def emit(self, name: str, **values: JSON) -> None:
        """Record that something happened; what the scenario's checks read.

        Args:
            name: dotted lower-case words, such as `tokenizer.ready`.
            values: anything JSON can hold; the line must stay under 256 KiB.

        Raises:
            ValueError: bad or reserved name, or values that are not JSON or too long.
        """
        if name in RESERVED:
            raise ValueError(f"only the harness may emit the event {name}; choose another name")
        self._emitter.emit(name, values)

    def keep(self, name: str, data: Any) -> None:
        """Keep an array or bytes as evidence; what checks of artefacts compare.

        Args:
            name: dotted lower-case words, such as `logits.prefill`; each once per rank and trial.
            data: an array of numbers of torch, MLX or NumPy, of any shape (a bfloat16 keeps its
                bits); bytes; or the path of a file, where `.npy` means an array.

        Raises:
            ValueError: the name is not such words or was taken, or the data is none of these.
            OSError: no space, or the file cannot be read.
        """
        self._emitter.emit(ARTEFACT_KEPT, artefacts.keep(self._kept, name, data))

    def coded(self, library: Any) -> Coded:
        """Begin calls with payloads of which every element is known.

        What the check `collective-correct` judges.

        Args:
            library: `torch` or `mlx.core`.

        Raises:
            ValueError: it is neither, or the world is too large.
        """
        return Coded(library, rank=self.rank, size=self.size, emit=self._emitter.emit)
