"""Engines that are started here: one entry of a table each, and a process group that is ended."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
from pydantic import ValidationError

from harness.conformance.client import Client
from harness.conformance.exchange import HTTPRequest
from harness.conformance.record import PLAIN
from harness.engines.models import cached
from harness.forms.distribution import missing
from harness.forms.process import start_apart
from harness.run.environments.cache import provide
from harness.run.environments.pip import EnvironmentProblem
from harness.scenario import Environment
from harness.world.control.pool import PortLease

READY_WITHIN: Final = 120.0
ENDS_WITHIN: Final = 5.0
POLL: Final = 0.1
HEALTH_TIMEOUT: Final = 5.0
LOG_KEPT: Final = 2**16
LAST_LINE: Final = 200
STARTS: Final = 60
"""More than every repetition of the rows that may harm needs."""
_VERSION: Final = re.compile(r"[0-9][A-Za-z0-9.!+]*")
RAISED: Final = re.compile(r"^[\w.]*(Error|Exception|NotFound|Interrupt)\b")
INHERITED: Final = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "CXX", "CC")
# The kernel ends the engine with us, however we end. It asks before the engine's program begins.
TIED: Final = (
    "import ctypes, os, sys\n"
    "if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, 9)\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)


class EngineError(Exception):
    """An engine that cannot be started here; the message says what to do."""


@dataclass(frozen=True)
class ServedEngine:
    """An engine of the table.

    Attributes:
        library: what is imported; the extra that brings it is named where it is missing.
        serving: what the library's own server needs beside it.
        remedy: how to install that.
        arguments: of the interpreter, with {model} and {port}.
        distributions: whose versions the report states.
        package: what pip installs for a release that is not the installed one.
        modes: names of ways to serve, with the arguments that each adds.
        health: path that answers 200 when it is ready.
    """

    library: str
    arguments: tuple[str, ...]
    distributions: tuple[str, ...]
    package: str = ""
    modes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    health: str = "/health"
    serving: tuple[str, ...] = ()
    remedy: str = ""

    def lacks(self) -> str:
        """Return what has to be installed before it can be started here; empty for nothing."""
        if lacks := missing(self.library):
            return lacks
        absent = [one for one in self.serving if importlib.util.find_spec(one) is None]
        if not absent:
            return ""
        verb = "is" if len(absent) == 1 else "are"
        return (
            f"its server needs {', '.join(absent)}, which {verb} not installed; run {self.remedy}"
        )


ENGINES: Final = {
    "mlx_lm.server": ServedEngine(
        library="mlx_lm",
        arguments=(
            "-m",
            "mlx_lm",
            "server",
            "--model",
            "{model}",
            "--host",
            "127.0.0.1",
            "--port",
            "{port}",
        ),
        distributions=("mlx-lm", "mlx"),
        package="mlx-lm[cpu]",
        modes={
            # Small models reach the borders of such chunks.
            "small-chunks": ("--prefill-step-size", "64"),
            "one-at-a-time": ("--decode-concurrency", "1", "--prompt-concurrency", "1"),
            "small-cache": ("--prompt-cache-size", "1"),
            # The draft is the model itself, so every guess is right and the text must not change.
            "speculative": ("--draft-model", "{model}", "--num-draft-tokens", "2"),
        },
    ),
    "transformers": ServedEngine(
        library="transformers",
        # The script `transformers` is not there in every environment that has the library.
        arguments=(
            "-m",
            "transformers.cli.transformers",
            "serve",
            "{model}",
            "--host",
            "127.0.0.1",
            "--port",
            "{port}",
            "--device",
            "cpu",
        ),
        distributions=("transformers", "torch"),
        package="transformers[serving]",
        modes={"continuous-batching": ("--continuous-batching",)},
        serving=("torch", "fastapi", "uvicorn", "openai"),
        remedy="pip install 'transformers[serving]'",
    ),
}
MODEL: Final = "llama"
"""What an engine serves: small, with random weights, so that many next tokens are likely."""


def engine_of(target: str) -> str | None:
    """Return the engine of the table that a target names, with or without a release."""
    name = target.partition(",")[0].partition("==")[0]
    return name if name in ENGINES else None


@dataclass(frozen=True, kw_only=True)
class EngineRelease:
    """An engine, in which release, and how it serves.

    Attributes:
        engine: of the table.
        packages: exact versions by package, the engine's own first; empty for what is installed
            here.
        mode: `plain`, or a name of the engine's table.
    """

    engine: str
    packages: Mapping[str, str]
    mode: str

    @classmethod
    def parse(cls, text: str, mode: str = PLAIN) -> EngineRelease:
        """Read `ENGINE`, `ENGINE==VERSION` or `ENGINE==VERSION,PACKAGE==VERSION`.

        Raises:
            EngineError: no engine has this name, no mode of it, or a version is missing.
        """
        first, *others = text.split(",")
        name, _, version = first.partition("==")
        engine = ENGINES.get(name)
        if engine is None:
            raise EngineError(f"{name!r} is not an engine; choose from {', '.join(ENGINES)}")
        if mode != PLAIN and mode not in engine.modes:
            modes = ", ".join((PLAIN, *engine.modes))
            raise EngineError(f"{name} has no mode {mode!r}; its modes are {modes}")
        packages: dict[str, str] = {}
        if "==" in first:
            packages[engine.package] = version
        for other in others:
            companion, _, given = other.partition("==")
            if companion in packages:
                raise EngineError(f"{text!r} names {companion} twice")
            packages[companion] = given
        if ("==" not in first and others) or not all(map(_VERSION.fullmatch, packages.values())):
            number = next(iter(versions(engine).values()), "1.2.3")
            raise EngineError(f"{text!r}: write exact versions, such as {name}=={number}")
        return cls(engine=name, packages=packages, mode=mode)

    def provide(self, account: Callable[[str], None]) -> tuple[Path, Mapping[str, str]]:
        """Return the interpreter that runs it, and the versions of its distributions.

        Makes an environment for a release that is not the installed one.

        Raises:
            EngineError: it cannot be had here.
        """
        engine = ENGINES[self.engine]
        if not self.packages:
            if lacks := engine.lacks():
                raise EngineError(f"{self.engine}: {lacks}")
            return Path(sys.executable), versions(engine)
        packages = dict(self.packages)
        if "torch" in engine.serving and "torch" not in packages:
            # Torch is large: the release that is here is already downloaded.
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                packages["torch"] = importlib.metadata.version("torch").partition("+")[0]
        try:
            wanted = Environment.model_validate({"packages": packages})
            ready = provide(wanted, says=account)
        except ValidationError as error:
            raise EngineError(f"{self}: {error.errors(include_url=False)[0]['msg']}") from None
        except EnvironmentProblem as error:
            raise EngineError(f"{self}: {str(error).splitlines()[0]}") from None
        known = ready.facts.versions
        return ready.python, {name: known[name] for name in engine.distributions if name in known}

    def __str__(self) -> str:
        """As it is typed."""
        own = ENGINES[self.engine].package
        words = [self.engine if name == own else name for name in self.packages]
        pinned = zip(words, self.packages.values(), strict=True)
        return ",".join(f"{name}=={version}" for name, version in pinned) or self.engine


@dataclass
class EngineProcess:
    """A running engine, which is started again when it is dead or not healthy.

    Attributes:
        python: its interpreter.
        mode: how it serves: `plain`, or a name of the engine's table.
        versions: of its distributions.
        base: its address.
        exits: what happened whenever it ended by itself, with the row that was asked.
    """

    name: str
    engine: ServedEngine
    room: Path
    port: int
    account: Callable[[str], None]
    python: Path = Path(sys.executable)
    mode: str = PLAIN
    versions: Mapping[str, str] = field(default_factory=dict)
    exits: list[tuple[str, str]] = field(default_factory=list)
    starts: int = 0
    _child: subprocess.Popen[bytes] | None = None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """The command line, the interpreter by its name alone."""
        values = {"model": MODEL, "port": str(self.port)}
        words = [*self.engine.arguments, *self.engine.modes.get(self.mode, ())]
        return ["python", *(word.format(**values) for word in words)]

    def start(self) -> None:
        """Start it, and wait until it says that it is ready.

        Raises:
            EngineError: it ended before, or did not become ready in time.
        """
        if self.starts == STARTS:
            raise EngineError(f"{self.name} was started {STARTS} times and exited each time")
        self.starts += 1
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        environment |= {"HOME": str(self.room), "TMPDIR": str(self.room), "HF_HUB_OFFLINE": "1"}
        # A small model is slower on several threads, and clients want the other cores.
        environment["OMP_NUM_THREADS"] = "1"
        launcher = [sys.executable, "-I", "-S", "-c", TIED, str(self.python)]
        with (self.room / "engine.log").open("ab") as log:
            self._child = start_apart(
                [*launcher, *self.command()[1:]],
                cwd=self.room,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        begun = time.monotonic()
        while self._health() != 200:
            if (code := self._child.poll()) is not None:
                raise EngineError(
                    f"{self.name} ended before it was ready ({ended(code)}): {self._last_line()}"
                )
            if time.monotonic() - begun > READY_WITHIN:
                raise EngineError(
                    f"{self.name} was not ready within {READY_WITHIN:.0f} s: {self._last_line()}"
                )
            time.sleep(POLL)
        self.account(f"{self.name} is ready on port {self.port} ({time.monotonic() - begun:.1f} s)")

    def revive(self, during: str, *, is_harmed: bool) -> None:
        """Start it again where it ended, says that it is not healthy, or was seen to be harmed."""
        assert self._child is not None
        code = self._child.poll()
        status = self._health() if code is None else None
        is_healthy = status == 200
        if is_healthy and not is_harmed:
            return
        why = (
            "it kept running and reported that it was healthy"
            if is_healthy
            else "it ran on, not healthy"
        )
        if status is None and code is None:
            # A process that ends closes its sockets before its parent can read its exit code.
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._child.wait(timeout=ENDS_WITHIN)
        if code is not None:
            why = ended(code)
        self.exits.append((during, f"{why}: {self._last_line()}"))
        # It has shown what it is: nothing is gained by asking it to end in order.
        self.stop((signal.SIGKILL,))
        self.start()

    def stop(self, numbers: Sequence[int] = (signal.SIGTERM, signal.SIGKILL)) -> None:
        """End it with all its processes, by one signal after the other."""
        child = self._child
        if child is None:
            return
        left = self.processes()
        for number in numbers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, number)
            _, left = psutil.wait_procs(left, timeout=ENDS_WITHIN)
            if not left and child.poll() is not None:
                break
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
        child.wait()
        self._child = None

    def processes(self) -> list[psutil.Process]:
        """All its processes, the one that was started first."""
        assert self._child is not None
        try:
            process = psutil.Process(self._child.pid)
            return [process, *process.children(recursive=True)]
        except psutil.Error:
            return []

    def exit_code(self, seconds: float) -> int | None:
        """Wait so long for it to end; returns its exit code, or None where it runs on."""
        assert self._child is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(timeout=seconds)
        return None

    def cpu_seconds(self) -> float:
        """Processor time of all its processes so far."""
        used = 0.0
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                used += times.user + times.system
        return used

    def log(self) -> bytes:
        """The end of what it printed, over all its starts."""
        data = (self.room / "engine.log").read_bytes()
        for path, word in (
            (str(self.room), "ROOM"),
            (str(self.python.parent.parent), "PREFIX"),
            (sys.prefix, "PREFIX"),
            (sys.base_prefix, "PYTHON"),
        ):
            data = data.replace(path.encode(), word.encode())
        return data[-LOG_KEPT:]

    def _health(self) -> int | None:
        """Return the status that its path of health answers; None without an answer."""
        request = HTTPRequest(label="health", method="GET", path=self.engine.health)
        return Client(self.base, timeout=HEALTH_TIMEOUT).send(request).status

    def _last_line(self) -> str:
        lines = self.log().decode(errors="replace").strip().splitlines()
        # Where there is one, the exception: what follows it are rules and other requests.
        raised = [line for line in lines if RAISED.search(line)]
        telling = raised or [line for line in lines if line.strip()]
        return telling[-1].strip()[:LAST_LINE] if telling else "it printed nothing"


def ended(code: int) -> str:
    """Say in words how a process ended."""
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def versions(engine: ServedEngine) -> dict[str, str]:
    """Versions of an engine's distributions that are installed here."""
    found: dict[str, str] = {}
    for name in engine.distributions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


@contextmanager
def running(
    release: EngineRelease, room: Path, account: Callable[[str], None]
) -> Iterator[EngineProcess]:
    """Lay out an engine, to be started by whoever has it; at the end it ends with all its processes.

    Raises:
        EngineError: this release cannot be had here.
        harness.engines.models.ModelError: its model cannot be made.
    """
    engine = ENGINES[release.engine]
    python, known = release.provide(account)
    (room / MODEL).symlink_to(cached(MODEL), target_is_directory=True)
    with PortLease() as lease:
        process = EngineProcess(
            name=release.engine,
            engine=engine,
            room=room,
            port=lease.take(1)[0],
            account=account,
            python=python,
            mode=release.mode,
            versions=known,
        )
        try:
            yield process
        finally:
            process.stop()
