"""What the Environment section says of who made the environment."""

from __future__ import annotations

import pytest

from harness.record import environment
from harness.record.facts import EnvironmentFacts, NixFacts
from harness.report.environment import made_by, nix_rows, nix_warnings
from harness.report.markdown import render_markdown

CLEAN = NixFacts(  # noqa: S604 - a Nix shell; no command is run
    environment="/nix/store/a-rankproof-env-cpu",
    shell="/nix/store/b-rankproof-cpu.drv",
    flake_lock_sha256="f" * 64,
    wheels_sha256="e" * 64,
    nixpkgs="sha256-n",
    as_locked=True,
    source=None,
    stale=[],
    changed=[],
    untracked=[],
    driver=[],
)


@pytest.fixture(scope="module")
def plain() -> EnvironmentFacts:
    return environment.capture().model_copy(
        update={"nix": None, "lock": "cpu.txt", "lock_sha256": "d" * 64}
    )


def inside(plain: EnvironmentFacts, **changed: object) -> EnvironmentFacts:
    return plain.model_copy(update={"nix": CLEAN.model_copy(update=changed)})


def test_without_nix_the_lock_is_named(plain: EnvironmentFacts) -> None:
    """No Nix: the Python and the lock with its sha256; or that it was made by hand."""
    assert made_by(plain) == f"no Nix: Python {plain.python}, lock cpu.txt, sha256 {'d' * 64}"
    assert made_by(plain.model_copy(update={"lock": None})).endswith("made by hand, no lock")
    assert nix_rows(plain) == []
    assert nix_warnings(plain) == []


def test_a_clean_shell_warns_of_nothing(plain: EnvironmentFacts) -> None:
    """A shell as committed is named by its store path, its derivation and its locks, without a
    warning.
    """
    here = inside(plain)
    assert made_by(here).startswith("Nix shell, store path /nix/store/a-rankproof-env-cpu; Python")
    assert [row[0] for row in nix_rows(here)] == ["Nix built it from", "Nix shell, derivation"]
    assert nix_warnings(here) == []
    assert made_by(inside(plain, source="/nix/store/c-source")).startswith("nix run, store path")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"as_locked": False}, "did not use the nixpkgs in flake.lock"),
        ({"as_locked": None}, "unknown whether"),
        ({"stale": ["flake.lock"]}, "since the Nix shell was entered: flake.lock"),
        ({"changed": ["nix/shell.nix"]}, "flake is dirty, 1 file changed: nix/shell.nix"),
        ({"untracked": ["harness/new.py"]}, "Nix does not see them: harness/new.py"),
        ({"changed": None, "untracked": None}, "git did not report it"),
    ],
)
def test_each_doubt_is_said(plain: EnvironmentFacts, changed: dict[str, object], said: str) -> None:
    """Whatever makes the environment another one than the commit's is a sentence of the report."""
    assert said in render_markdown(nix_warnings(inside(plain, **changed)))


def test_the_driver_is_named_on_nvidia_machines(plain: EnvironmentFacts) -> None:
    """The cuda environment names the driver's libraries, or says that none was found."""
    here = inside(plain, driver=["libcuda.so.595.1"]).model_copy(update={"variant": "cuda"})
    assert [row[0] for row in nix_rows(here)][-1] == "NVIDIA driver, from the system"
    assert "none found" in str(nix_rows(inside(plain).model_copy(update={"variant": "cuda"}))[-1])
