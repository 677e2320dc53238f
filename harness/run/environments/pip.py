"""Finding an interpreter of a version on this machine, running its pip in an environment that is
being made, and telling from pip's words what went wrong.

pip's own configuration (index, find-links, certificates, proxies) is the user's and stays in force;
nothing of it is recorded. Only wheels are installed: building a package would run code of its own
on the way. No interpreter is fetched.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.forms.distribution import normal
from harness.forms.process import start_apart
from harness.rank.process import die_with_parent
from harness.reason import SkipCode
from harness.scenario.environment import bare, extras, listing

ANSWER_WITHIN = 20.0
QUESTION = (
    "import json, platform, sys, sysconfig; print(json.dumps([platform.python_version(),"
    " sys.implementation.name, sysconfig.get_platform(), sysconfig.get_config_var('SOABI') or '',"
    " sysconfig.get_path('stdlib')]))"
)
# Where the usual tools keep interpreters that are not in PATH: the variable that moves the folder,
# the folder, what to look for below it.
KEPT = (
    ("PYENV_ROOT", "~/.pyenv", "versions/{version}*/bin/python3"),
    ("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python", "cpython-{version}*/bin/python3"),
)


class NoInterpreter(Exception):
    """No interpreter of this version is on this machine; the message says which there are."""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that answered.

    Attributes:
        version: such as `3.13.2`.
        platform: what it was built for, with its ABI: packages for one platform do not fit another.
        stdlib: folder of its standard library.
    """

    path: Path
    version: str
    implementation: str
    platform: str
    stdlib: Path


def find_interpreter(version: str | None) -> Interpreter:
    """Find an interpreter; None is the version that this one has.

    Raises:
        NoInterpreter: none of that version answers.
    """
    seen: dict[Path, Interpreter | None] = {}
    wanted = version or ".".join(map(str, sys.version_info[:3]))
    for place in _candidates(wanted):
        if place in seen:
            continue
        interpreter = seen[place] = ask_interpreter(place)
        if interpreter is not None and (
            interpreter.version == wanted or interpreter.version.startswith(f"{wanted}.")
        ):
            return interpreter
    others = sorted(
        {interpreter.version for interpreter in seen.values() if interpreter is not None}
    )
    raise NoInterpreter(
        f"Python {wanted} was not found on this machine (found: {', '.join(others) or 'none'});"
        " install it, or choose another version"
    )


