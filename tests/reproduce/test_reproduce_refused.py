"""What is not run again, and why: reports that nobody verified, inputs and machines that lack
something, forgeries.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.reproduce.report_copy import NotTrusted, _digest, open_report
from harness.reproduce.rerun import InputMissing, Wish, prepare
from harness.reproduce.source import SourceError
from harness.trust.folder import LARGEST_REPORT
from harness.trust.signers import SignerPolicy
from tests.kit.forge import resign
from tests.kit.people import SCENARIO, WORDS, Person, Ran, answer, made
from tests.reproduce.test_archive import HOSTILE

Project = Callable[..., Path]
Clone = Callable[[Path], Path]
Usual = tuple[Person, Ran]
pytestmark = [pytest.mark.slow, pytest.mark.whole]  # each makes a run and reproduces it


def test_an_unverified_report_runs_nothing(usual: Usual, bob: Person) -> None:
    """Unknown signer, unsigned, edited: refused with 3 and no run.

    Only --i-trust-this-file runs it, and says so.
    """
    ann, ran = usual
    report = ann.send(bob, ran)
    bob.trusts = []
    refused = bob("reproduce", str(report))
    assert refused.code == 3
    assert "UNKNOWN SIGNER" in refused.out
    assert not bob.results.exists()
    bob.trusts = [ann.fingerprint]
    text = (report / "report.md").read_text()
    (report / "report.md").write_text(text.replace("PASS", "FAIL", 1))
    edited = bob("reproduce", str(report))
    assert edited.code == 3
    assert "BAD SIGNATURE" in edited.out
    assert not bob.results.exists()
    trusted = bob("reproduce", str(report), "--i-trust-this-file")
    assert trusted.code == 0, trusted.out
    assert "will run: program sh rank.sh {fixed}" in trusted.out
    assert "NOT verified (BAD SIGNATURE)" in trusted.report.read_text()


def test_what_will_run_is_told_and_a_dry_run_runs_nothing(usual: Usual, bob: Person) -> None:
    """Program, files, arguments, trials and seed are printed before anything runs."""
    ann, ran = usual
    report = ann.send(bob, ran)
    told = bob("reproduce", str(report), "--dry-run")
    assert told.code == 0
    for words in (
        "program sh rank.sh {fixed}",
        "rank.sh",
        '{"fixed":"yes"}',
        "5 + 5 trials",
        "seed '7'",
    ):
        assert words in told.out
    assert not bob.results.exists()


def test_an_input_that_is_not_here_cannot_tell(ann: Person, bob: Person, project: Project) -> None:
    """A missing or a different input ends with 2 and names the way out.

    The right one is accepted wherever it lies.
    """
    text = SCENARIO.replace("matrix:", "inputs: {words: {path: words.txt}}\nmatrix:")
    place = project({f"{WORDS}/scenario.yaml": text, f"{WORDS}/words.txt": "two words\n"})
    report = ann.send(bob, made(ann, place))
    missing = bob("reproduce", str(report))
    assert missing.code == 2
    assert "--input words=PATH" in missing.out
    other = bob.folder / "other.txt"
    other.write_text("two worms\n")
    assert bob("reproduce", str(report), "--input", f"words={other}").code == 2
    shutil.copy(place / WORDS / "words.txt", bob.folder / "words.txt")
    done = bob("reproduce", str(report), "--input", f"words={bob.folder / 'words.txt'}")
    assert done.code == 0, done.out


def test_a_machine_that_lacks_what_is_needed_cannot_tell(
    ann: Person, bob: Person, project: Project
) -> None:
    """A cell that is skipped here is CANNOT TELL with the reason, never REPRODUCED."""
    text = SCENARIO.replace("sh, rank.sh", "words-shell, rank.sh")
    place = project({f"{WORDS}/scenario.yaml": text})
    tools = ann.folder / "tools"
    tools.mkdir()
    shell = tools / "words-shell"
    shell.symlink_to(shutil.which("sh") or "/bin/sh")
    ran = ann("run", WORDS, cwd=place, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    assert ran.record.judgement.verdict == "PASS", ran.out
    done = bob("reproduce", str(ann.send(bob, ran)))
    assert (done.code, answer(done)) == (2, "CANNOT TELL"), done.out
    assert "it is not in PATH" in done.out


def test_bad_usage_is_told(usual: Usual, bob: Person) -> None:
    """A wrong command line ends with 64 and says what is wrong with it."""
    ann, ran = usual
    report = str(ann.send(bob, ran))
    for arguments, words in (
        (["nothing-here"], "nothing-here: does not exist"),
        ([report, "--repo", ".", "--from-evidence"], "cannot be combined"),
        ([report, "--source", "nowhere"], "is not a folder"),
        ([report, "--repo", "."], "not a git repository"),
        ([report, "--candidate", "HEAD"], "--candidate HEAD"),
        ([report, "--input", "words"], "NAME=PATH"),
        ([report, "--trials", "0"], "whole number"),
    ):
        done = bob("reproduce", *arguments)
        assert done.code == 64, done.out
        assert words in done.out


def test_a_forged_reproduction_is_refused(usual: Usual, bob: Person) -> None:
    """Whoever edits what the first run was, the answer, or the code that ran, is found out even
    with their own key.
    """
    ann, ran = usual
    done = bob("reproduce", str(ann.send(bob, ran)))
    bob.trusts = [bob.fingerprint]
    for path, old, new in (
        ("evidence/original.json", '"verdict": "PASS"', '"verdict": "FAIL"'),
        ("evidence/original.json", '"rank.sh": "', '"rank.sh": "0'),
        ("evidence/run.json", '"reproduces": {', '"reproduces": null, "was": {'),
        ("results.json", '"answer": "REPRODUCED"', '"answer": "CANNOT TELL"'),
    ):
        forged = bob.folder / "forged"
        shutil.copytree(done.folder, forged)
        text = (forged / path).read_text()
        assert old in text
        (forged / path).write_text(text.replace(old, new))
        resign(forged, bob.folder / "home" / ".local" / "share" / "rankproof" / "signing_key")
        verified = bob("verify", str(forged))
        assert verified.code == 3
        assert "JUDGED DIFFERENTLY" in verified.out
        shutil.rmtree(forged)


def test_evidence_of_any_form_is_read_or_refused(usual: Usual, tmp_path: Path) -> None:
    """Somebody who trusts a forged report gets a refusal or a run of what was printed, never a
    crash.
    """
    _, ran = usual
    strange: list[Any] = [
        None,
        5,
        -1,
        "x",
        "../../x",
        "\ud800",
        [],
        {},
        ["a"],
        {"a": 1},
        True,
        2**70,
    ]
    chance = random.Random(6)
    for turn in range(40):
        forged, scratch = tmp_path / f"forged-{turn}", tmp_path / f"scratch-{turn}"
        shutil.copytree(ran.folder, forged)
        scratch.mkdir()
        path = chance.choice(
            [forged / "evidence" / "run.json", *sorted(forged.rglob("events.jsonl"))]
        )
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        number = chance.randrange(len(lines))
        value = json.loads(lines[number])
        *way, last = chance.choice(list(places(value)))
        inner = value
        for step in way:
            inner = inner[step]
        inner[last] = chance.choice(strange)
        lines[number] = json.dumps(value)
        path.write_text("\n".join(lines) + "\n")
        with suppress(NotTrusted, SourceError, InputMissing):
            opened = open_report(forged, policy=SignerPolicy(), trust=True, scratch=scratch)
            prepare(opened, Wish(inputs={}, evidence=True), here=tmp_path, scratch=scratch)


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside a JSON value."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for step, inner in inside:
        yield (*way, step)
        yield from places(inner, (*way, step))


def test_a_hostile_bundle_runs_nothing(bob: Person) -> None:
    """A bundle that leads out of its folder is refused with 3, trusted or not.

    Nothing is written, and nothing runs.
    """
    sent = bob.folder / "desk" / "sent.tar.xz"
    for name in ("up-from-inside", "link", "two-streams", "bomb-behind-the-end"):
        sent.write_bytes(HOSTILE[name]())
        for more in ((), ("--i-trust-this-file",)):
            done = bob("reproduce", str(sent), *more)
            assert done.code == 3, done.out
            assert "REFUSED" in done.out
    assert list((bob.folder / "desk").iterdir()) == [sent]
    assert not bob.results.exists()
    sent.write_bytes(b"PK\3\4 nothing of ours")
    assert bob("reproduce", str(sent)).code == 3


def test_a_report_of_gigabytes_in_a_small_bundle_is_not_read(tmp_path: Path) -> None:
    """Zeros pack well: the file has to be unpacked, and is not taken into memory."""
    digest = hashlib.sha256(b"").hexdigest()
    report = tmp_path / "report.md"
    with report.open("wb") as file:
        file.truncate(LARGEST_REPORT + 1)
    assert _digest(report) == ""
    report.write_bytes(b"")
    assert _digest(report) == digest
