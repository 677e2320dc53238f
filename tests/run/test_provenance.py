"""Which code ran: an installed copy, another working tree and every way around, against the commit
that is claimed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.gate.decision import Decision, decide
from tests.kit import wheels
from tests.kit.commands import Ran, command, environment
from tests.kit.pull_requests import Copy, Keys, Place
from tests.kit.repositories import commit, git

pytestmark = [pytest.mark.slow, pytest.mark.whole]

FIXED = 'def greeting(rank):\n    return "hello"\n'
BROKEN = 'def greeting(rank):\n    return None if rank else "hello"\n'
SUBJECT = """
import engine

def meet(context, *, broken=False):
    said = None if broken and context.rank else engine.greeting(context.rank)
    assert said
    context.emit("met", said=said)
"""
SCENARIO = """
schema: 1
id: meet
title: Ranks meet
question: Do all ranks meet?
subject:
  entry: subject:meet
  control:
    with: {broken: true}
    must_fail: {check: met, ranks: nonzero, error: AssertionError, source: assert said}
matrix: {ranks: [2], backend: [none]}
world: {start: fresh, deadline: 30s}
seed: "7"
trials: {candidate: 4, control: 3, accept: {failure_rate_below: 60%}}
checks:
  - {id: met, kind: event, ranks: every, event: met}
  - {id: ended, kind: exit, ranks: every, code: 0}
"""
PROGRAM = SCENARIO
for old, new in (
    ("  entry: subject:meet\n", "  program: [PYTHON, run.py]\n  candidate: {with: {broken: 0}}\n"),
    ("with: {broken: true}", "with: {broken: 1}"),
    (", backend: [none]", ""),
    ("start: fresh, ", ""),
):
    PROGRAM = PROGRAM.replace(old, new)
RUN = """
import json, os, sys
import engine

def emit(name, **values):
    os.write(3, (json.dumps({"event": name, "values": values}) + "\\n").encode())

rank = int(os.environ["RANKPROOF_RANK"])
emit("ready")
os.read(4, 1)
said = None if os.environ["RANKPROOF_WITH_BROKEN"] == "1" and rank else engine.greeting(rank)
try:
    assert said
except AssertionError:
    emit("rank.error", type="AssertionError", message="", source="assert said")
    sys.exit(1)
emit("met", said=said)
"""
PROJECT = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
PROJECT += (
    '[project]\nname = "{name}"\nversion = "1.0"\n[tool.hatch.build.targets.wheel]\nonly-include ='
    ' ["engine.py"]\n'
)
POLICY = "schema: 1\nsigners: {roles: {ci: [ci]}}\nrequire:\n  - {scenario: meet}\n"


@dataclass
class Workshop:
    """A repository whose head is under test, and an interpreter of one's own that sees what we are
    made of.
    """

    root: Path
    python: Path
    key: Path
    results: Path

    @property
    def repo(self) -> Path:
        return self.root / "repo"

    @property
    def site(self) -> Path:
        return next(self.python.parents[1].glob("lib/python*/site-packages"))

    def propose(self, files: dict[str, str]) -> None:
        """Commit to the branch under test."""
        commit(self.repo, files)

    def pip(self, *arguments: str) -> None:
        """Install into the interpreter, from nowhere but here."""
        options = [
            "--quiet",
            "--no-index",
            "--no-deps",
            "--no-build-isolation",
            "--disable-pip-version-check",
        ]
        done = subprocess.run(
            [
                str(self.python),
                "-m",
                "pip",
                "install",
                *options,
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PIP_CONFIG_FILE": "/dev/null"},
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, text: str, *, version: str = "1.0") -> None:
        """Install a wheel of the module `engine`."""
        self.pip(str(wheels.write(self.root / "wheels", "engine", version, text)))

    def run(self, *more: str) -> Ran:
        given = command(
            "run", "scenarios/meet", "--results", str(self.results), "--key", str(self.key), *more
        )
        given[0] = str(self.python)
        done = subprocess.run(
            given,
            cwd=self.repo,
            env=environment(self.root / "home"),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Ran(done.returncode, done.stdout, done.stderr, self.results)

    def gate(self, policy: str = "") -> Decision:
        """Ask the gate, by a policy with these further lines."""
        git(self.repo, "checkout", "-q", "--detach", "refs/remotes/origin/main")
        commit(self.repo, {".rankproof/policy.yaml": POLICY + policy})
        git(self.repo, "update-ref", "refs/remotes/origin/main", "HEAD")
        git(self.repo, "checkout", "-q", "branch")
        return decide(
            [self.results],
            commit="branch",
            policy=".rankproof/policy.yaml",
            trusted_ref="origin/main",
            folder=self.repo,
        )


def word(found: Decision) -> str:
    return next(f"{one.word}: {one.reason}" for one in found.requirements if one.name == "code")


def reasons(ran: Ran) -> str:
    return "\n".join(ran.record.judgement.reasons)


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that sees the packages of ours; copied, never changed."""
    folder = tmp_path_factory.mktemp("interpreter") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    own = {path for path in sys.path if path.endswith("site-packages")}
    # The paths alone: what their .pth files do would put this working tree on the path.
    (site / "ours.pth").write_text("".join(f"{path}\n" for path in sorted(own)))
    return folder


