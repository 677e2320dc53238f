"""Attacks on the evidence and its manifest, each refused with its own word."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from harness.trust import folder as folder_module
from harness.trust.replay import CannotJudge, CannotRender

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit.signed_runs import Run

LOG = "evidence/trial-1/rank1.log"
ZEROS = "0" * 64


def test_evidence_edited(run: Run) -> None:
    """One changed byte of evidence is found and named."""
    run.edit(lambda b: b.replace(b"ready", b"reads"), LOG)
    found = run.verify()
    assert found.word == "EVIDENCE EDITED"
    assert LOG in found.message
    assert found.signer == "ci@example.org"


def test_evidence_with_other_line_ends(run: Run) -> None:
    """Evidence that git's autocrlf rewrote is refused, with what would make it good again."""
    run.edit(lambda b: b.replace(b"\n", b"\r\n"), LOG)
    found = run.verify()
    assert found.word == "EVIDENCE EDITED"
    assert "once this is undone: line endings were changed to CRLF" in found.message


def test_evidence_swapped_between_ranks(run: Run) -> None:
    """Two logs that changed places are found."""
    one, other = run.folder / LOG, run.folder / "evidence/trial-1/rank0.log"
    texts = one.read_bytes(), other.read_bytes()
    one.write_bytes(texts[1])
    other.write_bytes(texts[0])
    assert run.verify().word == "EVIDENCE EDITED"


def test_evidence_removed(run: Run) -> None:
    """A listed file that is gone is found."""
    (run.folder / LOG).unlink()
    assert run.verify().word == "EVIDENCE MISSING"


@pytest.mark.parametrize(
    "name",
    [
        "evidence/trial-1/rank2.log",
        "README",
        "report.html",
        "junit.xml",
        "attestation.dsse.json",
        "\x1b[2J.log",
    ],
)
def test_evidence_added(run: Run, name: str) -> None:
    """A file no manifest lists is refused, a view that cannot be rendered again too.

    Its name is shown harmless.
    """
    (run.folder / name).write_text("x")
    found = run.verify()
    assert found.word == "UNLISTED FILE"
    assert repr(name) in found.message
    assert "\x1b" not in found.message


def test_evidence_and_manifest_both_edited(run: Run) -> None:
    """A manifest made anew for edited evidence is not the one that was signed."""
    run.edit(lambda b: b + b"more\n", LOG)
    run.write_manifest()
    assert run.verify().word == "MANIFEST NOT THE SIGNED ONE"


def test_symlinked_evidence(run: Run) -> None:
    """Evidence that is a link is refused, even to a file with the right digest."""
    (run.folder / LOG).rename(run.folder.parent / "secret")
    (run.folder / LOG).symlink_to(run.folder.parent / "secret")
    assert run.verify().word == "EVIDENCE IS A LINK"


def test_symlinked_parent_folder(run: Run) -> None:
    """Evidence below a link is refused, even with the right digest."""
    (run.folder / "evidence").rename(run.folder.parent / "elsewhere")
    (run.folder / "evidence").symlink_to(run.folder.parent / "elsewhere")
    found = run.verify()
    assert found.word == "EVIDENCE IS A LINK"
    assert "'evidence'" in found.message


@pytest.mark.parametrize("target", ["/etc", "nowhere"])
def test_unlisted_link(run: Run, target: str) -> None:
    """A link that no manifest lists is an unlisted file, to a folder or to nothing, and is not
    walked.
    """
    (run.folder / "evidence/more").symlink_to(target)
    assert run.verify().word == "UNLISTED FILE"


def test_pipe_instead_of_evidence(run: Run) -> None:
    """A pipe with the name of a listed file does not make the verifier wait."""
    (run.folder / LOG).unlink()
    os.mkfifo(run.folder / LOG)
    assert run.verify().word == "EVIDENCE MISSING"