def ask_interpreter(python: Path) -> Interpreter | None:
    """Return what an interpreter says of itself, or None where it does not answer."""
    try:
        done = subprocess.run(
            [str(python), "-I", "-S", "-c", QUESTION],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_WITHIN,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        version, implementation, platform, abi, stdlib = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Interpreter(python, version, implementation, f"{platform} {abi}", Path(stdlib))


def _candidates(version: str) -> Iterator[Path]:
    # What a virtual environment was made from: one made from it again depends on nothing that
    # somebody may delete.
    yield Path(getattr(sys, "_base_executable", sys.executable))
    series = ".".join(version.split(".")[:2])
    for name in (f"python{series}", "python3", "python"):
        if (path := shutil.which(name)) is not None:
            yield Path(path)
    for variable, usual, pattern in KEPT:
        try:
            folder = Path(os.environ.get(variable) or usual).expanduser()
            yield from sorted(folder.glob(pattern.format(version=version)), reverse=True)
        except (OSError, RuntimeError):  # a folder that may not be read, the home of nobody
            continue


RUNNER = "__pip-runner__.py"
INSTALL = "_internal/commands/install.py"
# Settings of the user's that would install somewhere else, or something else.
LEFT_OUT = re.compile(
    r"PYTHON.*|VIRTUAL_ENV"
    r"|PIP_(TARGET|PREFIX|ROOT|USER|REPORT|DRY_RUN|PYTHON|NO_DEPS|IGNORE_INSTALLED)"
)
FLAGS = ["--no-input", "--disable-pip-version-check", "--no-color"]
EPOCH = {"SOURCE_DATE_EPOCH": "315532800"}
_ASKS_GIT = "setuptools-scm was unable to detect version"
NEWEST = 5
LINE_LIMIT = 300


class EnvironmentProblem(Exception):
    """An environment that cannot be made as the scenario asks.

    The message says what, why and what to do.
    """


class Unavailable(EnvironmentProblem):
    """An environment that cannot be had on this machine now: its cells are SKIPPED with this
    reason.

    `code` says on what that depends: on what others offer, unless it is said.
    """

    def __init__(self, message: str, *, code: SkipCode = SkipCode.NETWORK_PACKAGES) -> None:
        super().__init__(message)
        self.code = code


class Conflicting(EnvironmentProblem):
    """Versions that exclude each other; `lines` are pip's own on what asked for what."""

    def __init__(self, message: str, *, lines: Sequence[str]) -> None:
        super().__init__(message)
        self.lines = tuple(lines)


@dataclass(frozen=True, kw_only=True)
class PipRequest:
    """What pip is asked for.

    Attributes:
        requirements: as on pip's command line; with `hashed` each names the sha256 of its files,
            and no package without one is taken.
        constraint: a version that a package has to have if anything needs it; empty for none.
    """

    requirements: Sequence[str]
    hashed: bool = False
    constraint: str = ""


@dataclass(frozen=True)
class Resolved:
    """A package that pip chose or installed. `name` is in its normal form.

    Attributes:
        wheel: sha256 of its file; empty where no index told it before the file was there.
        url: where its file is. It may hold a password, and stays out of evidence.
        direct: whether the file itself was asked for.
    """

    name: str
    version: str
    wheel: str
    url: str = field(default="", repr=False)
    direct: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def requirement(self) -> str:
        """This very file, as pip is asked for it."""
        what = f"{self.name} @ {self.url}" if self.direct else f"{self.name}=={self.version}"
        return f"{what} --hash=sha256:{self.wheel}"


def resolve(python: Path, request: PipRequest, *, base: Interpreter) -> list[Resolved]:
    """Return what pip would install, with all that is depended on.

    Args:
        python: interpreter of the environment.
        request: what is asked for.
        base: the interpreter that the environment was made from.

    Raises:
        Unavailable: no pip, no network, a package that nobody offers here.
        EnvironmentProblem: a version that does not exist, versions that exclude each other, no such
            extra.
    """
    options = ["--dry-run", *(["--require-hashes"] if request.hashed else [])]
    return _install(python, request, options, base=base)


NO_VERSION = "0.dev0+rankproof"


def files_seen(python: Path, name: str, *, base: Interpreter) -> str:
    """Return what pip prints about each file of a package that it finds, taken or passed over.

    It is asked for a version that does not exist. Nothing is downloaded.

    Raises:
        Unavailable: pip finds no version of the package at all.
    """
    options = ["-vv", "--dry-run", "--no-deps", "--only-binary", ":all:"]
    wanted = f"{name}=={NO_VERSION}"
    _, text = _run([*_pip(python, base), "install", *FLAGS, *options, wanted])
    if "(from versions: " not in text:
        raise problem(text, requirements=[name], python=base.version)
    return text


def install(
    python: Path, chosen: Sequence[Resolved], request: PipRequest, *, base: Interpreter
) -> list[Resolved]:
    """Install what was chosen, file by file.

    Where an index did not tell digests, what the request comes to now.

    Raises:
        Unavailable, EnvironmentProblem: as for `resolve`; no space.
    """
    if all(package.wheel for package in chosen):
        exactly = PipRequest(requirements=[package.requirement for package in chosen], hashed=True)
        return _install(python, exactly, ["--no-deps", "--require-hashes"], base=base)
    return _install(python, request, [], base=base)


def wheel(python: Path, folder: Path, out: Path, *, base: Interpreter, what: str) -> Path:
    """Build the package in a folder; `what` names it in messages.

    What its build needs comes as wheels only.

    Raises:
        EnvironmentProblem: it cannot be built.
    """
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--progress-bar", "off"]
    # Builders that write times into what they make take this one.
    code, text = _run(
        [*_pip(python, base), "wheel", *FLAGS, *options, "--wheel-dir", str(out), str(folder)],
        EPOCH,
    )
    wheels = sorted(out.glob("*.whl")) if out.is_dir() else []
    if code or len(wheels) != 1:
        if "No space left on device" in text:
            raise problem(text, requirements=[], python=base.version)
        lines = [
            line.strip()
            for line in text.splitlines()
            if line.strip() and not line.startswith("Looking in")
        ]
        errors = [
            line
            for line in lines
            if re.match(r"(?!error: subprocess)(?:\w+\.)*\w*(?:Error|Exception)\b", line)
        ]
        last = (
            errors
            or [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
            or lines
        )[-1:]
        why = scrubbed(last[0] if last else "it printed nothing").replace(str(folder), "")
        hint = (
            ", because its version comes from git, which is not available during the build; use a"
            " released version"
            if _ASKS_GIT in text
            else ""
        )
        raise EnvironmentProblem(f"{what} cannot be built: {why}{hint}")
    return wheels[0]


def _install(
    python: Path, request: PipRequest, options: list[str], *, base: Interpreter
) -> list[Resolved]:
    with tempfile.TemporaryDirectory(prefix="rankproof-pip-") as folder:
        report, asked, held = (
            Path(folder, name) for name in ("report.json", "requirements.txt", "constraints.txt")
        )
        # Hashes are taken from files alone.
        given = ["--requirement", str(asked)] if request.hashed else list(request.requirements)
        asked.write_text("".join(f"{requirement}\n" for requirement in request.requirements))
        if request.constraint:
            held.write_text(f"{request.constraint}\n")
            options = [*options, "--constraint", str(held)]
        usual = [
            "--no-user",
            "--only-binary",
            ":all:",
            "--progress-bar",
            "off",
            "--report",
            str(report),
        ]
        code, text = _run([*_pip(python, base), "install", *FLAGS, *usual, *options, *given])
        if code:
            names = [
                re.split(" --hash| @ ", requirement)[0] for requirement in request.requirements
            ]
            raise problem(text, requirements=names, python=base.version)
        asked_for = {
            (bare(requirement), extra)
            for requirement in request.requirements
            for extra in extras(requirement)
        }
        for name, version, extra in re.findall(
            r"(\S+) (\S+) does not provide the extra '([^']*)'", text
        ):
            # Packages that ask each other for extras that are gone are nobody's slip here.
            if (normal(name), normal(extra)) in asked_for:
                raise EnvironmentProblem(
                    f"{name} {version} has no extra {extra}; use an extra that exists, or remove it"
                )
        try:
            items = json.loads(report.read_text())["install"]
            return sorted((_resolved(item) for item in items), key=lambda package: package.name)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EnvironmentProblem(
                f"cannot read pip's report ({error}); use pip 22.3 or newer"
            ) from None


def _resolved(item: dict[str, Any]) -> Resolved:
    about = item["metadata"]
    origin = item["download_info"]
    return Resolved(
        name=normal(about["name"]),
        version=about["version"],
        wheel=origin.get("archive_info", {}).get("hashes", {}).get("sha256", ""),
        url=origin["url"],
        direct=bool(item.get("is_direct")),
    )


def problem(text: str, *, requirements: list[str], python: str) -> EnvironmentProblem:
    """Return what pip's words mean."""
    if "No space left on device" in text:
        return EnvironmentProblem(
            "no space left; free some space, or set RANKPROOF_ENVIRONMENTS to a folder on another"
            " disk"
        )
    if match := re.search(r"satisfies the requirement (\S+).*?\(from versions: ([^)]*)\)", text):
        wanted = match[1]
        versions = [version.strip() for version in match[2].split(",") if version.strip()]
        if versions and versions != ["none"]:
            there = ", ".join(versions[-NEWEST:])
            return EnvironmentProblem(
                f"{wanted} does not exist, or has no wheel for Python {python} on this machine"
                f" (available: {there})"
            )
        return Unavailable(
            f"{wanted} is not available, because it is not in the cache and pip cannot find it"
        )
    if "--require-hashes mode" in text:
        lacking = re.search(
            r"^ {4}([A-Za-z0-9][^\s;]*)(?:.*\(from ([^-\s()]+))?", text, re.MULTILINE
        )
        what = "a package" if lacking is None else lacking[1]
        who = f", which {lacking[2]} needs" if lacking is not None and lacking[2] else ""
        return EnvironmentProblem(
            f"the requirements file lacks {what}{who}; add it with its version and hash"
        )
    if "DO NOT MATCH THE HASHES" in text:
        match = re.search(r"^ {4}(\S+).*\n\s*Expected sha256", text, re.MULTILINE)
        what = scrubbed(match[1]) if match else "a package"
        return EnvironmentProblem(f"{what} has a sha256 that differs from the pinned sha256")
    if "ResolutionImpossible" in text or "conflicting dependencies" in text:
        lines = re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)
        return Conflicting(
            f"{listing(requirements, most=6)} cannot be installed together:"
            f" {scrubbed('; '.join(lines[:6]))}",
            lines=lines,
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    last = (errors or lines or ["it printed nothing"])[-1]
    return Unavailable(f"pip could not install {listing(requirements, most=6)}: {scrubbed(last)}")


def scrubbed(text: str) -> str:
    """Return a line of pip's without addresses and without folders of this machine: it goes into
    evidence.
    """
    text = re.sub(r"\b[a-z][a-z0-9+]*://\S+", "<address>", text)
    text = re.sub(r"\b(host|port|resolve)(=| )('[^']*'|\d+)", r"\1\2…", text)
    text = re.sub(r"(?<![\w.<])(?:/[^\s'\",:;()/]+)+/([^\s'\",:;()/]+)", r"\1", text)
    return text[:LINE_LIMIT]


def caution(base: Interpreter) -> str:
    """Return what has to be said before pip is asked what it would install.

    Empty where it tells without downloading that.
    """
    if _chosen(base)[1]:
        return ""
    return (
        "this version of pip has to download wheels to list them, including wheels that are then"
        " rejected; install a newer pip next to Rankproof (python -m pip install --upgrade pip)"
    )


def _pip(python: Path, base: Interpreter) -> list[str]:
    """How to run pip in an environment that does not hold it."""
    return [str(python), "-s", str(_chosen(base)[0])]


def _chosen(base: Interpreter) -> tuple[Path, bool]:
    """Return the pip to run, and whether it tells what it would install before it downloads that:
    the first that does.

    This interpreter's, the base's, or the bundled one.
    """
    first: Path | None = None
    for runner, install in _pips(base):
        # Newer ones download in the command, older ones at the end of every resolution.
        if b"prepare_linked_requirements_more" in install:
            return runner, True
        first = first or runner
    if first is None:
        message = "pip 22.3 or newer is not installed; install it next to Rankproof"
        raise Unavailable(message, code=SkipCode.MACHINE_INTERPRETER)
    return first, False


def _pips(base: Interpreter) -> Iterator[tuple[Path, bytes]]:
    """Yield what starts each pip that is here, and the source of its command `install`."""
    for folder in _folders(base):
        if (folder / RUNNER).is_file():
            with contextlib.suppress(OSError):
                yield folder / RUNNER, (folder / INSTALL).read_bytes()
    for wheel in sorted((base.stdlib / "ensurepip" / "_bundled").glob("pip-*.whl")):
        with (
            contextlib.suppress(OSError, KeyError, zipfile.BadZipFile),
            zipfile.ZipFile(wheel) as archive,
        ):
            yield wheel / "pip", archive.read(f"pip/{INSTALL}")


def _folders(base: Interpreter) -> Iterator[Path]:
    if (installed := importlib.util.find_spec("pip")) is not None and installed.origin is not None:
        yield Path(installed.origin).parent
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [str(base.path), "-I", "-c", "import pip; print(pip.__file__)"],
            capture_output=True,
            text=True,
            timeout=ANSWER_WITHIN,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        yield Path(done.stdout.strip()).parent


def _run(command: list[str], variables: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run pip to its end, with further variables; it goes with us, however we end."""
    environment = {
        name: value for name, value in os.environ.items() if not LEFT_OUT.fullmatch(name)
    }
    parent = os.getpid()
    try:
        process = start_apart(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**environment, "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1", **(variables or {})},
            # A pip that outlives us would write into a folder that the next run clears away.
            preexec_fn=lambda: die_with_parent(parent) if sys.platform == "linux" else None,
        )
    except OSError as error:
        raise Unavailable(
            f"cannot start pip: {error.strerror}", code=SkipCode.MACHINE_INTERPRETER
        ) from None
    try:
        text, _ = process.communicate()
    except BaseException:
        # Its whole group: a build is a child of pip, and would go on writing.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode, text
