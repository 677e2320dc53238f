"""A channel tells what an agent says, ends it, and is held up by nothing that is not one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.world.control.server_handle import Cancelled
from harness.world.machines.agent_channel import BOOT, AgentChannel, Unreachable, argv
from harness.world.machines.fleet import Reached
from harness.world.machines.machine_server import MachinePool
from harness.world.starters import hostfile

HERE = [sys.executable, "-I", "-c", BOOT]


def test_an_agent_answers() -> None:
    """Facts, the clock, and bytes both ways come over one channel."""
    with AgentChannel(HERE, within=30) as channel:
        assert channel.ask("facts")["executable"] == sys.executable
        assert channel.ask("take", content=bytes(3_000_000)) == {"taken": 3_000_000}
        assert channel.ask("give", bytes=3_000_000) == {"given": 3_000_000}
        clock = channel.clock()
    assert abs(clock.offset) <= clock.uncertainty + 0.001
    assert len(clock.round_trips) == 16


def test_what_a_login_shell_prints_is_passed_over() -> None:
    """A banner before the agent does no harm."""
    with AgentChannel(
        ["sh", "-c", 'echo "Welcome to your machine"; exec "$0" -I -c "$1"', sys.executable, BOOT],
        within=30,
    ) as channel:
        assert "wall_ns" in channel.ask("clock")


@pytest.mark.parametrize(
    "before",
    ["", "rank", "rankproof-agent-1 ", "rankproof-agent-1 rankproof-agent-1 \n", "r" * 60_000],
)
def test_what_is_printed_before_looks_like_an_agent(before: str) -> None:
    """The agent is found behind any beginning of its own first line, and behind much noise, in
    little time.
    """
    command = ["sh", "-c", 'printf %s "$2"; exec "$0" -I -c "$1"', sys.executable, BOOT, before]
    began = time.thread_time()
    with AgentChannel(command, within=30) as channel:
        assert time.thread_time() - began < 0.15
        assert channel.ask("facts")["executable"] == sys.executable


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("echo no such thing >&2; exit 3", r"exit code 3.*no such thing"),
        ("exec yes", "prints endlessly"),
        # Killed two seconds after it was asked to end.
        pytest.param("exec sleep 60", "did not answer in time", marks=pytest.mark.slow),
        ("exit 0", "it ended"),
    ],
)
def test_what_is_not_an_agent(script: str, word: str) -> None:
    """Whatever else is started is named with what it said, within the time."""
    with pytest.raises(Unreachable, match=word):
        AgentChannel(["sh", "-c", script], within=1.0)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        ("struct.pack('>II', 2**31, 0)", "more data than was requested"),
        ("struct.pack('>II', 2, 2**20) + b'{}'", "more data than was requested"),
        ("struct.pack('>II', 3, 0) + b'{a}'", "not answer in JSON"),
        ("struct.pack('>II', 2, 0) + b'[]'", r"answered \[\]"),
        ("b'x'", "it ended"),
    ],
)
def test_a_hostile_agent_is_refused(answer: str, word: str) -> None:
    """What an agent may send is bounded by what it was asked for."""
    script = (
        "import json, os, struct, sys; read = sys.stdin.buffer.read; told ="
        " json.loads(read(int(read(12))));write = sys.stdout.buffer;"
        " write.write(b'rankproof-agent-1 ' + told['arguments']['nonce'].encode() +"
        f" b'\\n');write.flush(); read(8); write.write({answer}); write.flush()"
    )
    with (
        pytest.raises(Unreachable, match=word),
        AgentChannel([sys.executable, "-c", script], within=30) as channel,
    ):
        channel.ask("clock")


def test_an_agent_ends_when_its_lease_does() -> None:
    """Nobody speaks, nobody closes anything: the agent ends by itself."""
    with AgentChannel(HERE, within=30, lease=0.2) as channel:
        assert channel._process.wait(30) == 0
        with pytest.raises(Unreachable, match="it ended"):
            channel.ask("clock")


def test_an_agent_ends_when_nobody_reads() -> None:
    """A channel that takes nothing any more does not hold an agent either."""
    channel = AgentChannel(HERE, within=30, lease=0.3)
    with pytest.raises(Unreachable):
        # Asks for more than any pipe holds, and reads none of it.
        channel.ask("give", bytes=2**24, within=0.0)
    os.write(channel._writes, b"")
    assert channel._process.wait(30) == 0
    channel.close()


@pytest.mark.whole
def test_closing_ends_what_does_not_end(tmp_path: Path) -> None:
    """What was started to reach a machine, and was stopped, is gone after the channel is closed."""
    channel = AgentChannel(HERE, within=30)
    os.kill(channel._process.pid, signal.SIGSTOP)
    channel.close()
    assert channel._process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "fish", "csh"])
def test_every_login_shell_starts_it(shell: str) -> None:
    """The command passes through the shells that people have, as sshd hands it to them."""
    try:
        found = (
            subprocess.run([shell, "-c", "true"], check=False, capture_output=True).returncode == 0
        )
    except FileNotFoundError:
        found = False
    if not found:
        pytest.skip(f"there is no {shell} here")
    line = hostfile.ssh_command("anywhere", argv(sys.executable))[-1]
    with AgentChannel([shell, "-c", line], within=30) as channel:
        assert channel.ask("facts")["executable"] == sys.executable


def test_without_the_interpreter_another_answers() -> None:
    """Where the named interpreter is not, the machine's own says what there is."""
    line = hostfile.ssh_command("anywhere", argv("/nowhere/python"))[-1]
    with AgentChannel(["sh", "-c", line], within=30) as channel:
        assert channel.ask("facts")["python"]


@pytest.mark.whole
def test_an_interrupt_waits_for_no_silent_machine() -> None:
    """Machines that take a connection and then say nothing hold nobody up, and what reached them is
    ended at once.
    """
    started = []

    def start() -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(["sleep", "1000"], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        )
        return started[-1]

    silent = Reached(
        name="a", called="a", command=start, address="", slots=1, demand=lambda _told: None
    )
    interrupted, alarm = os.pipe()
    threading.Timer(0.1, lambda: os.write(alarm, b".")).start()
    began = time.monotonic()
    with (
        MachinePool([silent], lease=1.0, back_within=0.0, cancel=interrupted) as fleet,
        pytest.raises(Cancelled),
    ):
        fleet.take(warm=True, env={})
    for thread in threading.enumerate():  # as the interpreter does at its end
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join(30)
    assert time.monotonic() - began < 10.0
    # Ended and waited for by whoever started it: asked of that process, for others are children of
    # ours too.
    assert [one.returncode for one in started] == [-signal.SIGKILL]
    os.close(interrupted)
    os.close(alarm)
