"""The sweep of operators as a series: its plan, and how its parts are made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from harness.forms.problem import closest
from harness.record.environment import capture
from harness.record.results import ResultsFolder
from harness.series.operators import report
from harness.series.operators.catalogue import RANKS, operators
from harness.series.operators.cells import Library, Operator
from harness.series.operators.record import (
    PATH,
    Axes,
    OperatorsFacts,
    OperatorsPart,
    OperatorsRecord,
    PartEvidence,
    PartOperator,
    assemble,
    cells_of,
    digest_of,
)
from harness.series.operators.worlds import OperatorWorlds
from harness.series.series import Nothing, PlannedPart, Read, Series, SeriesOrigin
from harness.trust.key import Signer

CELLS_OF_A_PART: Final = 600
DEPTH: Final[dict[Library, int]] = {"collectives": 120, "mlx": 100, "files": 60, "dtensors": 1}
"""Cells of each operator, unless `--depth` is given; one of each variant in any case."""


def _chosen(
    libraries: Sequence[str], names: Sequence[str], ranks: Sequence[int]
) -> list[tuple[Library, int, list[Operator]]]:
    """Return what was asked for. Raises Nothing."""
    for library in libraries:
        if library not in RANKS:
            hint = f"; did you mean {near}?" if (near := closest(library, tuple(RANKS))) else ""
            raise Nothing(
                f"--library {library}: unknown library; choose one of {', '.join(RANKS)}{hint}"
            )
    chosen: list[tuple[Library, int, list[Operator]]] = []
    for library, sizes in RANKS.items():
        for size in sizes:
            ours = [
                operator
                for operator in operators(library, ranks=size)
                if not names or any(name in operator.name for name in names)
            ]
            if ours and (not libraries or library in libraries) and (not ranks or size in ranks):
                chosen.append((library, size, ours))
    if not chosen:
        raise Nothing("no operator of these libraries matches the requested names and world sizes")
    return chosen


def parts(
    chosen: Sequence[tuple[Library, int, list[Operator]]], *, depth: int | None, seed: str
) -> list[OperatorsPart]:
    """Cut what was asked for into parts, of every library in turn."""
    cut: list[tuple[int, OperatorsPart]] = []
    for library, size, ours in chosen:
        each = depth or DEPTH[library]
        for number, some in enumerate(_cut(ours, depth=each, seed=seed)):
            part = OperatorsPart(
                name=f"{library}-{size}-{number:02d}",
                library=library,
                ranks=size,
                operators=[
                    PartOperator(name=one.name, space=one.space, usual=one.usual) for one in some
                ],
                depth=each,
                scenario=digest_of(cells_of(some, depth=each, seed=seed)),
            )
            cut.append((number, part))
    return [part for _, part in sorted(cut, key=lambda one: one[0])]


def _cut(ours: Sequence[Operator], *, depth: int, seed: str) -> Iterator[list[Operator]]:
    """Yield operators that have about as many cells together as a part."""
    some: list[Operator] = []
    cells = 0
    for operator in ours:
        some.append(operator)
        cells += len(operator.sample(depth, seed=seed))
        if cells >= CELLS_OF_A_PART:
            yield some
            some = []
            cells = 0
    if some:
        yield some


class OperatorsSeries(Series[OperatorsFacts, OperatorsRecord]):
    """Every operator of the catalogue, in worlds of its own."""

    name = "operators"
    path = PATH
    facts = OperatorsFacts
    record = OperatorsRecord

    def __init__(self) -> None:
        self._worlds: OperatorWorlds | None = None
        self._spent = 0.0

    def parts(self, facts: OperatorsFacts) -> Sequence[OperatorsPart]:
        return facts.parts

    @contextmanager
    def making(self) -> Iterator[None]:
        with OperatorWorlds.opened() as self._worlds:
            yield

    def make(
        self,
        part: PlannedPart,
        facts: OperatorsFacts,
        folder: ResultsFolder,
        *,
        signer: Signer | None,
        jobs: int,
    ) -> float:
        del signer, jobs  # the series is signed, and one world at a time fills two cores
        assert isinstance(part, OperatorsPart)
        assert self._worlds is not None
        if facts.within is not None and self._spent >= facts.within:
            why = f"the {facts.within:.0f} s were used up"
            evidence = PartEvidence(unasked=why, seconds=0.0, asks=[])
        else:
            evidence = self._worlds.ask_part(facts, part)
        self._spent += evidence.seconds
        folder.write_whole(part.path, evidence.pack())
        return evidence.seconds

    def assemble(self, read: Read, names: Collection[str]) -> OperatorsRecord:
        return assemble(read, names)

    def render(self, record: OperatorsRecord, *, manifest_digest: str) -> bytes:
        return report.render(record, manifest_digest=manifest_digest)

    def other_plan(self, facts: OperatorsFacts) -> str:
        for part in facts.parts:
            known = {one.name: one for one in operators(part.library, ranks=part.ranks)}
            for one in part.whole_operators(facts.spaces):
                if one != known.get(one.name):
                    return f"it plans something else for {one.name}"
        return ""


def facts_of(
    *,
    libraries: Sequence[str] = (),
    names: Sequence[str] = (),
    ranks: Sequence[int] = (),
    depth: int | None = None,
    within: float | None = None,
    seed: str = "1",
) -> Callable[[SeriesOrigin], OperatorsFacts]:
    """Return what a new sweep is going to do, once it is known who makes it.

    Args:
        libraries: only these; nothing for all.
        names: only operators whose name holds one of these; nothing for all.
        ranks: only worlds of these sizes; nothing for all.
        depth: cells of each operator.
        within: seconds, after which no other part is begun.
        seed: of the cells that are drawn.

    Raises:
        harness.series.series.Nothing: what was asked for is not there.
    """
    chosen = _chosen(libraries, names, ranks)
    planned = parts(chosen, depth=depth, seed=seed)
    spaces: dict[str, Axes] = {one.space: one.axes for _, _, ours in chosen for one in ours}

    def facts(origin: SeriesOrigin) -> OperatorsFacts:
        return OperatorsFacts(
            **origin,
            format=1,
            seed=seed,
            within=within,
            spaces=spaces,
            parts=planned,
            machine=capture(),
        )

    return facts
