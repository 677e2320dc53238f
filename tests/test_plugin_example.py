"""The example of a plug-in, installed into a clean environment: it runs, verifies, and is refused
where it must be.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.pull_requests import POLICY, SCENARIO, Keys
from tests.kit.repositories import git, write
from tests.test_core import Core, core, keys, repository

__all__ = ["core", "keys"]

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "plugin"
SIGNERS = ("--allowed-signers", ".rankproof/allowed_signers")

pytestmark = [pytest.mark.slow, pytest.mark.whole]


def pip(core: Core, *arguments: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(core.folder / "bin" / "python"),
        *arguments,
    ]
    subprocess.run(command, check=True, timeout=120, stdin=subprocess.DEVNULL)


def install(core: Core, source: Path) -> None:
    """Install the plug-in from its sources, without a network."""
    wheels = source / "dist"
    shutil.rmtree(wheels, ignore_errors=True)
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(wheels),
    ]
    subprocess.run(
        build, cwd=source, stdin=subprocess.DEVNULL, check=True, capture_output=True, timeout=120
    )
    (wheel,) = wheels.glob("*.whl")
    pip(
        core,
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--force-reinstall",
        "--no-compile",
        str(wheel),
    )


def test_the_example_runs_verifies_and_is_refused(core: Core, keys: Keys, tmp_path: Path) -> None:
    """PASS with its fault proved; another version, other files or none: NOT JUDGED.

    A gate asks its policy.
    """
    source = shutil.copytree(EXAMPLE, tmp_path / "plugin")
    files = {
        "scenarios/plugin/scenario.yaml": (
            (EXAMPLE / "scenario" / "steps.yaml")
            .read_text()
            .replace("role: self-test\nexpects: PASS", "role: claim")
        ),
        "scenarios/plugin/steps.py": (EXAMPLE / "scenario" / "steps.py").read_text(),
    }
    repo = repository(tmp_path / "repo", keys, files)
    missing = core("lint", "scenarios/plugin", cwd=repo)
    assert missing.returncode == 64
    assert "must be one of" in missing.stdout + missing.stderr
    install(core, source)
    assert "hold-memory" in core.passes("list", "faults", cwd=repo)
    core.passes("lint", "scenarios/plugin", cwd=repo)
    said = core.passes("run", "scenarios/plugin", "--key", str(keys.path("ci")), cwd=repo)
    assert ": PASS" in said
    folder = (repo / "results/example-plugin/latest").resolve()
    record = json.loads((folder / "results.json").read_text())
    used = {(one["name"], one["distribution"], one["version"]) for one in record["run"]["plugins"]}
    assert used == {
        ("hold-memory", "rankproof-example", "1.0"),
        ("increasing", "rankproof-example", "1.0"),
    }
    proofs = [
        strike
        for cell in record["judgement"]["cells"]
        for arm in ("candidate", "control")
        for trial in cell[arm]["trials"]
        for strike in trial["strikes"]
    ]
    assert proofs
    assert all(strike["proved"] for strike in proofs)
    report = str(folder / "report.md")
    assert "verified: OK" in core.passes("verify", report, *SIGNERS, cwd=repo)

    for change, word in (
        (
            ("pyproject.toml", 'version = "1.0"', 'version = "1.1"'),
            "but rankproof-example 1.1 is installed on this machine",
        ),
        (
            ("rankproof_example/increasing.py", "value <= before", "value < before"),
            "the files of the installed plug-in differ",
        ),
    ):
        file, old, new = change
        text = (source / file).read_text()
        assert old in text
        (source / file).write_text(text.replace(old, new))
        install(core, source)
        refused = core("verify", report, *SIGNERS, cwd=repo)
        assert refused.returncode == 3
        assert "NOT JUDGED" in refused.stdout
        assert word in refused.stdout
        (source / file).write_text(text)
    pip(core, "uninstall", "--quiet", "--yes", "rankproof-example")
    refused = core("verify", report, *SIGNERS, cwd=repo)
    assert refused.returncode == 3
    assert "NOT JUDGED" in refused.stdout
    assert "of rankproof-example 1.0, which is not installed on this machine" in refused.stdout
    install(core, source)
    assert "verified: OK" in core.passes("verify", report, *SIGNERS, cwd=repo)


@pytest.mark.long
def test_a_gate_asks_its_policy(core: Core, keys: Keys, tmp_path: Path) -> None:
    """A gate refuses a run with a plug-in, unless the trusted policy lists it, in the version that
    ran.
    """
    install(core, shutil.copytree(EXAMPLE, tmp_path / "plugin"))
    text = SCENARIO.replace(
        "checks:\n",
        "checks:\n  - {id: in-order, kind: increasing, ranks: every, value: said.number}\n",
    )
    engine = (
        'echo \'{"event": "ready"}\' >&3; read -r answer <&4\necho "{\\"event\\": \\"said\\",'
        ' \\"values\\": {\\"word\\": \\"$1\\", \\"number\\": 1}}" >&3\n'
    )
    repo = repository(tmp_path / "repo", keys, {})
    listed = 'plugins:\n  - {{distribution: rankproof-example, version: "{}"}}\n'
    for version, answer in ((None, 1), ("0.9", 1), ("1.0", 0)):
        trust(
            repo,
            {
                "scenarios/words/scenario.yaml": text,
                "engine/rank.sh": engine,
                ".rankproof/policy.yaml": POLICY + (listed.format(version) if version else ""),
            },
        )
        core.passes("run", "scenarios/words", "--key", str(keys.path("ci")), cwd=repo)
        done = core("gate", "--trusted-ref", "origin/main", cwd=repo)
        assert done.returncode == answer, done.stdout
        assert ("the policy does not list the plug-in increasing" in done.stdout) == bool(answer)


def trust(repo: Path, files: dict[str, str]) -> None:
    """Commit files, as the trusted branch has them too."""
    write(repo, files)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "trusted", "--allow-empty")
    git(repo, "update-ref", "refs/remotes/origin/main", "HEAD")
