"""A results folder that cannot be written is one clear line, and nothing is signed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.record.results import ResultsError, ResultsFolder
from tests.kit import command_server
from tests.kit.commands import Ran, environment, needs_mount


def run_into(results: Path, scenario: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    given = ("run", str(scenario), "--results", str(results))
    return command_server.run(*given, cwd=tmp_path, env=environment(tmp_path / "home"))


def demand_one_clear_line(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("rankproof run:")]
    assert len(told) == 1
    assert "Nothing was signed" in told[0]


@needs_mount
@pytest.mark.slow
def test_a_full_disk_is_one_line_and_nothing_signed(
    small_disk: Path, scenario: Callable[..., Path], tmp_path: Path
) -> None:
    """When the disk fills while trials run, the run stops with one line and leaves an unfinished
    folder.
    """
    noisy = scenario(
        {
            "subject.py": (
                "def meet(context, *, broken):\n    print('x' * 200_000)\n    context.emit('met')\n"
            )
        }
    )
    done = run_into(small_disk / "results", noisy, tmp_path)
    demand_one_clear_line(done)
    assert "No space left" in done.stderr
    assert list(small_disk.rglob("report.md")) == []
    assert [path for path in small_disk.rglob("*.unfinished") if path.is_dir()]


@needs_mount
@pytest.mark.slow
def test_a_read_only_folder_is_one_line(
    small_disk: Path, scenario: Callable[..., Path], tmp_path: Path
) -> None:
    """A results folder that is read-only is told before any rank is started."""
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = run_into(small_disk / "results", scenario(), tmp_path)
    demand_one_clear_line(done)
    assert "Read-only" in done.stderr


def test_results_that_is_a_file_is_one_line(
    scenario: Callable[..., Path], rankproof: Callable[..., Ran]
) -> None:
    """A file where the results folder should be is told, not stumbled over."""
    folder = scenario()
    (folder.parent / "results").write_text("")
    ran = rankproof("run", str(folder))
    assert ran.code == 2
    assert "cannot write" in ran.err
    assert "Traceback" not in ran.err


def test_nothing_is_written_twice(tmp_path: Path) -> None:
    """Evidence is written once: a second write of the same file is refused."""
    folder = ResultsFolder(tmp_path, "it")
    folder.write("evidence/a", b"one")
    with pytest.raises(ResultsError, match="exists"):
        folder.write("evidence/a", b"two")
    assert folder.read("evidence/a") == b"one"


def test_evidence_that_somebody_else_changed_stops_the_run(tmp_path: Path) -> None:
    """A subject may write anywhere: a file that is not what was written is refused before anything
    is signed.
    """
    folder = ResultsFolder(tmp_path, "it")
    folder.write("evidence/a", b"one")
    (folder.path / "evidence/a").write_bytes(b"two")
    with pytest.raises(ResultsError, match="not by the harness"):
        folder.read("evidence/a")


def test_latest_points_at_the_newest_run_that_ended(tmp_path: Path) -> None:
    """`latest` appears when a run is finished, here and above; an abandoned run leaves it alone."""
    first = ResultsFolder(tmp_path, "it")
    done = first.finish(manifest=("MANIFEST.sha256", b""), report=("report.md", b""))
    abandoned = ResultsFolder(tmp_path, "it")
    abandoned.abandon("stopped")
    assert (tmp_path / "it" / "latest").resolve() == done == (tmp_path / "latest").resolve()
    assert (abandoned.path / "UNFINISHED.txt").exists()
