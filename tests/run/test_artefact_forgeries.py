"""Arrays, comparisons and events changed by who signs them again: refused, with NumPy and without
it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.record.artefacts import FOLDER
from harness.trust.key import find_signer
from tests.kit import forge
from tests.kit.commands import ROOT, Ran, environment, run_command
from tests.kit.sums import BARE, signer

pytestmark = [pytest.mark.slow, pytest.mark.whole]  # several runs, verified and forged


@pytest.fixture
def ran(sums: Ran) -> Ran:
    """One run of it."""
    return sums


@pytest.fixture
def place(sums: Ran) -> Path:
    """Where it was made."""
    return sums.results.parent


def array(folder: Path, trial: str) -> tuple[Path, dict[str, Any]]:
    """The file of rank 1's array in a trial, and the event that tells of it."""
    lines = (
        (folder / f"evidence/ranks-2-backend-none/{trial}/events.jsonl").read_text().splitlines()
    )
    values = next(
        event["values"]
        for event in map(json.loads, lines)
        if event["name"] == "artefact.found"
        and event["rank"] == 1
        and event["values"]["artefact"] == "total"
    )
    return folder / FOLDER / f"{values['sha256']}.npy", values


def changed_array(folder: Path) -> None:
    path, _ = array(folder, "control-00000")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def renamed_array(folder: Path) -> None:
    """The array of the candidate in the place of the control's, under the name that the events
    give.
    """
    path, _ = array(folder, "control-00000")
    shutil.copyfile(array(folder, "candidate-00000")[0], path)


def missing_array(folder: Path) -> None:
    array(folder, "control-00000")[0].unlink()


def added_array(folder: Path) -> None:
    content = b"x"
    (folder / FOLDER / f"{hashlib.sha256(content).hexdigest()}.bin").write_bytes(content)


