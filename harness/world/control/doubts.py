"""Why a world that stands still may go on by itself: a timer, an alarm, a lock or a peer outside of
it.

Nobody in such a world moves, and still it is only slow: a timer fires, a signal comes, a server
answers late. What the kernel shows of that is read here, process by process. What it does not show
is a sentence of the report.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import stat
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple

from harness.world.control.waits import PROC, UnreadableProcess, catches, copy_of_a_socket

# A handler for one of these is called by a timer that /proc does not show (`setitimer`, `alarm`).
ALARMS = {14: "SIGALRM", 26: "SIGVTALRM", 27: "SIGPROF"}
# What a process reads to hear of something that happens by itself, or outside.
HEARS = {
    "anon_inode:[signalfd]": "receives signals through a descriptor (signalfd)",
    "anon_inode:inotify": "watches files for changes (inotify)",
    "anon_inode:[fanotify]": "watches files for changes (fanotify)",
}
TIMER = "anon_inode:[timerfd]"
PIDFD = "anon_inode:[pidfd]"
RING = "anon_inode:[io_uring]"
# These become ready by what somebody does. Of any other kind nothing is known.
KNOWN = {TIMER, PIDFD, RING, "anon_inode:[eventpoll]", "anon_inode:[eventfd]"}
TIME = re.compile(r"^it_value: \((\d+), (\d+)\)$", re.MULTILINE)
WATCHED = re.compile(r"^Pid:\s*(-?\d+)$", re.MULTILINE)
INODE = re.compile(r"^ino:\s*(\d+)$", re.MULTILINE)
TAKEN, COMPLETED = (
    re.compile(rf"^{name}:\s*(\d+)$", re.MULTILINE) for name in ("CachedSqHead", "CachedCqTail")
)
SOCKET = re.compile(r"^socket:\[(\d+)\]$")
# States of TCP in which the other end can still send, or take what is sent.
OPEN = {
    1: "ESTABLISHED",
    2: "SYN_SENT",
    3: "SYN_RECV",
    4: "FIN_WAIT1",
    5: "FIN_WAIT2",
    8: "CLOSE_WAIT",
}
SYN_SENT = 2
CLOSE_WAIT = 8
LISTEN = 10
# How the kernel is asked about UNIX sockets: linux/sock_diag.h, linux/unix_diag.h.
SOCK_DIAG = 4
BY_FAMILY = 20
DUMP = 0x301
DONE = 3
ERROR = 2
ANY = 0xFFFFFFFF
SHOW_NAME = 0x1
SHOW_PEER = 0x4
SHOW_WAITING = 0x8
NAME = 0
PEER = 2
WAITING = 3
# What stat may answer from memory: a file system that hangs would keep us waiting (linux/fcntl.h,
# linux/stat.h).
AT_FDCWD = -100
WITHOUT_ASKING = 0x4000
TYPE_AND_INODE = 0x101
STATX_SIZE = 256


class InetEnd(NamedTuple):
    """End of an internet connection: both addresses with their ports, its state, its inode."""

    own: tuple[str, int]
    peer: tuple[str, int]
    state: int
    inode: int
    is_datagram: bool = False


class UnixSocket(NamedTuple):
    """UNIX socket by its inode, with that of its peer (0: none), and of those not accepted yet."""

    inode: int
    peer: int
    waiting: tuple[int, ...]
    is_open_to_all: bool = False


def doubts(
    pids: Collection[int], *, left: float, served: int | None, name: Callable[[int], str]
) -> Iterator[str]:
    """Why processes that stand still may go on without each other, in words.

    Args:
        pids: all processes of the world.
        left: seconds until the world is stopped anyway.
        served: a process of the harness that serves the ranks and says itself when it keeps them
            waiting; None where there is none.
        name: what a process is called.

    Raises:
        UnreadableProcess: the kernel does not show it.
    """
    for pid in sorted(pids):
        for why in (*_of_signals(pid), *_of_descriptors(pid, pids, left=left)):
            yield f"{name(pid)} {why}"
    for pid, holder in _locks(pids):
        whose = "an unknown process" if holder <= 0 else "a process outside the world"
        yield f"{name(pid)} waits for a file lock that {whose} holds"
    for pid, what in _strangers(pids, served=served):
        yield f"{name(pid)} {what}"


def _of_signals(pid: int) -> Iterator[str]:
    for number, called in ALARMS.items():
        if catches(pid, number):
            yield (
                f"has a handler for {called}, and the kernel does not show whether an alarm is set"
            )
    with suppress(OSError):
        if (PROC / str(pid) / "timers").read_text().strip():
            yield "has set a timer (timer_create)"


def _of_descriptors(pid: int, pids: Collection[int], *, left: float) -> Iterator[str]:
    """Yield what a process has open by which it hears of what nobody in the world does."""
    for entry, what in _open(pid):
        if what in HEARS:
            yield HEARS[what]
        elif what == TIMER:
            about = _about(pid, entry)
            timer = TIME.search(about)
            after = float(timer[1]) + float(timer[2]) / 1e9 if timer else 0.0
            if timer is None or 0.0 < after <= left:
                yield f"has set a timer (timerfd) that fires in {after:.1f} s"
        elif what == PIDFD:
            watched = WATCHED.search(_about(pid, entry))
            # -1 has ended already; 0 is in a namespace that we do not see.
            if watched is None or int(watched[1]) not in (-1, *pids):
                yield "waits for the exit of a process outside the world (pidfd)"
        elif what == RING and (many := _pending(_about(pid, entry))) != 0:
            yield f"has submitted {many or 'some'} io_uring requests that are not complete"
        elif what.startswith("anon_inode:") and what not in KNOWN:
            yield f"has {what} open, and it is not known which events this file reports"
        elif what.startswith("/") and _is_shared_pipe(PROC / str(pid) / "fd" / entry, pids):
            yield (
                f"has the named pipe {Path(what).name} open, which a process outside the world"
                " also has open"
            )


def _pending(description: str) -> int | None:
    """How many requests of a ring are not complete; None where the kernel does not say."""
    taken = TAKEN.search(description)
    completed = COMPLETED.search(description)
    return None if taken is None or completed is None else int(taken[1]) - int(completed[1])


def _is_shared_pipe(file: Path, pids: Collection[int]) -> bool:
    """Return whether a file is a named pipe that a process has open which is none of these."""
    named = _named_pipe(file)
    if named is None:
        return False
    others = [
        int(entry.name)
        for entry in PROC.iterdir()
        if entry.name.isdigit() and int(entry.name) not in pids
    ]
    for pid in others:
        with suppress(OSError):
            for entry in (PROC / str(pid) / "fd").iterdir():
                if named == _named_pipe(entry):
                    return True
    return False


def _named_pipe(file: Path) -> tuple[int, bytes] | None:
    """Return the inode and the device of a named pipe; None for another file, or none."""
    status = ctypes.create_string_buffer(STATX_SIZE)
    if (
        ctypes.CDLL(None).statx(AT_FDCWD, os.fsencode(file), WITHOUT_ASKING, TYPE_AND_INODE, status)
        != 0
    ):
        return None
    mode = struct.unpack_from("=H", status, 28)[0]
    inode = struct.unpack_from("=Q", status, 32)[0]
    return (inode, status.raw[136:144]) if stat.S_ISFIFO(mode) else None


def _open(pid: int) -> list[tuple[str, str]]:
    """Return the descriptors of a process, with what each is.

    Raises:
        UnreadableProcess: the kernel does not show them.
    """
    entries = []
    try:
        with suppress(FileNotFoundError, ProcessLookupError):  # it may have ended
            for entry in (PROC / str(pid) / "fd").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):  # it may be closed meanwhile
                    entries.append((entry.name, str(entry.readlink())))
    except OSError as error:
        raise UnreadableProcess(
            f"the open files of process {pid} cannot be read: {error.strerror}"
        ) from None
    return entries


def _about(pid: int, entry: str) -> str:
    try:
        return (PROC / str(pid) / "fdinfo" / entry).read_text()
    except OSError:
        return ""


# -- locks


def _locks(pids: Collection[int]) -> Iterator[tuple[int, int]]:
    """Which processes wait for a lock of a file that a process holds which is none of them: waiter
    and holder.
    """
    holder = 0
    try:
        lines = (PROC / "locks").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        if words[1] != "->":
            holder = int(words[4])
        elif holder not in pids:
            waiter = int(words[5])
            # Of a lock that belongs to an open file the kernel does not say who waits for it.
            waiters = [waiter] if waiter > 0 else _holders_of(words[6].rpartition(":")[2], pids)
            yield from ((pid, holder) for pid in waiters if pid in pids)


def _holders_of(inode: str, pids: Collection[int]) -> list[int]:
    """Which processes have a file open, by its inode alone."""
    seen = {
        pid: [INODE.search(_about(pid, entry)) for entry, _ in _open(pid)] for pid in sorted(pids)
    }
    return [
        pid
        for pid, locks in seen.items()
        if any(lock is not None and lock[1] == inode for lock in locks)
    ]


# -- connections


def _strangers(pids: Collection[int], *, served: int | None) -> Iterator[tuple[int, str]]:
    """Which processes have a socket by which somebody may speak who is none of them, with what it
    is.
    """
    inodes: dict[int, tuple[int, str]] = {}
    for pid in sorted(pids):
        for inode, entry in _sockets(pid).items():
            inodes.setdefault(inode, (pid, entry))
    known = {*inodes, *(_sockets(served) if served is not None else ())}
    seen: dict[str, list[InetEnd]] = {}
    for pid in sorted(pids) if inodes else ():
        # Once for each network namespace: a test host has one of its own.
        with suppress(FileNotFoundError, ProcessLookupError):
            space = str((PROC / str(pid) / "ns" / "net").readlink())
            if space not in seen:
                seen[space] = list(_ends(pid))
    everywhere = [end for ends in seen.values() for end in ends]
    for ends in seen.values():
        for end in ends:
            if end.inode in inodes and (what := _hears(end, ends, everywhere, known)):
                yield inodes[end.inode][0], what
    local = _unix_sockets() if inodes else []
    for inode, what in _strange_peers(local, inodes, known):
        yield inodes[inode][0], what
    for inode in sorted(
        inodes.keys() - {end.inode for end in everywhere} - {end_here.inode for end_here in local}
    ):
        pid, entry = inodes[inode]
        if what := _unlisted(pid, int(entry)):
            yield pid, what


def _hears(
    end: InetEnd, ends: Collection[InetEnd], everywhere: Collection[InetEnd], known: Collection[int]
) -> str:
    """From whom a socket hears who is none of the known, in words; empty where from nobody.

    As `_is_strange`.
    """
    if end.is_datagram and end.peer[1] == 0:
        return f"has a UDP socket on port {end.own[1]}, to which any process can send"
    if end.state not in OPEN or end.peer[1] == 0:
        return ""
    where = f"{end.peer[0]}:{end.peer[1]}"
    if end.state == SYN_SENT:
        return f"is connecting to {where}, and this attempt ends by itself"
    return (
        f"has a connection to {where}, which is outside the world"
        if _is_strange(end, ends, everywhere, known)
        else ""
    )


def _unlisted(pid: int, descriptor: int) -> str:
    """Return what a socket is that no table of connections has, in words.

    Empty for one that was never connected or bound.
    """
    copy = copy_of_a_socket(pid, descriptor)
    if copy is None:
        return "has a socket whose other end the kernel does not show"
    with copy:
        if copy.family == socket.AF_UNIX:
            return ""  # of another network namespace: a sentence of the report
        is_idle = copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type != socket.SOCK_RAW
        if is_idle and not _is_connected(copy):
            return ""
        return (
            f"has a socket of family {int(copy.family)}, whose other end the kernel does not show"
        )


def _is_connected(copy: socket.socket) -> bool:
    try:
        copy.getpeername()
    except OSError:
        return False
    return True


def _is_strange(
    end: InetEnd, ends: Collection[InetEnd], everywhere: Collection[InetEnd], known: Collection[int]
) -> bool:
    """Return whether the other end of a connection is somebody's who is none of the known.

    Args:
        end: of a process of the world.
        ends: those that its network namespace has.
        everywhere: those of all namespaces of the world.
        known: inodes of sockets that processes of the world have.
    """
    near = ends if _is_loopback(end.peer[0]) else everywhere
    if end.is_datagram:
        return not any(
            other_end.is_datagram and other_end.own == end.peer and other_end.inode in known
            for other_end in near
        )
    other = next(
        (
            other_end
            for other_end in near
            if other_end.own == end.peer and other_end.peer == end.own
        ),
        None,
    )
    if other is None:
        # On another machine, or behind an address that leads to one; or it was here, has closed,
        # and is gone.
        is_here = _is_loopback(end.peer[0]) or any(
            other_end.own[0] == end.peer[0] for other_end in everywhere
        )
        return end.state != CLOSE_WAIT or not is_here
    if other.inode != 0:
        return other.inode not in known
    # Nobody has it: it was closed, or whoever listens there has not accepted it yet.
    listening = [
        other_end.inode
        for other_end in near
        if other_end.state == LISTEN and other_end.own[1] == end.peer[1]
    ]
    return other.state in (1, 3) and any(inode not in known for inode in listening)


def _is_loopback(address: str) -> bool:
    return (IPv6Address(address) if ":" in address else IPv4Address(address)).is_loopback


def _sockets(pid: int) -> dict[int, str]:
    """Return the sockets of a process: inode to descriptor."""
    matches = ((SOCKET.match(what), entry) for entry, what in _open(pid))
    return {int(match[1]): entry for match, entry in matches if match is not None}


def _ends(pid: int) -> Iterator[InetEnd]:
    for file in ("tcp", "tcp6", "udp", "udp6"):
        try:
            text = (PROC / str(pid) / "net" / file).read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # a machine without IPv6; or it has just ended
        except OSError as error:
            raise UnreadableProcess(
                f"the connections of process {pid} cannot be read: {error.strerror}"
            ) from None
        for line in text.splitlines()[1:]:
            words = line.split()
            address = _address(words[1])
            peer = _address(words[2])
            yield InetEnd(
                address, peer, int(words[3], 16), int(words[9]), is_datagram=file.startswith("udp")
            )


def _address(text: str) -> tuple[str, int]:
    """Return an address as the kernel writes it: words of 32 bits, each in the machine's order."""
    packed, port = text.split(":")
    data = b"".join(
        struct.pack("=I", int(packed[at : at + 8], 16)) for at in range(0, len(packed), 8)
    )
    if len(data) == 4:
        return str(IPv4Address(data)), int(port, 16)
    long = IPv6Address(data)
    return str(long.ipv4_mapped or long), int(port, 16)


