"""Waits of threads, read from /proc: for ever, until a moment that can be named, or not at all.

A system call that ends by itself is sleep: `nanosleep`, or a futex, a poll or a select with a
timeout. Only one that nobody but another process or thread can end makes a hang. A timeout that
lies in the thread's memory is read there, one of a socket from a copy of it. No table of system
calls is whole: of one that is not listed nothing is known.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
FUTEX_COMMANDS = 0x7F
FUTEX_WAIT = 0
FUTEX_LOCK_PI = 6
FUTEX_WAIT_BITSET = 9
FUTEX_LOCK_PI2 = 13
FUTEX_CLOCK_REALTIME = 256
TIMER_ABSTIME = 1

# Numbers of the system calls that can end by themselves, per machine, and what they are called.
NUMBERS: dict[str, dict[int, str]] = {
    "x86_64": {
        7: "poll", 23: "select", 35: "nanosleep", 128: "rt_sigtimedwait", 202: "futex",
        208: "io_getevents", 220: "semtimedop", 230: "clock_nanosleep", 232: "epoll_wait",
        242: "mq_timedsend", 243: "mq_timedreceive", 270: "pselect6", 271: "ppoll",
        281: "epoll_pwait", 299: "recvmmsg", 426: "io_uring_enter", 441: "epoll_pwait2",
        449: "futex_waitv", 0: "read", 1: "write", 2: "open", 257: "openat", 19: "readv",
        20: "writev", 34: "pause", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom",
        46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 130: "rt_sigsuspend",
        247: "waitid", 288: "accept4",
    },
    "aarch64": {
        4: "io_getevents", 22: "epoll_pwait", 72: "pselect6", 73: "ppoll", 98: "futex",
        101: "nanosleep", 115: "clock_nanosleep", 137: "rt_sigtimedwait", 182: "mq_timedsend",
        183: "mq_timedreceive", 192: "semtimedop", 243: "recvmmsg", 426: "io_uring_enter",
        441: "epoll_pwait2", 449: "futex_waitv", 56: "openat", 63: "read", 64: "write", 65: "readv",
        66: "writev", 95: "waitid", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom",
        211: "sendmsg", 212: "recvmsg", 242: "accept4", 260: "wait4", 25: "fcntl", 32: "flock",
        133: "rt_sigsuspend",
    },
}  # fmt: skip
# Calls whose end nothing here can tell: taken for sleep.
UNKNOWN_END = {
    "rt_sigtimedwait", "io_getevents", "semtimedop", "mq_timedsend", "mq_timedreceive", "recvmmsg",
    "io_uring_enter", "futex_waitv",
}  # fmt: skip
# Calls on a socket end with its own timeout, where it has one.
RECEIVES = {"read", "readv", "recvfrom", "recvmsg", "accept", "accept4"}
SENDS = {"write", "writev", "sendto", "sendmsg", "connect"}
# Calls that wait for nothing but time, and those that do where they are given no descriptors: which
# arguments say how many, and for how long.
SLEEPS = ("nanosleep", "clock_nanosleep")
ASKS = {"poll": (1, 2), "ppoll": (1, 2), "select": (0, 4), "pselect6": (0, 4)}
PIDFD_GETFD = 438


class Wait(NamedTuple):
    """Wait of a thread in a system call.

    Attributes:
        call: name of the system call, or its number.
        ends: CLOCK_MONOTONIC seconds before which it may end by itself; None where only somebody
            else ends it.
        span: seconds for which it was begun, where that is what the call is given; None where it
            names a moment.
        is_known: whether it is known how the call ends.
    """

    call: str
    ends: float | None
    span: float | None = None
    is_known: bool = True

    def outlasts(self, moment: float) -> bool:
        """Return whether it does not end by itself before `moment`, in CLOCK_MONOTONIC seconds."""
        return self.ends is None or self.ends > moment


class UnreadableProcess(Exception):
    """State that the kernel does not show: /proc is not there, or hides the processes of others."""


class Ended(UnreadableProcess):
    """It has just ended, so that there is nothing to see any more."""


def waits_in(pid: int, line: str, *, begun: float) -> Wait | None:
    """Return what `/proc/<pid>/task/<tid>/syscall` says a thread waits in; None where it runs.

    Args:
        pid: the process, whose memory holds the timeouts.
        line: the file's text.
        begun: CLOCK_MONOTONIC seconds before which the wait cannot have begun: a span is counted
            from there, because the kernel does not say how much of it is over.

    Raises:
        UnreadableProcess: the machine's calls are not known here, or a timeout cannot be read.
    """
    words = line.split()
    if not words or words[0] in ("running", "-1"):
        return None
    number = int(words[0])
    arguments = [int(word, 16) for word in words[1:7]]
    known = NUMBERS.get(os.uname().machine)
    if known is None:
        raise UnreadableProcess(
            f"this version does not know the system calls of {os.uname().machine}"
        )
    call = known.get(number)
    if call is None:
        return Wait(f"system call {number}", begun, is_known=False)
    if call in UNKNOWN_END:
        return Wait(call, begun, is_known=False)
    if (moment := _moment(call, arguments, pid)) is not None:
        return Wait(call, moment)
    span = _span_of(call, arguments, pid)
    return Wait(call, None if span is None else begun + span, span)


def sleeps_in(line: str) -> str:
    """Return the call in which a thread waits for nothing but time.

    Empty where it waits for somebody, or runs.
    """
    words = line.split()
    if not words or not words[0].isdigit():
        return ""
    call = NUMBERS.get(os.uname().machine, {}).get(int(words[0]), "")
    if call in ASKS:
        descriptors, timeout = (int(words[1 + at], 16) for at in ASKS[call])
        is_endless = timeout == 0 if call != "poll" else _milliseconds(timeout) is None
        return "" if descriptors or is_endless else call
    return call if call in SLEEPS else ""


def _moment(call: str, arguments: list[int], pid: int) -> float | None:
    """Return until when a call waits, on CLOCK_MONOTONIC; None where it is given no moment."""
    if call == "clock_nanosleep" and arguments[1] & TIMER_ABSTIME:
        return _until(pid, arguments[2], clock=arguments[0])
    if call != "futex" or arguments[1] & FUTEX_COMMANDS not in (
        FUTEX_WAIT_BITSET,
        FUTEX_LOCK_PI,
        FUTEX_LOCK_PI2,
    ):
        return None
    real = arguments[1] & FUTEX_COMMANDS == FUTEX_LOCK_PI or arguments[1] & FUTEX_CLOCK_REALTIME
    return _until(pid, arguments[3], clock=time.CLOCK_REALTIME if real else time.CLOCK_MONOTONIC)


def _span_of(call: str, arguments: list[int], pid: int) -> float | None:
    """For how many seconds a call waits at most; None where it is given no such span."""
    match call:
        case "nanosleep":
            return _span(pid, arguments[0])
        case "clock_nanosleep" | "ppoll":
            return _span(pid, arguments[2])
        case "poll":
            return _milliseconds(arguments[2])
        case "epoll_wait" | "epoll_pwait":
            return _milliseconds(arguments[3])
        case "epoll_pwait2":
            return _span(pid, arguments[3])
        case "pselect6":
            return _span(pid, arguments[4])
        case "select":
            return _span(pid, arguments[4], unit=1e6)
        case "futex":
            return _span_of_a_futex(pid, arguments)
        case _ if call in RECEIVES:
            return _patience(pid, arguments[0], socket.SO_RCVTIMEO)
        case _ if call in SENDS:
            return _patience(pid, arguments[0], socket.SO_SNDTIMEO)
    return None


def _span_of_a_futex(pid: int, arguments: list[int]) -> float | None:
    command = arguments[1] & FUTEX_COMMANDS
    if command in (FUTEX_WAIT_BITSET, FUTEX_LOCK_PI, FUTEX_LOCK_PI2):
        return None
    return _span(pid, arguments[3]) if command == FUTEX_WAIT else 0.0


def _patience(pid: int, descriptor: int, option: int) -> float | None:
    """Return the timeout of a socket of a process, in seconds; None where it has none, or the
    kernel does not let us ask.

    What cannot be asked is a sentence of the report.
    """
    copy = copy_of_a_socket(pid, descriptor)
    if copy is None:
        return None
    with copy:
        seconds, microseconds = struct.unpack("@ll", copy.getsockopt(socket.SOL_SOCKET, option, 16))
        timeout: float = seconds + microseconds / 1e6
        return timeout or None


def copy_of_a_socket(pid: int, descriptor: int) -> socket.socket | None:
    """Return a socket of a process, to be asked and closed; None where it is none, or the kernel
    does not let us have it.
    """
    link = PROC / str(pid) / "fd" / str(ctypes.c_int(descriptor & 0xFFFFFFFF).value)
    copy = -1
    with suppress(OSError):
        # Not by stat: a file system that hangs would keep us waiting.
        if str(link.readlink()).startswith("socket:"):
            process = os.pidfd_open(pid)
            copy = ctypes.CDLL(None).syscall(PIDFD_GETFD, process, int(link.name), 0)
            os.close(process)
    return socket.socket(fileno=copy) if copy >= 0 else None


def _milliseconds(argument: int) -> float | None:
    """Return a timeout of poll: a C int, negative for ever."""
    value: int = struct.unpack("<i", struct.pack("<I", argument & 0xFFFFFFFF))[0]
    return None if value < 0 else value / 1000


def _span(pid: int, address: int, *, unit: float = 1e9) -> float | None:
    """Seconds of a timeout in the process' memory; None for no timeout."""
    if address == 0:
        return None
    seconds, fraction = _read(pid, address)
    return seconds + fraction / unit


