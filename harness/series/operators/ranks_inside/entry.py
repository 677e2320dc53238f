"""Entry of the ranks of a sweep: walk the cells, and report what came of each."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import shutil
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harness.rank.context import Context
from harness.series.operators.ranks_inside.told import Scalar, ToldArray, told

DONE = "cell.done"
WHOLE = "cell.whole"
HANG = "cell.hang"
STOPPED = "cell.stopped"
VERSIONS = "cell.versions"
DISTRIBUTIONS = ("torch", "mlx", "numpy", "safetensors", "gguf", "huggingface_hub")
HUNG = 75
# Seconds after which a rank that raised ends, if the others do not come. The cell is a refusal in any
# case; all that a rank that ends too early costs is the sum after it, and a new world.
ALONE = 0.5
# Seconds that ranks may stand still in the sum after a refusal: it accuses nobody of a hang.
SUM = 2.0


class ReportedLine:
    """A line between the ranks beside the library under test: each says a word after each cell, and
    hears those of the others.
    """

    def __init__(self, context: Context) -> None:
        self._rank = context.rank
        self._size = context.size
        path = Path(context.shared, "line")
        if context.rank == 0:
            with socket.create_server(("127.0.0.1", 0)) as server:
                draft = path.with_suffix(".draft")
                draft.write_text(str(server.getsockname()[1]))
                # Whole or not at all: the others read it as soon as it is there.
                draft.replace(path)
                self._sockets = [server.accept()[0] for _ in range(context.size - 1)]
        else:
            while not path.exists():
                time.sleep(0.001)
            self._sockets = [socket.create_connection(("127.0.0.1", int(path.read_text())))]
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def meet(self, word: bytes, *, gives_up: Callable[[], None] | None = None) -> set[bytes]:
        """Say a word of one byte; returns the words of all.

        `gives_up` is called where the others do not come in time. Raises OSError where a rank is
        gone.
        """
        for each in self._sockets:
            each.settimeout(ALONE if gives_up is not None else None)
        try:
            return self._meet(word)
        except TimeoutError:
            assert gives_up is not None
            gives_up()
            raise

    def _meet(self, word: bytes) -> set[bytes]:
        if self._rank == 0:
            words = [word, *(_receive(each, 1) for each in self._sockets)]
            for each in self._sockets:
                each.sendall(b"".join(words))
            return set(words)
        self._sockets[0].sendall(word)
        said = _receive(self._sockets[0], self._size)
        return {said[at : at + 1] for at in range(self._size)}


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (part := connection.recv(count - len(data))):
            raise ConnectionError("a rank closed the connection")
        data += part
    return data


class Watchdog:
    """Ends this process when a cell stands still for too long, and says where it was."""

    def __init__(self, context: Context, *, within: float) -> None:
        self._context = context
        self._within = within
        self._main = threading.get_ident()
        # Read by the thread without a lock: a tuple is replaced at once.
        self._begun: tuple[int, float, float] | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    @contextlib.contextmanager
    def over(self, index: int, *, within: float | None = None) -> Iterator[None]:
        """Watch a cell, for `within` seconds instead of the usual ones."""
        self._begun = (index, time.monotonic(), self._within if within is None else within)
        try:
            yield
        finally:
            self._begun = None

    def _watch(self) -> None:
        still = 0.0
        before = time.process_time()
        while True:
            tick = min(self._within, SUM) / 10
            time.sleep(tick)
            begun = self._begun
            used = time.process_time() - before
            before += used
            # What computes is slow, and does not hang.
            still = still + tick if used < tick / 20 else 0.0
            if begun is not None and min(still, time.monotonic() - begun[1]) >= begun[2]:
                # As faulthandler does.
                frame = sys._current_frames().get(self._main)  # noqa: SLF001
                where = traceback.extract_stack(frame)[-1]
                at = f"{Path(where.filename).name}:{where.lineno} {where.line}"
                self._context.emit(HANG, index=begun[0], at=at)
                # The others hang too, and say so, before this end closes their connections.
                time.sleep(begun[2] / 5)
                os._exit(HUNG)


def walk(context: Context, *, within: float, begin: int) -> None:
    """Call every cell from `begin` on in this rank, until one leaves the group in doubt."""
    cells = json.loads(Path(context.inputs["cells"]).read_text())
    _tell_versions(context)
    line = ReportedLine(context)
    watchdog = Watchdog(context, within=within)
    for index, cell in enumerate(cells[begin:], begin):
        said: dict[str, Any] = {}
        try:
            with watchdog.over(index):
                said["got"] = _needled(cell, context, _told(_called(cell, context)))
        except Exception as error:  # noqa: BLE001 - a library may refuse in any way
            said["raised"] = _in_words(error)
        context.emit(DONE, index=index, **said)
        # A rank that raised does not wait long: the others may be inside the call until its end
        # closes their connections.
        gives_up = partial(_end, context, index) if "raised" in said else None
        words = line.meet(b"x" if "raised" in said else b"v", gives_up=gives_up)
        with watchdog.over(index, within=SUM):
            stopped = _out_of_step(cell, words, context) if b"x" in words else {}
        if stopped:
            # Before the others are met, because one of them may hang in its sum.
            context.emit(STOPPED, index=index, **stopped)
        # All stop where one has to: the next call needs every rank.
        if line.meet(b"s" if stopped else b"g") != {b"g"}:
            if not stopped:
                context.emit(STOPPED, index=index)
            return


def _end(context: Context, index: int) -> None:
    """End this process, in which a call raised that the others still wait in."""
    context.emit(STOPPED, index=index, why="this rank alone raised")
    os._exit(HUNG)


def _out_of_step(
    cell: Mapping[str, Any], words: set[bytes], context: Context
) -> dict[str, str | int]:
    """Why the ranks may be out of step after a cell that was refused; empty where they are not."""
    if len(words) > 1:
        return {"why": "some ranks alone raised"}
    if cell["operator"] == "send_recv":
        return {"why": "what was sent may still be on its way"}
    wanted = context.size * (context.size + 1) // 2
    try:
        total = _sum_of_ranks(context, wanted)
    except Exception as error:  # noqa: BLE001 - what a broken group raises
        return {"why": _in_words(error)}
    # A call that was refused must not make the next one wrong.
    return {} if total == wanted else {"why": "sum", "total": total, "wanted": wanted}


def _sum_of_ranks(context: Context, wanted: int) -> int:
    """Return what the group makes of the sum of its ranks, counted from 1."""
    if context.backend == "gloo":
        import torch
        import torch.distributed

        one = torch.tensor([context.rank + 1])
        torch.distributed.all_reduce(one)
        return int(one)
    if context.backend == "mlx-ring":
        import mlx.core as mx

        group = context.group.native
        total: Any = mx.distributed.all_sum(
            mx.array([context.rank + 1]), group=group, stream=mx.cpu
        )
        return int(total.item())
    return wanted


def _called(cell: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    library = cell["library"]
    module = _module(library)
    named: Mapping[str, Any]
    if library == "collectives":
        one = module.CollectiveRank(cell["axes"], rank=context.rank, size=context.size)
        named = module.called(cell["operator"], one)
    elif library == "dtensors":
        named = module.called(cell["operator"], cell["axes"], size=context.size)
    elif library == "mlx":
        named = module.called(cell["operator"], cell["axes"], context.group.native)
    else:
        place = Path("cell").resolve()
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        named = module.called(cell["operator"], cell["axes"], place)
    return named


def _module(library: str) -> Any:
    """Return the file that makes the calls of a library, which alone imports it."""
    return importlib.import_module(f"harness.series.operators.ranks_inside.{library}")


def _told(named: Mapping[str, Any]) -> dict[str, ToldArray]:
    return {name: told(array) for name, array in named.items()}


def _needled(
    cell: Mapping[str, Any], context: Context, named: dict[str, ToldArray]
) -> dict[str, ToldArray]:
    """Put a wrong element into the result of rank 0, where the cell is a needle."""
    if cell.get("needle") and context.rank == 0:
        results = [one for name, one in named.items() if name.startswith("result")]
        for one in [result for result in results if result["values"]][:1]:
            one["values"][-1] = wrong(one["values"][-1])
    return named


def wrong(scalar: Scalar) -> Scalar:
    """Return another element than this one, far enough off for any tolerance."""
    return 1.0 if isinstance(scalar, str) else scalar + max(1, abs(scalar))


def _in_words(error: Exception) -> str:
    """The first line of what it says: whole messages hold stacks of C++."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text[:300]}"


