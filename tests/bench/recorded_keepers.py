"""Recorded keepers: many machines in one process, each of which says again what the node of a real
run once said.

What was recorded is a real node's channel, message by message. It is said again in its order: what
came after the third thing that control said of a world comes after the third thing. Names of the
world, ranks, numbers and times are those that are asked for now; all else is as it was.
"""

from __future__ import annotations

import array
import base64
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from harness.world.machines.agent import HEAD, MAGIC

Message = tuple[dict[str, Any], bytes]
NS = re.compile(rb'"ns":\s*\d+')
RANK = re.compile(rb'"rank":\s*0\b')
# Asked once for each machine, and answered by what was answered then.
KNOWN = ("facts", "server")


@dataclass
class Recording:
    """What went over one channel.

    Attributes:
        answers: to what was asked once.
        share: what a node said of a world: after how many words of control, the message, and its
            bytes.
        down, up: bytes that went either way for it.
    """

    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    share: list[tuple[int, dict[str, Any], bytes]] = field(default_factory=list)
    down: int = 0
    up: int = 0

    def encode(self) -> bytes:
        """For the process that says it again."""
        share = [
            [after, message, base64.b64encode(content).decode()]
            for after, message, content in self.share
        ]
        return json.dumps([self.answers, share]).encode()


class Recorder:
    """An agent of this machine whose channel is listened to.

    Stands where `subprocess.Popen` does.
    """

    def __init__(self, command: Sequence[str], into: Recording) -> None:
        """Start it."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            list(command), stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
        )
        self._into = into
        self._asked: list[str] = []
        self._world, self._words = "", 0
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.stderr = self._process.stderr
        (down, down_here), (up_here, up) = os.pipe(), os.pipe()
        self.stdin: IO[bytes] | None = os.fdopen(down_here, "wb", 0)
        self.stdout: IO[bytes] | None = os.fdopen(up_here, "rb", 0)
        for reads, writes, hear in (
            (down, self._process.stdin, self._down),
            (self._process.stdout, up, self._up),
        ):
            self._said = threading.Thread(target=_tee, args=(reads, writes, hear), daemon=True)
            self._said.start()

    def poll(self) -> int | None:
        """As Popen's."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """As Popen's; what it said has been handed on then, and its end of that is closed."""
        code = self._process.wait(timeout)
        self._said.join(timeout)
        return code

    def kill(self) -> None:
        """As Popen's."""
        self._process.kill()

    def _down(self, message: dict[str, Any], _content: bytes, size: int) -> None:
        what = message.get("ask", "")
        if what == "world":
            self._world, self._words = message["world"], 0
            self._into.share, self._into.down, self._into.up = [], size, 0
        elif message.get("world") == self._world and self._world:
            self._words += 1
            self._into.down += size
        elif what not in ("beat", "become"):
            self._asked.append(what)

    def _up(self, message: dict[str, Any], content: bytes, size: int) -> None:
        if message.get("is") == "beat":
            return
        if message.get("world") == self._world and self._world:
            self._into.share.append((self._words, message, content))
            self._into.up += size
        elif self._asked:
            self._into.answers[self._asked.pop(0)] = message


def _tee(reads: Any, writes: Any, hear: Callable[[dict[str, Any], bytes, int], None]) -> None:
    """Hand bytes on, and the messages in them to who listens.

    What stands before them is neither.
    """
    source = reads if isinstance(reads, int) else reads.fileno()
    target = writes if isinstance(writes, int) else writes.fileno()
    text, begins = b"", True
    while part := os.read(source, 2**20):
        text += part
        while True:
            if begins and len(text) >= 12 and text[:12].strip().isdigit():  # the agent's own text
                size = 12 + int(text[:12])
                if len(text) < size:
                    break
                text, begins = text[size:], False
            elif text.startswith(MAGIC):
                if b"\n" not in text:
                    break
                text = text.partition(b"\n")[2]
            elif len(text) >= HEAD.size and len(text) >= (
                size := HEAD.size + sum(HEAD.unpack_from(text))
            ):
                words = HEAD.unpack_from(text)[0]
                hear(
                    json.loads(text[HEAD.size : HEAD.size + words]),
                    text[HEAD.size + words : size],
                    size,
                )
                text = text[size:]
            else:
                break
        left = memoryview(part)
        while left:
            left = left[os.write(target, left) :]
    for one in (writes, reads):
        os.close(one) if isinstance(one, int) else one.close()


class Keepers:
    """The process with recorded keepers, and a channel to each of them."""

    def __init__(self, recording: Recording) -> None:
        """Start it."""
        self._control, there = socket.socketpair()
        words = [sys.executable, "-m", "tests.bench.recorded_keepers", str(there.fileno())]
        self._process = subprocess.Popen(words, pass_fds=[there.fileno()], stdin=subprocess.PIPE)
        there.close()
        assert self._process.stdin is not None
        self._process.stdin.write(recording.encode())
        self._process.stdin.close()

    def start(self) -> Keeper:
        """A channel to one more of them."""
        own, there = socket.socketpair()
        said, says = os.pipe()
        descriptors = array.array("i", [there.fileno(), says])
        self._control.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        there.close()
        os.close(says)
        return Keeper(own, said)

    def close(self) -> None:
        """End it."""
        self._control.close()
        self._process.wait()


