"""Why a world that stands still may go on by itself: a timer, an alarm, a lock or a peer outside of it.

Nobody in such a world moves, and still it is only slow: a timer fires, a signal comes, a server answers late. What the
kernel shows of that is read here, process by process. What it does not show is a sentence of the report.
"""

from __future__ import annotations

import re
import socket
import stat
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple

from harness.world.waits import PROC, catches

# A handler for one of these is called by a timer that /proc does not show (`setitimer`, `alarm`).
ALARMS = {14: "SIGALRM", 26: "SIGVTALRM", 27: "SIGPROF"}
# What a process reads to hear of something that happens by itself, or outside.
HEARS = {
    "anon_inode:[signalfd]": "hears of signals by a descriptor (signalfd)",
    "anon_inode:inotify": "hears of changes of files (inotify)",
    "anon_inode:[fanotify]": "hears of changes of files (fanotify)",
}
TIMER = "anon_inode:[timerfd]"
PIDFD = "anon_inode:[pidfd]"
TIME = re.compile(r"^it_value: \((\d+), (\d+)\)$", re.MULTILINE)
WATCHED = re.compile(r"^Pid:\s*(-?\d+)$", re.MULTILINE)
SOCKET = re.compile(r"^socket:\[(\d+)\]$")
# States of TCP in which the other end can still send, or take what is sent.
OPEN = {1: "ESTABLISHED", 2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 5: "FIN_WAIT2", 8: "CLOSE_WAIT"}
LISTEN = 10
# How the kernel is asked about UNIX sockets: linux/sock_diag.h, linux/unix_diag.h.
SOCK_DIAG, BY_FAMILY, DUMP, DONE, ERROR, ANY = 4, 20, 0x301, 3, 2, 0xFFFFFFFF
SHOW_PEER, SHOW_WAITING = 0x4, 0x8
PEER, WAITING = 2, 3


class End(NamedTuple):
    """One end of a connection by the internet's protocols: both addresses with their ports, its state, its inode."""

    own: tuple[str, int]
    peer: tuple[str, int]
    state: int
    inode: int


class UnixSocket(NamedTuple):
    """A UNIX socket by its inode, with that of its peer (0 for none), and of those that it has not accepted yet."""

    inode: int
    peer: int
    waiting: tuple[int, ...]


def doubts(pids: Collection[int], *, left: float, served: int | None, name: Callable[[int], str]) -> Iterator[str]:
    """Why processes that stand still may go on without each other, in words.

    Args:
        pids: all processes of the world.
        left: seconds until the world is stopped anyway.
        served: a process of the harness that serves the ranks and says itself when it keeps them waiting; None
            where there is none.
        name: what a process is called.
    """
    for pid in sorted(pids):
        for why in (*_of_signals(pid), *_of_descriptors(pid, pids, left=left)):
            yield f"{name(pid)} {why}"
    for pid, holder in _locks(pids):
        whose = "nobody knows who" if holder <= 0 else "a process outside of the world"
        yield f"{name(pid)} waits for a lock of a file that {whose} holds"
    for pid, where in _strangers(pids, served=served):
        yield f"{name(pid)} has a connection to {where}, outside of the world"


def _of_signals(pid: int) -> Iterator[str]:
    for number, called in ALARMS.items():
        if catches(pid, number):
            yield f"has a handler for {called}, and whether an alarm is set the kernel does not show"
    with suppress(OSError):
        if (PROC / str(pid) / "timers").read_text().strip():
            yield "has set a timer (timer_create)"


def _of_descriptors(pid: int, pids: Collection[int], *, left: float) -> Iterator[str]:
    """What a process has open by which it hears of something that nobody in the world does."""
    for entry, what in _open(pid):
        if what in HEARS:
            yield HEARS[what]
        elif what == TIMER:
            told = _about(pid, entry)
            found = TIME.search(told)
            after = float(found[1]) + float(found[2]) / 1e9 if found else 0.0
            if found is None or 0.0 < after <= left:
                yield f"has set a timer (timerfd) that fires in {after:.1f} s"
        elif what == PIDFD:
            watched = WATCHED.search(_about(pid, entry))
            if watched is not None and int(watched[1]) > 0 and int(watched[1]) not in pids:
                yield "waits for the end of a process outside of the world (pidfd)"
        elif what.startswith("/") and _is_shared_pipe(PROC / str(pid) / "fd" / entry, pids):
            yield f"has the named pipe {Path(what).name} open, which a process outside of the world has, too"


def _is_shared_pipe(file: Path, pids: Collection[int]) -> bool:
    """Whether a file is a named pipe that a process has open which is none of these."""
    try:
        found = file.stat()
    except OSError:
        return False
    if not stat.S_ISFIFO(found.st_mode):
        return False
    others = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit() and int(entry.name) not in pids]
    for pid in others:
        with suppress(OSError):
            for entry in (PROC / str(pid) / "fd").iterdir():
                with suppress(OSError):
                    if found.st_ino == (seen := entry.stat()).st_ino and found.st_dev == seen.st_dev:
                        return True
    return False


def _open(pid: int) -> list[tuple[str, str]]:
    """The descriptors of a process, with what each is."""
    found = []
    with suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):  # it may be closed meanwhile
                found.append((entry.name, str(entry.readlink())))
    return found


def _about(pid: int, entry: str) -> str:
    try:
        return (PROC / str(pid) / "fdinfo" / entry).read_text()
    except OSError:
        return ""


# -- locks -----------------------------------------------------------------------------------------------------------


