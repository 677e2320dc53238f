"""Sessions of one engine in one world, what they kept, and what `equivalent` says of each."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check
from harness.checks.accounted import AccountedCheck, note_accounts
from harness.events import Event
from harness.history import ARTEFACT_FOUND, ARTEFACTS_ACCOUNTED, History
from harness.numeric.arrays import ArrayFile
from harness.subjects import READY
from harness.world.below.preload import MODULES, OF_MODELS, Preload
from harness.world.control.pool import ServerPool
from harness.world.control.world import World
from tests.kit.launches import launch_of

INSIDE = [
    Path(__file__).with_name(name) for name in ("inside.py", "invented_hf.py", "invented_mlx.py")
]
CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)


class RankEnded(Exception):
    """A rank raised."""


@dataclass
class Session:
    """What the ranks of a world kept and said in one session.

    Attributes:
        kept: of each rank, name to file.
        said: of each rank, its events with their values.
    """

    kept: list[dict[str, ArrayFile]]
    said: list[list[tuple[str, dict[str, Any]]]]

    def of(self, prompts: range) -> Session:
        """These prompts alone, counted from 0."""
        kept: list[dict[str, ArrayFile]] = []
        for files in self.kept:
            ends = ((*name.rpartition("."), file) for name, file in files.items())
            own = {
                f"{stem}.{int(end) - prompts.start}": one
                for stem, _, end, one in ends
                if int(end) in prompts
            }
            kept.append(own)
        said = [
            [
                (
                    name,
                    (
                        values | {"prompt": values["prompt"] - prompts.start}
                        if "prompt" in values
                        else values
                    ),
                )
                for name, values in events
                if values.get("prompt", prompts.start) in prompts
            ]
            for events in self.said
        ]
        return Session(kept, said)


@dataclass
class Worlds:
    """Runs worlds of many sessions in one pool."""

    _pool: ServerPool = field(default_factory=ServerPool)
    _found: dict[tuple[int, int], dict[str, ArrayFile]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.__exit__(*error)  # type: ignore[arg-type]

    def reference(self, engine: str, session: Mapping[str, Any], *, file: Path) -> Session:
        """One session of the whole model, or what it kept in that file before: all engines of a
        library share it.
        """
        if not file.exists():
            (found,) = self.run(engine, size=1, sessions=[session])
            file.with_suffix(".new").write_bytes(pickle.dumps(found))
            file.with_suffix(".new").rename(file)
        # A soak wrote it into its own folder.
        stored: Session = pickle.loads(file.read_bytes())  # noqa: S301
        return stored

    def run(
        self, engine: str, *, size: int, sessions: Sequence[Mapping[str, Any]]
    ) -> list[Session]:
        """One world.

        Raises:
            RankEnded: a rank failed: nothing here is to fail but what is computed.
        """
        subject = READY[engine]
        with tempfile.TemporaryDirectory() as folder:
            for file, content in (
                subject.files() | {path.name: path.read_bytes() for path in INSIDE}
            ).items():
                Path(folder, file).parent.mkdir(exist_ok=True)
                Path(folder, file).write_bytes(content)
            launch = launch_of(
                about={},
                size=size,
                backend=subject.backends[0],
                warm=True,
                entry="inside:run",
                folder=Path(folder),
                arguments={
                    "module": subject.file.stem,
                    "function": subject.function,
                    "sessions": list(sessions),
                },
                inputs={},
                seeds=list(range(size)),
                deadline=900.0,
                preload=Preload(MODULES + OF_MODELS),
            )
            capture = World(launch, self._pool, on_left=self._keep).run()
        history = History(capture.events, size=size)
        for rank in range(size):
            if (error := history.error(rank)) is not None:
                raise RankEnded(f"rank {rank} of {engine}: {error.event.values}")
        if history.noted("channel.overflow"):
            raise RankEnded(
                f"a rank of {engine} said more than is read: ask fewer prompts of one model"
            )
        told: dict[tuple[int, int], list[tuple[str, dict[str, Any]]]] = {}
        for seen in history.seen:
            if (
                number := seen.event.values.get("session")
            ) is not None and seen.event.rank is not None:
                values = {
                    key: value for key, value in seen.event.values.items() if key != "session"
                }
                told.setdefault((number, seen.event.rank), []).append((seen.event.name, values))  # type: ignore[arg-type]
        return [
            Session(
                [self._found.get((one["number"], rank), {}) for rank in range(size)],
                [told.get((one["number"], rank), []) for rank in range(size)],
            )
            for one in sessions
        ]

    def _keep(self, _world: World, scratch: Path) -> None:
        self._found = {}
        for path in scratch.rglob("session*.npy"):
            rank = int(
                next(part for part in path.parts if part.startswith("rank-")).removeprefix("rank-")
            )
            number, _, file = path.name.removeprefix("session").partition(".")
            name = file.removesuffix(".npy").removesuffix(".bfloat16")
            self._found.setdefault((int(number), rank), {})[name] = ArrayFile(
                file, path.read_bytes()
            )
        shutil.rmtree(scratch, ignore_errors=True)


def history(session: Session, reference: History | None, *, arm: str) -> History:
    """The events of one session."""
    events = [Event(ns=1, by="harness", name="world.begin", values={"arm": arm})]
    for rank, said in enumerate(session.said):
        events += [
            Event(ns=2, by="rank", rank=rank, name=name, values=values) for name, values in said
        ]
    for rank, files in enumerate(session.kept):
        for name, file in files.items():
            values = {"artefact": name, "sha256": digest(file), "bytes": len(file.content)}
            events.append(Event(ns=3, by="harness", rank=rank, name=ARTEFACT_FOUND, values=values))
    return History(events, size=len(session.kept), reference=reference)


def digest(file: ArrayFile) -> str:
    return hashlib.sha256(bytes(file.content)).hexdigest()


def judged(
    check: AccountedCheck, session: Session, reference: Session, *, arm: str = "candidate"
) -> History:
    """A session's events with its account.

    Of the reference against itself with `arm: reference`.
    """
    whole = history(reference, None, arm="reference")
    events = history(session, whole, arm=arm)
    files = {
        digest(file): file
        for one in (reference, session)
        for kept in one.kept
        for file in kept.values()
    }
    noted = [
        Event(ns=4, by="harness", name=ARTEFACTS_ACCOUNTED, values=values)
        for values in note_accounts([check], events, file=lambda found: files[str(found["sha256"])])
    ]
    return History(
        [*(seen.event for seen in events.seen), *noted], size=len(session.kept), reference=whole
    )
