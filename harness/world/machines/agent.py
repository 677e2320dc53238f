"""Agent of another machine: answers over its standard input and output, and ends when nobody speaks
to it any more.

Standard library only, and Python 3.9 suffices: its text is sent over the channel and nothing has to
be installed there. It takes trees by their digest, Rankproof's own among them, and becomes a node
(`harness.world.machines.node`) of it. A message is a JSON object, and bytes after it where its kind
has some; before them stand both lengths (`HEAD`).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import select
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.forms.distribution import normal, wheel_digest
from harness.world.machines.store import ENVIRONMENTS, BadTree, NotMade, TreeStore, Uses, prepare

HEAD = struct.Struct(">II")
# Before it, a login shell may have printed what it liked.
MAGIC = b"rankproof-agent-1 "
MOST_JSON = 8 * 2**20
MOST_BYTES = 64 * 2**20
# In which a machine keeps what it was given, and what happened to worlds whose control was gone.
FOLDER = "rankproof/machines"
TREES = "trees"
# In place of this process, on the same descriptors: the channel is theirs.
NODE = (
    "import sys; root = sys.argv[1]; sys.path.insert(0, root); "
    "from harness.world.machines.node import main; main(*sys.argv[2:])"
)
# How often a long task looks whether anybody still waits for it.
LOOKS_EVERY = 0.2
# Bytes that are written to see whether there is room.
PROBE = 2**16
EXECUTES_WITHIN = 10.0
PROGRAMS = ("git", "ssh-keygen", "c++", "nix", "nvidia-smi")
# What says which machine this is, whatever it is called: two names of one machine are not two
# machines.
SAME_MACHINE = ("/proc/sys/kernel/random/boot_id", "/etc/machine-id")


def frame(message: Mapping[str, Any], content: bytes = b"") -> bytes:
    """Return a message as it goes over a channel: both lengths, the words, the bytes."""
    words = json.dumps(message).encode()
    return HEAD.pack(len(words), len(content)) + words + content


class Gone(Exception):
    """Control closed the channel, or was silent for longer than the lease."""


class ControlChannel:
    """Messages over two descriptors.

    Attributes:
        lease: seconds without a message after which control counts as gone.
    """

    def __init__(self, reads: int, writes: int, *, lease: float) -> None:
        self._reads = reads
        self._writes = writes
        self.lease = lease

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """Return the next message.

        Raises:
            Gone: there is none, for a reason that stands in the message.
        """
        head = self._exactly(HEAD.size)
        words, size = HEAD.unpack(head)
        if words > MOST_JSON or size > MOST_BYTES:
            raise Gone("the data received is not a valid message")
        return json.loads(self._exactly(words)), self._exactly(size)

    def send(self, message: dict[str, Any], content: bytes = b"") -> None:
        """Send a message.

        Raises:
            Gone: nobody takes it.
        """
        left = memoryview(frame(message, content))
        while left:
            # Who is cut off reads nothing: a full pipe must not hold this process beyond its lease.
            if not select.select([], [self._writes], [], self.lease)[1]:
                raise Gone(f"the run did not read from the channel for {self.lease:g} s")
            try:
                left = left[os.write(self._writes, left) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise Gone(f"the channel is closed: {error}") from None

    def is_heard(self, seconds: float) -> bool:
        """Return whether something waits to be received, within so many seconds."""
        return bool(select.select([self._reads], [], [], seconds)[0])

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            if not select.select([self._reads], [], [], self.lease)[0]:
                raise Gone(f"lease lost: nothing was received for {self.lease:g} s")
            part = os.read(self._reads, min(count, 2**20))
            if not part:
                raise Gone("the run closed the channel")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def main(*, lease: float, nonce: str) -> None:
    """Answer until control is gone.

    Args:
        lease: seconds without a message after which this process ends.
        nonce: what control knows this agent by.
    """
    # Nothing else may write into the channel, nor read from it: what this process, or a program
    # that it runs, prints goes to standard error.
    reads = os.dup(0)
    writes = os.dup(1)
    # A pipe that is not read takes part of a message, and then nothing.
    os.set_blocking(writes, False)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    channel = ControlChannel(reads, writes, lease=lease)
    store = TreeStore(cache() / TREES)
    with contextlib.suppress(Gone):
        os.write(writes, MAGIC + nonce.encode() + b"\n")
        while True:
            asked, content = channel.receive()
            what = asked.get("ask")
            if what == "clock":
                channel.send({"wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()})
            elif what == "facts":
                lacks = {
                    "unwritable": unwritable(),
                    "unexecutable": unexecutable(asked.get("interpreter") or ""),
                }
                channel.send({**facts(asked.get("folder")), **lacks})
            elif what == "take":
                channel.send({"taken": len(content)})
            elif what == "give":
                size = min(int(asked["bytes"]), MOST_BYTES)
                channel.send({"given": size}, bytes(size))
            elif what in ("lacks", "put", "keep"):
                channel.send(_trees(store, what, asked, content))
            elif what == "prepare":
                channel.send(_prepare(store, asked, channel))
            elif what == "clean":
                channel.send(_clean(asked))
            elif what == "become":
                _become(store, asked, reads=reads, writes=writes, nonce=nonce)
            elif what != "nothing":  # a heartbeat asks nothing
                channel.send({"error": f"this agent does not know the request {what!r}"})


def cache() -> Path:
    """Where this machine keeps what it was given."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / FOLDER