def _until(pid: int, address: int, *, clock: int) -> float | None:
    """Return the moment at which a timeout is over, on CLOCK_MONOTONIC; None for no timeout."""
    if address == 0:
        return None
    seconds, nanoseconds = _read(pid, address)
    now = time.clock_gettime(clock) + (0.0 if clock == time.CLOCK_REALTIME else ahead(pid))
    return seconds + nanoseconds / 1e9 - now + time.monotonic()


def ahead(pid: int) -> float:
    """Seconds that the monotonic clock of a process is ahead of ours, as on a test host; 0 where
    none has its own.
    """
    offsets = [_offset(whose) for whose in (str(pid), "self")]
    return offsets[0] - offsets[1]


def _offset(pid: str) -> float:
    try:
        lines = (PROC / pid / "timens_offsets").read_text().splitlines()
    except OSError:
        return 0.0
    seconds, nanoseconds = next(
        map(int, line.split()[1:]) for line in lines if line.startswith("monotonic")
    )
    return seconds + nanoseconds / 1e9


def _read(pid: int, address: int) -> tuple[int, int]:
    timespec: tuple[int, int] = struct.unpack("<qq", memory(pid, address, 16))
    return timespec


def memory(pid: int, address: int, size: int) -> bytes:
    """Bytes of a process' memory.

    Raises:
        Ended: the process has just ended.
        UnreadableProcess: it is not ours to read, or nothing is there.
    """
    try:
        # Where its first thread has ended, the others still have it.
        for task in [PROC / str(pid), *(PROC / str(pid) / "task").iterdir()]:
            with suppress(ProcessLookupError), (task / "mem").open("rb", buffering=0) as file:
                file.seek(address)
                content = file.read(size)
                if len(content) == size:
                    return content
    except FileNotFoundError:
        raise Ended(f"process {pid} has ended") from None
    except (OSError, OverflowError, ValueError) as error:
        raise UnreadableProcess(f"the memory of process {pid} cannot be read: {error}") from None
    raise Ended(f"process {pid} has ended, or its memory at address {address:#x} cannot be read")


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal, as the kernel says."""
    try:
        status = (PROC / str(pid) / "status").read_text()
    except OSError:
        return False
    mask = next(
        (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:")), 0
    )
    return bool(mask >> (number - 1) & 1)
