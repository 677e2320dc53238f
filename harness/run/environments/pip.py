"""Running pip in an environment that is being made, and telling from its words what went wrong.

pip's own configuration (index, find-links, certificates, proxies) is the user's and stays in force; nothing of it is
recorded. Only wheels are installed: building a package would run code of its own on the way.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.forms.distribution import normal
from harness.rank.process import die_with_parent
from harness.reason import SkipCode
from harness.run.environments.interpreters import ANSWER_WITHIN, Interpreter

RUNNER = "__pip-runner__.py"
# Settings of the user's that would install somewhere else, or something else.
LEFT_OUT = re.compile(
    r"PYTHON.*|VIRTUAL_ENV|PIP_(TARGET|PREFIX|ROOT|USER|REPORT|DRY_RUN|PYTHON|NO_DEPS|IGNORE_INSTALLED)"
)
NEWEST = 5
LINE_LIMIT = 300


class EnvironmentProblem(Exception):
    """An environment that cannot be made as the scenario asks; the message says what, why and what to do."""


class Unavailable(EnvironmentProblem):
    """An environment that cannot be had on this machine now: its cells are SKIPPED with this reason.

    `code` says on what that depends: on what others offer, unless it is said.
    """

    def __init__(self, message: str, *, code: SkipCode = SkipCode.NETWORK_PACKAGES) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Resolved:
    """A package that pip installed, with the sha256 of its wheel. `name` is in its normal form."""

    name: str
    version: str
    wheel: str


def install(python: Path, packages: Mapping[str, str], *, base: Interpreter, report: Path) -> list[Resolved]:
    """Install exact versions, and what they depend on.

    Args:
        python: interpreter of the environment.
        packages: name to version.
        base: the interpreter that the environment was made from.
        report: a file that is not there yet, for pip's report.

    Returns:
        Everything that was installed, by name.

    Raises:
        Unavailable: no pip, no network, a package that nobody offers here.
        EnvironmentProblem: a version that does not exist, versions that exclude each other, no space.
    """
    requirements = [f"{name}=={version}" for name, version in packages.items()]
    flags = ["--no-input", "--disable-pip-version-check", "--no-color"]
    options = ["--no-user", "--only-binary", ":all:", "--progress-bar", "off", "--report", str(report)]
    code, text = _run([*_pip(python, base), "install", *flags, *options, *requirements])
    if code:
        raise problem(text, requirements=requirements, python=base.version)
    try:
        items = json.loads(report.read_text())["install"]
        return sorted((_resolved(item) for item in items), key=lambda package: package.name)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EnvironmentProblem(f"pip's report cannot be read ({error}): use a newer pip, 22.3 or later") from None


def _resolved(item: dict[str, dict[str, dict[str, dict[str, str]]]]) -> Resolved:
    about: dict[str, object] = dict(item["metadata"])
    archive = item["download_info"]["archive_info"]
    return Resolved(name=normal(str(about["name"])), version=str(about["version"]), wheel=archive["hashes"]["sha256"])


def problem(text: str, *, requirements: list[str], python: str) -> EnvironmentProblem:
    """What pip's words mean."""
    if "No space left on device" in text:
        return EnvironmentProblem("no space left: free some, or set RANKPROOF_ENVIRONMENTS to a folder on another disk")
    if found := re.search(r"satisfies the requirement (\S+).*?\(from versions: ([^)]*)\)", text):
        wanted, versions = found[1], [version.strip() for version in found[2].split(",") if version.strip()]
        if versions and versions != ["none"]:
            there = ", ".join(versions[-NEWEST:])
            return EnvironmentProblem(
                f"{wanted} does not exist, or has no wheel for Python {python} here (there are: {there})"
            )
        return Unavailable(f"{wanted} cannot be had: it is not in the cache, and pip finds no version of it")
    if "ResolutionImpossible" in text or "conflicting dependencies" in text:
        lines = re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)
        return EnvironmentProblem(f"{', '.join(requirements)} exclude each other: {scrubbed('; '.join(lines[:6]))}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    last = (errors or lines or ["it said nothing"])[-1]
    return Unavailable(f"pip could not install {', '.join(requirements)}: {scrubbed(last)}")


def scrubbed(text: str) -> str:
    """A line of pip's without addresses and without folders of this machine: it goes into evidence."""
    text = re.sub(r"\b[a-z][a-z0-9+]*://\S+", "<address>", text)
    text = re.sub(r"\b(host|port|resolve)(=| )('[^']*'|\d+)", r"\1\2…", text)
    text = re.sub(r"(?<![\w.<])(?:/[^\s'\",:;()/]+)+/([^\s'\",:;()/]+)", r"\1", text)
    return text[:LINE_LIMIT]


def _pip(python: Path, base: Interpreter) -> list[str]:
    """How to run pip in an environment that does not hold it: this interpreter's, the base's, or the bundled one."""
    for folder in _folders(base):
        if (runner := folder / RUNNER).is_file():
            return [str(python), "-s", str(runner)]
    for wheel in sorted((base.stdlib / "ensurepip" / "_bundled").glob("pip-*.whl")):
        return [str(python), "-s", str(wheel / "pip")]
    message = "no pip of 22.3 or later is here: install pip beside Rankproof"
    raise Unavailable(message, code=SkipCode.MACHINE_INTERPRETER)


def _folders(base: Interpreter) -> Iterator[Path]:
    if (own := importlib.util.find_spec("pip")) is not None and own.origin is not None:
        yield Path(own.origin).parent
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


def _run(command: list[str]) -> tuple[int, str]:
    """Run pip to its end; it goes with us, however we end."""
    environment = {name: value for name, value in os.environ.items() if not LEFT_OUT.fullmatch(name)}
    parent = os.getpid()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment | {"LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            # A pip that outlives us would write into a folder that the next run clears away.
            preexec_fn=lambda: die_with_parent(parent) if sys.platform == "linux" else None,  # noqa: PLW1509
        )
    except OSError as error:
        raise Unavailable(f"pip cannot be started: {error.strerror}", code=SkipCode.MACHINE_INTERPRETER) from None
    try:
        text, _ = process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode, text
