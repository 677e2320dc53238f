"""What a line of /proc says that a thread waits for: calls of this machine, with timeouts in this
process' memory.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import threading
import time

import pytest

from harness.world.control import waits
from harness.world.control.waits import (
    NUMBERS,
    Ended,
    UnreadableProcess,
    Wait,
    ahead,
    catches,
    memory,
    sleeps_in,
    waits_in,
)

NOBODY = 999_999_999
BEGUN = 1000.0
HERE = {name: number for number, name in NUMBERS.get(os.uname().machine, {}).items()}
WAIT, BITSET, LOCK_PI, LOCK_PI2, PRIVATE, REALTIME = 0, 9, 6, 13, 128, 256

pytestmark = pytest.mark.skipif(not HERE, reason="the system calls of this machine are not known")


class Timespec:
    """Seconds and a fraction in this process' memory; `address` is where."""

    def __init__(self, seconds: int, fraction: int) -> None:
        self.kept = ctypes.create_string_buffer(struct.pack("<qq", seconds, fraction), 16)
        self.address = ctypes.addressof(self.kept)


def line(name: str, *arguments: int) -> str:
    """A line of /proc/…/syscall; skips where the machine has no such call."""
    if name not in HERE:
        pytest.skip(f"this machine has no {name}")
    words = [hex(argument) for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    return f"{HERE[name]} {' '.join(words)} 0x7ffc 0x7f"


def waits_of(name: str, *arguments: int) -> Wait:
    found = waits_in(os.getpid(), line(name, *arguments), begun=BEGUN)
    assert found is not None
    return found


@pytest.mark.parametrize("text", ["", "running\n", "-1 0x7ffc 0x7f\n"])
def test_a_thread_that_runs_waits_for_nothing(text: str) -> None:
    """Neither one that runs, nor one that is in no call, nor one that has no line."""
    assert waits_in(os.getpid(), text, begun=BEGUN) is None
    assert sleeps_in(text) == ""


@pytest.mark.parametrize(
    ("name", "at", "unit"),
    [
        ("nanosleep", 0, 1e9),
        ("clock_nanosleep", 2, 1e9),
        ("ppoll", 2, 1e9),
        ("epoll_pwait2", 3, 1e9),
        ("pselect6", 4, 1e9),
        ("select", 4, 1e6),
        ("futex", 3, 1e9),
    ],
)
def test_a_span_lies_in_memory(name: str, at: int, unit: float) -> None:
    """It is counted from when the world began; no address is no end."""
    given = Timespec(3, int(unit) // 4)
    arguments = [0] * 6
    assert waits_of(name, *arguments) == Wait(name, None)
    arguments[at] = given.address
    assert waits_of(name, *arguments) == Wait(name, BEGUN + 3.25, 3.25)


@pytest.mark.parametrize(("name", "at"), [("poll", 2), ("epoll_wait", 3), ("epoll_pwait", 3)])
def test_a_span_of_milliseconds(name: str, at: int) -> None:
    """A C int: 0 is at once, and every negative one is for ever."""
    for argument, seconds in ((1500, 1.5), (0, 0.0), (0x7FFFFFFF, 2147483.647)):
        arguments = [7] * 6
        arguments[at] = argument
        assert waits_of(name, *arguments) == Wait(name, BEGUN + seconds, seconds)
    for argument in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x80000000):
        arguments[at] = argument
        assert waits_of(name, *arguments) == Wait(name, None)


@pytest.mark.parametrize(
    ("operation", "clock"),
    [
        (BITSET | PRIVATE, time.CLOCK_MONOTONIC),
        (BITSET, time.CLOCK_MONOTONIC),
        (BITSET | PRIVATE | REALTIME, time.CLOCK_REALTIME),
        (LOCK_PI | PRIVATE, time.CLOCK_REALTIME),
        (LOCK_PI2 | PRIVATE, time.CLOCK_MONOTONIC),
        (LOCK_PI2 | PRIVATE | REALTIME, time.CLOCK_REALTIME),
    ],
)
def test_a_futex_may_be_given_a_moment(operation: int, clock: int) -> None:
    """By the clock that the operation names; told on the monotonic one."""
    until = time.clock_gettime(clock) + 30.0
    given = Timespec(int(until), int(until % 1 * 1e9))
    wait = waits_of("futex", 0, operation, 0, given.address)
    assert wait.span is None
    assert wait.ends == pytest.approx(time.monotonic() + 30.0, abs=1.0)
    assert waits_of("futex", 0, operation, 0, 0) == Wait("futex", None)


def test_another_operation_of_a_futex_is_over_at_once() -> None:
    """Only waits and locks are known to last; a wake is no wait."""
    assert waits_of("futex", 0, 1 | PRIVATE, 0, 0) == Wait("futex", BEGUN, 0.0)
    assert waits_of("futex", 0, WAIT | PRIVATE | REALTIME, 0, 0) == Wait("futex", None)


def test_a_sleep_until_a_moment() -> None:
    """By the clock that it names, where its flag says that it is a moment."""
    until = time.monotonic() + 30.0
    given = Timespec(int(until), int(until % 1 * 1e9))
    wait = waits_of("clock_nanosleep", time.CLOCK_MONOTONIC, 1, given.address)
    assert wait.ends == pytest.approx(until, abs=1.0)
    assert wait.span is None


@pytest.mark.parametrize(
    "name", ["rt_sigtimedwait", "io_uring_enter", "mq_timedreceive", "recvmmsg"]
)
def test_a_call_whose_end_is_not_told(name: str) -> None:
    """It is taken to end at any time, and to be unknown."""
    assert waits_of(name) == Wait(name, BEGUN, is_known=False)
    assert waits_in(os.getpid(), "99999 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0", begun=BEGUN) == Wait(
        "system call 99999", BEGUN, is_known=False
    )


@pytest.mark.parametrize(
    "name", ["pause", "rt_sigsuspend", "wait4", "waitid", "flock", "fcntl", "openat"]
)
def test_a_call_that_only_somebody_else_ends(name: str) -> None:
    """It outlasts every moment."""
    wait = waits_of(name)
    assert wait == Wait(name, None)
    assert wait.outlasts(1e18)


def test_a_wait_that_ends_at_the_moment_does_not_outlast_it() -> None:
    """It does from any later end."""
    assert not Wait("x", 5.0).outlasts(5.0)
    assert Wait("x", 5.1).outlasts(5.0)


@pytest.mark.parametrize("name", ["read", "readv", "recvfrom", "recvmsg", "accept", "accept4"])
def test_a_socket_may_be_received_from_for_a_time(name: str) -> None:
    """Its own timeout for receiving ends the call.

    The one for sending does not, and without one nothing does.
    """
    _a_socket(name, socket.SO_RCVTIMEO, socket.SO_SNDTIMEO)


@pytest.mark.parametrize("name", ["write", "writev", "sendto", "sendmsg", "connect"])
def test_a_socket_may_be_sent_to_for_a_time(name: str) -> None:
    """Its own timeout for sending ends the call.

    The one for receiving does not, and without one nothing does.
    """
    _a_socket(name, socket.SO_SNDTIMEO, socket.SO_RCVTIMEO)


def _a_socket(name: str, option: int, other: int) -> None:
    one, two = socket.socketpair()
    with one, two:
        one.setsockopt(socket.SOL_SOCKET, other, struct.pack("@ll", 9, 0))
        assert waits_of(name, one.fileno()) == Wait(name, None)
        one.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", 2, 500_000))
        found = waits_of(name, one.fileno())
        assert found.span == pytest.approx(2.5, abs=0.1)  # the kernel keeps it in ticks of its own
        assert found.ends == pytest.approx(BEGUN + 2.5, abs=0.1)
    read, write = os.pipe()
    try:
        assert waits_of(name, read) == Wait(name, None)  # it is no socket
        assert waits_in(NOBODY, line(name, read), begun=BEGUN) == Wait(name, None)
    finally:
        os.close(read)
        os.close(write)


def test_a_copy_of_the_a_socket_is_another_descriptor() -> None:
    """It is ours, and to be closed; of a number that no descriptor has there is none."""
    one, two = socket.socketpair()
    with one, two:
        copy = waits.copy_of_a_socket(os.getpid(), one.fileno())
        assert copy is not None
        with copy:
            assert copy.fileno() != one.fileno()
    assert waits.copy_of_a_socket(os.getpid(), 0xFFFFFFFF) is None


@pytest.mark.parametrize(
    ("name", "arguments", "sleeps"),
    [
        ("nanosleep", (), True),
        ("clock_nanosleep", (), True),
        ("poll", (1, 0, 10), True),
        ("poll", (1, 1, 10), False),
        ("poll", (1, 0, 0xFFFFFFFF), False),
        ("ppoll", (1, 0, 99), True),
        ("ppoll", (1, 2, 99), False),
        ("ppoll", (1, 0, 0), False),
        ("select", (0, 1, 1, 1, 99), True),
        ("select", (1, 1, 1, 1, 99), False),
        ("select", (0, 1, 1, 1, 0), False),
        ("pselect6", (0, 1, 1, 1, 99), True),
        ("pselect6", (3, 1, 1, 1, 99), False),
        ("epoll_pwait", (3, 0, 1, 10), False),
        ("futex", (0, 0, 0, 99), False),
    ],
)
def test_who_waits_for_nothing_but_time(
    name: str, arguments: tuple[int, ...], *, sleeps: bool
) -> None:
    """A sleep, or a call that asks no descriptor and ends; every other one waits for somebody."""
    assert sleeps_in(line(name, *arguments)) == (name if sleeps else "")


def test_memory_of_this_process_and_of_none() -> None:
    """Read where it is; of a process that is gone it has ended, and an address that nobody has is
    none of its.
    """
    given = Timespec(3, 4)
    assert memory(os.getpid(), given.address, 16) == struct.pack("<qq", 3, 4)
    with pytest.raises(Ended, match="has ended"):
        memory(NOBODY, given.address, 16)
    with pytest.raises(UnreadableProcess, match="cannot be read"):
        memory(os.getpid(), 8, 16)
    with pytest.raises(UnreadableProcess, match="cannot be read"):
        memory(os.getpid(), 1 << 80, 16)


def test_the_clock_of_a_process_here_is_ours() -> None:
    """Nobody is ahead who has no clock of its own, nor one that is gone."""
    assert ahead(os.getpid()) == 0.0
    assert ahead(NOBODY) == 0.0


def test_handlers_are_told_by_their_signal() -> None:
    """The one that is caught, and not its neighbours; a process that is gone catches none."""
    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert catches(os.getpid(), signal.SIGUSR2)
        assert not catches(os.getpid(), signal.SIGUSR2 + 1)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert not catches(os.getpid(), signal.SIGUSR2)
    assert not catches(NOBODY, signal.SIGUSR2)


def test_the_clock_of_a_test_host_is_counted_where_it_was_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host's own monotonic clock is ahead of ours; the time of day is the same everywhere."""
    monkeypatch.setattr(waits, "ahead", lambda _pid: 1000.0)
    for operation, clock, away in (
        (BITSET, time.CLOCK_MONOTONIC, 1000.0),
        (LOCK_PI, time.CLOCK_REALTIME, 0.0),
    ):
        given = Timespec(int(time.clock_gettime(clock)) + 2000, 0)
        wait = waits_of("futex", 0, operation, 0, given.address)
        assert wait.ends == pytest.approx(time.monotonic() + 2000.0 - away, abs=2.0)