def test_pipe_beside_the_evidence(run: Run) -> None:
    """A pipe no manifest lists is an unlisted file."""
    os.mkfifo(run.folder / "pipe")
    assert run.verify().word == "UNLISTED FILE"


def test_oversized_evidence(run: Run) -> None:
    """A listed file over the limit is refused before it is read."""
    os.truncate(run.folder / LOG, 2**40)
    assert run.verify().word == "EVIDENCE TOO LARGE"


def test_too_much_evidence_together(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are small alone and too large together are refused."""
    monkeypatch.setattr(folder_module, "LARGEST_TOTAL", 150)
    assert run.verify().word == "EVIDENCE TOO LARGE"


def test_too_many_files(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with more files than allowed is refused while it is listed."""
    monkeypatch.setattr(folder_module, "MOST_FILES", 1)
    assert run.verify().word == "UNLISTED FILE"


def test_folder_that_is_too_deep(run: Run) -> None:
    """A hundred folders inside each other are refused."""
    path = run.folder
    here = os.open(path, os.O_RDONLY)
    try:
        for _ in range(100):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    assert run.verify().word == "UNLISTED FILE"


def _manifest(run: Run, change: Callable[[bytes], bytes]) -> str:
    before = (run.folder / "MANIFEST.sha256").read_bytes()
    run.set_manifest(change(before))
    run.sign()
    return run.verify().word


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda b: b + f"{ZEROS}  ../../secret\n".encode(), id="parent folder"),
        pytest.param(lambda b: f"{ZEROS}  /etc/passwd\n".encode() + b, id="absolute"),
        pytest.param(lambda b: b + f"{ZEROS}  z\\x\n".encode(), id="backslash"),
        pytest.param(lambda b: b + f"{ZEROS}  z/./x\n".encode(), id="dot"),
        pytest.param(lambda b: b + f"{ZEROS}  z//x\n".encode(), id="empty step"),
        pytest.param(lambda b: b + f"{ZEROS}  z\x1b[2J\n".encode(), id="control character"),
        pytest.param(lambda b: b + f"{ZEROS}  z\u202egol.\n".encode(), id="direction control"),
        pytest.param(lambda b: b + f"{ZEROS}  z\r\n".encode(), id="carriage return"),
        pytest.param(lambda b: b + ZEROS.encode() + b"  \xff\n", id="not UTF-8"),
        pytest.param(lambda b: b + b.splitlines(keepends=True)[-1], id="duplicate"),
        pytest.param(lambda b: f"{ZEROS}  RESULTS.json\n".encode() + b, id="differs by case"),
        pytest.param(
            lambda b: b + f"{ZEROS}  z\u00e9\n{ZEROS}  ze\u0301\n".encode(), id="differs by accents"
        ),
        pytest.param(lambda b: b"".join(reversed(b.splitlines(keepends=True))), id="not sorted"),
        pytest.param(lambda b: b.replace(b"  ", b" *"), id="binary mark"),
        pytest.param(lambda b: b.replace(b"  ", b" ", 1), id="one blank"),
        pytest.param(lambda b: b[:-1], id="no final newline"),
        pytest.param(lambda b: b + b"\n", id="empty line"),
        pytest.param(lambda b: b"\\" + b, id="sha256sum escape"),
        pytest.param(lambda b: b[:64].upper() + b[64:], id="upper case digest"),
        pytest.param(
            lambda b: b + f"{ZEROS}  manifest.SHA256\n".encode(), id=("contains its own path")
        ),
        pytest.param(lambda b: b + f"{ZEROS}  z{'/z' * 40}\n".encode(), id="too deep"),
        pytest.param(lambda _: b"x\n" * 200_000, id="200,000 lines"),
    ],
)
def test_hostile_manifest(run: Run, change: Callable[[bytes], bytes]) -> None:
    """A manifest not written the one accepted way is refused, also where an allowed key signed
    it.
    """
    assert _manifest(run, change) == "MANIFEST MALFORMED"


