"""What stands out: what a subject reports as a notice, and the warnings and tracebacks of trials that
passed, are in the record and on the first screen.
"""

from __future__ import annotations

import re
import time

import pytest

from harness.events import Event
from harness.forms.strict_json import JSON
from harness.record.model import Record
from harness.report.appendix import render_appendix
from harness.report.issue import render_issue
from harness.report.report import render
from harness.report.summary import NOTICES_SHOWN
from harness.stats.notices import NOTICES_MOST, REST, TEXT_MOST
from harness.stats.verdict import Judgement
from tests.kit.records import record
from tests.stats.test_unshown import TEXT, judged, talking
from tests.stats.test_verdict import broken

CANDIDATE = "evidence/ranks-2-backend-gloo/candidate-{:05d}/rank-{}.log"
CONTROL = "evidence/ranks-2-backend-gloo/control-{:05d}/rank-{}.log"
WARNING = b"[rank1]: /opt/lib/loader.py:17: FutureWarning: load() will change\n  load()\n"
IN_WORDS = "FutureWarning in loader.py:17: load() will change"
TRACE = b"""starting
Exception in thread Thread-1 (work):
Traceback (most recent call last):
  File "subject.py", line 3, in work
    raise KeyError("weights")
KeyError: 'weights'
going on
"""


def test_a_traceback_in_a_trial_that_passed_is_shown() -> None:
    """A worker thread's traceback that nobody mentions is in the record, from its first line to its
    exception.
    """
    logs = {
        f"evidence/ranks-2-backend-gloo/candidate-{index:05d}/rank-1.log": TRACE for index in (0, 2)
    }
    found = judged(TEXT, logs=logs)
    assert found.verdict == "PASS"
    (notice,) = found.notices
    assert notice.text == "A rank printed a traceback in a trial of the candidate that passed."
    assert (notice.trials, notice.path, notice.line) == (2, min(logs), 2)
    first, second = found.printed
    assert (first.cell, first.index, first.rank, first.line) == ("ranks=2,backend=gloo", 0, 1, 2)
    assert first.text == "\n".join(TRACE.decode().splitlines()[1:6])
    assert second.index == 2


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (
            (
                b'[r1]: Traceback (most recent call last):\n[r1]:   File "x"\n[r1]: OSError:'
                b" gone\n[r1]: more\n"
            ),
            3,
        ),
        (b"Traceback (most recent call last):\n", 1),
        (b"Fatal Python error: Segmentation fault\n\nCurrent thread 0x1:\n  File x\n", 4),
        (
            b"Traceback (most recent call last):\n"
            + b"  File deep\n" * 500
            + b"RecursionError: deep\n",
            21,
        ),
        (b"\xff Traceback (most recent call last):\r\n  File x\r\nE: \xfe\r\n", 3),
    ],
)
def test_tracebacks_of_every_kind_are_cut_to_what_is_read(log: bytes, text: int) -> None:
    """A prefix before each line, a deep stack, a crash of the interpreter, a log that ends
    early.
    """
    (found,) = judged(
        TEXT, logs={"evidence/ranks-2-backend-gloo/candidate-00001/rank-0.log": log}
    ).printed
    assert len(found.text.splitlines()) == text
    assert found.text.splitlines()[-1].strip() != "more"


def first_screen(found: Judgement) -> str:
    """The row of what stands out, without its links."""
    text = render(made(found), manifest_digest="1" * 64).decode()
    (row,) = re.findall(r"^\*\*Stands out\.\*\* (.*)$", text, re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", row)


def made(found: Judgement) -> Record:
    return record().model_copy(update={"judgement": found})


def noticing(*texts: JSON) -> list[Event]:
    """A healthy trial in which rank 0 reports these notices, and rank 1 the first of them again."""
    events = talking(2)
    for rank, said in ((0, texts), (1, texts[:1])):
        events += [
            Event(ns=9_500_000, by="rank", rank=rank, pid=200, name="notice", values={"text": text})
            for text in said
        ]
    return events


def test_a_notice_is_on_the_first_screen_once_per_trial() -> None:
    """However many ranks report it, a notice counts once in each trial; without one, the row says
    that nothing stood out.
    """
    found = judged(TEXT, candidate=lambda _: noticing("Two tokens are unknown."))
    (notice,) = found.notices
    assert (notice.text, notice.trials) == ("Two tokens are unknown.", 4)
    assert notice.path == "evidence/ranks-2-backend-gloo/candidate-00000/events.jsonl"
    assert first_screen(found).startswith("Two tokens are unknown (4 trials)")
    assert first_screen(judged(TEXT)) == (
        "In the 4 trials of the candidate, no rank reported a notice or printed a Python warning or"
        " a traceback."
    )


@pytest.mark.parametrize("text", ["", "  ", None, 7, ["x"]])
def test_a_notice_without_a_text_is_none(text: JSON) -> None:
    """What a subject reports may be anything."""
    assert judged(TEXT, candidate=lambda _: noticing(text)).notices == []


def test_a_warning_in_a_log_is_on_the_first_screen() -> None:
    """Counted once per trial, with the line of the first log that has it; where the file is, it does
    not say.
    """
    logs = {CANDIDATE.format(index, rank): WARNING for index in (1, 3) for rank in (0, 1)}
    logs[CANDIDATE.format(1, 0)] = b"starting\n" + WARNING * 3
    found = judged(TEXT, logs=logs)
    (notice,) = found.notices
    assert (notice.text, notice.trials) == (IN_WORDS, 2)
    assert (notice.path, notice.line) == (CANDIDATE.format(1, 0), 2)
    assert first_screen(found).startswith(f"{IN_WORDS} (2 trials)")


def test_the_control_does_not_stand_out() -> None:
    """It is broken on purpose: its notices, warnings and tracebacks are left out; so are the logs of
    trials that failed, which the report shows where they failed.
    """
    logs = {CONTROL.format(0, 1): WARNING + TRACE}
    found = judged(TEXT, control=lambda _: [*broken(), *noticing("Odd.")[-1:]], logs=logs)
    assert (found.notices, found.printed) == ([], [])
    failing = {CANDIDATE.format(0, 1): WARNING + TRACE}
    found = judged(TEXT, candidate=lambda _: broken(), logs=failing)
    assert (found.notices, found.printed) == ([], [])


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        (
            1,
            (
                "In the 4 trials of the candidate, no rank reported a notice. In the 3 that passed,"
                " no rank printed a Python warning or a traceback; the logs of the 1 that failed"
                " were not searched."
            ),
        ),
        (
            4,
            (
                "In the 4 trials of the candidate, no rank reported a notice. Logs are searched only"
                " where a trial passed, and all of these failed."
            ),
        ),
    ],
)
def test_of_trials_that_failed_nothing_is_said(failing: int, said: str) -> None:
    """Their logs are not searched, and may hold what was searched for: the row says which were."""
    logs = {CANDIDATE.format(index, 1): WARNING + TRACE for index in range(failing)}
    found = judged(TEXT, failing=failing, logs=logs)
    assert first_screen(found) == said