def edit(folder: Path, trial: str, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / f"evidence/ranks-2-backend-none/{trial}/events.jsonl"
    lines = []
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if event["name"] == name:
            change(event["values"])
        lines.append(json.dumps(event, separators=(",", ":")))
    path.write_text("\n".join(lines) + "\n")


def smaller_difference(folder: Path) -> None:
    """A candidate that was too far off would be let through so."""
    edit(
        folder,
        "control-00000",
        "artefact.compared",
        lambda values: values["comparison"]["worst"].update(found=6.25),
    )


def nothing_beyond(folder: Path) -> None:
    edit(
        folder,
        "control-00000",
        "artefact.compared",
        lambda values: values["comparison"].update(beyond=0),
    )


def other_arrays_compared(folder: Path) -> None:
    _, values = array(folder, "candidate-00000")
    edit(
        folder,
        "control-00000",
        "artefact.compared",
        lambda stated: stated.update(found=values["sha256"]),
    )


def no_difference(folder: Path) -> None:
    """All that the events hold of the comparison is taken from a trial that passed."""
    same = next(
        json.loads(line)["values"]
        for line in (
            (folder / "evidence/ranks-2-backend-none/candidate-00000/events.jsonl")
            .read_text()
            .splitlines()
        )
        if json.loads(line)["name"] == "artefact.compared"
    )
    edit(
        folder,
        "control-00000",
        "artefact.compared",
        lambda values: values.update(comparison=same["comparison"]),
    )


@pytest.mark.parametrize(
    "forgery", [changed_array, renamed_array, missing_array, added_array, smaller_difference]
)
def test_a_changed_array_or_comparison_is_refused_under_a_good_signature(
    ran: Ran, place: Path, tmp_path: Path, forgery: Any
) -> None:
    """Whoever signs it again: the arrays give another comparison, or are not what the events
    name.
    """
    refused(ran, place, tmp_path, forgery)


@pytest.mark.parametrize("forgery", [nothing_beyond, other_arrays_compared, no_difference])
def test_a_comparison_of_other_arrays_is_refused(
    ran: Ran, place: Path, tmp_path: Path, forgery: Any
) -> None:
    """It contradicts itself, or what the arrays give."""
    refused(ran, place, tmp_path, forgery)


def refused(ran: Ran, place: Path, tmp_path: Path, forgery: Callable[[Path], None]) -> None:
    folder = tmp_path / ran.folder.parent.name / ran.folder.name
    shutil.copytree(ran.folder, folder)
    forgery(folder)
    forge.work_out(folder)
    forge.sign(folder, signer(place))
    fingerprint = find_signer(explicit=str(signer(place))).fingerprint
    found = run_command(place, "verify", str(folder / "report.md"), "--signer", fingerprint)
    words = ("JUDGED DIFFERENTLY", "EVIDENCE MISSING")
    assert (found.code, any(word in found.out for word in words)) == (3, True), found.out


def lines_changed(
    folder: Path, arm: str, change: Callable[[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    """Put other events in the place of each event of an arm's trials."""
    for path in folder.glob(f"evidence/*/{arm}-*/events.jsonl"):
        made = [one for line in path.read_text().splitlines() for one in change(json.loads(line))]
        path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in made))


def not_compared(folder: Path) -> None:
    """A control that held would seem to fail: what is not compared is not close."""
    lines_changed(
        folder, "control", lambda event: [] if event["name"] == "artefact.compared" else [event]
    )


def compared_twice(folder: Path) -> None:
    """The first says what the signer likes, the second is what the arrays give."""
    lines_changed(
        folder, "candidate", lambda event: [event] * (1 + (event["name"] == "artefact.compared"))
    )


def found_twice(folder: Path) -> None:
    lines_changed(
        folder, "candidate", lambda event: [event] * (1 + (event["name"] == "artefact.found"))
    )


def compared_unasked(folder: Path) -> None:
    """With rank 0, which the check does not ask."""
    pids: dict[int, int] = {}

    def more(event: dict[str, Any]) -> list[dict[str, Any]]:
        if event["name"] == "artefact.found":
            pids[event["rank"]] = event["pid"]
        asked = event["name"] != "artefact.compared"
        return [event] if asked else [{**event, "rank": 0, "pid": pids[0]}, event]

    lines_changed(folder, "candidate", more)


def unstored(event: dict[str, Any]) -> dict[str, Any]:
    values = {key: False if key == "stored" else value for key, value in event["values"].items()}
    return {**event, "values": values}


def not_stored(folder: Path) -> None:
    """There was room: what is left out cannot be compared again."""
    shutil.rmtree(folder / FOLDER)
    for arm in ("candidate", "control"):
        lines_changed(folder, arm, lambda event: [unstored(event)])


def other_shape(folder: Path) -> None:
    """Of the same number of elements, in every event that tells of the file, the comparison's
    too.
    """

    def reshape(event: dict[str, Any]) -> list[dict[str, Any]]:
        values = event["values"]
        for key in values.keys() & {"shape", "expected_shape"}:
            values[key] = [4, 3]
        return [event]

    for arm in ("candidate", "control"):
        lines_changed(folder, arm, reshape)


def no_needle(folder: Path) -> None:
    """That a tolerance was tried is left out."""
    lines_changed(
        folder, "candidate", lambda event: [] if event["name"] == "needles.tried" else [event]
    )


def needles_unasked(folder: Path) -> None:
    """Told of a control, whose arrays may be anything."""

    def more(event: dict[str, Any]) -> list[dict[str, Any]]:
        if event["name"] != "artefact.compared":
            return [event]
        values = {"check": "same", "expected": "a" * 64, "others": {}, "needles": {}}
        return [
            event,
            {**event, "name": "needles.tried", "rank": None, "pid": None, "values": values},
        ]

    lines_changed(folder, "control", more)


def needle_blunted(folder: Path) -> None:
    lines_changed(folder, "candidate", lambda event: [_with_needle(event, beyond=0, passes=True)])


def needle_sharpened(folder: Path) -> None:
    lines_changed(folder, "candidate", lambda event: [_with_needle(event, telling=11, beyond=11)])


def needle_of_another_array(folder: Path) -> None:
    lines_changed(
        folder, "candidate", lambda event: [_with_needle(event, what="rolled by 1 along axis 0")]
    )


def needle_of_a_larger_scale(folder: Path) -> None:
    """A control that is far off would count as teeth."""

    def scaled(event: dict[str, Any]) -> list[dict[str, Any]]:
        if event["name"] == "needles.tried":
            event["values"]["needles"]["scale"] = 1e9
        return [event]

    lines_changed(folder, "candidate", scaled)


def _with_needle(event: dict[str, Any], **change: Any) -> dict[str, Any]:
    if event["name"] == "needles.tried":
        event["values"]["needles"]["tried"][0].update(change)
    return event


@pytest.mark.parametrize(
    "forgery", [needle_blunted, needle_sharpened, needle_of_another_array, needle_of_a_larger_scale]
)
def test_needles_are_tried_again(
    ran: Ran, place: Path, tmp_path: Path, forgery: Callable[[Path], None]
) -> None:
    """What a check is said to make of a wrong array has to be what it makes of it."""
    folder = tmp_path / ran.folder.parent.name / ran.folder.name
    shutil.copytree(ran.folder, folder)
    forgery(folder)
    forge.work_out(folder)
    forge.sign(folder, signer(place))
    fingerprint = find_signer(explicit=str(signer(place))).fingerprint
    found = run_command(place, "verify", str(folder / "report.md"), "--signer", fingerprint)
    assert (
        found.code,
        "with changed arrays gives results that differ from the recorded ones" in found.out,
    ) == (
        3,
        True,
    ), found.out + found.err


def test_another_tolerance_is_that_of_other_trials(ran: Ran, place: Path, tmp_path: Path) -> None:
    """Events name the scenario that they are of: no tolerance can be changed afterwards."""
    folder = tmp_path / ran.folder.parent.name / ran.folder.name
    shutil.copytree(ran.folder, folder)
    scenario = folder / "evidence/scenario.yaml"
    scenario.write_text(scenario.read_text().replace("atol: 0.25", "atol: 0.5"))
    forge.work_out(folder)
    forge.sign(folder, signer(place))
    fingerprint = find_signer(explicit=str(signer(place))).fingerprint
    found = run_command(place, "verify", str(folder / "report.md"), "--signer", fingerprint)
    assert (found.code, "EVENTS OF ANOTHER TRIAL" in found.out) == (3, True), found.out + found.err


@pytest.mark.parametrize("without_numpy", [False, True])
@pytest.mark.parametrize(
    "forgery",
    [
        no_needle,
        needles_unasked,
        not_compared,
        other_arrays_compared,
        compared_twice,
        found_twice,
        compared_unasked,
        not_stored,
        other_shape,
    ],
)
def test_events_that_no_run_leaves_are_refused(
    ran: Ran, place: Path, tmp_path: Path, forgery: Callable[[Path], None], *, without_numpy: bool
) -> None:
    """Whoever worked record and report out again from them, and whether the verifier has NumPy or
    not.
    """
    folder = tmp_path / ran.folder.parent.name / ran.folder.name
    shutil.copytree(ran.folder, folder)
    forgery(folder)
    forge.work_out(folder)
    forge.sign(folder, signer(place))
    fingerprint = find_signer(explicit=str(signer(place))).fingerprint
    arguments = ["verify", str(folder / "report.md"), "--signer", fingerprint]
    if without_numpy:
        done = subprocess.run(
            [sys.executable, "-c", BARE, *arguments],
            cwd=ROOT,
            env=environment(place / "home"),
            capture_output=True,
            text=True,
            check=False,
        )
        found = Ran(done.returncode, done.stdout, done.stderr, place)
    else:
        found = run_command(place, *arguments)
    assert (found.code, "JUDGED DIFFERENTLY" in found.out) == (3, True), found.out + found.err
    # Refused for what the evidence is, not for a record that differs.
    assert "results.json" not in found.out