def test_manifest_removed(run: Run) -> None:
    """Without its manifest a report says nothing about its evidence."""
    (run.folder / "MANIFEST.sha256").unlink()
    assert run.verify().word == "MANIFEST MISSING"


def test_manifest_is_a_link(run: Run) -> None:
    """A manifest that is a link is refused, even to the signed one."""
    (run.folder / "MANIFEST.sha256").rename(run.folder.parent / "m")
    (run.folder / "MANIFEST.sha256").symlink_to(run.folder.parent / "m")
    found = run.verify()
    assert found.word == "MANIFEST MISSING"
    assert "is a link" in found.message


def test_huge_manifest(run: Run) -> None:
    """A manifest of a terabyte is refused without being read."""
    os.truncate(run.folder / "MANIFEST.sha256", 2**40)
    assert run.verify().word == "MANIFEST MISSING"


def test_report_that_states_two_manifests(run: Run) -> None:
    """A body that states two digests is refused: which of them is meant?"""
    run.sign(run.body() + b"Manifest: `MANIFEST.sha256` sha256 `" + ZEROS.encode() + b"`\n")
    assert run.verify().word == "MANIFEST NOT THE SIGNED ONE"


def test_evidence_of_another_run(run: Run, tmp_path: Path) -> None:
    """A good report in front of another run's folder is refused."""
    run.write({"trial-9": "pass"})
    run.write_manifest()
    assert run.verify().word == "MANIFEST NOT THE SIGNED ONE"


def test_evidence_changed_while_it_is_judged(run: Run) -> None:
    """What the judge reads is what was verified, or the verification is refused."""
    before = (run.folder / LOG).read_bytes()

    def judge(read: Callable[[str], bytes], names: object) -> str | None:
        (run.folder / LOG).write_text("changed\n")
        return None if read(LOG) == before else "the judge was given what nobody verified"

    assert run.verify(judge=judge).word == "OK"


def test_large_evidence_changed_while_it_is_judged(run: Run) -> None:
    """A file too large to be kept is read again, and refused where it is not what was verified."""
    (run.folder / LOG).write_bytes(b"rank 0: tokenizer ready\n" * 2**17)
    run.write_manifest()
    run.sign()

    def judge(read: Callable[[str], bytes], names: object) -> str | None:
        with (run.folder / LOG).open("ab") as file:
            file.write(b"changed\n")
        read(LOG)
        return None

    assert run.verify(judge=judge).word == "EVIDENCE EDITED"


def test_record_asks_for_a_file_outside(run: Run) -> None:
    """A judge cannot be led to a file that the manifest does not list."""
    found = run.verify(judge=lambda read, _: read("../../etc/passwd").decode())
    assert found.word == "EVIDENCE MISSING"


def test_report_that_cannot_be_judged(run: Run) -> None:
    """What could not be judged or rendered again is named and refused, unless the caller accepts
    it.
    """

    def judge(read: object, names: object) -> str | None:
        raise CannotJudge("no check of the kind 'oracle' is known")

    def render(read: object, digest: str) -> bytes:
        raise CannotRender("report format 9 is not known")

    found = run.verify(judge=judge, render=render)
    assert (found.word, found.ok) == ("NOT JUDGED", False)
    assert [step.word for step in found.steps[-4:]] == ["NOT JUDGED", "NOT RENDERED", "", ""]
    assert run.verify(judge=judge, render=render, allow_unjudged=True).ok
    assert run.verify(judge=None).word == "NOT JUDGED"
    assert run.verify(render=None).word == "NOT RENDERED"


def test_report_that_cannot_be_judged_and_says_more(run: Run) -> None:
    """A step that could not run hides no fault that a later step finds.

    Accepting the one accepts not the other.
    """
    run.sign(run.body().replace(b"Prompt:", b"Production ready."))
    found = run.verify(judge=None, allow_unjudged=True)
    assert (found.word, found.ok) == ("RENDERED DIFFERENTLY", False)
