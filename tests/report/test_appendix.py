"""The report is short, its appendix is part of what is signed, and neither can be exchanged."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.record.model import Record
from harness.report.appendix import appendix_blocks, evidence_among, render_appendix
from harness.report.issue import MOST_LINES, render_issue
from harness.report.markdown import render_markdown
from harness.report.report import render, report_blocks
from harness.report.summary import first_screen
from harness.report.terminal import render_terminal
from harness.run.replay import RecordReplay
from harness.trust.folder import verify_folder
from harness.trust.signers import SignerPolicy
from harness.trust.verification import Verification
from tests.kit import forge
from tests.kit.commands import SCENARIO, SUBJECT, run_command
from tests.kit.records import cell, record

DIGEST = "1" * 64
NARROW = 80
# Lines.
REPORT_MOST, CELL_MOST, SHOW_MOST, SCREEN_MOST = 150, 25, 80, 40


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A signed run of a toy with one cell, and the key that signed it."""
    place = tmp_path_factory.mktemp("short")
    key = place / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return run(place, SCENARIO, key), key


@pytest.fixture
def folder(made: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(made[0], tmp_path / "run")


def run(place: Path, text: str, key: Path) -> Path:
    scenario = place / "scenario"
    scenario.mkdir()
    (scenario / "scenario.yaml").write_text(text)
    (scenario / "subject.py").write_text(SUBJECT)
    ran = run_command(place, "run", str(scenario), "--key", str(key))
    assert ran.code == 0, ran.out + ran.err
    return ran.folder


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def verify(folder: Path) -> Verification:
    named = forge.signer_of(folder / "report.md")
    policy = SignerPolicy(fingerprints=(named,))
    return verify_folder(folder / "report.md", policy=policy, replay=RecordReplay())


@pytest.mark.whole
def test_a_report_is_short(made: tuple[Path, Path], tmp_path: Path) -> None:
    """Of one cell with its signature, and of each further cell; with the appendix inside it would
    not be.
    """
    folder, key = made
    one = lines(folder / "report.md")
    assert one <= REPORT_MOST
    assert one + lines(folder / "appendix.md") > REPORT_MOST
    several = run(tmp_path, SCENARIO.replace("ranks: [2]", "ranks: [2, 3, 4]"), key)
    further = (lines(several / "report.md") - one) / 2
    assert further <= CELL_MOST
    in_full = (lines(several / "appendix.md") - lines(folder / "appendix.md")) / 2
    assert in_full > CELL_MOST


@pytest.mark.slow
def test_what_a_terminal_shows_is_short(made: tuple[Path, Path]) -> None:
    """`show` is one screen, `show --all` is not, and the text for an issue has its limit."""
    place = made[0].parent
    wide = {"COLUMNS": str(NARROW)}
    shown = run_command(place, "show", str(made[0]), env=wide).out.splitlines()
    assert len(shown) <= SHOW_MOST
    assert (
        len(run_command(place, "show", str(made[0]), "--all", env=wide).out.splitlines())
        > SHOW_MOST
    )
    assert len(run_command(place, "show", str(made[0]), "--issue").out.splitlines()) <= MOST_LINES
    decoded = Record.decode((made[0] / "results.json").read_bytes())
    assert 0 < height(decoded) <= SCREEN_MOST


def height(found: Record) -> int:
    """Lines of the first screen in a terminal of 80 columns."""
    return len(render_terminal(first_screen(found), NARROW).plain.splitlines())


@pytest.mark.parametrize(
    ("count", "most"), [(1, SCREEN_MOST), (12, SHOW_MOST), (100, SHOW_MOST)], ids=str
)
def test_the_first_screen_is_one_screen(count: int, most: int) -> None:
    """Whatever there is to say: of hundreds of cells, reasons and notices the first, and how many
    more there are.
    """
    found = record(
        *(cell(f"size={number}", reasons=["few", f"odd {number}"]) for number in range(count))
    )
    notices = [
        {"text": f"{number} was odd. " * 9, "trials": 2, "path": "evidence/run.json", "line": 1}
        for number in range(21)
    ]
    told = {**found.judgement.model_dump(), "notices": notices, "reasons": ["few"]}
    found = found.model_copy(update={"judgement": type(found.judgement).model_validate(told)})
    assert height(found) <= most
    if count > 12:
        text = render_terminal(first_screen(found), NARROW).plain
        assert f"{count - 12} more cells, none of them worse." in text
        assert f"... and {count - 5} more reasons." in text
        whole = render_terminal(report_blocks(found, manifest_digest=DIGEST), NARROW).plain
        assert len(whole.splitlines()) > SHOW_MOST


def test_an_issue_without_its_limit_is_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the limit that keeps it short."""
    found = record(*(cell(f"size={number}") for number in range(9)), changed=["-a", "+b"] * 40)
    assert render_issue(found, lambda _: b"").count("\n") <= MOST_LINES
    monkeypatch.setattr("harness.report.issue.MOST_LINES", 1_000)
    monkeypatch.setattr("harness.report.issue.DIFF_LINES", 80)
    assert render_issue(found, lambda _: b"").count("\n") > MOST_LINES


def test_long_diffs_are_in_the_appendix_in_full() -> None:
    """The report has the first 40 lines and says how many more there are."""
    found = record(changed=[f"+line {number}" for number in range(41)])
    report, appendix = render(found, manifest_digest=DIGEST), render_appendix(found)
    assert b"+line 39\n```\n\n... and 1 more line: see the appendix.\n" in report
    assert b"+line 40\n```\n" in appendix
    assert b"+line" not in render_appendix(record(changed=["+line"]))


def test_the_page_has_the_appendix_folded() -> None:
    """Everything of `appendix.md` is in `report.html` too, closed."""
    from harness.report.html import render_page
    from harness.report.view import Basis

    page = render_page(
        Basis(record=record(), manifest_digest=DIGEST, read=lambda _: b"<svg/>")
    ).decode()
    folded = page.partition('<details id="appendix">')[2]
    titles = re.findall(r"^## (.*)$", render_markdown(appendix_blocks(record())), re.MULTILINE)
    assert len(titles) > 3
    assert all(f">{title}</h2>" in folded for title in titles)


def test_what_is_made_from_the_record_is_no_evidence() -> None:
    """A record is not made from itself, nor from its figures or its appendix."""
    names = ["appendix.md", "evidence/run.json", "evidence/figures/trials.svg", "results.json"]
    assert evidence_among(names) == ["evidence/run.json"]


@pytest.mark.slow
def test_the_appendix_is_listed_and_stated(folder: Path) -> None:
    """The manifest lists it, and the report states its sha256, which an ordinary program checks."""
    assert verify(folder).ok
    done = subprocess.run(
        ["sha256sum", "appendix.md"], cwd=folder, capture_output=True, text=True, check=True
    )
    digest = done.stdout.split()[0]
    assert f"Appendix: `appendix.md` sha256 `{digest}`\n" in (folder / "report.md").read_text()
    assert f"{digest}  appendix.md\n" in (folder / "MANIFEST.sha256").read_text()


def edited(folder: Path, _: Path) -> None:
    path = folder / "appendix.md"
    path.write_bytes(path.read_bytes().replace(b"0 of 5", b"1 of 5", 1))


def missing(folder: Path, _: Path) -> None:
    (folder / "appendix.md").unlink()


def edited_and_listed(folder: Path, key: Path) -> None:
    edited(folder, key)
    forge.resign(folder, key)


def another(folder: Path, key: Path) -> None:
    (folder / "appendix.md").write_text("# Appendix: Ranks meet\n\nAll is well.\n")
    forge.sign(folder, key)


def left_out(folder: Path, key: Path) -> None:
    missing(folder, key)
    forge.sign(folder, key)


def another_digest(folder: Path, key: Path) -> None:
    path = folder / "report.md"
    stated = re.sub(
        rb"(`appendix.md` sha256 `)[0-9a-f]{64}", rb"\g<1>" + b"0" * 64, path.read_bytes()
    )
    assert stated != path.read_bytes()
    path.write_bytes(stated)
    forge.resign(folder, key)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "word", "message"),
    [
        (edited, "EVIDENCE EDITED", "appendix.md"),
        (missing, "EVIDENCE MISSING", "appendix.md"),
        (
            edited_and_listed,
            "JUDGED DIFFERENTLY",
            "appendix.md differs from the rendering of the record",
        ),
        (another, "JUDGED DIFFERENTLY", "appendix.md differs from the rendering of the record"),
        (left_out, "JUDGED DIFFERENTLY", "do not match this record: appendix.md"),
        (another_digest, "RENDERED DIFFERENTLY", ""),
    ],
    ids=lambda given: getattr(given, "__name__", None),
)
def test_another_appendix_is_refused(
    folder: Path,
    made: tuple[Path, Path],
    change: Callable[[Path, Path], Any],
    word: str,
    message: str,
) -> None:
    """Edited or missing, also where the manifest was made anew and signed with an allowed key; and a
    report that states the digest of another one.
    """
    change(folder, made[1])
    found = verify(folder)
    assert found.word == word
    assert message in found.message
