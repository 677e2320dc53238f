"""Scenarios that leave to the command line which two revisions they compare."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.scenario import LoadedScenario, ScenarioError, load_scenario

SCENARIO = """\
schema: 1
id: two-releases
title: Two releases
question: Do they differ?
subject:
  entry: subject:check
  candidate: {CANDIDATE}
  control: {CONTROL must_fail: {check: ran, ranks: every}}
matrix: {ranks: [2], backend: [none]}
checks: [{id: ran, kind: event, ranks: every, event: ran}]
"""
SAME = "runs the same code with the same arguments as the candidate"


def loaded(
    folder: Path, *overrides: str, candidate: str = "", control: str = "", subject: str = ""
) -> LoadedScenario:
    text = SCENARIO.replace("CANDIDATE", candidate).replace("CONTROL", control and f"{control},")
    (folder / "scenario.yaml").write_text(
        text.replace("entry: subject:check", subject or "entry: subject:check")
    )
    return load_scenario(folder, overrides=overrides)


@pytest.mark.parametrize("both", ["", "with: {steps: 4}", "repo: ../other"])
def test_arms_without_revisions_are_a_note_that_says_what_a_run_needs(
    both: str, tmp_path: Path
) -> None:
    """Such a scenario loads; that its arms are alike is told at the control, with the options that
    set them apart.
    """
    one = loaded(tmp_path, candidate=both, control=both)
    assert one.lacks_revisions
    (note,) = [note for note in one.notes if note.key == "subject.control"]
    assert (note.kind, note.line) == ("note", 8)
    assert note.message.startswith(
        f"{SAME}. Such a scenario is SKIPPED unless a run names two"
        " revisions (--candidate and --control)"
    )


@pytest.mark.parametrize("arm", ["candidate", "control"])
def test_a_revision_on_the_command_line_is_all_it_lacks(arm: str, tmp_path: Path) -> None:
    """With a revision for one arm or both nothing is left to say of them."""
    one = loaded(tmp_path, f"subject.{arm}.rev=v1")
    assert not one.lacks_revisions
    assert all(note.key != "subject.control" for note in one.notes)


@pytest.mark.parametrize(
    ("both", "subject"),
    [
        ("rev: v1", ""),
        ("patch: fix.patch", ""),
        ("file: other.py", ""),
        ('environment: {packages: {it: "1.0"}}', ""),
        ("", "use: torch-allreduce"),
        ("", "entry: subject:check\n  of: installed"),
    ],
)
def test_what_was_to_set_the_arms_apart_and_does_not_is_a_mistake(
    both: str, subject: str, tmp_path: Path
) -> None:
    """Two arms of one revision, patch, file or environment, and code that has no revisions, are
    refused as before.
    """
    with pytest.raises(ScenarioError) as caught:
        loaded(tmp_path, candidate=both, control=both, subject=subject)
    assert [one.key for one in caught.value.problems if one.message.startswith(SAME)] == [
        "subject.control"
    ]
    assert all(one.kind == "error" for one in caught.value.problems if one.message.startswith(SAME))


def test_arms_that_differ_lack_nothing(tmp_path: Path) -> None:
    """Arguments are a difference of their own."""
    assert not loaded(
        tmp_path, candidate="with: {steps: 4}", control="with: {steps: 5}"
    ).lacks_revisions