def whole(context: Context, *, ranks: int) -> None:
    """Work out every cell on the whole, in one process."""
    cells = json.loads(Path(context.inputs["cells"]).read_text())
    _tell_versions(context)
    for index, cell in enumerate(cells):
        said: dict[str, Any] = {}
        try:
            right, tolerances = _right(cell, ranks)
            said["ranks"] = [_told(named) for named in right]
            said["tolerances"] = tolerances
        except Exception as error:  # noqa: BLE001 - plain torch may refuse too
            said["raised"] = _in_words(error)
        context.emit(WHOLE, index=index, **said)


def _right(
    cell: Mapping[str, Any], ranks: int
) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, float]]:
    """Return what each rank has to have, or the one that all have, and tolerances by name."""
    library = cell["library"]
    module = _module(library)
    if library == "dtensors":
        named, tolerances = module.whole(cell["operator"], cell["axes"])
        return [named], tolerances
    if library == "files":
        return [module.whole(cell["operator"], cell["axes"])], {}
    right = module.whole(cell["operator"], cell["axes"], ranks)
    if library == "mlx":
        return right, {}
    # A rank that is no root may have nothing, so one that has the most says how far all may be off.
    most = max(right, key=len)
    return right, module.tolerances(cell["axes"], most)


def _tell_versions(context: Context) -> None:
    found: dict[str, str] = {}
    for name in DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    context.emit(VERSIONS, **found)
