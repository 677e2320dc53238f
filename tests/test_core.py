"""The package without its extras, installed from its wheel: small, and enough for all but
models.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.kit.commands import SCENARIO as JOINED
from tests.kit.commands import SUBJECT, environment
from tests.kit.pull_requests import ENGINE, NAMES, POLICY, SCENARIO, Keys
from tests.kit.repositories import git, write
from tests.test_locks import requirements

PROJECT = Path(__file__).resolve().parent.parent
MOST_DISTRIBUTIONS = 14
MOST_BYTES = 25_000_000

pytestmark = [pytest.mark.slow, pytest.mark.whole]


@dataclass(frozen=True, kw_only=True)
class Core:
    """An environment with the wheel and what locks/core.txt pins, and nothing else."""

    folder: Path

    @property
    def site(self) -> Path:
        return next(self.folder.glob("lib/python*/site-packages"))

    def __call__(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Call the installed command."""
        variables = environment(cwd.parent / "home")
        variables.pop("PYTHONPATH")
        return subprocess.run(
            [str(self.folder / "bin" / "rankproof"), *arguments],
            cwd=cwd,
            env=variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def passes(self, *arguments: str, cwd: Path) -> str:
        """Call the installed command, which has to end with 0; returns what it prints."""
        done = self(*arguments, cwd=cwd)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout


def pinned() -> dict[str, str]:
    """The distributions of the core's lock for this machine, with their versions."""
    lines = (PROJECT / "locks" / "core.txt").read_text()
    wanted = [Requirement(line.partition(" --hash")[0]) for line in requirements(lines)]
    return {
        canonicalize_name(one.name): str(one.specifier).removeprefix("==")
        for one in wanted
        if one.marker is None or one.marker.evaluate()
    }


def lay(name: str, version: str, *, site: Path) -> None:
    """Install a distribution as pip would, from the files that pip installed here: no network is
    asked.
    """
    there = metadata.distribution(name)
    assert there.version == version, f"{name} is {there.version} here, locks/core.txt has {version}"
    for file in there.files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(str(file.locate())), site / file)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Core:
    """The environment, made without a network."""
    pytest.importorskip("pip")
    root = tmp_path_factory.mktemp("core")
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(root / "wheels"),
    ]
    subprocess.run(
        build, cwd=PROJECT, stdin=subprocess.DEVNULL, check=True, capture_output=True, timeout=120
    )
    made = Core(folder=root / "env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made.folder)], check=True)
    for name, version in pinned().items():
        lay(name, version, site=made.site)
    (wheel,) = (root / "wheels").glob("*.whl")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(made.folder / "bin" / "python"),
        "install",
        "--quiet",
    ]
    subprocess.run(
        [*pip, "--no-index", "--no-deps", "--no-compile", str(wheel)], check=True, timeout=120
    )
    return made


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """A key pair for each name."""
    made = Keys(tmp_path_factory.mktemp("keys"))
    for name in NAMES:
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made.path(name))], check=True
        )
    return made


def repository(folder: Path, keys: Keys, files: dict[str, str]) -> Path:
    """A clone at the head of a pull request that changes nothing but the engine, with a trusted
    policy.
    """
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    trusted = {
        ".gitignore": "/results/\n__pycache__/\n",
        ".rankproof/policy.yaml": POLICY,
        ".rankproof/allowed_signers": "".join(
            keys.line(name) for name in NAMES if name != "mallory"
        ),
        "scenarios/words/scenario.yaml": SCENARIO,
        "engine/rank.sh": ENGINE,
    }
    for changes in (trusted, {"engine/rank.sh": ENGINE.replace("version 1", "version 2"), **files}):
        write(folder, changes)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "changes")
        if changes is trusted:
            git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
            git(folder, "checkout", "-q", "--detach")
    return folder


def run_and_judge(core: Core, repo: Path, keys: Keys) -> None:
    """Two runs of a program from its file to an open gate."""
    signers = ("--allowed-signers", ".rankproof/allowed_signers")
    core.passes("lint", "scenarios/words", cwd=repo)
    reports = []
    for _ in range(2):
        core.passes(
            "run", "scenarios/words", "--key", str(keys.path("ci")), "--jobs", "2", cwd=repo
        )
        reports.append(str((repo / "results/words/latest").resolve() / "report.md"))
        assert "verified: OK, signed by ci" in core.passes(
            "verify", reports[-1], *signers, cwd=repo
        )
    core.passes("diff", *reports, *signers, cwd=repo)
    assert "Ranks say yes" in core.passes("show", "results/words/latest", *signers, cwd=repo)
    assert "OPEN" in core.passes("gate", "--trusted-ref", "origin/main", cwd=repo)