def test_a_traceback_comes_before_all_notices() -> None:
    """Whatever else there is, a traceback is on the first screen, and its text in the appendix."""
    found = judged(
        TEXT,
        candidate=lambda _: noticing("One.", "Two.", "Three."),
        logs={CANDIDATE.format(3, 1): WARNING + TRACE},
    )
    shown = first_screen(found)
    traceback = "A rank printed a traceback in a trial of the candidate that passed. "
    assert shown.startswith(f"{traceback}One (4 trials). Two (4 trials). 2 more notices: see the ")
    appendix = render_appendix(made(found)).decode()
    assert "\n- [Three. (4 trials)](" in appendix
    assert IN_WORDS in appendix
    assert "raise KeyError" in appendix
    assert "ranks=2,backend=gloo, candidate 3, rank 1" in appendix


def test_notices_beyond_the_most_are_said_to_be_there() -> None:
    """A record has so many different notices; that there were more is one of them."""
    texts = [f"Notice {number}." for number in range(NOTICES_MOST + 5)]
    found = judged(TEXT, candidate=lambda _: noticing(*texts))
    assert [notice.text for notice in found.notices] == [*texts[:NOTICES_MOST], REST]
    assert {notice.trials for notice in found.notices} == {4}
    assert f"{NOTICES_MOST + 1 - NOTICES_SHOWN} more notices: see the appendix." in first_screen(
        found
    )
    warned = b"".join(b"a.py:%d: UserWarning: x\n" % line for line in range(NOTICES_MOST + 1))
    found = judged(TEXT, logs={CANDIDATE.format(0, 0): warned})
    assert found.notices[-1].text == REST
    just = b"".join(b"a.py:%d: UserWarning: x\n" % line for line in range(NOTICES_MOST))
    assert judged(TEXT, logs={CANDIDATE.format(0, 0): just}).notices[-1].text != REST


@pytest.mark.parametrize(
    "line",
    [
        b"/x/a.py:%d: UserWarning: again\n",
        b"/x/a.py:7: UserWarning: \xe2\x80\xaeagain\x00\x1b[31m \xff %d\n",
        b"Manifest: `:1: UserWarning: Made: `%d\n",
        b":%d: :%d: " * 3,
        b"[[[[" * 4,
    ],
)
def test_a_hostile_log_stays_bounded(line: bytes) -> None:
    """Ten megabytes of warnings are read in seconds, and what is shown of them is short and cannot
    pass for a line of ours.
    """
    lines = (line.replace(b"%d", b"%d" % number) for number in range(10_000_000 // len(line)))
    log = b"".join(lines)
    begin = time.monotonic()
    found = judged(TEXT, logs={CANDIDATE.format(0, 0): log}, count=1)
    assert time.monotonic() - begin < 10
    assert len(found.notices) <= NOTICES_MOST + 1
    assert all(len(notice.text) <= TEXT_MOST + 40 for notice in found.notices)
    whole = made(found)
    text = render(whole, manifest_digest="1" * 64).decode() + render_appendix(whole).decode()
    text += render_issue(whole, lambda _: log)
    assert len(text) < 60_000
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", text)
    assert len(re.findall("^Manifest: `", text, re.MULTILINE)) == 1
    assert len(re.findall("^Made: `", text, re.MULTILINE)) == 1


def test_a_notice_cannot_pass_for_a_line_of_the_report() -> None:
    """Lines that a verifier looks for, markup and invisible characters are escaped, and a long text
    says how much of it is missing.
    """
    nasty = "\nManifest: `MANIFEST.sha256` sha256 `" + "0" * 64 + "`\n<b>\u202e[x](y)"
    found = judged(TEXT, candidate=lambda _: noticing(nasty, "long " * 1_000))
    text = render(made(found), manifest_digest="1" * 64).decode()
    assert len(re.findall("^Manifest: `", text, re.MULTILINE)) == 1
    assert "<b>" not in text
    assert "\u202e" not in text
    assert "more characters)" in found.notices[1].text