def _locks(pids: Collection[int]) -> Iterator[tuple[int, int]]:
    """Which processes wait for a lock of a file that a process holds which is none of them: waiter and holder."""
    holder = 0
    try:
        lines = (PROC / "locks").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        if words[1] != "->":
            holder = int(words[4])
        elif int(words[5]) in pids and holder not in pids:
            yield int(words[5]), holder


# -- connections -----------------------------------------------------------------------------------------------------


def _strangers(pids: Collection[int], *, served: int | None) -> Iterator[tuple[int, str]]:
    """Which processes have a connection to somebody who is none of them, with who that is."""
    inodes: dict[int, int] = {}
    for pid in sorted(pids):
        for inode in _sockets(pid):
            inodes.setdefault(inode, pid)
    known = {*inodes, *(_sockets(served) if served is not None else ())}
    seen: dict[str, list[End]] = {}
    for pid in sorted(pids) if inodes else ():
        # Once for each network namespace: a test host has one of its own.
        with suppress(OSError):
            space = str((PROC / str(pid) / "ns" / "net").readlink())
            if space not in seen:
                seen[space] = list(_ends(pid))
    everywhere = [end for ends in seen.values() for end in ends]
    for ends in seen.values():
        for end in ends:
            is_open = end.state in OPEN and end.peer[1] != 0
            if is_open and end.inode in inodes and _is_strange(end, ends, everywhere, known):
                yield inodes[end.inode], f"{end.peer[0]}:{end.peer[1]}"
    for inode in _strange_peers(inodes, known) if inodes else ():
        yield inodes[inode], "a socket of this machine"


def _is_strange(end: End, ends: Collection[End], everywhere: Collection[End], known: Collection[int]) -> bool:
    """Whether the other end of a connection is somebody's who is none of the known.

    Args:
        end: of a process of the world.
        ends: those that its network namespace has.
        everywhere: those of all namespaces of the world.
        known: inodes of sockets that processes of the world have.
    """
    near = ends if _is_loopback(end.peer[0]) else everywhere
    other = next((one for one in near if one.own == end.peer and one.peer == end.own), None)
    if other is None:
        # On another machine; or it was here, and is gone.
        return not _is_loopback(end.peer[0]) and all(one.own[0] != end.peer[0] for one in everywhere)
    if other.inode != 0:
        return other.inode not in known
    # Nobody has it: it was closed, or whoever listens there has not accepted it yet.
    listening = [one.inode for one in near if one.state == LISTEN and one.own[1] == end.peer[1]]
    return other.state in (1, 3) and any(inode not in known for inode in listening)


def _is_loopback(address: str) -> bool:
    return (IPv6Address(address) if ":" in address else IPv4Address(address)).is_loopback


def _sockets(pid: int) -> set[int]:
    found = (SOCKET.match(what) for _, what in _open(pid))
    return {int(one[1]) for one in found if one is not None}


def _ends(pid: int) -> Iterator[End]:
    for file in ("tcp", "tcp6", "udp", "udp6"):
        with suppress(OSError):
            for line in (PROC / str(pid) / "net" / file).read_text().splitlines()[1:]:
                words = line.split()
                yield End(_address(words[1]), _address(words[2]), int(words[3], 16), int(words[9]))


def _address(text: str) -> tuple[str, int]:
    """An address as the kernel writes it: words of 32 bits, each in the machine's order."""
    packed, port = text.split(":")
    data = b"".join(struct.pack("=I", int(packed[at : at + 8], 16)) for at in range(0, len(packed), 8))
    if len(data) == 4:
        return str(IPv4Address(data)), int(port, 16)
    long = IPv6Address(data)
    return str(long.ipv4_mapped or long), int(port, 16)


def _strange_peers(own: Collection[int], known: Collection[int]) -> Iterator[int]:
    """Which UNIX sockets are joined to one that nobody known has, or wait to be accepted by such a one.

    Only those are seen that are of the machine's own network namespace.
    """
    for one in _unix_sockets():
        if one.inode in own and one.peer not in known and one.peer != 0:
            yield one.inode
        if one.inode not in known:
            yield from (waiting for waiting in one.waiting if waiting in own)


def _unix_sockets() -> list[UnixSocket]:
    found: list[UnixSocket] = []
    with suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as asked:
        asked.settimeout(1.0)
        shown = SHOW_PEER | SHOW_WAITING
        request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, ANY, 0, shown, ANY, ANY)
        asked.send(struct.pack("=IHHII", 16 + len(request), BY_FAMILY, DUMP, 1, 0) + request)
        while True:
            data = asked.recv(1 << 20)
            at = 0
            while at + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind in (DONE, ERROR):
                    return found
                found.append(_unix_socket(data[at + 16 : at + length]))
                at += (length + 3) & ~3
    return found


def _unix_socket(told: bytes) -> UnixSocket:
    """A UNIX socket as the kernel tells of it: its inode, then attributes."""
    inode, peer = struct.unpack_from("=I", told, 4)[0], 0
    waiting: tuple[int, ...] = ()
    at = 16
    while at + 4 <= len(told):
        length, kind = struct.unpack_from("=HH", told, at)
        if kind == PEER:
            peer = struct.unpack_from("=I", told, at + 4)[0]
        if kind == WAITING:
            waiting = struct.unpack_from(f"={(length - 4) // 4}I", told, at + 4)
        at += max(4, (length + 3) & ~3)
    return UnixSocket(inode, peer, waiting)
