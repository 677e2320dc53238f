"""Worlds of ready subjects that infer, from their files as they lie in the package."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from harness.history import History
from harness.subjects import READY
from harness.world.below.preload import MODULES, OF_MODELS, Preload
from harness.world.control.pool import ServerPool
from harness.world.control.world import World
from tests.kit.launches import launch_of

PRELOAD = Preload(MODULES + OF_MODELS)


class Worlds:
    """Runs one world after the other in one pool.

    Attributes:
        kept: of the last world, rank and name of an artefact to its file.
    """

    def __init__(self) -> None:
        self._pool = ServerPool()
        self._folder = Path(tempfile.mkdtemp(prefix="rankproof-worlds-"))
        self.kept: dict[tuple[int, str], Path] = {}

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.__exit__(*error)  # type: ignore[arg-type]
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(
        self,
        name: str,
        *,
        size: int,
        model: Path,
        files: Mapping[str, bytes] | None = None,
        inputs: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> History:
        """A world of a ready subject with a model."""
        subject = READY[name]
        with tempfile.TemporaryDirectory() as folder:
            for file, content in (files or subject.files()).items():
                Path(folder, file).parent.mkdir(exist_ok=True)
                Path(folder, file).write_bytes(content)
            launch = launch_of(
                about={},
                size=size,
                backend=subject.backends[0],
                warm=True,
                entry=subject.entry,
                folder=Path(folder),
                arguments=arguments,
                inputs={"model": str(model), **(inputs or {})},
                seeds=list(range(size)),
                deadline=120.0,
                preload=PRELOAD,
            )
            capture = World(launch, self._pool, on_left=self._keep).run()
        return History(capture.events, size=size)

    def _keep(self, _world: World, scratch: Path) -> None:
        self.kept = {}
        shutil.rmtree(self._folder)
        self._folder.mkdir()
        for path in sorted(scratch.rglob("*.npy")):
            rank = int(
                next(part for part in path.parts if part.startswith("rank-")).removeprefix("rank-")
            )
            name = path.name.removesuffix(".npy").removesuffix(".bfloat16")
            self.kept[rank, name] = Path(shutil.copy(path, self._folder / f"{rank}-{path.name}"))
