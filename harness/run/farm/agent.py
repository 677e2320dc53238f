"""Our process on a node: takes what trials are made of, makes the worlds it is asked for, and sends
what they left.

It listens to its standard input alone. When that closes, or nothing has come for as long as its
lease, its worlds are ended and its folder goes.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, cast

from harness.events import EventError
from harness.forms.digest import sha256_of
from harness.forms.strict_json import JSON
from harness.forms.variables import cache_folder
from harness.plugins import PluginFailed
from harness.record import environment
from harness.record.artefacts import room_of
from harness.record.results import ResultsFolder
from harness.run.arms.staging import StagedArm
from harness.run.artefacts import Artefacts
from harness.run.farm.node import MOST, Answer, Manifest, NodeQuestion, pack
from harness.run.inputs import ResolvedInput
from harness.run.plan import TrialPlan
from harness.run.preparation import Preparation, refusals
from harness.run.worlds import Interrupt, Worlds
from harness.scenario import Cell, Scenario, cells, parse_scenario
from harness.world.control.hang import Hang
from harness.world.control.pool import ServerPool
from harness.world.control.server_handle import ServerFailed
from harness.world.control.world import Cancelled
from harness.world.machines.agent import ControlChannel, Gone

CACHE = "farm"
THREADS = 4
"""For what is asked beside trials."""


class CargoSpoiled(Exception):
    """A file is not what its digest says, or a path leads elsewhere."""


class CargoStore:
    """Files by their digest, in a cache of the node's user, so that what was sent once is not sent
    again.
    """

    def __init__(self) -> None:
        self._folder = cache_folder(CACHE)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def lacks(self, wanted: Iterable[str]) -> list[str]:
        """Those of these files that are not here, or not any more what they were."""
        return sorted(digest for digest in wanted if not self._holds(digest))

    def _holds(self, digest: str) -> bool:
        path = self.path(digest)
        try:
            return path.is_file() and not path.is_symlink() and sha256_of(path) == digest
        except OSError:
            return False

    def path(self, digest: str) -> Path:
        """Where a file lies."""
        if len(digest) != 64 or not digest.isalnum():
            raise CargoSpoiled(f"{digest!r} is not a digest; expected 64 hex digits")
        return self._folder / digest

    def add(self, digest: str, piece: bytes, *, first: bool, last: bool) -> None:
        """Take a piece of a file; the last one gives it its name.

        Raises:
            CargoSpoiled: what came is not what the digest says.
            OSError: no space.
        """
        draft = self._folder / f".{digest}-{os.getpid()}"
        try:
            with draft.open("wb" if first else "ab") as file:
                file.write(piece)
        except OSError:
            draft.unlink(missing_ok=True)  # where there is no space, it would take some for good
            raise
        if not last:
            return
        if sha256_of(draft) != digest:
            draft.unlink()
            raise CargoSpoiled(f"the received file does not have the digest {digest}")
        draft.chmod(0o400)
        draft.replace(self.path(digest))

    def lay(
        self, target: Path, files: Mapping[str, str], *, executable: Sequence[str] = (), link: bool
    ) -> None:
        """Lay files out below a folder.

        Args:
            target: the folder; made here.
            files: path to sha256.
            executable: those that may be executed.
            link: whether they may be the very files of the cache, as large ones are; what a rank
                writes into one is found when it is wanted again.

        Raises:
            CargoSpoiled: a path leads out of the folder.
            OSError: no space.
        """
        for name, digest in files.items():
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts or not parts.parts:
                raise CargoSpoiled(f"{name!r} is outside its folder")
            path = target / parts
            path.parent.mkdir(parents=True, exist_ok=True)
            if link:
                with suppress(OSError):
                    path.hardlink_to(self.path(digest))
                    continue
            shutil.copyfile(self.path(digest), path)
            path.chmod(0o755 if name in executable else 0o644)


def lay_out(
    manifest: Manifest, store: CargoStore, folder: Path
) -> tuple[dict[str, StagedArm], dict[str, ResolvedInput]]:
    """Return the arms and inputs of a manifest, laid out below a folder.

    Raises:
        CargoSpoiled: a path leads out of the folder.
        OSError: no space.
    """
    arms = {}
    inputs = {}
    for place, (name, cargo) in enumerate(manifest.arms.items()):
        target = folder / f"arm-{place}"
        target.mkdir(parents=True)
        store.lay(target, cargo.files, executable=cargo.executable, link=False)
        arms[name] = StagedArm(folder=target, arguments=cargo.arguments)
    for place, (name, facts) in enumerate(manifest.inputs.items()):
        target = folder / f"input-{place}"
        store.lay(target, facts.files, link=True)
        path = target / next(iter(facts.files)) if name in manifest.single else target
        inputs[name] = ResolvedInput(path=path, facts=facts)
    return arms, inputs


class Agent:
    """Answers what control asks, each question in a thread of its own: control has to be heard all
    the time.
    """

    def __init__(self, channel: ControlChannel, folder: Path) -> None:
        """Begin.

        Args:
            channel: to control.
            folder: this run's, on this node.
        """
        self._channel = channel
        self._folder = folder
        # Threads answer at the same time: a message must not end up inside another one.
        self._sending = threading.Lock()
        self._interrupt = Interrupt()
        self._pool = ServerPool(cancel=self._interrupt.descriptor)
        self._store = CargoStore()
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="answer")
        self._lanes: ThreadPoolExecutor | None = None
        self._worlds: Worlds
        self._scenario: Scenario
        self._cells: Mapping[str, Cell] = {}
        self._inputs: Mapping[str, ResolvedInput] = {}
        self._laid: dict[str, tuple[int, ...]] = {}

    def serve(self) -> None:
        """Answer until control says that it is over.

        Raises:
            Gone: control is gone.
        """
        with self._pool:
            try:
                while True:
                    message, content = self._channel.receive()
                    asked = cast("NodeQuestion", message)
                    what = asked.get("ask")
                    if what == "end":
                        self._stop()
                        self._send({**self._told(), "order": asked["order"]})
                        return
                    if what == "trial" and self._lanes is not None:
                        self._lanes.submit(self._answer, self._make, asked, content)
                    elif what in ("facts", "lacks", "piece", "prepare"):
                        self._threads.submit(
                            self._answer, getattr(self, f"_{what}"), asked, content
                        )
            finally:
                self._stop()

    def _stop(self) -> None:
        self._interrupt.set()
        for threads in (self._threads, self._lanes):
            if threads is not None:
                threads.shutdown(wait=True, cancel_futures=True)

    def _send(self, message: dict[str, Any], content: bytes = b"") -> None:
        with self._sending, suppress(Gone):  # who reads hears of it too
            self._channel.send(message, content)

    def _answer(
        self,
        do: Callable[[NodeQuestion, bytes], Answer],
        asked: NodeQuestion,
        sent: bytes,
    ) -> None:
        try:
            message, content = do(asked, sent)
        except Cancelled:
            return
        except (ServerFailed, PluginFailed, CargoSpoiled, OSError, EventError) as error:
            message = {"failed": f"{type(error).__name__}: {error}"[:2000]}
            content = b""
        # Else control would wait for an answer that never comes.
        except Exception as error:  # noqa: BLE001
            message = {"failed": f"a bug in Rankproof: {type(error).__name__}: {error}"[:2000]}
            content = b""
        self._send({**message, "order": asked["order"]}, content)

    def _facts(self, _asked: NodeQuestion, _content: bytes) -> Answer:
        self._machine = environment.capture()
        return {"environment": self._machine.model_dump(mode="json"), "pid": os.getpid()}, b""

    def _lacks(self, asked: NodeQuestion, _content: bytes) -> Answer:
        return {"lacks": self._store.lacks(asked["digests"])}, b""

    def _piece(self, asked: NodeQuestion, content: bytes) -> Answer:
        self._store.add(asked["digest"], content, first=asked["first"], last=asked["last"])
        return {}, b""

    def _prepare(self, asked: NodeQuestion, _content: bytes) -> Answer:
        """Lay everything out, and have the fork servers ready.

        Or say why a cell cannot run here.
        """
        manifest = Manifest.model_validate(asked["manifest"])
        self._scenario = parse_scenario(
            manifest.scenario.encode(), name="scenario.yaml", overrides=manifest.overrides
        )
        arms, self._inputs = lay_out(manifest, self._store, self._folder / "run")
        self._cells = {cell.id: cell for cell in cells(self._scenario) if cell.id in manifest.cells}
        preparation = Preparation(
            arms=arms,
            inputs=self._inputs,
            machine=self._machine,
            environments={},
            cells=list(self._cells.values()),
            skipped={},
        )
        refused = refusals(self._scenario, preparation)
        if refused:
            cell, why = next(iter(refused.items()))
            return {"refuses": f"cell {cell} cannot run on this node: {why}"}, b""
        self._laid = stands(self._inputs)
        plan = TrialPlan(
            scenario=self._scenario,
            preparation=preparation,
            results=ResultsFolder(self._folder / "left", self._scenario.id),
            recipes=manifest.recipes,
            declared=manifest.declared,
            node=manifest.number,
        )
        self._worlds = Worlds(
            plan,
            pool=self._pool,
            cancel=self._interrupt.descriptor,
            artefacts=Artefacts(plan.results, (), room_of(self._scenario)),
        )
        self._worlds.start_servers(lanes=manifest.lanes)
        self._lanes = ThreadPoolExecutor(max_workers=manifest.lanes, thread_name_prefix="world")
        return {"start": self._worlds.start, **self._told()}, b""

    def _make(self, asked: NodeQuestion, _content: bytes) -> Answer:
        hang = Hang(**asked["hang"]) if asked["hang"] is not None else None
        capture = self._worlds.make(
            self._cells[asked["cell"]], asked["arm"], asked["index"], hang=hang
        )
        files, content = pack(capture, known=asked["known"])
        if len(content) > MOST:
            return {
                "failed": (
                    f"a trial left {len(content)} bytes, but a node sends at most {MOST};"
                    " run the scenario with --on local"
                )
            }, b""
        # With every trial: a node that is lost later says nothing of its earlier ones any more.
        return {"files": files, "changed": self._changed()}, content

    def _told(self) -> dict[str, JSON]:
        return {
            "changed": self._changed(),
            "servers": [*self._pool.pids],
            "seconds": self._pool.seconds,
        }

    def _changed(self) -> list[JSON]:
        now = stands(self._inputs)
        return [
            *sorted(name for name in {*now, *self._laid} if now.get(name) != self._laid.get(name))
        ]


def stands(inputs: Mapping[str, ResolvedInput]) -> dict[str, tuple[int, ...]]:
    """Each file of the inputs with what the kernel changes when it is written to.

    One that is gone is not among them.

    By its whole path: files of two folders may have one name.
    """
    stands_by_path: dict[str, tuple[int, ...]] = {}
    for name, resolved in inputs.items():
        for path in [resolved.path, *sorted(resolved.path.rglob("*"))]:
            if path.is_file():
                status = path.stat()
                below = PurePath(name, path.relative_to(resolved.path)).as_posix()
                stands_by_path[below] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return stands_by_path


def main(*, lease: float, folder: str) -> None:
    """Serve until control is gone or says that it is over.

    Args:
        lease: seconds without a message after which control counts as gone.
        folder: this run's folder on this node, which goes with this process.
    """
    # Nothing else may write into the channel, nor read from it: what prints to standard output from
    # now on prints to standard error, and standard input is empty.
    reads = os.dup(0)
    writes = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    # A pipe that is not read takes part of a message, and then nothing.
    os.set_blocking(writes, False)
    try:
        Agent(ControlChannel(reads, writes, lease=lease), Path(folder)).serve()
    except Gone as why:
        print(why, file=sys.stderr)  # where control is there after all, it hears so
    finally:
        shutil.rmtree(folder, ignore_errors=True)
