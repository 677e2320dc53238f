"""A report of an earlier edition is judged as it was made, which is told; one of a later is not judged."""

from __future__ import annotations

import json

import pytest

from harness.record.assemble import assemble
from harness.record.facts import PATH
from harness.record.model import PATH as RECORD
from harness.record.model import RecordError, Unknown
from harness.report.figures import FOLDER as FIGURES
from harness.stats.unshown import EDITION, EDITION_OF_THE_KNOWN
from tests.forge import names
from tests.sample import SAMPLE, SCENARIO

FOLDER = SAMPLE / SCENARIO
EVIDENCE = [name for name in names(FOLDER) if name != RECORD and not name.startswith(FIGURES)]


OWN = json.loads((FOLDER / PATH).read_text())["edition"]


@pytest.mark.parametrize("edition", [1, OWN, EDITION + 1])
def test_an_edition_is_told_or_refused(edition: int) -> None:
    """Whoever claims an earlier one leaves sentences out, and whoever verifies hears it."""
    run = json.loads((FOLDER / PATH).read_text()) | {"edition": edition}
    said: list[str] = []

    def read(name: str) -> bytes:
        return json.dumps(run).encode() if name == PATH else (FOLDER / name).read_bytes()

    if edition > EDITION:
        with pytest.raises(Unknown, match=f"edition {edition}, and this version knows {EDITION}"):
            assemble(read, EVIDENCE)
        return
    assemble(read, EVIDENCE, described=said.append)
    assert any("edition 1" in one for one in said) == (edition == 1)


def test_an_edition_that_tells_more_cannot_be_claimed() -> None:
    """From edition 5 on a run tells which installed packages its repositories hold: one that does not is refused."""
    run = json.loads((FOLDER / PATH).read_text()) | {"edition": EDITION_OF_THE_KNOWN}
    for facts in run["provenance"].values():
        facts.pop("installed", None)

    def read(name: str) -> bytes:
        return json.dumps(run).encode() if name == PATH else (FOLDER / name).read_bytes()

    with pytest.raises(RecordError, match="does not tell which installed packages"):
        assemble(read, EVIDENCE)
