"""Results folders from strangers: found, left aside or refused, without believing or following
anything in them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

from harness.gate.basis import GateError
from tests.kit.pull_requests import Copy, Place, not_met, row

Make = Callable[[], Copy]


@pytest.mark.slow
def test_thousands_of_folders(place: Place, copy: Make) -> None:
    """Reports of other commits are left aside by what they say they are of, without being verified,
    and counted.
    """
    copy().sign()
    for number in range(1000):
        folder = place.results / "words" / f"other-{number}" / "evidence"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(f'{{"source": {{"commit": "{number:040x}"}}}}')
        (folder.parent / "report.md").write_text("# not read\n")
    found = place.gate()
    assert not_met(found) == {}
    assert "Not counted: 1000 reports for 1000 other commits." in found.notes


def test_folders_without_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """More folders than anybody has runs end the search, with what to do."""
    monkeypatch.setattr("harness.gate.reports.MOST_FOLDERS", 50)
    for number in range(60):
        (place.results / f"{number}").mkdir()
    with pytest.raises(GateError, match="pass the folders of individual runs or scenarios"):
        place.gate()


def test_links_are_not_followed(place: Place, copy: Make) -> None:
    """`latest` and any other link is not a second run, and a link to a run elsewhere is none at
    all.
    """
    made = copy().sign()
    (place.results / "words/latest").symlink_to(made.folder.name)
    (place.results / "latest").symlink_to(f"words/{made.folder.name}")
    elsewhere = place.repo.parent / "elsewhere"
    shutil.copytree(made.folder, elsewhere)
    (place.results / "stray").symlink_to(elsewhere)
    (place.results / "loop").symlink_to(place.results)
    found = place.gate()
    assert not_met(found) == {}
    assert [report.place for report in found.reports] == [str(made.folder)]
    # A link that the user names is the user's own.
    assert len(place.gate(place.results / "latest", made.folder).reports) == 1


def test_a_report_that_is_a_link(place: Place, copy: Make) -> None:
    """A report that is a link to another one is refused."""
    made = copy().sign()
    other = place.repo.parent / "report.md"
    made.report.rename(other)
    made.report.symlink_to(other)
    assert not_met(place.gate())["verified"] == "NOT VERIFIED"


def test_a_report_of_a_gigabyte(place: Place, copy: Make) -> None:
    """A report of 1 GB is refused without being read."""
    made = copy().sign()
    os.truncate(made.report, 10**9)
    found = place.gate()
    assert "NO REPORT" in row(found, "verified").reason
    assert "1000000000 bytes" in row(found, "verified").reason


def test_a_run_whose_facts_cannot_be_read(place: Place, copy: Make) -> None:
    """A run that does not say which commit it is of is verified, so refused: it may be the one that
    failed.
    """
    copy().sign()
    torn = copy().sign()
    os.truncate(torn.folder / "evidence/run.json", 100)
    assert not_met(place.gate()) == {"verified": "NOT VERIFIED"}


def test_facts_that_are_a_pipe(place: Place, copy: Make) -> None:
    """A pipe in the place of the facts is not waited for."""
    made = copy().sign()
    (made.folder / "evidence/run.json").unlink()
    os.mkfifo(made.folder / "evidence/run.json")
    assert not_met(place.gate())["verified"] == "NOT VERIFIED"


def test_unfinished_runs_are_named(place: Place, copy: Make) -> None:
    """A run that did not finish says nothing, and the note says that it is there."""
    copy().sign()
    (place.results / "words/x.unfinished/evidence").mkdir(parents=True)
    found = place.gate()
    assert not_met(found) == {}
    assert any("1 unfinished run," in note for note in found.notes)


def test_names_that_would_write_to_the_terminal(place: Place, copy: Make) -> None:
    """Control characters of a folder's name are shown as escapes."""
    made = copy().sign("mallory")
    made.folder.rename(made.folder.with_name("x\x1b[2J\u202ey"))
    reason = row(place.gate(), "verified").reason
    assert reason.isprintable()
    assert "\\x1b[2J" in reason


def test_no_folder(place: Place) -> None:
    """A results folder that is not there, or is a file, is a mistake of the caller, not an empty
    list of reports.
    """
    with pytest.raises(GateError, match="No such file"):
        place.gate(place.results / "nowhere")
    (place.results / "file").write_text("")
    with pytest.raises(GateError, match="not a folder"):
        place.gate(place.results / "file")
