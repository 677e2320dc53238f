"""Arrays that ranks keep: compared by the harness, kept as evidence, judged again with NumPy and without it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.reason import DeviationCode
from harness.record.artefacts import FOLDER
from harness.run import artefacts
from harness.trust.key import find_signer
from tests import forge
from tests.run.conftest import ROOT, Ran, environment, run_command

pytestmark = pytest.mark.slow

SUBJECT = """
import numpy as np

def add(context, *, stale):
    total = np.arange(12.0, dtype="float32").reshape(3, 4)
    if stale and context.rank:
        total[1, 2] += 0.5
    context.keep("total", total)
    context.keep("note", b"rank %d" % context.rank)
"""
SCENARIO = """
schema: 1
id: sums
title: Every rank has the sum
question: Does every rank hold the same sum?
subject:
  entry: subject:add
  candidate: {with: {stale: false}}
  control:
    with: {stale: true}
    must_fail: {check: same, ranks: [1]}
matrix: {ranks: [2], backend: [none]}
world: {deadline: 30s}
seed: "7"
trials: {candidate: 5, control: 5, accept: {failure_rate_below: 50%}}
checks:
  - {id: same, kind: close, ranks: nonzero, artefact: total, against: 0, atol: 0.25}
"""
BARE = """
import sys, importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numpy" else found(name, *rest)
from harness.cli import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sums")


@pytest.fixture(scope="module")
def ran(place: Path) -> Ran:
    """One run of it."""
    folder = place / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "subject.py").write_text(SUBJECT)
    return run_command(place, "run", str(folder))


