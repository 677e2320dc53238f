"""Arrays that ranks keep: compared by the harness, kept as evidence, judged again with NumPy and
without it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.reason import DeviationCode
from harness.record.artefacts import FOLDER
from harness.run import artefacts
from harness.trust.key import find_signer
from tests.kit.commands import ROOT, Ran, environment, run_command
from tests.kit.sums import BARE, SCENARIO, SUBJECT, events, signer

pytestmark = pytest.mark.slow


@pytest.fixture
def ran(sums: Ran) -> Ran:
    """One run of it."""
    return sums


@pytest.fixture
def place(sums: Ran) -> Path:
    """Where it was made."""
    return sums.results.parent


def test_the_control_s_array_differs_and_the_report_says_where(ran: Ran) -> None:
    """The worst pair, its place and the limit stand in the signed report.

    The arrays lie there once each.
    """
    assert ran.code == 0, ran.out + ran.err
    report = (ran.folder / "report.md").read_text()
    assert (
        "found 6.5, expected 6 (off by 0.5 at \\[1, 2\\]; 1 of 12 elements beyond atol 0.25)"
        in report
    )
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
    """The verifier says which was done.

    Without NumPy the comparison that the events hold is judged.
    """
    arguments = [
        "verify",
        str(ran.folder / "report.md"),
        "--signer",
        find_signer(explicit=str(signer(place))).fingerprint,
    ]
    whole = run_command(place, *arguments)
    assert (whole.code, "10 array comparisons repeated" in whole.out) == (
        0,
        True,
    ), whole.out
    bare = subprocess.run(
        [sys.executable, "-c", BARE, *arguments],
        cwd=ROOT,
        env=environment(place / "home"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert bare.returncode == 0, bare.stdout + bare.stderr
    assert "10 judged from their events only (numpy is not installed" in bare.stdout


FEWEST = ("candidate: 5, control: 5", "candidate: 1, control: 1")
"""Enough trials where the verdict is INCONCLUSIVE whatever their number."""
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
    context.keep("total", np.ones(3))
"""


def crowded(place: Path) -> Path:
    """A rank's folder with more files than are read."""
    folder = place / "crowded"
    folder.mkdir()
    for number in range(artefacts.MANY + 8):
        (folder / f"zz{number:04}.bin").touch()
    return folder


def linked(place: Path) -> Path:
    """A rank's folder that is another rank's."""
    (place / "rank-0").mkdir()
    (place / "rank-0/total.bin").write_bytes(b"x")
    (place / "rank-1").symlink_to("rank-0")
    return place / "rank-1"


@pytest.mark.whole
def test_a_rank_s_folder_is_not_trusted(place: Path, tmp_path: Path) -> None:
    """Pipes, links, holes, objects and cut files are told, and neither waited for nor followed nor
    unpickled.
    """
    folder = tmp_path / "scenario"
    folder.mkdir()
    # What is no array was not kept.
    gone = SCENARIO.replace("ranks: [1]}", "ranks: [1], missing: true}")
    (folder / "scenario.yaml").write_text(gone)
    (folder / "subject.py").write_text(HOSTILE)
    ran = run_command(tmp_path, "run", str(folder))
    assert ran.code == 0, ran.out + ran.err
    why = {
        one["values"].get("file"): one["values"].get("why")
        for one in events(ran, "candidate-00000", "artefact.found")
    }
    assert why["pipe.npy"] == why["link.bin"] == why["sub.npy"] == "it is not a regular file"
    assert why["cut.npy"] == "it is not in NumPy's .npy format"
    assert "the limit is" in why["hole.bin"]
    assert "its dtype is |O" in why["objects.npy"]
    assert why["NOT A NAME"].startswith("its name is not a valid artefact name")
    assert why["total.npy"] is None
    found = list(artefacts.look(crowded(tmp_path)))
    assert (len(found), found[-1].values["why"]) == (
        8193,
        "the rank left 8200 files, but only 8192 are read",
    )
    found = artefacts.look(linked(tmp_path))
    assert [one.values for one in found] == [{"file": "", "why": "the rank's folder is a link"}]
    report = (ran.folder / "report.md").read_text()
    assert "total was not kept: total.npy: it is not in NumPy's .npy format" in report


@pytest.mark.long
def test_what_is_beyond_the_budget_is_compared_and_not_kept(tmp_path: Path) -> None:
    """Of a trial and of a run the evidence holds so many bytes.

    The rest is known by digest and comparison.
    """
    big = SUBJECT.replace("np.arange(12.0", "np.arange(12.0 * (1 << 20)").replace(
        "reshape(3, 4)", "reshape(3, -1)"
    )
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO.replace("control: 5", "control: 2"))
    (folder / "subject.py").write_text(big)
    ran = run_command(tmp_path, "run", str(folder))
    assert ran.code == 0, ran.out + ran.err
    found = [one["values"] for one in events(ran, "control-00000", "artefact.found")]
    assert all(one["bytes"] > artefacts.PER_TRIAL for one in found if one["artefact"] == "total")
    assert [one["stored"] for one in found] == [True, False, True, False]
    report = (ran.folder / "report.md").read_text()
    assert "(off by 0.5 at \\[1, 2\\]; 1 of 12582912 beyond" in report
    assert "artefacts of ranks are not in the evidence, because its size is limited" in report
    fingerprint = find_signer(
        explicit=str(tmp_path / "home/.local/share/rankproof/signing_key")
    ).fingerprint
    verified = run_command(
        tmp_path, "verify", str(ran.folder / "report.md"), "--signer", fingerprint
    )
    assert verified.code == 0, verified.out
    assert "7 judged from their events only (an array is not in the evidence)" in verified.out


@pytest.mark.whole
@pytest.mark.parametrize(
    ("slip", "why"),
    [
        ("if not context.rank and stale: return", "total was not kept, by rank 0"),
        (
            "total = total.astype('float64' if context.rank and stale else 'float32')",
            "its dtype is float64",
        ),
        (
            "total = total if not (stale and context.rank) else b'bytes'",
            "total.bin contains bytes, not an array",
        ),
    ],
)
def test_a_control_in_which_nothing_was_compared_did_not_fail_as_stated(
    tmp_path: Path, slip: str, why: str
) -> None:
    """A slip of its author, which says nothing of how far apart the arrays are: INCONCLUSIVE, with
    the reason.
    """
    subject = SUBJECT.replace("total[1, 2] += 0.5", "pass").replace(
        "    context.keep(", f"    {slip}\n    context.keep(", 1
    )
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO.replace(*FEWEST))
    (folder / "subject.py").write_text(subject)
    ran = run_command(tmp_path, "run", str(folder))
    assert ran.code == 2, ran.out + ran.err
    (cell,) = ran.record.judgement.cells
    assert cell.control is not None
    assert [(one.code, why in one.text) for one in cell.control.otherwise] == [
        (DeviationCode.NOT_COMPARED, True)
    ]


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