def _strange_peers(
    sockets: Collection[UnixSocket], own: Collection[int], known: Collection[int]
) -> Iterator[tuple[int, str]]:
    """Which UNIX sockets hear from somebody who is none of the known: joined, to be accepted, or
    open to all.

    Only those are seen that are of the machine's own network namespace.
    """
    joined = "has a connection to a socket of this machine, which is outside the world"
    for sock in sockets:
        if sock.inode in own and sock.peer not in known and sock.peer != 0:
            yield sock.inode, joined
        if sock.inode in own and sock.is_open_to_all:
            yield sock.inode, "has a named UNIX socket, to which any process can send"
        if sock.inode not in known:
            yield from ((waiting, joined) for waiting in sock.waiting if waiting in own)


def _unix_sockets() -> list[UnixSocket]:
    """Return the UNIX sockets of this machine.

    Raises:
        UnreadableProcess: the kernel does not list them.
    """
    sockets: list[UnixSocket] = []
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as asked:
            asked.settimeout(1.0)
            shown = SHOW_NAME | SHOW_PEER | SHOW_WAITING
            request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, ANY, 0, shown, ANY, ANY)
            asked.send(struct.pack("=IHHII", 16 + len(request), BY_FAMILY, DUMP, 1, 0) + request)
            while True:
                data = asked.recv(1 << 20)
                at = 0
                while at + 16 <= len(data):
                    length, kind = struct.unpack_from("=IH", data, at)
                    if kind == ERROR:
                        raise UnreadableProcess(
                            "the kernel does not list this machine's UNIX sockets"
                        )
                    if kind == DONE:
                        return sockets
                    sockets.append(_unix_socket(data[at + 16 : at + length]))
                    at += (length + 3) & ~3
    except OSError as error:
        raise UnreadableProcess(f"this machine's UNIX sockets cannot be listed: {error}") from None


def _unix_socket(description: bytes) -> UnixSocket:
    """Return a UNIX socket as the kernel tells of it: its inode, then attributes."""
    kind = description[1]
    inode = struct.unpack_from("=I", description, 4)[0]
    peer = 0
    waiting: tuple[int, ...] = ()
    is_named = False
    at = 16
    while at + 4 <= len(description):
        length, attribute = struct.unpack_from("=HH", description, at)
        if attribute == NAME:
            is_named = True
        if attribute == PEER:
            peer = struct.unpack_from("=I", description, at + 4)[0]
        if attribute == WAITING:
            waiting = struct.unpack_from(f"={(length - 4) // 4}I", description, at + 4)
        at += max(4, (length + 3) & ~3)
    is_open_to_all = kind == socket.SOCK_DGRAM and is_named and peer == 0
    return UnixSocket(inode, peer, waiting, is_open_to_all)
