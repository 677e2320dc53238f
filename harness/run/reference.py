"""The reference of a cell: run in a world of one before the cell's trials, and laid out for its ranks to read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.history import History
from harness.record.results import ResultsFolder
from harness.run.artefacts import Artefacts, Found
from harness.scenario import Cell, Scenario, derive_seed
from harness.stats.outcome import reference_folders
from harness.stats.reference import doubts, values_of
from harness.world.capture import Capture
from harness.world.environment import launcher_environment
from harness.world.world import Launch, World

INPUT = "reference"
"""The input under which ranks find the folder."""
VALUES = "values.json"
LAUNCHERS = frozenset(launcher_environment(rank=0, size=1, port=0))


class NoReference(Exception):
    """The reference did not come to its end, or did not stay as it was: there is nothing to compare with."""


@dataclass(frozen=True)
class Made:
    """A reference that ran.

    Attributes:
        history: its events.
        folder: what ranks read.
        kept: what it kept, by name, in a folder that ranks are not told of.
        stands: what the files that ranks read are, but for their content.
    """

    history: History
    folder: Path
    kept: Mapping[str, Found]
    stands: Mapping[str, tuple[int, ...]]


class References:
    """Those of a run; cells may share one. To be closed."""

    def __init__(self, scenario: Scenario, artefacts: Artefacts, *, results: ResultsFolder) -> None:
        """Make none yet.

        Args:
            scenario: what is asked.
            artefacts: takes what the reference keeps.
            results: below it lies what ranks read of a reference, until the run is over: a harness that is killed
                leaves nothing anywhere else.
        """
        self._scenario = scenario
        self._artefacts = artefacts
        self._made: dict[tuple[str, ...], Made] = {}
        self._results = results

    def close(self) -> None:
        """Remove what ranks could read."""
        if self._scenario.subject.reference is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def _scratch(self) -> Path:
        # Ranks have another current folder.
        return self._results.path.resolve() / INPUT

    def of(self, cell: Cell) -> Made | None:
        """The one that a cell's trials are compared with; None where the scenario has none."""
        return self._made.get(reference_folders(self._scenario, cell.slug))

    def demand_unchanged(self, cell: Cell) -> None:
        """Demand that no rank of a trial has changed what all ranks read.

        Raises:
            NoReference: one has.
        """
        made = self.of(cell)
        if made is None or (found := _files(made.folder)) == made.stands:
            return
        name = min(name for name, _ in found.items() ^ made.stands.items())
        raise NoReference(f"{name} of the reference, which ranks read, was changed by a rank of cell {cell.id}")

    def make(
        self,
        cell: Cell,
        *,
        launch: Callable[[], Launch],
        start: Callable[..., World],
        keep: Callable[[str, Capture], None],
    ) -> None:
        """Run a cell's reference, if there is one and it has not run: twice, one after the other.

        Args:
            cell: whose axes it is given.
            launch: a trial of the candidate as it would start in this cell.
            start: makes a world of a launch, with what is to be done with what its ranks left.
            keep: takes the evidence of a run into its folder.

        Raises:
            NoReference: it failed.
        """
        reference, places = self._scenario.subject.reference, reference_folders(self._scenario, cell.slug)
        if reference is None or places in self._made:
            return
        histories: list[History] = []
        folder, kept = self._scratch / str(len(self._made)), dict[str, Found]()
        own = self._scratch / f"{folder.name}.kept"
        folder.mkdir(parents=True)
        own.mkdir()
        owner = cell.id if reference.once == "cell" else INPUT
        seeds = [derive_seed(self._scenario.seed, self._scenario.id, owner, 0, *rank) for rank in ((), (0,))]
        model = launch()
        for index, place in enumerate(places):
            about = {"cell": owner, "arm": INPUT, "trial": index, "seed": str(seeds[0])}
            alone = replace(
                model,
                about={**model.about, **about},
                size=1,
                backend="none",
                hosts=None,
                entry=reference.entry or model.entry,
                arguments={**reference.with_, **(cell.axes if reference.once == "cell" else {})},
                seeds=seeds[1:],
                # Whatever the scenario tells its ranks of their world, this is a world of one.
                env={name: value for name, value in model.env.items() if name not in LAUNCHERS},
                gates=(),
                probes=(),
            )

            def left(world: World, scratch: Path, *, first: bool = index == 0) -> None:
                found = self._artefacts.take(world, scratch, size=1, reference=kept, own=True)
                for (_, name), one in found.items() if first else ():
                    path = own / str(one.values["file"])
                    for copy in (path, folder / path.name):
                        shutil.copyfile(one.path, copy)
                        copy.chmod(0o444)
                    kept[name] = replace(one, path=path)

            capture = start(alone, on_left=left).run()
            keep(place, capture)
            histories.append(History(capture.events, size=1, reference=histories[0] if histories else None))
            if failed := [why for why in doubts(self._scenario, histories[-1:]) if "failed" in why.code]:
                raise NoReference(f"{failed[0]}{_log(capture)}")
        (folder / VALUES).write_text(json.dumps(values_of(histories[0]), sort_keys=True))
        self._made[places] = Made(history=histories[0], folder=folder, kept=kept, stands=_files(folder))


def _files(folder: Path) -> dict[str, tuple[int, ...]]:
    """Each file of a folder, with what changes when it is written to or replaced."""
    stats = ((entry.name, entry.stat(follow_symlinks=False)) for entry in os.scandir(folder))
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats}


def _log(capture: Capture) -> str:
    """What the reference printed last, where it printed anything."""
    text = capture.logs.get(0, b"").decode("utf-8", "replace").strip()
    return f". It printed:\n{text[-2000:]}" if text else ""
