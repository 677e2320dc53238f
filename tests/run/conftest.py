"""Scenarios written for one test, run for real."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.record.results import ResultsFolder
from harness.run.arms.staging import StagedArm, stage_arms
from harness.scenario import load_scenario
from tests.kit import command_server, wheels
from tests.kit.commands import (
    HOSTILE,
    SCENARIO,
    SUBJECT,
    Pair,
    Ran,
    environment,
    rankproof,
    run_command,
    scenario,
)

__all__ = ["rankproof", "scenario"]  # fixtures of other rooms too


@pytest.fixture
def staged(tmp_path: Path) -> Callable[..., dict[str, StagedArm]]:
    """Stage a scenario, with overrides."""
    count = iter(range(100))

    def run(
        folder: Path, *overrides: str, inputs: list[Path] | None = None
    ) -> dict[str, StagedArm]:
        loaded = load_scenario(folder, overrides=overrides)
        results = ResultsFolder(tmp_path / f"results-{next(count)}", "it")
        return stage_arms(
            loaded.scenario, folder=loaded.folder, inputs=inputs or [], results=results
        )

    return run


@pytest.fixture(scope="session")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run whose ranks keep arrays; copy its folder before changing it."""
    from tests.kit.sums import SCENARIO as KEEPING
    from tests.kit.sums import SUBJECT as KEEPER

    place = tmp_path_factory.mktemp("sums")
    (place / "scenario").mkdir()
    (place / "scenario" / "scenario.yaml").write_text(KEEPING)
    (place / "scenario" / "subject.py").write_text(KEEPER)
    return run_command(place, "run", str(place / "scenario"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Two versions of a package that needs another.

    Variables under which pip finds them and nothing else.
    """
    folder = tmp_path / "wheels"
    wheels.write(
        folder,
        "greeting",
        "1.0",
        "from word import WORD\nTEXT = WORD.upper()\n",
        requires=["word>=1"],
    )
    wheels.write(
        folder, "greeting", "2.0", "from word import WORD\nTEXT = WORD\n", requires=["word>=1"]
    )
    wheels.write(folder, "word", "1.2", "WORD = 'hello'\n")
    found = wheels.settings(folder, tmp_path / "cache")
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def kept_environments(pytestconfig: pytest.Config) -> dict[str, str]:
    """A cache of environments that is kept from one run of the tests to the next: for what takes a
    minute to make.

    Every use checks its files, and all tests that need such a one ask for the same.
    """
    assert pytestconfig.cache is not None
    return {"RANKPROOF_ENVIRONMENTS": str(pytestconfig.cache.mkdir("environments"))}


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Made once, by the command; copy a folder before changing it."""
    root = tmp_path_factory.mktemp("pair")
    key = root / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    hostile = (
        f"    if context.rank:\n        print({HOSTILE!r})\n        raise ValueError({HOSTILE!r})\n"
    )
    often = SCENARIO.replace("control: 2", "control: 5")  # enough to be compared
    texts = {
        "good": (often, SUBJECT),
        "bad": (
            often.replace("id: meet", "id: parting").replace(
                "Ranks meet", '"Ranks <b>part</b> ]]> & \\u202eleave"'
            ),
            SUBJECT.replace("    assert thing\n", f"    assert thing\n{hostile}"),
        ),
    }
    for name, (scenario_text, subject) in texts.items():
        (root / name).mkdir()
        (root / name / "scenario.yaml").write_text(scenario_text)
        (root / name / "subject.py").write_text(subject)
    given = (
        "run",
        *(str(root / name) for name in texts),
        "--results",
        str(root / "results"),
        "--key",
        str(key),
    )
    done = command_server.run(*given, cwd=root, env=environment(root / "home"))
    assert done.returncode == 1, done.stdout + done.stderr
    folders = [(root / "results" / name / "latest").resolve() for name in ("meet", "parting")]
    return Pair(*folders, key)
