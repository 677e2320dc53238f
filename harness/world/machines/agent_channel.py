"""This end of a channel to an agent: starts it with a command, asks, and believes nothing that it
has not measured.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from harness.forms import distribution
from harness.forms.process import start_apart
from harness.forms.strict_json import strict_json
from harness.forms.text import printable
from harness.world.machines import agent, store

LEASE = 4.0
# What a login shell prints before the agent speaks is skipped up to here.
MOST_NOISE = 64 * 1024
MOST_SAID = 4 * 1024
ENDS_WITHIN = 2.0
# While an agent does what takes long.
BEATS_EVERY = 1.0
# Reads the modules from standard input, and runs the last: nothing is installed, nothing written,
# no file imported.
BOOT = """
import json, sys, types
read = sys.stdin.buffer.raw.read
def exactly(n):
    b = b""
    while len(b) < n:
        p = read(n - len(b))
        if not p: sys.exit(1)
        b += p
    return b
if sys.version_info < (3, 9): sys.exit("Python %d.%d is too old" % sys.version_info[:2])
d = json.loads(exactly(int(exactly(12))))
for name, text in d["modules"]:
    m = types.ModuleType(name)
    m.__path__ = []
    sys.modules[name] = m
    exec(compile(text, name, "exec"), m.__dict__)
m.main(**d["arguments"])
"""

# The home folder there may be another one than here.
START = (
    'case $0 in "~/"*) p=$HOME/${0#??};; *) p=$0;; esac; '
    'command -v "$p" >/dev/null || exec python3 -I -c "$1"; '
    'exec "$p" -I -c "$1"'
)


class Started(Protocol):
    """Process that starts an agent and carries its bytes: one of ours, or
    `harness.world.starters.ray_relay.Piped`.
    """

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def poll(self) -> int | None:
        """None while it is there; else its exit code."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it has ended; raises `subprocess.TimeoutExpired`."""

    def kill(self) -> None:
        """End it, whatever it does."""


# A command, or what starts the agent in its own way.
Start = Sequence[str] | Callable[[], Started]


def boot() -> str:
    """Return the program of an agent, in one line."""
    return f'exec(__import__("base64").b64decode("{base64.b64encode(BOOT.encode()).decode()}"))'


def argv(interpreter: str) -> list[str]:
    """Return what to start on a machine: an agent in `interpreter`, or in the `python3` of its PATH
    where that is not there.

    In quotes that sh, bash, zsh, fish and csh take alike, without line ends, which csh does not
    take.
    """
    return [
        "sh",
        "-c",
        START,
        interpreter,
        boot(),
    ]


