"""What a thread waits for, read from /proc: for ever, until a moment that can be named, or not at all.

A system call that ends by itself is sleep: `nanosleep`, or a futex, a poll or a select with a timeout. Only one that
nobody but another process or thread can end makes a hang. A timeout that lies in the thread's memory is read there.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
FUTEX_COMMANDS = 0x7F
FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_LOCK_PI2 = 0, 6, 9, 13
FUTEX_CLOCK_REALTIME = 256
TIMER_ABSTIME = 1

# Numbers of the system calls that can end by themselves, per machine, and what they are called.
NUMBERS: dict[str, dict[int, str]] = {
    "x86_64": {
        7: "poll", 23: "select", 35: "nanosleep", 128: "rt_sigtimedwait", 202: "futex", 208: "io_getevents",
        220: "semtimedop", 230: "clock_nanosleep", 232: "epoll_wait", 242: "mq_timedsend", 243: "mq_timedreceive",
        270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 299: "recvmmsg", 426: "io_uring_enter",
        441: "epoll_pwait2", 449: "futex_waitv", 0: "read", 1: "write", 34: "pause", 42: "connect", 43: "accept",
        44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock",
        130: "rt_sigsuspend", 247: "waitid", 288: "accept4",
    },
    "aarch64": {
        4: "io_getevents", 22: "epoll_pwait", 72: "pselect6", 73: "ppoll", 98: "futex", 101: "nanosleep",
        115: "clock_nanosleep", 137: "rt_sigtimedwait", 182: "mq_timedsend", 183: "mq_timedreceive",
        192: "semtimedop", 243: "recvmmsg", 426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv",
        63: "read", 64: "write", 95: "waitid", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom",
        211: "sendmsg", 212: "recvmsg", 242: "accept4", 260: "wait4", 25: "fcntl", 32: "flock", 133: "rt_sigsuspend",
    },
}  # fmt: skip
# Calls whose end nothing here can tell: taken for sleep.
UNKNOWN_END = {
    "rt_sigtimedwait", "io_getevents", "semtimedop", "mq_timedsend", "mq_timedreceive", "recvmmsg", "io_uring_enter",
    "futex_waitv",
}  # fmt: skip


class Wait(NamedTuple):
    """What a thread waits in.

    Attributes:
        call: name of the system call, or its number.
        ends: CLOCK_MONOTONIC seconds before which it may end by itself; None where only somebody else ends it.
    """

    call: str
    ends: float | None

    def outlasts(self, moment: float) -> bool:
        """Whether it does not end by itself before `moment`, in CLOCK_MONOTONIC seconds."""
        return self.ends is None or self.ends > moment


class Unreadable(Exception):
    """The kernel does not let us see it: /proc is not there, or hides the processes of others."""


def waits_in(pid: int, line: str, *, begun: float) -> Wait | None:
    """What `/proc/<pid>/task/<tid>/syscall` says a thread waits in; None where it runs.

    Args:
        pid: the process, whose memory holds the timeouts.
        line: the file's text.
        begun: CLOCK_MONOTONIC seconds before which the wait cannot have begun: a span is counted from there, because
            the kernel does not say how much of it is over.

    Raises:
        Unreadable: the machine's calls are not known here, or a timeout cannot be read.
    """
    words = line.split()
    if not words or words[0] in ("running", "-1"):
        return None
    number, arguments = int(words[0]), [int(word, 16) for word in words[1:7]]
    known = NUMBERS.get(os.uname().machine)
    if known is None:
        raise Unreadable(f"the system calls of {os.uname().machine} are not known here")
    call = known.get(number, f"call {number}")
    return Wait(call, _ends(call, arguments, pid, begun))


def _ends(call: str, arguments: list[int], pid: int, begun: float) -> float | None:
    span: float | None = None
    match call:
        case "nanosleep":
            span = _span(pid, arguments[0])
        case "clock_nanosleep" if arguments[1] & TIMER_ABSTIME:
            return _until(pid, arguments[2], clock=arguments[0])
        case "clock_nanosleep" | "ppoll":
            span = _span(pid, arguments[2])
        case "poll":
            span = _milliseconds(arguments[2])
        case "epoll_wait" | "epoll_pwait":
            span = _milliseconds(arguments[3])
        case "epoll_pwait2":
            span = _span(pid, arguments[3])
        case "pselect6":
            span = _span(pid, arguments[4])
        case "select":
            span = _span(pid, arguments[4], unit=1e6)
        case "futex":
            command, timeout = arguments[1] & FUTEX_COMMANDS, arguments[3]
            if command in (FUTEX_WAIT_BITSET, FUTEX_LOCK_PI, FUTEX_LOCK_PI2):
                real = command == FUTEX_LOCK_PI or arguments[1] & FUTEX_CLOCK_REALTIME
                return _until(pid, timeout, clock=time.CLOCK_REALTIME if real else time.CLOCK_MONOTONIC)
            span = _span(pid, timeout) if command == FUTEX_WAIT else 0.0
        case _ if call in UNKNOWN_END:
            span = 0.0
    return None if span is None else begun + span


def _milliseconds(argument: int) -> float | None:
    """A timeout of poll: a C int, negative for ever."""
    value: int = struct.unpack("<i", struct.pack("<I", argument & 0xFFFFFFFF))[0]
    return None if value < 0 else value / 1000


def _span(pid: int, address: int, *, unit: float = 1e9) -> float | None:
    """Seconds of a timeout in the process' memory; None for no timeout."""
    if address == 0:
        return None
    seconds, fraction = _read(pid, address)
    return seconds + fraction / unit


def _until(pid: int, address: int, *, clock: int) -> float | None:
    """The moment at which a timeout is over, on CLOCK_MONOTONIC; None for no timeout."""
    if address == 0:
        return None
    seconds, nanoseconds = _read(pid, address)
    own = time.clock_gettime(clock) + (0.0 if clock == time.CLOCK_REALTIME else ahead(pid))
    return seconds + nanoseconds / 1e9 - own + time.monotonic()


def ahead(pid: int) -> float:
    """Seconds that the monotonic clock of a process is ahead of ours, as on a test host; 0 where none has its own."""
    own = [_offset(whose) for whose in (str(pid), "self")]
    return own[0] - own[1]


def _offset(pid: str) -> float:
    try:
        lines = (PROC / pid / "timens_offsets").read_text().splitlines()
    except OSError:
        return 0.0
    seconds, nanoseconds = next(map(int, line.split()[1:]) for line in lines if line.startswith("monotonic"))
    return seconds + nanoseconds / 1e9


def _read(pid: int, address: int) -> tuple[int, int]:
    timespec: tuple[int, int] = struct.unpack("<qq", memory(pid, address, 16))
    return timespec


def memory(pid: int, address: int, size: int) -> bytes:
    """Bytes of a process' memory.

    Raises:
        Unreadable: it is not ours to read, or nothing is there.
    """
    try:
        with (PROC / str(pid) / "mem").open("rb", buffering=0) as file:
            file.seek(address)
            content = file.read(size)
    except (OSError, OverflowError, ValueError) as error:
        raise Unreadable(f"the memory of process {pid} cannot be read: {error}") from None
    if len(content) != size:
        raise Unreadable(f"the memory of process {pid} cannot be read")
    return content
