"""A matrix of real runs: killed again and again, resumed, counted once, and refused where a count
was changed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.forms import manifest
from harness.forms.digest import sha256
from harness.record.model import PATH
from harness.series.matrix import MatrixSeries
from harness.series.matrix.catalogue import CASES
from harness.series.matrix.facts import PATH as FACTS
from harness.series.matrix.record import MatrixRecord
from harness.series.matrix.report import FIGURE, draw, render
from harness.series.replay import SeriesReplay
from harness.trust import footer
from harness.trust.folder import verify_folder
from harness.trust.key import Signer, find_signer
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import NAMESPACE_REPORT
from harness.trust.verification import Verification
from tests.kit.commands import ROOT

pytestmark = pytest.mark.whole
ASKED = ("--only", "perturb/plain", "--only", "perturb/text", "--backend", "gloo", "--seeds", "2")
# What is printed before it is killed: a part is being made, one was kept, the other one is being
# made.
MOMENTS = ("1/2 perturb-gloo-00 ...", "1/2 perturb-gloo-00 kept", "2/2 perturb-text-gloo-00 ...")


def command(*words: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "harness.cli", "lab", "matrix", *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, key: Path) -> Path:
    """A matrix of two cells, killed with SIGKILL at every moment of MOMENTS, and gone on with each
    time.
    """
    results = tmp_path_factory.mktemp("results")
    common = ("--results", str(results), "--key", str(key))
    words = (*ASKED, *common)
    for moment in MOMENTS:
        process = command(*words)
        assert process.stdout is not None
        with process:
            assert any(moment in line for line in process.stdout), moment
            os.kill(process.pid, signal.SIGKILL)
        (unfinished,) = (results / "matrix").glob("*.unfinished")
        words = ("--resume", str(unfinished), *common)
    process = command(*words)
    told, _ = process.communicate()
    assert process.returncode == 0, told
    assert "1 of them already done" in told
    (folder,) = (
        path for path in (results / "matrix").iterdir() if path.is_dir() and not path.is_symlink()
    )
    return folder


def verified(folder: Path, key: Path) -> Verification:
    public = key.with_suffix(".pub").read_text().split()
    allowed = f'me namespaces="report@rankproof" {public[0]} {public[1]}\n'.encode()
    policy = SignerPolicy(allowed=allowed, allowed_from="test")
    return verify_folder(folder / "report.md", policy=policy, replay=SeriesReplay(MatrixSeries()))


def forged(made: Path, place: Path, key: Path, *, record: MatrixRecord) -> Path:
    """A copy in which the record is another one, and all that is made of it fits, signed by the key
    of the matrix.
    """
    folder = place / "forged"
    if not folder.exists():
        shutil.copytree(made, folder)
    (folder / FACTS).write_text(record.facts.model_dump_json(indent=1) + "\n")
    (folder / PATH).write_bytes(record.encode())
    (folder / FIGURE).write_bytes(draw(record))
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    listed = {
        name: sha256((folder / name).read_bytes())
        for name in names
        if name not in ("report.md", manifest.NAME)
    }
    listing = manifest.encode(listed)
    (folder / manifest.NAME).write_bytes(listing)
    body = render(record, manifest_digest=sha256(listing))
    signer: Signer = find_signer(explicit=str(key))
    report = footer.attach(body, signer.sign(footer.signed_part(body), NAMESPACE_REPORT))
    (folder / "report.md").write_bytes(report)
    return folder


def test_the_shipped_matrix_is_what_its_page_says() -> None:
    """No cell fell short, and the page has the figures of the report.

    Its plan demands texts of messages, so rendering it again after a message was reworded can make
    cells fall short.
    """
    folder = ROOT / "docs" / "matrix-report"
    record = record_of(folder / "every-kind")
    assert [(cell.case, cell.lacking) for cell in record.cells if cell.lacking] == []
    assert record.verdict == "PASS"
    ran = [cell for cell in record.cells if cell.verdict != "SKIPPED"]
    faults = sum(cell.injected for cell in ran)
    kinds = len({cell.kind for cell in ran})
    clean = sum(cell.clean for cell in ran)
    page = " ".join((folder / "README.md").read_text().split())
    assert f"injected {faults} faults of {kinds} kinds: all {len(ran)} cells were right" in page
    assert f"no false alarm in {clean} clean trials" in page


@pytest.mark.long
def test_checks_say_what_a_case_demands(tmp_path: Path, key: Path) -> None:
    """The message of each check that a case demands a text of contains that text."""
    demanding = sorted({case.name for case in CASES if case.says})
    asked = [
        word
        for case in CASES
        if case.says
        for word in ("--only", f"{case.kind}/{case.variant or 'plain'}")
    ]
    process = command(
        *asked, "--seeds", "1", "--results", str(tmp_path / "results"), "--key", str(key)
    )
    told, _ = process.communicate()
    record = record_of(tmp_path / "results" / "matrix" / "latest")
    assert sorted({cell.case for cell in record.cells}) == demanding
    assert [cell.lacking for cell in record.cells if cell.lacking] == [], told
    assert process.returncode == 0, told


def record_of(folder: Path) -> MatrixRecord:
    return MatrixRecord.decode((folder / PATH).read_bytes())


def test_a_matrix_that_was_killed_has_every_trial_once(made: Path, key: Path) -> None:
    """Killed while a part was made and right after one was kept: it ends with exactly the trials it
    was asked for.
    """
    record = record_of(made)
    assert [
        (cell.injected, cell.proved, cell.named, cell.clean, cell.alarms) for cell in record.cells
    ] == [(2, 2, 2, 2, 0)] * 2
    assert record.verdict == "PASS"
    assert not [path for path in made.parent.iterdir() if path.name not in (made.name, "latest")]
    found = verified(made, key)
    assert found.ok, found
    assert next(step.message for step in found.steps if step.name == "judged").endswith(
        "its plan matches this version"
    )


def test_a_count_that_was_changed_is_refused(made: Path, tmp_path: Path, key: Path) -> None:
    """Everything fits, the signature too; only the evidence of the parts says otherwise."""
    record = record_of(made)
    better = record.cells[0].model_copy(update={"injected": 100, "proved": 100, "named": 100})
    changed = record.model_copy(update={"cells": [better, record.cells[1]]})
    found = verified(forged(made, tmp_path, key, record=changed), key)
    assert found.word == "JUDGED DIFFERENTLY", found


def test_a_part_is_of_its_own_seeds_and_scenario(made: Path, tmp_path: Path, key: Path) -> None:
    """One part in the place of the other, or a part without its events, is refused."""
    record = record_of(made)
    first, second = (part.path for part in record.facts.parts)
    folder = forged(made, tmp_path, key, record=record)
    shutil.copy(folder / first, folder / second)
    found = verified(forged(made, tmp_path, key, record=record), key)
    assert (found.word, "ran a scenario that differs" in found.message) == (
        "JUDGED DIFFERENTLY",
        True,
    ), found
    (folder / second).write_bytes((made / second).read_bytes()[:-40])
    found = verified(forged(made, tmp_path, key, record=record), key)
    assert found.word == "JUDGED DIFFERENTLY", found


def test_a_case_that_was_left_out_is_refused_or_told(made: Path, tmp_path: Path, key: Path) -> None:
    """Whoever signs can leave out what fell short: refused, or if other code is named, the verifier
    says what lacks.
    """
    record = record_of(made)
    fewer = record.facts.model_copy(update={"parts": record.facts.parts[:1]})
    folder = forged(made, tmp_path, key, record=record)
    (folder / record.facts.parts[1].path).unlink()
    less = record.model_copy(update={"facts": fewer, "cells": record.cells[:1]})
    found = verified(forged(made, tmp_path, key, record=less), key)
    assert (found.word, "it lacks perturb-text-gloo-00" in found.message) == (
        "JUDGED DIFFERENTLY",
        True,
    ), found
    other = less.model_copy(update={"facts": fewer.model_copy(update={"code": "0" * 64})})
    found = verified(forged(made, tmp_path, key, record=other), key)
    judged = next(step.message for step in found.steps if step.name == "judged")
    assert (
        "its plan differs from the plan of this version: it lacks perturb-text-gloo-00" in judged
    ), found


def test_it_goes_on_only_with_what_it_was_begun_with(made: Path, tmp_path: Path, key: Path) -> None:
    """Another code, no whole plan, or a folder of something else: said in one line, and nothing is
    changed.
    """
    place = tmp_path / "matrix" / "20261122T000000Z-00000000.unfinished"
    (place / FACTS).parent.mkdir(parents=True)
    facts = json.loads((made / FACTS).read_text())
    for text, why in (
        (json.dumps({**facts, "code": "0" * 64}), "started with a different version of the code"),
        ("{", "missing or damaged"),
    ):
        (place / FACTS).write_text(text)
        done = _resumed(place, key)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    done = _resumed(made, key)
    assert (
        done.returncode,
        "not the folder of an unfinished `rankproof lab matrix`" in done.stderr,
    ) == (
        2,
        True,
    ), done.stderr


def test_what_was_begun_with_a_key_makes_no_other(made: Path, tmp_path: Path) -> None:
    """Who has not the key that a matrix was begun with is told so, and no key is made: it could not
    be that one.
    """
    place = tmp_path / "matrix" / "20261122T000000Z-00000000.unfinished"
    home = tmp_path / "home"
    (place / FACTS).parent.mkdir(parents=True)
    home.mkdir()
    shutil.copy(made / FACTS, place / FACTS)
    environ = {
        **os.environ,
        "HOME": str(home),
        "XDG_DATA_HOME": str(home),
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    environ.pop("RANKPROOF_SIGNING_KEY", None)
    line = [sys.executable, "-m", "harness.cli", "lab", "matrix", "--resume", str(place)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, "resume it in the same way" in done.stderr) == (2, True), done.stderr
    assert [path.name for path in home.rglob("*key*")] == []


def _resumed(place: Path, key: Path) -> subprocess.CompletedProcess[str]:
    line = [
        sys.executable,
        "-m",
        "harness.cli",
        "lab",
        "matrix",
        "--resume",
        str(place),
        "--key",
        str(key),
    ]
    return subprocess.run(line, capture_output=True, text=True, check=False)