def events(ran: Ran, trial: str, name: str) -> list[dict[str, Any]]:
    lines = (ran.folder / f"evidence/ranks-2-backend-none/{trial}/events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["name"] == name]


def signer(place: Path) -> Path:
    return place / "home/.local/share/rankproof/signing_key"


def test_the_control_s_array_differs_and_the_report_says_where(ran: Ran) -> None:
    """The worst pair, its place and the limit stand in the signed report; the arrays lie there once each."""
    assert ran.code == 0, ran.out + ran.err
    report = (ran.folder / "report.md").read_text()
    assert "off by 0.5 at \\[1, 2\\] (1 of 12 beyond atol 0.25): 6.5, expected 6" in report
    assert "12 of 12 elements equal" in report
    kept = sorted(path.name for path in (ran.folder / FOLDER).iterdir())
    assert len(kept) == 4  # two arrays and two notes, of ten trials
    found = events(ran, "control-00000", "artefact.found")
    assert [(one["rank"], one["values"]["artefact"]) for one in found] == [
        (0, "note"),
        (0, "total"),
        (1, "note"),
        (1, "total"),
    ]
    values = found[3]["values"]
    assert (values["dtype"], values["shape"], values["stored"]) == ("float32", [3, 4], True)
    assert np.load(ran.folder / FOLDER / f"{values['sha256']}.npy")[1, 2] == 6.5


def test_it_is_judged_again_with_numpy_and_without(ran: Ran, place: Path) -> None:
    """The verifier says which was done; without NumPy the comparison that the events hold is judged."""
    arguments = [
        "verify",
        str(ran.folder / "report.md"),
        "--signer",
        find_signer(explicit=str(signer(place))).fingerprint,
    ]
    whole = run_command(place, *arguments)
    assert (whole.code, "10 comparisons of arrays worked out again" in whole.out) == (0, True), whole.out
    bare = subprocess.run(
        [sys.executable, "-c", BARE, *arguments],
        cwd=ROOT,
        env=environment(place / "home"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert bare.returncode == 0, bare.stdout + bare.stderr
    assert "10 judged by what the events hold of them (numpy is not installed here" in bare.stdout


def array(folder: Path, trial: str) -> tuple[Path, dict[str, Any]]:
    """The file of rank 1's array in a trial, and the event that tells of it."""
    lines = (folder / f"evidence/ranks-2-backend-none/{trial}/events.jsonl").read_text().splitlines()
    values = next(
        event["values"]
        for event in map(json.loads, lines)
        if event["name"] == "artefact.found" and event["rank"] == 1 and event["values"]["artefact"] == "total"
    )
    return folder / FOLDER / f"{values['sha256']}.npy", values


def changed_array(folder: Path) -> None:
    path, _ = array(folder, "control-00000")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def renamed_array(folder: Path) -> None:
    """The array of the candidate in the place of the control's, under the name that the events give."""
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
    edit(folder, "control-00000", "artefact.compared", lambda values: values["comparison"]["worst"].update(found=6.25))


def nothing_beyond(folder: Path) -> None:
    edit(folder, "control-00000", "artefact.compared", lambda values: values["comparison"].update(beyond=0))


def other_arrays_compared(folder: Path) -> None:
    _, values = array(folder, "candidate-00000")
    edit(folder, "control-00000", "artefact.compared", lambda stated: stated.update(found=values["sha256"]))


def no_difference(folder: Path) -> None:
    """All that the events hold of the comparison is taken from a trial that passed."""
    same = next(
        json.loads(line)["values"]
        for line in (folder / "evidence/ranks-2-backend-none/candidate-00000/events.jsonl").read_text().splitlines()
        if json.loads(line)["name"] == "artefact.compared"
    )
    edit(folder, "control-00000", "artefact.compared", lambda values: values.update(comparison=same["comparison"]))


@pytest.mark.parametrize("forgery", [changed_array, renamed_array, missing_array, added_array, smaller_difference])
def test_a_changed_array_or_comparison_is_refused_under_a_good_signature(
    ran: Ran, place: Path, tmp_path: Path, forgery: Any
) -> None:
    """Whoever signs it again: the arrays give another comparison, or are not what the events name."""
    refused(ran, place, tmp_path, forgery)


@pytest.mark.parametrize("forgery", [nothing_beyond, other_arrays_compared, no_difference])
def test_a_comparison_of_other_arrays_is_refused(ran: Ran, place: Path, tmp_path: Path, forgery: Any) -> None:
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


def lines_changed(folder: Path, arm: str, change: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> None:
    """Put other events in the place of each event of an arm's trials."""
    for path in folder.glob(f"evidence/*/{arm}-*/events.jsonl"):
        made = [one for line in path.read_text().splitlines() for one in change(json.loads(line))]
        path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in made))


def not_compared(folder: Path) -> None:
    """A control that held would seem to fail: what is not compared is not close."""
    lines_changed(folder, "control", lambda event: [] if event["name"] == "artefact.compared" else [event])


def compared_twice(folder: Path) -> None:
    """The first says what the signer likes, the second is what the arrays give."""
    lines_changed(folder, "candidate", lambda event: [event] * (1 + (event["name"] == "artefact.compared")))


def found_twice(folder: Path) -> None:
    lines_changed(folder, "candidate", lambda event: [event] * (1 + (event["name"] == "artefact.found")))


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
    """Of the same number of elements, in every event that tells of the file, the comparison's too."""

    def reshape(event: dict[str, Any]) -> list[dict[str, Any]]:
        values = event["values"]
        for key in values.keys() & {"shape", "expected_shape"}:
            values[key] = [4, 3]
        return [event]

    for arm in ("candidate", "control"):
        lines_changed(folder, arm, reshape)


@pytest.mark.parametrize("without_numpy", [False, True])
@pytest.mark.parametrize(
    "forgery",
    [
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
    """Whoever worked record and report out again from them, and whether the verifier has NumPy or not."""
    folder = tmp_path / ran.folder.parent.name / ran.folder.name
    shutil.copytree(ran.folder, folder)
    forgery(folder)
    forge.work_out(folder)
    forge.sign(folder, signer(place))
    program = ["-c", BARE] if without_numpy else ["-m", "harness.cli"]
    fingerprint = find_signer(explicit=str(signer(place))).fingerprint
    found = subprocess.run(
        [sys.executable, *program, "verify", str(folder / "report.md"), "--signer", fingerprint],
        cwd=ROOT,
        env=environment(place / "home"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, "JUDGED DIFFERENTLY" in found.stdout) == (3, True), found.stdout + found.stderr
    assert "results.json" not in found.stdout  # refused for what the evidence is, not for a record that differs


HOSTILE = """
import os, numpy as np
from pathlib import Path

def add(context, *, stale):
    kept = context._kept
    if stale and context.rank:
        context.keep("total", np.ones(3))
        (kept / "total.npy").write_bytes(b"changed after it was kept")
        return
    os.mkfifo(kept / "pipe.npy")
    os.symlink("/etc/passwd", kept / "link.bin")
    (kept / "NOT A NAME").write_bytes(b"")
    (kept / "sub.npy").mkdir()
    (kept / "cut.npy").write_bytes(b"\\x93NUMPY")
    with (kept / "hole.bin").open("wb") as file:
        file.truncate(1 << 40)
    np.save(kept / "objects.npy", np.array([{}]), allow_pickle=True)
    for number in range(300):
        (kept / f"zz{number:03}.bin").write_bytes(b"")
    context.keep("total", np.ones(3))
"""


def linked(place: Path) -> Path:
    """A rank's folder that is another rank's."""
    (place / "rank-0").mkdir()
    (place / "rank-0/total.bin").write_bytes(b"x")
    (place / "rank-1").symlink_to("rank-0")
    return place / "rank-1"


@pytest.mark.whole
def test_a_rank_s_folder_is_not_trusted(place: Path, tmp_path: Path) -> None:
    """Pipes, links, holes, objects and cut files are told, and neither waited for nor followed nor unpickled."""
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "subject.py").write_text(HOSTILE)
    ran = run_command(tmp_path, "run", str(folder))
    assert ran.code == 0, ran.out + ran.err
    why = {
        one["values"].get("file"): one["values"].get("why") for one in events(ran, "candidate-00000", "artefact.found")
    }
    assert why["pipe.npy"] == why["link.bin"] == why["sub.npy"] == "it is not a regular file"
    assert why["cut.npy"] == "it is not a file of NumPy's format (.npy)"
    assert "the limit is" in why["hole.bin"]
    assert "its dtype is |O" in why["objects.npy"]
    assert why["NOT A NAME"].startswith("it is not named as an artefact")
    assert why[""] == "the rank left 308 files, of which 256 are looked at"
    assert why["total.npy"] is None
    found = artefacts.look(linked(tmp_path))
    assert [one.values for one in found] == [{"file": "", "why": "the rank's folder is a link"}]
    report = (ran.folder / "report.md").read_text()
    assert "total was not kept: total.npy: it is not a file of NumPy's format" in report


@pytest.mark.whole
def test_what_is_beyond_the_budget_is_compared_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a trial and of a run the evidence holds so many bytes; the rest is known by digest and comparison."""
    big = SUBJECT.replace("np.arange(12.0", "np.arange(12.0 * (1 << 20)").replace("reshape(3, 4)", "reshape(3, -1)")
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "subject.py").write_text(big)
    ran = run_command(tmp_path, "run", str(folder))
    assert ran.code == 0, ran.out + ran.err
    found = [one["values"] for one in events(ran, "control-00000", "artefact.found")]
    assert all(one["bytes"] > artefacts.PER_TRIAL for one in found if one["artefact"] == "total")
    assert [one["stored"] for one in found] == [True, False, True, False]
    assert "off by 0.5 at \\[1, 2\\] (1 of 12582912 beyond" in (ran.folder / "report.md").read_text()
    fingerprint = find_signer(explicit=str(tmp_path / "home/.local/share/rankproof/signing_key")).fingerprint
    verified = run_command(tmp_path, "verify", str(ran.folder / "report.md"), "--signer", fingerprint)
    assert verified.code == 0, verified.out
    assert "10 judged by what the events hold of them (an array is not in the evidence)" in verified.out


@pytest.mark.whole
@pytest.mark.parametrize(
    ("slip", "why"),
    [
        ("if not context.rank and stale: return", "total was not kept, by rank 0"),
        ("total = total.astype('float64' if context.rank and stale else 'float32')", "its dtype is float64"),
        ("total = total if not (stale and context.rank) else b'bytes'", "total.bin holds bytes, not an array"),
    ],
)
def test_a_control_in_which_nothing_was_compared_did_not_fail_as_stated(tmp_path: Path, slip: str, why: str) -> None:
    """A slip of its author, which says nothing of how far apart the arrays are: INCONCLUSIVE, with the reason."""
    subject = SUBJECT.replace("total[1, 2] += 0.5", "pass").replace(
        "    context.keep(", f"    {slip}\n    context.keep(", 1
    )
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "subject.py").write_text(subject)
    ran = run_command(tmp_path, "run", str(folder))
    assert ran.code == 2, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert cell.control is not None
    assert [(one.code, why in one.text) for one in cell.control.otherwise] == [(DeviationCode.NOT_COMPARED, True)]


def test_a_world_of_one_is_not_compared_with_itself(tmp_path: Path) -> None:
    """Said before anything runs."""
    folder = tmp_path / "scenario"
    folder.mkdir()
    scenario = SCENARIO.replace("ranks: [2]", "ranks: [1, 2]").replace(
        "ranks: nonzero, artefact", "ranks: every, artefact"
    )
    (folder / "scenario.yaml").write_text(scenario.replace("ranks: [1]}\n", "ranks: every}\n"))
    (folder / "subject.py").write_text(SUBJECT)
    linted = run_command(tmp_path, "lint", str(folder))
    assert "checks[0].against: is the only rank of a world of one" in linted.out + linted.err