@pytest.fixture
def workshop(tmp_path: Path, interpreter: Path) -> Workshop:
    """The branch under test breaks what main has."""
    repo, key = tmp_path / "repo", tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    files = {
        ".gitignore": "__pycache__/\n",
        ".rankproof/policy.yaml": POLICY,
        ".rankproof/allowed_signers": f'ci namespaces="report@rankproof" {public}\n',
        "pyproject.toml": PROJECT.format(name="Engine"),
        "engine.py": FIXED,
        "scenarios/meet/scenario.yaml": SCENARIO,
        "scenarios/meet/subject.py": SUBJECT,
    }
    commit(repo, files)
    git(repo, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(repo, "checkout", "-q", "-b", "branch")
    commit(repo, {"engine.py": BROKEN})
    python = tmp_path / "env"
    shutil.copytree(interpreter, python, symlinks=True)
    return Workshop(tmp_path, python / "bin" / "python", key, tmp_path / "results")


def trust(workshop: Workshop, files: dict[str, str]) -> None:
    """The trusted branch has them too: what changes in a test is one thing."""
    git(workshop.repo, "checkout", "-q", "main")
    commit(workshop.repo, files)
    git(workshop.repo, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(workshop.repo, "checkout", "-q", "branch")
    git(workshop.repo, "rebase", "-q", "main")


def test_a_copy_installed_from_main_is_not_the_branch(workshop: Workshop) -> None:
    """The branch is broken on every rank but 0, the installed release is not: INCONCLUSIVE, and no
    gate opens.
    """
    workshop.install(FIXED)
    ran = workshop.run()
    assert ran.code == 2, ran.out + ran.err
    assert "engine.py came from an installed copy (engine 1.0), but the repository has" in reasons(
        ran
    )
    assert "set subject.path to the folder of the code, or install it from the commit" in reasons(
        ran
    )
    found = workshop.gate()
    assert found.answer != "OPEN"
    assert word(found).startswith(
        "REFUSED: this does not prove that the commit's code ran: candidate: engine.py"
    )


def test_an_editable_install_of_another_working_tree_is_not_the_branch(workshop: Workshop) -> None:
    """The same with an editable install that leads to a working tree of main."""
    other = workshop.root / "main"
    git(workshop.repo, "worktree", "add", "-q", str(other), "main")
    workshop.pip("-e", str(other))
    ran = workshop.run()
    assert ran.code == 2, ran.out + ran.err
    assert "engine.py came from an installed copy (engine 1.0), but the repository has" in reasons(
        ran
    )
    assert word(workshop.gate()).startswith("REFUSED")


@pytest.mark.parametrize("way", ["wheel", "editable"])
def test_a_copy_whose_files_are_the_commits_is_proof(workshop: Workshop, way: str) -> None:
    """An installed copy, or an editable install, with the content of the commit: PASS, and the gate
    opens.
    """
    workshop.propose({"engine.py": FIXED + "# the fix\n"})
    if way == "wheel":
        workshop.install(FIXED + "# the fix\n")
    else:
        workshop.pip("-e", str(workshop.repo))
    ran = workshop.run()
    assert ran.code == 0, ran.out + ran.err
    found = workshop.gate()
    assert found.answer == "OPEN", found.requirements
    ran = "the candidate ran the commit's code, according to the files that ranks report"
    assert word(found) == f"MET: {ran}; other packages are compared with their own RECORD"


def test_a_program_is_never_told(workshop: Workshop) -> None:
    """A program that imports the installed copy passes.

    The gate cannot tell, and never calls it the commit's code.
    """
    files = {
        "scenarios/meet/scenario.yaml": PROGRAM.replace("PYTHON", str(workshop.python)),
        "scenarios/meet/run.py": RUN,
    }
    trust(workshop, files)
    workshop.install(FIXED)
    ran = workshop.run()
    assert ran.code == 0, ran.out + ran.err
    report = (ran.folder / "report.md").read_text()
    assert "It is unknown which other code the programs loaded" in report
    found = workshop.gate()
    assert found.answer == "CANNOT TELL"
    assert word(found).startswith("CANNOT TELL: the code that programs loaded is unknown; ")
    found = workshop.gate("programs: allowed\n")
    assert found.answer == "OPEN", found.requirements
    assert "the candidate ran" not in "".join(one.reason for one in found.requirements)


def test_what_is_installed_on_purpose_passes_and_no_gate_takes_it(workshop: Workshop) -> None:
    """`of: installed` says that the subject is what is installed: the run may PASS, the gate
    refuses.
    """
    trust(
        workshop,
        {"scenarios/meet/scenario.yaml": SCENARIO.replace("  entry", "  of: installed\n  entry")},
    )
    workshop.install(FIXED)
    ran = workshop.run()
    assert ran.code == 0, ran.out + ran.err
    found = workshop.gate()
    assert found.answer == "CLOSED"
    assert word(found) == (
        "REFUSED: the subject is the installed code (subject.of), not the code of the commit"
    )


def test_folder_names_alone_decide_nothing(workshop: Workshop) -> None:
    """A package of which the repository holds no half is what its RECORD says, whatever folders are
    called like it.
    """
    folders = (
        "engines/toolbox/__init__.py",
        "toolbox/notes.py",
        "scenarios/meet/toolbox/notes.txt",
    )
    subject = SUBJECT.replace("import engine", "import toolbox as engine")
    trust(
        workshop,
        {
            "scenarios/meet/subject.py": subject,
            **dict.fromkeys(folders, "def greeting(rank): pass\n"),
        },
    )
    workshop.pip(str(wheels.write(workshop.root / "wheels", "toolbox", "3.0", FIXED)))
    ran = workshop.run()
    assert ran.code == 0, ran.out + ran.err
    found = workshop.gate()
    assert found.answer == "OPEN", found.requirements


def test_a_gate_does_not_believe_what_a_record_says_of_the_commit(workshop: Workshop) -> None:
    """A signed record of another commit's run, also one that calls nothing declared: the commit is
    read.
    """
    workshop.install(FIXED)
    workshop.propose({"engine.py": FIXED})
    ran = workshop.run()
    assert ran.code == 0, ran.out + ran.err
    workshop.propose({"engine.py": BROKEN})
    head = git(workshop.repo, "rev-parse", "HEAD")
    copy = Copy(ran.folder, Place(workshop.repo, workshop.results, Keys(workshop.root), head))
    copy.facts(source={"commit": head}).sign("key")
    refused = (
        "REFUSED: this does not prove that the commit's code ran: candidate: engine.py came from an"
        " installed copy"
    )
    assert word(workshop.gate()).startswith(refused)
    nothing: dict[str, object] = {"declared": [], "files": {}, "roots": {}, "installed": []}
    copy.facts(provenance={"candidate": nothing, "control": nothing}).sign("key")
    found = workshop.gate()
    assert word(found).startswith(refused.partition(" engine.py")[0])
    assert "engine came from the installed engine 1.0, whose files were not reported" in word(found)
    assert [one.name for one in found.requirements if one.word != "MET"] == ["code"]