class Keeper:
    """One of them, as `subprocess.Popen` shows a process."""

    def __init__(self, own: socket.socket, said: int) -> None:
        descriptor = own.detach()
        self.stdin: IO[bytes] | None = os.fdopen(descriptor, "wb", 0)
        self.stdout: IO[bytes] | None = os.fdopen(os.dup(descriptor), "rb", 0)
        self.stderr: IO[bytes] | None = os.fdopen(said, "rb", 0)

    def poll(self) -> int | None:
        """It ends with its process."""
        return None

    def wait(self, timeout: float | None = None) -> int:
        """What it would wait for is closed already."""
        del timeout
        assert self.stdout is not None
        with socket.socket(fileno=os.dup(self.stdout.fileno())) as channel:
            channel.shutdown(socket.SHUT_RDWR)
        return 0

    def kill(self) -> None:
        """Nothing is left to end."""


class Said:
    """One recorded keeper, in its process."""

    def __init__(
        self, channel: socket.socket, says: int, number: int, recording: list[Any]
    ) -> None:
        self._channel = channel
        self._says = says
        self._number = number
        self._answers, self._share = recording
        self._text = bytearray()
        self._out = bytearray()
        self._magic = b""
        self._world = ""
        self._rank, self._words, self._next, self._n = 0, 0, 0, 0

    def hear(self) -> bool:
        """Take what came, and say what is due; whether anybody is there."""
        try:
            part = self._channel.recv(2**18)
        except OSError:
            part = b""
        if not part:
            self._channel.close()
            os.close(self._says)
            return False
        self._text += part
        if not self._magic:
            if len(self._text) < 12 or len(self._text) < 12 + int(self._text[:12]):
                return True
            size = 12 + int(self._text[:12])
            nonce = json.loads(self._text[12:size])["arguments"]["nonce"]
            self._magic = MAGIC + nonce.encode() + b"\n"
            self._out += self._magic
            del self._text[:size]
        while len(self._text) >= HEAD.size:
            words, content = HEAD.unpack_from(self._text)
            if len(self._text) < HEAD.size + words + content:
                break
            self._answer(json.loads(self._text[HEAD.size : HEAD.size + words]))
            del self._text[: HEAD.size + words + content]
        if self._out:
            self._channel.sendall(self._out)
            self._out.clear()
        return True

    def _answer(self, asked: dict[str, Any]) -> None:
        what = asked["ask"]
        if what == "become":
            self._out += self._magic
        elif what == "beat":
            self._say(
                {
                    "is": "beat",
                    "echo": asked["ns"],
                    "wall": time.time_ns(),
                    "ns": time.monotonic_ns(),
                }
            )
        elif what in KNOWN:
            self._say(
                self._answers[what]
                | ({"machine": f"machine {self._number}"} if what == "facts" else {})
            )
        elif what == "world":
            self._world, self._rank = asked["world"], asked["ranks"][0]
            self._words, self._next, self._n = 0, 0, 0
            self._go_on()
        elif what == "lacks":
            self._say({"lacks": []})
        elif asked.get("world") == self._world:
            self._words += 1
            self._go_on()

    def _go_on(self) -> None:
        """Say what was said after as many words of control."""
        while self._next < len(self._share) and self._share[self._next][0] <= self._words:
            _, message, content = self._share[self._next]
            self._next += 1
            self._n += 1
            now = time.monotonic_ns()
            told = {**message, "world": self._world, "n": self._n}
            if "rank" in told:
                told["rank"] = self._rank
            if isinstance(told.get("told"), dict):
                inner = {**told["told"], "ns": now}
                inner |= {"rank": self._rank} if "rank" in inner else {}
                inner |= {"world": self._world} if "world" in inner else {}
                told["told"] = inner
            text = base64.b64decode(content)
            if told.get("is") == "events":
                text = NS.sub(b'"ns":%d' % now, RANK.sub(b'"rank":%d' % self._rank, text))
            self._say(told, text)

    def _say(self, message: dict[str, Any], content: bytes = b"") -> None:
        words = json.dumps(message).encode()
        self._out += HEAD.pack(len(words), len(content)) + words + content


def main(control: int) -> None:
    """Be recorded keepers until control is gone."""
    recording = json.loads(sys.stdin.buffer.read())
    asks = socket.socket(fileno=control)
    poll, keepers = select.epoll(), dict[int, Said]()
    poll.register(asks, select.EPOLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != asks.fileno():
                if not keepers[descriptor].hear():
                    del keepers[descriptor]
                continue
            data, ancillary, _, _ = asks.recvmsg(1, socket.CMSG_SPACE(8))
            if not data:
                return
            there, says = array.array("i", ancillary[0][2])
            keepers[there] = Said(socket.socket(fileno=there), says, len(keepers), recording)
            poll.register(there, select.EPOLLIN)


if __name__ == "__main__":
    main(int(sys.argv[1]))