def test_the_core_is_small(core: Core) -> None:
    """At most 14 distributions and 24.5 MB, whose requirements are all there, and no numpy among
    them.
    """
    there = {
        canonicalize_name(one.name): one for one in metadata.distributions(path=[str(core.site)])
    }
    assert there.keys() == {*pinned(), "rankproof"}
    assert len(there) <= MOST_DISTRIBUTIONS
    assert "numpy" not in there
    for one in there.values():
        for needed in map(Requirement, one.requires or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert needed.specifier.contains(there[canonicalize_name(needed.name)].version), (
                    one.name,
                    needed,
                )
    files = [path for path in core.site.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES


def test_a_program_is_run_and_gated_with_the_core_alone(
    core: Core, keys: Keys, tmp_path: Path
) -> None:
    """Lint, run, verify, compare, show, gate, bundle and reproduce need no extra where ranks are
    programs.

    The repository has a package `harness` of its own: the command is ours, and the subject's
    package is its own.
    """
    own = {
        "harness/__init__.py": 'raise_if_ours = "the repository\'s own"\n',
        "harness/cli/__init__.py": "raise SystemExit('this is the package of the repository')\n",
        "harness/engine.py": (
            "from harness import raise_if_ours\n\ndef thing():\n    return raise_if_ours\n"
        ),
        "scenarios/own/subject.py": (
            SUBJECT.replace("\ndef", "\nfrom harness.engine import thing as own\n\ndef").replace(
                '"thing"', "own()"
            )
        ),
        "scenarios/own/scenario.yaml": JOINED.replace(
            "  entry: subject:meet", "  path: ../..\n  entry: scenarios.own.subject:meet"
        ),
    }
    repo = repository(tmp_path / "repo", keys, own)
    run_and_judge(core, repo, keys)
    core.passes("bundle", "results/words/latest", "--out", "words.rankproof.tar.xz", cwd=repo)
    signers = ("--allowed-signers", ".rankproof/allowed_signers")
    more = ("--repo", ".", "--unsigned", "--results", str(tmp_path / "again"))
    assert "REPRODUCED" in core.passes(
        "reproduce", "words.rankproof.tar.xz", *signers, *more, cwd=repo
    )
    assert ": PASS" in core.passes("run", "scenarios/own", "--unsigned", cwd=repo)
    events = (repo / "results/meet/latest").resolve().rglob("candidate-*/events.jsonl")
    assert ["the repository's own" in path.read_text() for path in events] == [True] * 5


def test_init_writes_what_the_core_runs(core: Core, tmp_path: Path) -> None:
    """Without torch, `init` writes a scenario of plain Python, warm, that passes, and says what
    brings a group.
    """
    folder = tmp_path / "work"
    folder.mkdir()
    said = core.passes("init", "mine", "--yes", cwd=folder)
    assert "torch is not installed; run pip install 'rankproof[torch]'" in said
    core.passes("lint", "mine", cwd=folder)
    few = ("--set", "trials.candidate=5", "--set", "trials.accept.failure_rate_below=50%")
    assert ": PASS" in core.passes("run", "mine", "--unsigned", *few, cwd=folder)


def said_by(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments", [["identity", "."], ["diff", ".", "."], ["lock", "."], ["verify", "."]], ids=str
)
def test_the_tokenizer_commands_name_their_extra(
    core: Core, tmp_path: Path, arguments: Sequence[str]
) -> None:
    """Where the libraries are missing, `rankproof tokenizer` could not run, and names the extra in
    one sentence.
    """
    code, said = said_by(core("tokenizer", *arguments, cwd=tmp_path))
    assert code == 2
    assert re.fullmatch(
        rf"rankproof tokenizer {arguments[0]}: \w+ is not installed; run pip install"
        r" 'rankproof\[tokenizer\]'\n",
        said,
    )


def test_a_backend_without_its_library_is_skipped(core: Core, tmp_path: Path) -> None:
    """Cells with a backend whose library is missing are SKIPPED with its extra, and doctor says the
    same.
    """
    folder = tmp_path / "work"
    both = JOINED.replace("backend: [none]", "backend: [gloo, mlx-ring]")
    write(folder, {"mine/scenario.yaml": both, "mine/subject.py": SUBJECT})
    code, said = said_by(core("run", "mine", "--unsigned", cwd=folder))
    examined = core("doctor", "--quick", cwd=folder).stdout
    assert code == 2
    for backend, library, extra in (("gloo", "torch", "torch"), ("mlx-ring", "mlx", "mlx")):
        sentence = f"{library} is not installed; run pip install 'rankproof[{extra}]'"
        assert f"backend {backend}: {sentence}" in said
        assert sentence in examined


def test_a_subject_that_imports_what_is_missing_names_the_extra(core: Core, tmp_path: Path) -> None:
    """Code that imports an engine fails without it, as any code that lacks a package, and the run
    names the extra.
    """
    folder = tmp_path / "work"
    subject = SUBJECT.replace("    thing =", "    import transformers\n    thing =")
    write(folder, {"mine/scenario.yaml": JOINED, "mine/subject.py": subject})
    code, said = said_by(core("run", "mine", "--unsigned", cwd=folder))
    assert code == 1
    assert "\n      transformers is not installed; run pip install 'rankproof[tokenizer]'\n" in said


def test_an_input_of_a_hub_names_its_extra(core: Core, tmp_path: Path) -> None:
    """A scenario that takes an input from a hub says what is missing before anything runs."""
    folder = tmp_path / "work"
    text = JOINED.replace("matrix:", "inputs: {model: {hub: org/model@main}}\nmatrix:")
    write(folder, {"mine/scenario.yaml": text, "mine/subject.py": SUBJECT})
    code, said = said_by(core("run", "mine", "--unsigned", cwd=folder))
    assert code == 2
    assert (
        "input model: org/model@main must come from a hub, but huggingface_hub is not installed;"
        " run pip install" in said
    )
