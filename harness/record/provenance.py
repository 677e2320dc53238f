"""What ranks loaded beside their arm's folder, in the record: what the repository holds of it, and their lists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from harness.forms.digest import sha256
from harness.record import plugins
from harness.record.facts import RunFacts
from harness.record.model import RecordError
from harness.scenario import Scenario
from harness.stats.provenance import FOLDER, ArmEnvironment, Source, path_of
from harness.stats.verdict import Judgement


def sources(scenario: Scenario, run: RunFacts, environments: Mapping[str, ArmEnvironment]) -> dict[str, Source]:
    """What the repository of each arm holds of the code that was not staged; nothing where the run does not tell.

    Raises:
        RecordError: it tells of some arms only.
    """
    if run.provenance is None:
        return {}
    if sorted(run.provenance) != sorted(run.arguments):
        raise RecordError("the run does not tell for each arm what its repository holds")
    brought = frozenset(digest for one in run.inputs for digest in one.files.values())
    acting = plugins.inside(run)
    return {
        arm: Source(
            declared=frozenset(facts.declared),
            files=facts.files,
            inputs=brought,
            plugins=acting,
            named=frozenset(environments[arm].named) if arm in environments else (),
            installed=scenario.subject.of == "installed",
        )
        for arm, facts in run.provenance.items()
    }


def demand_lists(judgement: Judgement, read: Callable[[str], bytes], names: Collection[str]) -> None:
    """Refuse lists of what ranks had loaded that are not those that their events name.

    Raises:
        RecordError: one is missing, changed, or of no rank.
    """
    listed = {
        path_of(digest)
        for cell in judgement.cells
        if cell.ran is not None
        for digests in cell.ran.lists.values()
        for digest in digests
    }
    there = {name for name in names if name.startswith(f"{FOLDER}/")}
    if odd := sorted(listed ^ there):
        raise RecordError(f"{odd[0]} is {'missing' if odd[0] in listed else 'of no rank'}")
    for name in sorted(there):
        if path_of(sha256(read(name))) != name:
            raise RecordError(f"{name} is not what its rank listed")
