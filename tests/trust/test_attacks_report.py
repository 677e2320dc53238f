"""Attacks on the text and the signature of a report, each refused with its own word."""

from __future__ import annotations

import os
import unicodedata
from typing import TYPE_CHECKING

import pytest

from harness.trust.footer import SECTION, TAIL, attach, signed_part, unsigned_footer
from harness.trust.sshsig import BEGIN, END
from harness.trust.verification import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.signed_runs import Run


def test_good_folder(run: Run) -> None:
    """A folder nobody touched passes every step and names its signer.

    A statement and views are not needed.
    """
    found = run.verify()
    assert found.ok, found
    assert found.word == "OK"
    assert found.signer == "ci@example.org"
    assert [step.outcome for step in found.steps] == ["passed"] * (len(STEPS) - 2) + ["absent"] * 2


@pytest.mark.parametrize(
    ("change", "word"),
    [
        pytest.param(
            lambda b: b.replace(b"1 | pass", b"1 | fail"), "BAD SIGNATURE", id="outcome edited"
        ),
        pytest.param(
            lambda b: b.replace(b"Every rank", b"No rank"), "BAD SIGNATURE", id="title edited"
        ),
        pytest.param(
            lambda b: b + b"\n## Addendum\nAlso validated.\n",
            "TEXT AFTER SIGNATURE",
            id="text appended",
        ),
        pytest.param(lambda b: b * 2, "TWO SIGNATURES", id="two reports concatenated"),
        pytest.param(lambda b: b"# Preface\n\n" + b, "BAD SIGNATURE", id="text prepended"),
        pytest.param(lambda b: b[: b.index(BEGIN)], "UNSIGNED", id="signature removed"),
        pytest.param(lambda b: b[:100], "UNSIGNED", id="truncated in the body"),
        pytest.param(lambda b: b[:-60], "TRUNCATED", id="truncated in the signature"),
        pytest.param(lambda b: b[: -len(TAIL)], "TRUNCATED", id="closing fence removed"),
        pytest.param(
            lambda b: b.replace(SECTION, b"\n" + SECTION[-8:]),
            "MALFORMED FOOTER",
            id="heading removed",
        ),
        pytest.param(
            lambda b: b.replace(BEGIN, BEGIN + b" "),
            "MALFORMED FOOTER",
            id="blank behind the marker",
        ),
        pytest.param(lambda b: END + b"\n" + b, "MALFORMED FOOTER", id="end before begin"),
        pytest.param(
            lambda b: b.replace(BEGIN + b"\n", BEGIN + b"\nA"), "BAD SIGNATURE", id="armour edited"
        ),
        pytest.param(
            lambda b: b.replace(b"\n" + END, b"=\n" + END), "BAD SIGNATURE", id="armour padded"
        ),
        pytest.param(
            lambda b: b.replace(b"U1NIU0lH", b"U1NI\nU0lH"), "BAD SIGNATURE", id="armour rewrapped"
        ),
        pytest.param(lambda _: b"", "UNSIGNED", id="empty"),
        pytest.param(lambda b: b"\xff\xfe\x00" + b, "BAD SIGNATURE", id="not UTF-8"),
    ],
)
def test_edited_report(run: Run, change: Callable[[bytes], bytes], word: str) -> None:
    """Whatever is done to the bytes of a report, it is refused, and nothing behind the refusal is
    believed.
    """
    run.edit(change)
    found = run.verify()
    assert (found.word, found.ok) == (word, False), found
    assert found.signer is None
    assert found.steps[-1].outcome == "not reached"


def test_two_signature_blocks(run: Run) -> None:
    """A good block below another good block is refused: which of them is meant?"""
    run.edit(lambda b: b + b[b.index(BEGIN) :])
    assert run.verify().word == "TWO SIGNATURES"


def test_footer_in_a_log_line(run: Run) -> None:
    """A signature marker anywhere in the body cannot be signed, and is refused where somebody
    signed it anyway.
    """
    with pytest.raises(ValueError, match="first or last line"):
        signed_part(b"log: " + BEGIN + b"\n")
    run.edit(lambda b: b"log: " + BEGIN + b"\n" + b)
    assert run.verify().word == "TWO SIGNATURES"


def test_unsigned_report_says_why(run: Run) -> None:
    """A report that nobody could sign says so itself, and the refusal repeats its reason."""
    run.report.write_bytes(run.body() + unsigned_footer("no key: `HOME` is not set\x1b[2J"))
    found = run.verify()
    assert found.word == "UNSIGNED"
    assert "no key: ?HOME? is not set?[2J" in found.message


def test_refusal_is_harmless_on_a_terminal(run: Run) -> None:
    """What a forged file says of itself reaches the terminal without control characters."""
    run.report.write_bytes(b"# Report\n\n## Signature\n\nUNSIGNED: `\x1b[2J\xe2\x80\xae`\n")
    found = run.verify()
    assert found.word == "UNSIGNED"
    assert "\\x1b[2J\\u202e" in found.message
    assert found.message.isprintable()


