"""Leftovers of one trial or run do not decide the next: from the command to the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.record.facts import HOME_INPUT
from harness.scenario import ScenarioError, parse_scenario
from tests.kit.commands import MEETING, Ran

Run = Callable[..., Ran]
Write = Callable[..., Path]
CONTROL = """
    thing = None if broken and context.rank else "thing"
    assert thing
    if broken:
        return context.emit("met")
"""
# Fails where its caches are cold, and warms them: FAIL, then PASS, with one home folder for all.
CACHING = f"""
import os
import tempfile
from pathlib import Path

def meet(context, *, broken):{CONTROL}
    home = Path.home()
    places = [home / ".cache", Path(tempfile.gettempdir())]
    places += [Path(os.environ.get(name) or home / name) for name in ("HF_HOME", "XDG_CACHE_HOME")]
    warm = [(place / "rankproof-warm").exists() for place in places]
    context.group.barrier()
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        (place / "rankproof-warm").touch()
    assert any(warm), "cold"
    context.emit("met")
"""
READING = f"""
from pathlib import Path

def meet(context, *, broken):{CONTROL}
    file = Path("~/.config/tool/settings").expanduser()
    context.emit("met", text=file.read_text())
    context.group.barrier()
    file.write_text("changed")
"""
LOADING = f"""
from transformers import AutoTokenizer

def meet(context, *, broken):{CONTROL}
    AutoTokenizer.from_pretrained("lab/tiny")
    context.emit("met")