class Unreachable(Exception):
    """Machine that did not answer as an agent does.

    The message says what was seen, `said` what was printed there.
    """

    def __init__(self, why: str, said: str = "") -> None:
        super().__init__(why)
        self.said = said


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Wall clock of a machine against this one's.

    Attributes:
        offset: seconds that it is ahead, at the exchange that took least.
        uncertainty: half of what that exchange took, in seconds: the offset is right to within it.
        round_trips: seconds that each exchange took, ascending.
    """

    offset: float
    uncertainty: float
    round_trips: tuple[float, ...]


class AgentChannel:
    """Channel to an agent that was started; a context manager, which ends it.

    Each method raises `Unreachable` where the agent is gone, silent until the deadline, or says
    what no agent says.
    """

    def __init__(
        self, command: Start, *, within: float, lease: float = LEASE, stop: int | None = None
    ) -> None:
        """Start the agent.

        Args:
            command: starts `boot()` in a Python of the machine, such as ssh's.
            within: seconds until it has to have spoken.
            lease: seconds without a message after which the agent ends by itself.
            stop: readable when nobody waits for an answer any more.
        """
        self._stop = stop
        self._deadline = time.monotonic() + within
        self._said = bytearray()
        self._nonce = nonce = secrets.token_hex(16)
        self._process = command() if callable(command) else _spawned(command)
        streams = self._process.stdin, self._process.stdout, self._process.stderr
        self._writes, self._reads, self._errors = (
            stream.fileno() for stream in streams if stream is not None
        )
        for descriptor in (self._writes, self._reads, self._errors):
            os.set_blocking(descriptor, False)
        try:
            text = json.dumps(
                {"modules": _modules(), "arguments": {"lease": lease, "nonce": nonce}}
            ).encode()
            self._write(b"%12d" % len(text) + text)
            self._find(agent.MAGIC + nonce.encode() + b"\n")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the channel, and with it the agent; after a moment, also what started it."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(
        self,
        what: str,
        *,
        content: bytes = b"",
        within: float = 10.0,
        beats: bool = False,
        **more: Any,
    ) -> dict[str, Any]:
        """Ask the agent one thing; its answer.

        Args:
            what: `clock`, `facts`, `take` (with `content`), `give` (with `bytes`).
            content: bytes that go along.
            within: seconds until the whole answer has to be here.
            beats: whether it takes long, so that the agent has to hear that somebody waits.
            **more: what else the question says.
        """
        self._deadline = time.monotonic() + within
        self._write(agent.frame({"ask": what, **more}, content))
        head = self._head(beats=beats)
        size, extra = agent.HEAD.unpack(head)
        if size > agent.MOST_JSON or extra > int(more.get("bytes", 0)):
            raise self._unreachable("it sent more data than was requested")
        text = self._exactly(size)
        self._exactly(extra)
        try:
            answer = strict_json(text)
        except ValueError as error:
            raise self._unreachable(f"it did not answer in JSON: {error}") from None
        if isinstance(answer, dict) and isinstance(why := answer.get("error"), str):
            raise Unreachable(f"it answered {printable(why, limit=500)}")
        if not isinstance(answer, dict) or "error" in answer:
            raise self._unreachable(f"it answered {printable(str(answer))}")
        return answer

    def _head(self, *, beats: bool) -> bytes:
        while beats and time.monotonic() < self._deadline:
            poll = select.poll()
            for descriptor in (self._reads, *([self._stop] if self._stop is not None else [])):
                poll.register(descriptor, select.POLLIN)
            if poll.poll(1000 * BEATS_EVERY):
                break
            self._write(agent.frame({"ask": "nothing"}))
        return self._exactly(agent.HEAD.size)

    def give(self, digest: str, files: dict[str, Path], *, within: float) -> None:
        """Have a tree there, by its digest; what is there already is not sent.

        Args:
            digest: of the files.
            files: by their path below it.
            within: seconds for each message.
        """
        if not self.ask("lacks", trees=[digest], within=within).get("lacks"):
            return
        for parts, content in store.pieces(files):
            self.ask("put", tree=digest, parts=parts, content=content, within=within)
        self.ask("keep", tree=digest, within=within)

    def become(self, root: str, arguments: dict[str, Any], *, within: float) -> Started:
        """Have the agent go on as a node.

        From then on the descriptors of what was started are the caller's to use.

        Args:
            root: digest of the Rankproof that it is to run.
            arguments: of `harness.world.machines.node.main`.
            within: seconds until the node has to have spoken.
        """
        self._deadline = time.monotonic() + within
        self._write(agent.frame({"ask": "become", "root": root, "arguments": arguments}))
        self._find(agent.MAGIC + self._nonce.encode() + b"\n")
        return self._process

    def clock(self, exchanges: int = 16) -> Clock:
        """Compare the wall clocks, by the exchange that took least."""
        measured = []
        for _ in range(exchanges):
            sent = time.time_ns()
            began = time.monotonic_ns()
            there = self.ask("clock").get("wall_ns")
            took = time.monotonic_ns() - began
            if type(there) is not int or not 0 <= there < 2**63:
                raise self._unreachable("it reported no clock")
            measured.append((took, there - sent - took // 2))
        measured.sort()
        took, offset = measured[0]
        return Clock(
            offset=offset / 1e9,
            uncertainty=took / 2e9,
            round_trips=tuple(seconds / 1e9 for seconds, _ in measured),
        )

    def _find(self, magic: bytes) -> None:
        noise = bytearray()
        lacks = len(magic)
        while lacks:
            if len(noise) > MOST_NOISE:
                raise self._unreachable(
                    "its login shell prints endlessly; make it print nothing when there is no"
                    " terminal"
                )
            # At least so much comes still, and what comes after it is not to be read here.
            noise += self._exactly(lacks)
            lacks = next(
                left for left in range(len(magic) + 1) if noise.endswith(magic[: len(magic) - left])
            )

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._wait(reads=True)
            with contextlib.suppress(BlockingIOError):
                part = os.read(self._reads, min(count - len(parts), 2**20))
                if not part:
                    raise self._unreachable("it ended")
                parts += part
        return bytes(parts)

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        while left:
            self._wait(reads=False)
            try:
                left = left[os.write(self._writes, left) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._unreachable("it ended") from None

    def _wait(self, *, reads: bool) -> None:
        """Wait until the channel can be read or written, and keep what is said beside it.

        `select` takes no descriptor above 1,023, and a channel to each of a thousand machines has
        three.
        """
        awaited = self._reads if reads else self._writes
        while True:
            poll = select.poll()
            poll.register(awaited, select.POLLIN if reads else select.POLLOUT)
            if self._errors >= 0:
                poll.register(self._errors, select.POLLIN)
            if self._stop is not None:
                poll.register(self._stop, select.POLLIN)
            left = self._deadline - time.monotonic()
            if left <= 0 or not (ready := dict(poll.poll(left * 1000))):
                raise self._unreachable("it did not answer in time")
            if self._stop in ready:
                raise Unreachable("the run is over")
            if self._errors in ready:
                self._listen()
            if awaited in ready:
                return

    def _listen(self) -> None:
        with contextlib.suppress(BlockingIOError):
            part = os.read(self._errors, 4096)
            self._said += part[: MOST_SAID - len(self._said)]
            if not part:
                self._errors = -1

    def _unreachable(self, why: str) -> Unreachable:
        """Why, with what was said until the starter ended, where it did."""
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            if why == "it ended":
                self._process.wait(ENDS_WITHIN)
            while self._errors >= 0 and (ends := len(self._said)) < MOST_SAID:
                self._listen()
                if len(self._said) == ends:
                    break
        said = self._said.decode("utf-8", "replace").strip()
        code = self._process.poll()
        ended = "" if code is None else f" (exit code {code})"
        last = f": {printable(said.splitlines()[-1], limit=200)}" if said else ""
        return Unreachable(f"{why}{ended}{last}", said)


def _spawned(command: Sequence[str]) -> Started:
    # Ctrl-C is for us: ranks are ended before the channel is.
    pipe = subprocess.PIPE
    return start_apart(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)


def _modules() -> list[tuple[str, str]]:
    """Return the text of what the agent consists of, in the order in which it is imported."""
    texts = [
        (module.__name__, Path(str(module.__file__)).read_text("utf-8"))
        for module in (distribution, store, agent)
    ]
    return [
        ("harness", ""),
        ("harness.forms", ""),
        texts[0],
        ("harness.world", ""),
        ("harness.world.machines", ""),
        *texts[1:],
    ]
