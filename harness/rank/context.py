"""The rank's context: what the subject is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.forms.strict_json import JSON
from harness.history import ARTEFACT_KEPT, CODED, CODED_END, ENVIRONMENT_TOLD, FAULT_IN_CALL
from harness.rank import artefacts
from harness.rank.coded_calls import Coded
from harness.rank.emit import Emitter
from harness.rank.groups import MADE

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
            raise ValueError(
                f"{name} is emitted by the harness, when it is so: choose another name"
            )
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
