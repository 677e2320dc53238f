"""`rankproof doctor` says what can run, and a remedy for each no."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run.doctor import examine
from harness.trust.sshsig import NoSshKeygen, program
from tests.kit.commands import Ran

Run = Callable[..., Ran]


def test_every_no_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without programs on its path, each missing one is a no with what to do, as
    signing says.
    """
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    answers = examine(results=tmp_path / "results", measure=False)
    missing = {answer.what: answer.remedy for answer in answers if answer.word == "no"}
    assert {"git", "ssh-keygen"} <= set(missing)
    assert all(missing.values())
    with pytest.raises(NoSshKeygen, match=re.escape(missing["ssh-keygen"])):
        program()


@pytest.mark.slow
def test_it_makes_nothing(rankproof: Run, tmp_path: Path) -> None:
    """Looking makes no key and no results folder, quickly it starts no rank.

    The key a run would make is announced.
    """
    ran = rankproof("doctor", "--quick")
    assert ran.code == 0, ran.out + ran.err
    assert "does not exist yet" in ran.out
    assert "yes   gloo" in ran.out
    assert not (tmp_path / "home" / ".local" / "share" / "rankproof" / "signing_key").exists()
    assert not (tmp_path / "results").exists()


def test_a_limit_that_is_too_low_is_told(tmp_path: Path, rankproof: Run) -> None:
    """A limit of 100 descriptors is a no, with the command that raises it."""
    import subprocess
    import sys

    from tests.kit.commands import environment

    done = subprocess.run(
        ["sh", "-c", f"ulimit -n 100 && exec {sys.executable} -m harness.cli doctor --quick"],
        env=environment(tmp_path / "home"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "ulimit -n 1024" in done.stdout


@pytest.mark.long
@pytest.mark.whole  # worlds of every backend and size
def test_what_a_rank_costs_is_measured(tmp_path: Path) -> None:
    """Small worlds are started, and what one rank more takes is told with how many the machine
    bears; nothing stays.
    """
    answers = examine(results=tmp_path / "results")
    costs = {answer.what: answer.detail for answer in answers if answer.topic == "a rank costs"}
    assert {"gloo, warm", "gloo, fresh", "program (sh)"} <= set(costs)
    seconds, private, share = (
        {what: float(re.findall(r"[0-9.]+", detail)[at]) for what, detail in costs.items()}
        for at in range(3)
    )
    # A new interpreter imports torch, a forked one shares it: what is measured tells them apart.
    assert seconds["gloo, warm"] < seconds["gloo, fresh"]
    assert private["program (sh)"] < private["gloo, warm"] < private["gloo, fresh"] / 4
    assert all(private[what] <= share[what] for what in costs)
    borne = next(answer for answer in answers if answer.what == "MiB of memory")
    counted = re.search(r"ranks of (\d+) MiB", borne.detail)
    assert counted
    assert private["gloo, fresh"] == pytest.approx(int(counted[1]), abs=1.1)
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["cpu", "cuda"])
def test_the_state_of_nix_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    """In a Nix environment doctor names its store path, a shell that is too old, and a driver that
    was not found.
    """
    made = {
        "variant": variant,
        "lock": f"{variant}.txt",
        "lock_sha256": "a" * 64,
        "wheels_sha256": "b" * 64,
    }
    (tmp_path / "rankproof-environment.json").write_text(json.dumps(made))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("RANKPROOF_ENV", str(tmp_path))
    monkeypatch.setenv("RANKPROOF_VARIANT", variant)
    monkeypatch.setenv("RANKPROOF_DRIVER", str(tmp_path / "none"))
    for name in ("RANKPROOF_NIX", "RANKPROOF_SOURCE", "RANKPROOF_SHELL"):
        monkeypatch.delenv(name, raising=False)
    answers = {
        answer.what: answer
        for answer in examine(results=tmp_path, measure=False)
        if answer.topic == "environment"
    }
    assert (answers["Nix"].word, answers["Nix"].detail) == ("yes", str(tmp_path))
    assert (answers["shell"].word, answers["shell"].detail) == (
        "no",
        "older than locks/wheels.json",
    )
    assert "nix develop" in answers["shell"].remedy
    assert answers["nixpkgs"].word == "note"
    assert ("driver" in answers) == (variant == "cuda")
    if variant == "cuda":
        assert answers["driver"].word == "no"
        assert "RANKPROOF_DRIVER" in answers["driver"].remedy


def test_a_variable_without_nix_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RANKPROOF_ENV that names no environment of Nix is a note, not a yes."""
    monkeypatch.setenv("RANKPROOF_ENV", str(tmp_path))
    answers = {
        answer.what: answer
        for answer in examine(results=tmp_path, measure=False)
        if answer.topic == "environment"
    }
    assert answers["Nix"].word == "note"
    assert answers["RANKPROOF_ENV"].word == "note"
