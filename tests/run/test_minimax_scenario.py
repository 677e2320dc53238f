"""The scenario that compares two releases of mlx-lm: what its environments are pinned by."""

from __future__ import annotations

from harness.scenario import load_scenario
from harness.scenario.environment import parse_requirements
from tests.kit.commands import ROOT

FOLDER = ROOT / "scenarios" / "minimax-over-two-ranks"


def test_the_two_locks_differ_in_mlx_lm_alone() -> None:
    """Both arms have the same packages, each pinned by hashes and without an address, but for the
    release compared.
    """
    locks = {
        version: (FOLDER / f"mlx-lm-{version}.txt").read_bytes() for version in ("0.30.7", "0.31.1")
    }
    assert not any(b"://" in lock for lock in locks.values())
    old, new = (
        [str(one) for one in parse_requirements(lock, name="lock")] for lock in locks.values()
    )
    assert all("--hash=sha256:" in one for one in (*old, *new))
    (was,), (is_now,) = sorted(set(old) - set(new)), sorted(set(new) - set(old))
    assert (was.split()[0], is_now.split()[0]) == ("mlx-lm==0.30.7", "mlx-lm==0.31.1")


def test_the_releases_are_held_against_one_another_in_every_file() -> None:
    """The claim, the question that cannot see the bug and the whole model compare the same two
    environments.
    """
    for name in ("scenario", "agreement", "whole"):
        environments = load_scenario(FOLDER / f"{name}.yaml").scenario.subject.environments
        files = {one.requirements for one in environments.values()}
        assert files == {"mlx-lm-0.30.7.txt", "mlx-lm-0.31.1.txt"}, name
