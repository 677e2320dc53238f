"""The project's commands; `nox -l` lists them. Needs nox and Python 3.11 or newer, nothing else.

All sessions share one environment per variant and Python, `.nox/env-<variant>-<python>`, made once
from the locks with hashes required. What follows "--" goes to the command: `nox -s tests -- -k
locks`, `nox -s validate -- scenarios/x`.

Read from the environment:

* `RANKPROOF_VARIANT`: `cpu`, `cuda` or `metal` instead of what this machine looks like.
* `RANKPROOF_ENV`: a folder with `bin/python` and everything in it (`nix develop` sets it); then
  nothing is installed. If it says which locks it was made from, they must be the ones that are
  here.

Set for every command: `RANKPROOF_VARIANT`, and `RANKPROOF_LOCK`, the path of the lock it was made
from.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nox

# Nox itself still runs on 3.10, and tomllib's absence explains nothing.
if sys.version_info < (3, 11):  # noqa: UP036
    raise SystemExit(
        f"nox runs on Python {sys.version.split()[0]} here; Rankproof needs 3.11 or newer."
    )

import tomllib

import filelock  # part of every nox installation: virtualenv, which nox requires, requires it

sys.path.insert(0, str(Path(__file__).resolve().parent / "locks"))
from interpreter import Interpreter, choose_python, choose_variant, interpreter_at

if TYPE_CHECKING:
    from collections.abc import Iterator

nox.needs_version = ">=2025.2.9"
# Validate runs for minutes and writes signed results: only when asked for.
nox.options.sessions = ["tests"]

PROJECT = Path(__file__).resolve().parent
LOCKS = PROJECT / "locks"
MADE = "rankproof-environment.json"  # in the environment: what it was made from, for the record
RECIPE = "2"  # part of every environment's stamp: raise it when the installation below changes
# After Ctrl-C nox gives a child 0.3 s; the harness needs longer to stop its ranks and to mark the
# run unfinished.
PATIENCE: dict[str, Any] = {"interrupt_timeout": 20, "terminate_timeout": 20}
PIP_ENV = {
    "PIP_USER": "0",
    "PIP_REQUIRE_HASHES": "0",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
PIP = ("-m", "pip", "install", "--quiet", "--progress-bar", "off")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """Where a session's commands run."""

    python: Path
    variables: dict[str, str | None]

    def run(self, session: nox.Session, *arguments: str) -> None:
        """Run this environment's Python in the project folder, with time to clean up after
        Ctrl-C.
        """
        session.run(str(self.python), *arguments, env=self.variables, external=True, **PATIENCE)


# --- the environment
# ----------------------------------------------------------------------------------------------


def digest(*paths: Path, extra: str = "") -> str:
    """One sha256 over the files' contents."""
    total = hashlib.sha256(f"{RECIPE}\n{extra}\n".encode())
    for path in paths:
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def stamped(stamp: Path, value: str) -> bool:
    """Whether this step was finished with exactly these inputs."""
    with contextlib.suppress(FileNotFoundError):
        return stamp.read_text() == value
    return False


def make_empty(session: nox.Session, folder: Path, python: str) -> Path:
    """A fresh virtual environment with pip.

    Nox brings virtualenv, so a Python without venv or ensurepip will do.
    """
    shutil.rmtree(folder, ignore_errors=True)
    session.run(
        sys.executable, "-m", "virtualenv", "--quiet", "--no-periodic-update", "--python", python, str(folder),
        external=True, silent=True, **PATIENCE,
    )  # fmt: skip
    return folder / "bin" / "python"


