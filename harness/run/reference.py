"""The reference of a cell: run before the cell's trials, and laid out for its ranks to read where
they may.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.history import History
from harness.reason import VerdictCode
from harness.record.results import ResultsFolder
from harness.run.artefacts import Artefacts, Kept, KeptFile
from harness.scenario import Cell, ReferencePlan, Scenario, derive_seed, reference_of
from harness.stats.outcome import reference_folders
from harness.stats.reference import doubts, values_of
from harness.world.control.capture import Capture
from harness.world.control.launch import Launch, PlaceLaunch
from harness.world.control.rank_environment import launcher_environment
from harness.world.control.world import World

INPUT = "reference"
"""The input under which ranks find the folder."""
VALUES = "values.json"
LAUNCHERS = frozenset(launcher_environment(rank=0, size=1, port=0))


class NoReference(Exception):
    """The reference did not come to its end, or did not stay as it was: there is nothing to compare
    with.
    """


@dataclass(frozen=True)
class CellReference:
    """A reference that ran.

    Attributes:
        history: its events.
        folder: what ranks read; None of a comparison, in which b must not see what a gave.
        kept: what it kept, where no rank finds it.
        stands: what the files that ranks read are, but for their content.
    """

    history: History
    folder: Path | None
    kept: Kept
    stands: Mapping[str, tuple[int, ...]]


class References:
    """Those of a run; cells may share one. To be closed."""

    def __init__(self, scenario: Scenario, artefacts: Artefacts, *, results: ResultsFolder) -> None:
        """Make none yet.

        Args:
            scenario: what is asked.
            artefacts: takes what the reference keeps.
            results: below it lies what ranks read of a reference, until the run is over: a harness
                that is killed leaves nothing anywhere else.
        """
        self._scenario = scenario
        self._artefacts = artefacts
        self._made: dict[tuple[str, ...], CellReference] = {}
        self._results = results

    def close(self) -> None:
        """Remove what ranks could read."""
        if (
            self._scenario.subject.reference is not None
            or self._scenario.subject.compare is not None
        ):
            shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def _scratch(self) -> Path:
        # Ranks have another current folder.
        return self._results.path.resolve() / INPUT

    def of(self, cell: Cell) -> CellReference | None:
        """Return the one that a cell's trials are compared with; None where the scenario has
        none.
        """
        return self._made.get(reference_folders(self._scenario, cell))

    def demand_unchanged(self, cell: Cell) -> None:
        """Demand that no rank of a trial has changed what all ranks read.

        Raises:
            NoReference: one has.
        """
        reference = self.of(cell)
        if (
            reference is None
            or reference.folder is None
            or (stands := _files(reference.folder)) == reference.stands
        ):
            return
        name = min(name for name, _ in stands.items() ^ reference.stands.items())
        raise NoReference(
            f"a rank of cell {cell.id} changed {name} in the reference's folder, which other ranks"
            ' also read; ranks must not write to context.inputs["reference"]'
        )

    def make(
        self,
        cell: Cell,
        *,
        launch: Callable[[str], Launch],
        run: Callable[..., Capture],
        keep: Callable[[str, str, Capture], None],
        says: Callable[[str], None],
    ) -> None:
        """Run a cell's reference, if there is one and it has not run: twice, one after the other.

        Args:
            cell: whose axes it is given.
            launch: the first trial of an arm as it would start in this cell.
            run: runs a world of a launch, with what is to be done with what its ranks left.
            keep: takes the evidence of a run into its folder, by whose code it ran.
            says: hears which run begins, which may take minutes.

        Raises:
            NoReference: it failed.
        """
        plan = reference_of(self._scenario, cell)
        places = reference_folders(self._scenario, cell)
        if plan is None or places in self._made:
            return
        histories: list[History] = []
        kept = dict[tuple[int, str], KeptFile]()
        order = self._order(launch(plan.arm), plan)
        for index, place in enumerate(places):

            def left(world: World, scratch: Path, *, first: bool = index == 0) -> None:
                taken = self._artefacts.take(world, scratch, size=plan.size)
                self._artefacts.compare_runs(world, taken, size=plan.size, first=kept)
                self._artefacts.account(
                    world,
                    taken,
                    checks=self._scenario.checks,
                    size=plan.size,
                    reference=kept,
                    runs=histories[0] if histories else None,
                )
                for place, file in taken.items() if first else ():
                    kept[place] = self._artefacts.spool(file)

            says(f"{plan.called}, run {index + 1} of {len(places)}")
            capture = run(replace(order, about={**order.about, "trial": index}), on_left=left)
            keep(plan.arm, place, capture)
            histories.append(
                History(
                    capture.events, size=plan.size, reference=histories[0] if histories else None
                )
            )
            if failed := [
                why
                for why in doubts(self._scenario, histories)
                if why.code == VerdictCode.REFERENCE_FAILED
            ]:
                setting = "subject.reference.deadline" if plan.offered else "world.deadline"
                slow = _too_slow(histories[-1], order.watch.deadline, setting=setting)
                raise NoReference(f"{failed[0]}{slow}{_log(capture)}")
        folder = self._lay(histories[0], kept) if plan.offered else None
        stands = _files(folder) if folder is not None else {}
        self._made[places] = CellReference(
            history=histories[0], folder=folder, kept=kept, stands=stands
        )

    def _order(self, model: Launch, plan: ReferencePlan) -> Launch:
        """Return a trial of the arm whose code it runs, made a run of the reference."""
        seeds = [
            derive_seed(self._scenario.seed, self._scenario.id, plan.owner, 0, *rank)
            for rank in ((), *((rank,) for rank in range(plan.size)))
        ]
        subject = replace(
            model.subject,
            entry=plan.entry,
            arguments=plan.arguments,
            seeds=seeds[1:],
        )
        places = model.places
        if plan.offered:
            # Whatever the scenario tells its ranks of their world, a world of one is one, and on
            # this machine.
            env = {name: value for name, value in subject.env.items() if name not in LAUNCHERS}
            subject = replace(subject, env=env)
            places = PlaceLaunch()
        return replace(
            model,
            about={**model.about, "cell": plan.owner, "arm": INPUT, "seed": str(seeds[0])},
            size=plan.size,
            backend=plan.backend,
            subject=subject,
            watch=replace(model.watch, deadline=plan.deadline, gates=(), probes=(), hang=None),
            places=places,
        )

    def _lay(self, history: History, kept: Kept) -> Path:
        """Lay out what ranks read: the values, and by name what no check compares ranks with.

        Who could read what is compared could hand it in.
        """
        folder = self._scratch / str(len(self._made))
        folder.mkdir(parents=True)
        for (_, name), file in kept.items():
            if file.piece is None or any(check.is_answer(name) for check in self._scenario.checks):
                continue
            path = folder / str(file.values["file"])
            path.write_bytes(file.piece.content())
            path.chmod(0o444)
        (folder / VALUES).write_text(json.dumps(values_of(history), sort_keys=True))
        return folder


def _files(folder: Path) -> dict[str, tuple[int, ...]]:
    """Each file of a folder, with what changes when it is written to or replaced."""
    stats = ((entry.name, entry.stat(follow_symlinks=False)) for entry in os.scandir(folder))
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats}


def _too_slow(history: History, deadline: float, *, setting: str) -> str:
    """Where the deadline came: what to set, and how far it was, which tells a slow one from one
    that hangs.
    """
    if not history.noted("world.deadline"):
        return ""
    said = [seen.event for seen in history.seen if seen.event.by == "rank"]
    last = (
        f"; its last event was {said[-1].name}, after"
        f" {(said[-1].ns - history.start_ns()) / 1e9:.3g} s"
        if said
        else ""
    )
    return (
        f"{last}. A reference that makes variants of its answers takes many times as long as a"
        f" trial; allow more time, for example with --set {setting}={4 * deadline:g}s"
    )


def _log(capture: Capture) -> str:
    """Return what the first of its ranks that printed anything printed last."""
    logs = (log.decode("utf-8", "replace").strip() for _, log in sorted(capture.logs.items()))
    text = next(filter(None, logs), "")
    return f". It printed:\n{text[-2000:]}" if text else ""