@pytest.mark.parametrize(
    ("mangle", "undone"),
    [
        (lambda b: b.replace(b"\n", b"\r\n"), "CRLF"),
        (lambda b: b.replace(b"\n", b"\r"), "CRLF"),
        (lambda b: b"\xef\xbb\xbf" + b, "byte-order mark"),
        (lambda b: b"".join(_cp1252(byte) for byte in b), "cp1252"),
        (lambda b: b.decode("latin-1").encode(), "Latin-1"),
        (lambda b: b[:-1], "newlines at the end"),
        (lambda b: b + b"\n\n", "newlines at the end"),
        (lambda b: unicodedata.normalize("NFD", b.decode()).encode(), "NFD"),
        (lambda b: b.decode().encode("utf-16"), "UTF-16"),
        (lambda b: b"\xef\xbb\xbf" + b.replace(b"\n", b"\r\n"), "CRLF"),
        (lambda b: b.decode("latin-1").encode().replace(b"\n", b"\r\n"), "Latin-1"),
        (lambda b: b.replace(b"\n", b"\r\n")[:-2], "newlines at the end"),
    ],
)
def test_mangled_report(run: Run, mangle: Callable[[bytes], bytes], undone: str) -> None:
    """A report that a tool mangled is refused, with the name of what would make it good again."""
    run.edit(mangle)
    found = run.verify()
    assert not found.ok
    assert "the signature is valid once this is undone" in found.message
    assert undone in found.message


def _cp1252(byte: int) -> bytes:
    try:
        return bytes([byte]).decode("cp1252").encode()
    except UnicodeDecodeError:
        return chr(byte).encode()


def test_prose_added_and_signed_again(run: Run) -> None:
    """Prose that no record says is refused even under the signature of an allowed key."""
    run.sign(run.body().replace(b"Prompt:", b"Production ready. Prompt:"))
    found = run.verify()
    assert found.word == "RENDERED DIFFERENTLY"
    assert "Production ready" in found.message
    assert found.message.startswith("line 10:")


def test_not_utf8_and_signed_again(run: Run) -> None:
    """Bytes that are not text are refused even under the signature of an allowed key."""
    run.sign(run.body().replace(b"Prompt:", b"\xff\xfe:"))
    assert run.verify().word == "RENDERED DIFFERENTLY"


def test_outcome_flipped_remanifested_and_signed_again(run: Run) -> None:
    """A record whose outcome was flipped is judged again from the evidence, whoever signed it."""
    (run.folder / "evidence/trial-2/rank1.log").write_text("rank 1: AssertionError\n")
    run.write_manifest()
    run.sign()
    found = run.verify()
    assert found.word == "JUDGED DIFFERENTLY"
    assert found.message == "trial-2 is fail by its evidence, the record says pass"


def test_report_is_a_folder(run: Run) -> None:
    """A folder with the name of a report is refused."""
    run.report.unlink()
    run.report.mkdir()
    assert run.verify().word == "NO REPORT"


def test_report_is_missing(run: Run) -> None:
    """A report that is not there is refused, also where its folder is not there."""
    run.report.unlink()
    assert run.verify().word == "NO REPORT"
    run.folder = run.folder / "nowhere"
    assert run.verify().word == "NO REPORT"


def test_report_is_a_link(run: Run) -> None:
    """A report that is a link is refused, even to a good report."""
    run.report.rename(run.folder.parent / "elsewhere.md")
    run.report.symlink_to(run.folder.parent / "elsewhere.md")
    assert run.verify().word == "NO REPORT"


def test_report_is_a_pipe(run: Run) -> None:
    """A pipe with the name of a report is refused without waiting for it."""
    run.report.unlink()
    os.mkfifo(run.report)
    assert run.verify().word == "NO REPORT"


def test_huge_report(run: Run) -> None:
    """A report of a terabyte is refused without being read."""
    with run.report.open("r+b") as file:
        file.truncate(2**40)
    assert run.verify().word == "NO REPORT"


def test_latest_link_leads_to_the_folder(run: Run) -> None:
    """The way to the folder is the user's own: a link `latest` beside it works."""
    latest = run.folder.parent / "latest"
    latest.symlink_to(run.folder)
    run.folder = latest
    assert run.verify().ok


def test_attach_refuses_what_is_no_signature() -> None:
    """Only single armoured block can be attached."""
    for signature in (
        b"",
        BEGIN + b"\n",
        BEGIN + b"\nAAAA\n" + END,
        (BEGIN + b"\nAAAA\n" + END + b"\n") * 2,
    ):
        with pytest.raises(ValueError, match="single armoured block"):
            attach(b"# Body\n", signature)