def install_torch_cpu(session: nox.Session, python: Path, torch_cpu: dict[str, Any]) -> None:
    """Install torch's CPU wheel: from a folder that pip is configured with, else from PyTorch's own
    index, asked once.

    The address of that index never reaches the installation of the other packages, and theirs never
    reaches this one: `--no-index` silences every index that pip is configured with.
    """
    requirement = python.parent.parent / "torch.txt"
    hashes = "".join(f" --hash=sha256:{wheel['sha256']}" for wheel in torch_cpu["wheel"])
    requirement.write_text(f"torch=={torch_cpu['version']}{hashes}\n")
    page = f"{torch_cpu['index'].rstrip('/')}/torch/"
    once = (
        "--no-index",
        "--retries",
        "0",
        "--timeout",
        "5",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--require-hashes",
    )
    said = []
    for source in ((), ("--find-links", page)):
        session.log(
            f"torch {torch_cpu['version']}: "
            + (f"asking {page}" if source else "looking where pip looks for files")
        )
        # Very verbose, because otherwise pip keeps to itself why a page could not be read.
        command = [
            str(python),
            "-m",
            "pip",
            "install",
            "-vv",
            "--progress-bar",
            "off",
            *once,
            *source,
        ]
        command += ["--requirement", str(requirement)]
        # Not session.run: the first source may refuse.
        done = subprocess.run(
            command,
            env={**os.environ, **PIP_ENV},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return
        unread = [
            line.strip() for line in done.stdout.splitlines() if "Could not fetch URL" in line
        ]
        said.append("\n".join([*unread, done.stderr.strip()]))
    session.error(
        f"torch {torch_cpu['version']} could not be installed.\nFrom the folders that pip is"
        f" configured with (find-links):\n{said[0]}\nFrom {page}, asked once:\n{said[1]}\nWithout a"
        " way to that address, put the wheel that locks/torch-cpu.toml names for this Python and"
        " machine into a folder, set PIP_FIND_LINKS to that folder, and run nox again; `nox -P"
        " 3.11 …` builds on another Python"
    )


def build(
    session: nox.Session,
    folder: Path,
    interpreter: Interpreter,
    variant: str,
    torch_cpu: dict[str, Any],
) -> None:
    """Make the environment from nothing; every file that goes in is held to a hash of the locks."""
    session.log(
        f"making {folder.name} from locks/{variant}.txt and locks/dev.txt; this is done once and"
        " takes a few minutes"
    )
    python = make_empty(session, folder, interpreter.path)
    if variant == "cpu":
        install_torch_cpu(session, python, torch_cpu)
    locks = [
        argument
        for name in (variant, "dev")
        for argument in ("--requirement", str(LOCKS / f"{name}.txt"))
    ]
    install = ("--require-hashes", "--only-binary", ":all:", *locks)
    try:
        session.run(str(python), *PIP, *install, env=PIP_ENV, external=True, **PATIENCE)
    except nox.command.CommandFailed:
        session.error(
            f"locks/{variant}.txt and locks/dev.txt could not be installed; pip says above why.\nA"
            " hash that does not match: the file was changed after it was locked, on its way or in"
            " pip's cache. Run `python -m pip cache purge`, or use another index.\nA requirement"
            " that must be pinned, or has no matching distribution: the lock is incomplete or the"
            " index is. Run `nox -s lock` and look at what changes"
        )


def given_environment(
    session: nox.Session, folder: Path, variables: dict[str, str | None]
) -> Environment:
    """An environment that somebody else made, such as `nix develop`: taken as it is, or refused."""
    python = folder / "bin" / "python"
    if not os.access(python, os.X_OK):
        session.error(
            f"RANKPROOF_ENV is {folder}, but there is no {python}. Unset it to let nox make one"
        )
    variables |= {"PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    made: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError):
        made = json.loads((folder / MADE).read_text())
    made_from = [(LOCKS / made["lock"], made["lock_sha256"])] if "lock" in made else []
    if "wheels_sha256" in made:
        made_from.append((LOCKS / "wheels.json", made["wheels_sha256"]))
    with contextlib.suppress(KeyError, OSError, ValueError):
        # What a Nix shell leaves: harness/record/environment.py.
        shell = json.loads(Path(os.environ["RANKPROOF_NIX"]).read_text())
        made_from.append((PROJECT / "flake.lock", shell["flake_lock_sha256"]))
    for path, was in made_from:
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != was:
            name = path.relative_to(PROJECT)
            session.error(
                f"{folder} was made from another {name} than the one that is here now.\nLeave this"
                f" shell and enter it again (`nix develop`), or bring {name} back with git"
            )
    if "lock" in made:
        variables |= {
            "RANKPROOF_LOCK": str(LOCKS / made["lock"]),
            "RANKPROOF_VARIANT": made["variant"],
        }
    return Environment(python=python, variables=variables)


def ready(session: nox.Session) -> Environment:
    """The environment that this session runs in, made or mended if it has to be."""
    variables: dict[str, str | None] = {"PYTHONPATH": None, "PYTHONHOME": None}
    if given := os.environ.get("RANKPROOF_ENV"):
        return given_environment(session, Path(given), variables)

    variant = choose_variant(session)
    torch_cpu = tomllib.loads((LOCKS / "torch-cpu.toml").read_text())
    interpreter = choose_python(session, variant, torch_cpu)
    home = session.cache_dir.parent
    folder = home / f"env-{variant}-{interpreter.version}"
    python = folder / "bin" / "python"
    made_of = [LOCKS / f"{variant}.txt", LOCKS / "dev.txt", LOCKS / "torch-cpu.toml"]
    # Two nox at once: the second waits, then finds it made.
    with filelock.FileLock(home / f"{folder.name}.lock"):
        whole, project = folder / "locks.stamp", folder / "project.stamp"
        if not (stamped(whole, digest(*made_of)) and interpreter_at(str(python))):
            build(session, folder, interpreter, variant, torch_cpu)
            # For the record of a run that is started from here without nox.
            lock_sha256 = hashlib.sha256(made_of[0].read_bytes()).hexdigest()
            made = {"variant": variant, "lock": made_of[0].name, "lock_sha256": lock_sha256}
            (folder / MADE).write_text(json.dumps(made))
            whole.write_text(digest(*made_of))
        # Tool settings in pyproject.toml change often; only what an installation records is worth a
        # new one.
        metadata = tomllib.loads((PROJECT / "pyproject.toml").read_text())
        recorded = digest(
            extra=json.dumps(
                [str(PROJECT), metadata["project"], metadata["build-system"]], sort_keys=True
            )
        )
        if not stamped(project, recorded):
            install = (
                "--no-deps",
                "--no-index",
                "--no-build-isolation",
                "--editable",
                str(PROJECT),
            )
            session.run(str(python), *PIP, *install, env=PIP_ENV, external=True, **PATIENCE)
            project.write_text(recorded)
    variables |= {
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "RANKPROOF_LOCK": str(made_of[0]),
        "RANKPROOF_VARIANT": variant,
        "VIRTUAL_ENV": str(folder),
    }
    return Environment(python=python, variables=variables)


# --- the sessions
# ----------------------------------------------------------------------------------------------


@nox.session(venv_backend="none")
def validate(session: nox.Session) -> None:
    """Run the scenarios on real ranks; write and sign results/."""
    ready(session).run(session, "-m", "harness.cli", "run", *session.posargs)


def workers() -> tuple[str, ...]:
    """How pytest spreads the tests: a worker per core.

    Two at least, because many tests wait; eight at most, because each has warm servers of its own.
    Each begins with one stretch of the tests (worksteal), so that what a folder's tests share is
    made once.
    """
    return "-n", str(min(8, max(2, os.cpu_count() or 2))), "--dist", "worksteal"


def tests_environment(session: nox.Session) -> Environment:
    """The environment for tests: pytest keeps what it made of their asserts, or every worker makes
    it again.
    """
    environment = ready(session)
    environment.variables["PYTHONDONTWRITEBYTECODE"] = None
    return environment


def run_tests(session: nox.Session, *arguments: str) -> None:
    """Run pytest in the environment, and say how much processor time it took.

    The time of the clock depends on what else a machine does; this hardly does, so that CI shows
    whether the tests became slower.
    """
    environment = tests_environment(session)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        environment.run(session, "-m", "pytest", *arguments)
    finally:
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        user = after.ru_utime - before.ru_utime
        system = after.ru_stime - before.ru_stime
        session.log(
            f"processor time: {user + system:.0f} s ({user:.0f} s user, {system:.0f} s system)"
        )


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run the tests; `-- -n0` in one process, `-- -m "not slow"` only what takes no second.

    Whole runs: `whole`. The longest of them, which CI leaves out: `long`.
    """
    run_tests(session, *workers(), "-m", "not whole and not long", *session.posargs)


@nox.session(venv_backend="none", default=False)
def whole(session: nox.Session) -> None:
    """Run the tests that make whole runs: shipped scenarios and examples, reproduction, provenance
    at a gate.
    """
    run_tests(session, *workers(), "-m", "whole and not long", *session.posargs)


@nox.session(venv_backend="none", default=False)
def long(session: nox.Session) -> None:
    """Run the tests that CI has no time for, before a release: 64 ranks, every served row, every
    older wheel.
    """
    run_tests(session, *workers(), "-m", "long", *session.posargs)


@nox.session(venv_backend="none", default=False)
def integrity(session: nox.Session) -> None:
    """Run the tests of packages/integrity, a distribution of its own.

    What follows "--" goes to pytest.
    """
    # Its folder first: pytest reads the pyproject.toml that is nearest to what it is given.
    run_tests(session, "packages/integrity", *workers(), *session.posargs)


@nox.session(venv_backend="none", default=False)
def quick(session: nox.Session) -> None:
    """The inner loop: lint, types and the tests that take no second each.

    The arguments go to pytest.
    """
    session.notify("lint", posargs=[])
    session.notify("types", posargs=[])
    session.notify("tests", posargs=["-m", "not slow", *session.posargs])


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Check style and format with ruff, and the arrows between packages with import-linter."""
    environment = ready(session)
    environment.run(session, "-m", "ruff", "check", *session.posargs)
    environment.run(session, "-m", "ruff", "format", "--check", *session.posargs)
    # import-linter has no `python -m`; what its command does is this.
    environment.run(
        session, "-c", "import importlinter.cli; importlinter.cli.lint_imports_command()"
    )


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Check the types with mypy --strict."""
    scripts = (
        "docs/prose.py",
        "docs/reference.py",
        "locks/interpreter.py",
        "locks/lock.py",
        "locks/wheels.py",
    )
    environment = ready(session)
    checked = session.posargs or ["harness", "noxfile.py", "tests/house", *scripts]
    environment.run(session, "-m", "mypy", "--strict", *checked)
    if not session.posargs:
        # By its own name too: as harness/_integrity, a link, it was checked along with the rest.
        environment.run(session, "-m", "mypy", "--strict", "packages/integrity/src")


@nox.session(venv_backend="none", default=False)
def docs(session: nox.Session) -> None:
    """Write docs/api.md and docs/kinds.md from the code, docs/findings/README.md from the bundles,
    and wrap the prose of every document.
    """
    environment = ready(session)
    for script in ("reference.py", "findings.py", "prose.py"):
        environment.run(session, f"docs/{script}", *session.posargs)


@nox.session(venv_backend="none", default=False)
def findings(session: nox.Session) -> None:
    """Run the script of each finding on the newest release of its library."""
    ready(session).run(session, "-m", "tests.kit.findings", *session.posargs)


@nox.session(venv_backend="none", default=False)
def gate(session: nox.Session) -> None:
    """Apply the trusted release policy to results/; the arguments are those of `rankproof gate`."""
    ready(session).run(session, "-m", "harness.cli", "gate", *session.posargs)


@nox.session(venv_backend="none", default=False)
def sample(session: nox.Session) -> None:
    """Make the signed report in docs/sample, with a key that is thrown away; `-- --check` verifies
    what lies there.
    """
    ready(session).run(session, "-m", "tests.kit.sample", *session.posargs)


@nox.session(venv_backend="none", default=False)
def pages(session: nox.Session) -> None:
    """Look at report pages with Chromium: desktop, phone, dark, paper.

    Pictures: build/pages, or `-- --out FOLDER`.
    """
    chromium = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
    if not any(map(shutil.which, chromium)):
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            session.error(
                "Chromium is not on PATH. On Debian: apt-get install --no-install-recommends"
                " chromium"
            )
        for words in (
            ["update", "-qq"],
            ["install", "-y", "-qq", "--no-install-recommends", "chromium"],
        ):
            session.run(
                "apt-get",
                *words,
                env={"DEBIAN_FRONTEND": "noninteractive"},
                external=True,
                **PATIENCE,
            )
    ready(session).run(session, "-m", "tests.pages", *session.posargs)


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Measure how fast worlds start, beside torchrun and mlx.launch."""
    ready(session).run(session, "-m", "tests.bench", *session.posargs)


@nox.session(venv_backend="none", default=False)
def matrix(session: nox.Session) -> None:
    """Put every kind of fault before the checks that have to see it.

    The arguments are those of `rankproof lab matrix`.
    """
    ready(session).run(session, "-m", "harness.cli", "lab", "matrix", *session.posargs)


@nox.session(venv_backend="none", default=False)
def search(session: nox.Session) -> None:
    """Walk engines over models, shardings and prompts by the ladder.

    The arguments are those of `rankproof lab search`.
    """
    ready(session).run(session, "-m", "harness.cli", "lab", "search", *session.posargs)


@nox.session(venv_backend="none", default=False)
def mutants(session: nox.Session) -> None:
    """Put slips into the code that judges, one at a time; name those that no test sees.

    `-- --count 100`: so many.
    """
    ready(session).run(session, "-m", "tests.mutants", *session.posargs)


@nox.session(venv_backend="none", default=False)
def house(session: nox.Session) -> None:
    """Print how plainly the code is written, beside four peers; `-- --strict` holds the limits."""
    ready(session).run(session, "-m", "tests.house", *session.posargs)


@nox.session(venv_backend="none", default=False)
def commits(session: nox.Session) -> None:
    """Compare what two commits decide of the shipped scenarios: `-- BEFORE [AFTER] [SCENARIO…]`."""
    ready(session).run(session, "-m", "tests.bench.commits", *session.posargs)


@nox.session(venv_backend="none", default=False)
def nix(session: nox.Session) -> None:
    """Check the flake without a network; `-- --build` builds and runs it, with this machine's
    programs as nixpkgs.
    """
    if shutil.which("nix") is None:
        session.error(
            "nix is not on PATH. On Debian and Ubuntu: apt-get install --no-install-recommends"
            " nix-bin. Elsewhere: https://nixos.org/download"
        )
    if "--build" in session.posargs:
        rest = [argument for argument in session.posargs if argument != "--build"]
        with apart(session, "lock") as tools:
            ready(session).run(session, "-m", "tests.nix.build", "--lock-python", str(tools), *rest)
    else:
        # No environment is needed for it: this works in a fresh clone.
        session.run(
            sys.executable, "-m", "tests.nix.check", *session.posargs, external=True, **PATIENCE
        )


@nox.session(venv_backend="none", default=False)
def interop(session: nox.Session) -> None:
    """Read our statement with in-toto's and sigstore's packages, in an environment of their own
    without a torch.
    """
    with apart(session, "interop") as python:
        environment = {"PYTHONPATH": str(PROJECT), "PYTHONHOME": None}
        arguments = session.posargs or ["tests/interop"]
        session.run(
            str(python), "-m", "pytest", *arguments, env=environment, external=True, **PATIENCE
        )


@nox.session(venv_backend="none", default=False)
def farm(session: nox.Session) -> None:
    """Run the tests that need a cluster of Ray, with Ray beside the environment of the tests."""
    environment = tests_environment(session)
    lock, home = LOCKS / "farm.txt", session.cache_dir.parent
    beside = home / f"farm-{environment.python.parent.parent.name}"
    with filelock.FileLock(home / f"{beside.name}.lock"):
        if not stamped(beside / "locks.stamp", digest(lock)):
            shutil.rmtree(beside, ignore_errors=True)
            install = ("--require-hashes", "--only-binary", ":all:", "--target", str(beside))
            given = (*PIP, *install, "--requirement", str(lock))
            session.run(str(environment.python), *given, env=PIP_ENV, external=True, **PATIENCE)
            (beside / "locks.stamp").write_text(digest(lock))
    # Whole: commands of the tests run in other folders.
    environment.variables["PYTHONPATH"] = str(beside.resolve())
    tests = [str(path) for path in sorted(Path("tests/world/starters").glob("test_ray*.py"))]
    environment.run(session, "-m", "pytest", "-n0", *(session.posargs or tests))


@nox.session(venv_backend="none", default=False)
def lock(session: nox.Session) -> None:
    """Write the locks from pyproject.toml; `-- --upgrade` moves every pin."""
    with apart(session, "lock") as python:
        session.run(
            str(python), str(LOCKS / "lock.py"), *session.posargs, external=True, **PATIENCE
        )


@contextlib.contextmanager
def apart(session: nox.Session, name: str) -> Iterator[Path]:
    """The Python of a small environment made from one lock alone, for as long as it is used."""
    home = session.cache_dir.parent
    tools = LOCKS / f"{name}.txt"
    folder = home / f"env-{name}-{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    with filelock.FileLock(home / f"{folder.name}.lock"):
        # The stamp goes first because `nox -s lock` rewrites its own lock.
        if not (stamped(folder / "locks.stamp", digest(tools)) and interpreter_at(str(python))):
            make_empty(session, folder, sys.executable)
            install = ("--require-hashes", "--only-binary", ":all:", "--requirement", str(tools))
            session.run(str(python), *PIP, *install, env=PIP_ENV, external=True, **PATIENCE)
            (folder / "locks.stamp").write_text(digest(tools))
        yield python
