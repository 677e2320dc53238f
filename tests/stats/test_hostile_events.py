"""A rank may report anything: nothing of it stops the judge."""

from __future__ import annotations

import pytest

from harness.forms.strict_json import JSON
from harness.reason import VerdictCode
from harness.scenario import cells
from harness.stats.outcome import EVENTS, CellFacts, trial_folder
from harness.stats.verdict import judge
from tests.kit.histories import healthy
from tests.stats.test_verdict import ARMS, broken, scenario


@pytest.mark.parametrize(
    "modules", [[1], [None], ["subject.py"], [[]], [{"file": ["subject.py"]}], [{"file": {}}]]
)
def test_a_list_of_modules_that_is_none_proves_no_code(modules: list[JSON]) -> None:
    """A module without a file, or whose file is no path, is not the arm's."""
    asked = scenario(candidate=1, control=1)
    cell = cells(asked)[0]
    loaded = [
        event._replace(values={**event.values, "modules": modules})
        if event.name == "subject.loaded"
        else event
        for event in healthy()
    ]
    assert any(event.name == "subject.loaded" for event in loaded)
    files = {
        f"{trial_folder(cell.slug, arm, 0)}/{EVENTS}": "".join(
            event.line() + "\n" for event in events
        ).encode()
        for arm, events in (("candidate", loaded), ("control", broken()))
    }
    judgement = judge(
        asked,
        [(cell, CellFacts(id=cell.id, skipped=None, candidate=1, control=1))],
        arms=ARMS,
        read=lambda name: files.get(name, b""),
        names=files,
    )
    reasons = judgement.cells[0].reasons
    assert VerdictCode.CODE_NOT_PROVED in {reason.code for reason in reasons}
