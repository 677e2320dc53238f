"""`rankproof lab bisect` over an index of tiny wheels, with real runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kit.commands import Ran
from tests.series.bisect.wobbly import RIGHT, SUBJECT, WITH_CONTROL, WRONG, Bisect, Offer

# In two of five trials, whatever the seeds: which trial it is, the name of its folder says.
FLAKY = """
import hashlib


def answer(context):
    return 42 - (hashlib.sha256(str(context.seed).encode()).digest()[0] % 5 < 2)
"""
TWO_AT_A_TIME = """
import sys
from pathlib import Path


def count():
    kept = Path(sys.prefix).parents[1]
    return len([folder for folder in kept.iterdir() if folder.is_dir()])
"""


def kept(ran: Ran) -> dict[str, Any]:
    """What the bisect kept."""
    (file,) = (ran.results / "bisect").glob("*/bisect.json")
    return json.loads(file.read_text()) | {"folder": file.parent}


def words(ran: Ran) -> dict[str, str]:
    return {step["version"]: step["word"] for step in kept(ran)["steps"]}


@pytest.mark.whole
def test_a_defect_is_bisected_in_both_directions(bisect: Bisect, offer: Offer) -> None:
    """The first faulty version and the first right one are found. What is yanked, has no wheel or
    cannot be installed is passed by and named, and a step is not run twice.
    """
    env = offer()
    broke = bisect("1.4", "1.0", env=env)
    assert broke.code == 0, broke.out + broke.err
    assert words(broke) == {"1.0": "RIGHT", "1.1": "RIGHT", "1.3": "RIGHT", "1.4": "AT FAULT"}
    assert "1.2  NOT TRIED    no wheel for this Python and platform" in broke.out
    assert "first faulty version: 1.4; last good version: 1.3.\n" in broke.out

    mended = bisect("1.4", "1.9", env=env)
    assert mended.code == 2, mended.out + mended.err
    told = words(mended)
    assert (told["1.4"], told["1.6"], told["1.7"]) == ("AT FAULT", "CANNOT TELL", "RIGHT")
    assert "1.4: AT FAULT, from an earlier run" in mended.out
    (answer,) = [line for line in mended.out.splitlines() if line.startswith("The answer changes")]
    assert answer.startswith("The answer changes between 1.4 (AT FAULT) and 1.7 (RIGHT)")
    assert "cannot tell for 1.6; left out between them: 1.5 (yanked)" in answer
    assert "1.8rc1  NOT TRIED    pre-release" in mended.out
    again = bisect("1.4", "1.9", env=env)
    assert "Could not install packages" in mended.out
    made = re.findall(r"making an environment with .*, wobbly (\S+)", again.err)
    assert made == ["1.6"], "only what could not be installed is tried again"
    assert kept(again)["answer"] == kept(mended)["answer"]


@pytest.mark.whole
def test_steps_are_signed_runs_and_one_that_was_changed_is_made_again(
    bisect: Bisect, offer: Offer, rankproof: Any
) -> None:
    """The run of each step passes verification. One that somebody changed is not believed."""
    env = offer({"1.0": RIGHT, "1.1": WRONG})
    ran = bisect("1.0", "1.1", env=env)
    assert ran.code == 0, ran.out + ran.err
    known = kept(ran)
    assert [step["version"] for step in known["steps"]] == ["1.0", "1.1"]
    for step in known["steps"]:
        run = known["folder"] / step["run"]
        assert rankproof("verify", str(run), "--signer", _fingerprint(ran)).code == 0
    # The word alone is not believed, nor a record that the manifest does not list.
    file = known["folder"] / "bisect.json"
    file.write_text(file.read_text().replace("AT FAULT", "RIGHT"))
    record = known["folder"] / known["steps"][0]["run"] / "results.json"
    record.write_text(record.read_text().replace('"failed": 0', '"failed": 1'))
    again = bisect("1.0", "1.1", env=env)
    assert words(again) == {"1.0": "RIGHT", "1.1": "AT FAULT"}
    assert "1.0: its run is not accepted (EVIDENCE EDITED); run again" in again.out
    assert "1.1: AT FAULT, from an earlier run" in again.out
    # Nor is the run of another version.
    text = file.read_text()
    runs = [step["run"] for step in kept(again)["steps"]]
    file.write_text(text.replace(runs[0], "?").replace(runs[1], runs[0]).replace("?", runs[1]))
    swapped = bisect("1.0", "1.1", env=env)
    assert (
        "1.0: its run cannot be read (it ran a different scenario or version (wobbly 1.1))"
        in swapped.out
    )
    assert words(swapped) == {"1.0": "RIGHT", "1.1": "AT FAULT"}


@pytest.mark.long
def test_the_controls_version_is_shown_by_the_control(bisect: Bisect, offer: Offer) -> None:
    """Where the candidate would get the control's version, the scenario runs as it stands, and its
    control shows that version: one run for both ends. No more than two environments are there.
    """
    subject = SUBJECT.replace("import wobbly", f"import wobbly\n{TWO_AT_A_TIME}").replace(
        "def ask(context):", "def ask(context):\n    assert count() <= 2, count()"
    )
    env = offer({"1.3": RIGHT, "1.4": WRONG, "1.8": RIGHT, "1.9": RIGHT})
    ran = bisect("1.4", "1.9", env=env, text=WITH_CONTROL, subject=subject)
    assert ran.code == 0, ran.out + ran.err
    steps = {step["version"]: step for step in kept(ran)["steps"]}
    assert steps["1.4"]["side"] == "control"
    assert steps["1.4"]["run"] == steps["1.9"]["run"] != steps["1.8"]["run"]
    assert "first good version: 1.8; last faulty version: 1.4." in ran.out
    left = [folder for folder in Path(env["RANKPROOF_ENVIRONMENTS"]).iterdir() if folder.is_dir()]
    assert len(left) == 1, "the control's environment stays"


@pytest.mark.long
def test_a_rare_defect_is_not_called_mended(bisect: Bisect, offer: Offer) -> None:
    """A version whose trials all passed cannot be told where the defect is too rare for so few
    trials; the number that would do is named, and does.
    """
    env = offer({"1.0": FLAKY, "1.1": RIGHT})
    few = bisect("1.0", "1.1", env=env)
    assert (few.code, words(few)["1.1"]) == (2, "CANNOT TELL"), few.out + few.err
    named = re.search(r"so this may be chance; set --trials ([0-9]+)", kept(few)["answer"])
    assert named is not None
    # The faulty end, too, gets that many, and so a narrower bound.
    many = bisect("1.0", "1.1", "--trials", named[1], env=env)
    assert "first good version: 1.1; last faulty version: 1.0" in many.out, many.out + many.err


@pytest.mark.long
def test_another_package_first_on_the_path_is_noticed(
    bisect: Bisect, offer: Offer, tmp_path: Path
) -> None:
    """Where ranks import a module of that name from elsewhere, no version is judged by it."""
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "wobbly.py").write_text(RIGHT)
    shadow = json.dumps({"PYTHONPATH": str(tmp_path / "shadow")})
    ran = bisect("1.0", "1.1", "--set", f"world.env={shadow}", env=offer())
    assert ran.code == 2
    assert words(ran) == {"1.1": "CANNOT TELL"}
    assert "PYTHONPATH" in kept(ran)["answer"] or "not proved" in kept(ran)["answer"]


@pytest.mark.whole
def test_a_version_that_is_too_old_is_not_at_fault(bisect: Bisect, offer: Offer) -> None:
    """A version without the function that the subject calls fails too, and is passed by."""
    env = offer({"1.0": "", "1.1": WRONG, "1.3": RIGHT})
    ran = bisect("1.0", "1.3", env=env)
    assert ran.code == 2
    assert words(ran) == {"1.0": "CANNOT TELL", "1.3": "RIGHT"}
    assert "AttributeError" in kept(ran)["answer"]


@pytest.mark.long
def test_a_companion_that_had_to_move_is_named(bisect: Bisect, offer: Offer) -> None:
    """A version that needs an older companion runs with that, and the table names both. Where that
    happens at the border itself, the companion is named as a possible cause.
    """
    env = offer({"1.0": WRONG, "1.1": RIGHT}, requires={"1.0": "steady<2"})
    ran = bisect("1.0", "1.1", env=env)
    assert ran.code == 2, ran.out + ran.err
    assert "steady also changed between them, and may be the cause" in ran.out
    assert "with steady 1.0, not 2.0" in ran.out
    assert kept(ran)["steps"][0]["moved"] == {"steady": ["2.0", "1.0"]}


@pytest.mark.long
def test_both_ends_with_one_answer_are_said(bisect: Bisect, offer: Offer) -> None:
    """Ends that do not differ are said to, and --every finds what came and went between them."""
    env = offer({"1.0": RIGHT, "1.1": WRONG, "1.3": RIGHT})
    same = bisect("1.0", "1.3", env=env)
    assert same.code == 2
    assert "1.0 and 1.3 do not differ: both are RIGHT" in same.out
    every = bisect("1.0", "1.3", "--every", env=env)
    assert every.code == 0, every.out + every.err
    assert "first faulty version: 1.1; last good version: 1.0" in every.out
    assert "first good version: 1.3; last faulty version: 1.1" in every.out


def _fingerprint(ran: Ran) -> str:
    return next(word for word in ran.out.split() if word.startswith("SHA256:"))