"""
FEW = ("--set", "trials.candidate=3", "--set", "trials.control=1")


def outcomes(ran: Ran) -> list[str]:
    (cell,) = ran.record.judgement.cells
    assert cell.candidate is not None, ran.out + ran.err
    return [trial.outcome for trial in cell.candidate.trials]


def verified(ran: Ran, rankproof: Run) -> bool:
    fingerprint = ran.out.split("--signer ")[1].split()[0]
    return rankproof("verify", str(ran.folder / "report.md"), "--signer", fingerprint).code == 0


@pytest.mark.long
def test_a_cold_cache_is_cold_in_every_trial_of_every_run(
    scenario: Write, rankproof: Run, short_tmp: Path
) -> None:
    """A subject that fails on a cold cache fails in each trial, side by side too, and again.

    With a shared home not.
    """
    place, env = (
        str(scenario({"scenario.yaml": MEETING, "subject.py": CACHING})),
        {"TMPDIR": str(short_tmp)},
    )
    for jobs in (1, 2):
        ran = rankproof("run", place, *FEW, "--jobs", str(jobs), env=env)
        assert outcomes(ran) == ["fail"] * 3, ran.out + ran.err
        assert ran.record.judgement.verdict == "FAIL"
        assert len(ran.record.run.server_pids) == jobs
    assert verified(ran, rankproof)
    lanes = "separate for worlds that run in parallel, and emptied before each world starts. Shared on purpose: the compiler caches in"
    assert lanes in (ran.folder / "appendix.md").read_text()
    assert "were recreated before each world" in (ran.folder / "report.md").read_text()
    shared = rankproof("run", place, *FEW, "--set", "world.home=shared", env=env)
    assert outcomes(shared) == ["fail", "pass", "pass"], shared.out
    assert verified(shared, rankproof)
    appendix = (shared.folder / "appendix.md").read_text()
    assert "the user's own, shared by all worlds" in appendix
    report = (shared.folder / "report.md").read_text()
    assert "a later trial could read data that an earlier trial left there" in report


@pytest.mark.long
def test_a_home_of_the_scenario_is_copied_for_each_world_and_in_the_evidence(
    scenario: Write, rankproof: Run
) -> None:
    """Each trial finds the folder's files as they are.

    Its digest is in the report, and none of them is code.
    """
    text = MEETING.replace("world: {", "world: {home: house, ")
    text += "  - {id: text, kind: equal, ranks: every, value: met.text, to: quiet}\n"
    place = scenario(
        {"scenario.yaml": text, "subject.py": READING, "house/.config/tool/settings": "quiet"}
    )
    ran = rankproof("run", str(place), *FEW)
    assert outcomes(ran) == ["pass"] * 3, ran.out + ran.err
    (given,) = ran.record.run.inputs
    assert (given.name, given.given, list(given.files)) == (
        HOME_INPUT,
        "house",
        [".config/tool/settings"],
    )
    assert all("house" not in file for arm in ran.record.arms.values() for file in arm.files)
    copied = "before each world starts; each world begins with a copy of `house`. Shared on purpose"
    assert copied in (ran.folder / "appendix.md").read_text()
    report = (ran.folder / "report.md").read_text()
    assert f"| `{HOME_INPUT}` | house | " in report
    assert given.digest in report
    assert verified(ran, rankproof)
    bundle, lies_here = str(place / "bundle"), f"{HOME_INPUT}={place / 'house'}"
    done = rankproof("bundle", str(ran.folder), "--out", bundle, "--input", lies_here)
    assert done.code == 0, done.out + done.err
    fingerprint = ran.out.split("--signer ")[1].split()[0]
    again = rankproof(
        "reproduce", bundle, "--signer", fingerprint, "--from-evidence", "--trials", "1"
    )
    assert outcomes(again) == ["pass"], again.out + again.err
    assert again.record.run.reproduces is not None


@pytest.mark.whole
def test_a_home_of_the_scenario_is_there_when_it_is_tried(scenario: Write, rankproof: Run) -> None:
    """`--try` copies the folder for its worlds as a run does: what is tried is what would run."""
    text = MEETING.replace("world: {", "world: {home: house, ")
    text += "  - {id: text, kind: equal, ranks: every, value: met.text, to: quiet}\n"
    place = scenario(
        {"scenario.yaml": text, "subject.py": READING, "house/.config/tool/settings": "quiet"}
    )
    tried = rankproof("run", str(place), "--try")
    assert "  candidate: passed, in " in tried.out, tried.out + tried.err


@pytest.mark.long
def test_a_model_that_only_the_user_has_is_named(
    scenario: Write, rankproof: Run, tmp_path: Path
) -> None:
    """A tokenizer that ranks do not find, and the user's own cache has: terminal and report say
    what to do.
    """
    snapshot = tmp_path / "home/.cache/huggingface/hub/models--lab--tiny/snapshots/0123"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    ran = rankproof("run", str(scenario({"subject.py": LOADING})), *FEW)
    words = (
        "OSError (lab/tiny: only in the user's own cache; list it in inputs, or set world.home:"
        " shared)"
    )
    assert words in ran.out, ran.out + ran.err
    assert words in (ran.folder / "report.md").read_text()
    assert verified(ran, rankproof)


@pytest.mark.parametrize(
    ("home", "said"),
    [
        ("..", "must stay inside the scenario's folder"),
        ("/home/me", "must be a path relative to the scenario's folder"),
        ("~/x", "must be a path relative to the scenario's folder"),
        ("a/../b", "must stay inside"),
        ("./", "must be a folder inside the scenario's folder, or `shared`, to use the user's own"),
        ("[shared]", "must be a string"),
        ('house, env: {HOME: "/x"}', "cannot be combined with env.HOME"),
    ],
)
def test_a_home_that_cannot_be_is_named(home: str, said: str) -> None:
    """Only a folder of the scenario, or shared."""
    with pytest.raises(ScenarioError) as error:
        parse_scenario(
            MEETING.replace("world: {", f"world: {{home: {home}, ").encode(), name="s.yaml"
        )
    assert said in str(error.value)


@pytest.mark.slow
def test_an_input_that_is_not_there_is_named_by_its_place(
    scenario: Write, rankproof: Run, tmp_path: Path
) -> None:
    """A relative path of the command line is looked for in the current folder, and the message has
    the whole path, not the way to it from the scenario.
    """
    text = MEETING.replace("subject:", "inputs: {model: ./there}\nsubject:", 1)
    place = scenario({"scenario.yaml": text})
    ran = rankproof("run", str(place), "--set", "inputs.model=nope", cwd=tmp_path)
    assert ran.code != 0
    assert f"input model: {tmp_path.resolve() / 'nope'} does not exist" in ran.err, ran.err


def test_a_home_that_is_not_there_is_one_line(scenario: Write, rankproof: Run) -> None:
    """A run whose home folder is not there says so before any rank starts, and lint beforehand."""
    place = str(scenario({"scenario.yaml": MEETING.replace("world: {", "world: {home: house, ")}))
    words = "world.home: house is not a folder (looked in the scenario's folder)"
    ran = rankproof("run", place)
    assert (ran.code, words in ran.err) == (2, True), ran.err
    assert f"a run would stop: {words}" in rankproof("lint", place).out