def unwritable() -> str:
    """Why nothing can be written where this machine keeps what it is given, found out by writing.

    Empty if it can.
    """
    probe = cache() / f".probe-{os.getpid()}"
    try:
        probe.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with probe.open("wb") as stream:
                stream.write(bytes(PROBE))
                stream.flush()
                os.fsync(stream.fileno())
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()
    except OSError as error:
        return f"{probe.parent}: {error.strerror or error}"
    return ""


def unexecutable(interpreter: str) -> str:
    """Why a Python cannot be executed here, found out by executing it.

    Empty where it can, or none is named.
    """
    if not interpreter:
        return ""
    program = shutil.which(str(Path(interpreter).expanduser()))
    if program is None:
        return f"{interpreter}: missing or not executable"
    try:
        tried = [program, "-I", "-c", "pass"]
        done = subprocess.run(
            tried,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=EXECUTES_WITHIN,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{interpreter}: {error}"
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return ": ".join([interpreter, f"exit code {done.returncode}", *said])
    return ""


def _trees(store: TreeStore, what: str, asked: dict[str, Any], content: bytes) -> dict[str, Any]:
    try:
        if what == "lacks":
            return {"lacks": [digest for digest in asked["trees"] if not store.has(digest)]}
        if what == "put":
            store.put(asked["tree"], asked["parts"], content)
        else:
            store.keep(asked["tree"])
    except (BadTree, OSError) as error:
        return {"error": f"the tree cannot be stored: {error}"}
    return {"place": str(store.place(asked["tree"]))}


def _prepare(store: TreeStore, asked: dict[str, Any], channel: ControlChannel) -> dict[str, Any]:
    if (python := platform.python_version()) != asked["python"]:
        return {
            "error": (
                f"its interpreter is Python {python}, but this machine runs Python"
                f" {asked['python']}; select another with --python"
            )
        }
    heard = [time.monotonic()]

    def goes_on() -> bool:
        # Control says again and again that it waits; whoever is silent, or gone, waits for nothing.
        while channel.is_heard(LOOKS_EVERY if time.monotonic() - heard[0] < channel.lease else 0):
            channel.receive()
            heard[0] = time.monotonic()
        return time.monotonic() - heard[0] < channel.lease

    wheels = store.place(asked["wheels"]) if asked["wheels"] else None
    began = time.monotonic()
    try:
        interpreter, is_new = prepare(
            cache() / ENVIRONMENTS,
            store.place(asked["lock"]),
            wheels,
            goes_on=goes_on,
            page=asked.get("page"),
        )
    except (NotMade, BadTree, OSError) as error:
        return {"error": f"the environment cannot be created: {error}"}
    return {
        "interpreter": str(interpreter),
        "made": is_new,
        "seconds": time.monotonic() - began,
        "home": str(Path.home()),
    }


def _clean(asked: dict[str, Any]) -> dict[str, Any]:
    gone = 0
    freed = 0
    for folder in (TREES, ENVIRONMENTS):
        count, size = Uses(cache() / folder).clean(
            most=int(asked["most"]), older=float(asked["older"])
        )
        gone += count
        freed += size
    return {"gone": gone, "freed": freed}


def _become(
    store: TreeStore, asked: dict[str, Any], *, reads: int, writes: int, nonce: str
) -> None:
    """Go on as a node, of the Rankproof that was given."""
    # The node writes in a thread of its own, which may wait.
    os.set_blocking(writes, True)
    for descriptor in (reads, writes):
        os.set_inheritable(descriptor, True)
    order = json.dumps({"reads": reads, "writes": writes, "nonce": nonce, **asked["arguments"]})
    root = str(store.place(asked["root"]))
    # A list, no shell.
    os.execv(sys.executable, [sys.executable, "-I", "-c", NODE, root, order])  # noqa: S606


def facts(folder: str | None = None) -> dict[str, Any]:
    """Return what this machine is, and what this interpreter has.

    Args:
        folder: of which the free space is wanted; None: of the home folder, or of where it keeps
            what it is given, as that may be another disk: what is less.
    """
    return {
        "name": socket.gethostname(),
        "machine": _first(SAME_MACHINE),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "cores": (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        ),
        "memory": _memory(),
        "free": min(
            _free(place) for place in ([Path(folder)] if folder else [Path.home(), cache()])
        ),
        "programs": {name: bool(shutil.which(name)) for name in PROGRAMS},
        "packages": packages(),
        "address": (os.environ.get("SSH_CONNECTION", "").split() or [""] * 4)[2],
    }


def packages() -> dict[str, list[str]]:
    """Each installed distribution: its version, and the digest of its wheel's files.

    Empty where there is no list.
    """
    versions: dict[str, list[str]] = {}
    for installed in importlib.metadata.distributions():
        name = installed.metadata["Name"]
        if name:
            record = installed.read_text("RECORD") or ""
            versions.setdefault(
                normal(name), [installed.version, wheel_digest(record) if record else ""]
            )
    return versions


def _free(place: Path) -> int:
    while not place.exists() and place != place.parent:
        place = place.parent
    return shutil.disk_usage(place).free


def _first(paths: tuple[str, ...]) -> str:
    for path in paths:
        with contextlib.suppress(OSError):
            return Path(path).read_text().strip()
    return ""


def _memory() -> int:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0
