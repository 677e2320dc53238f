"""Who may still wake a world that stands still, by the rules alone: what the kernel lists is
given.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Self

import pytest

from harness.world.control import doubts as room
from harness.world.control.doubts import (
    CLOSE_WAIT,
    DONE,
    ERROR,
    LISTEN,
    NAME,
    PEER,
    SYN_SENT,
    WAITING,
    InetEnd,
    UnixSocket,
    _address,
    _hears,
    _is_strange,
    _locks,
    _of_descriptors,
    _pending,
    _strange_peers,
    _unix_socket,
    _unlisted,
    doubts,
)
from harness.world.control.waits import UnreadableProcess

LOCAL, OTHER, AWAY = "127.0.0.1", "10.0.0.2", "10.0.0.9"
OURS, THEIRS = {11, 12}, 99
ESTABLISHED, SYN_RECV = 1, 3


def end(
    own: str, peer: str, *, state: int = ESTABLISHED, inode: int = 11, udp: bool = False
) -> InetEnd:
    """One end of a connection: addresses as `host:port`."""
    (mine, my_port), (other, its_port) = (text.split(":") for text in (own, peer))
    return InetEnd((mine, int(my_port)), (other, int(its_port)), state, inode, is_datagram=udp)


def strange(one: InetEnd, *others: InetEnd, everywhere: tuple[InetEnd, ...] = ()) -> bool:
    near = [one, *others]
    return _is_strange(one, near, [*near, *everywhere], OURS)


@pytest.mark.parametrize(("inode", "is_strange"), [(12, False), (THEIRS, True)])
@pytest.mark.parametrize("host", [LOCAL, OTHER])
def test_a_connection_is_strange_by_whoever_has_its_other_end(
    host: str, inode: int, *, is_strange: bool
) -> None:
    """A process of the world, or none of its; over any address."""
    mine = end(f"{host}:5", f"{host}:6")
    assert strange(mine, end(f"{host}:6", f"{host}:5", inode=inode)) is is_strange


def test_the_other_end_is_the_one_with_both_addresses_turned() -> None:
    """Another connection of the same port, on either side, is another connection."""
    mine = end(f"{LOCAL}:5", f"{LOCAL}:6")
    same_server, same_client = (
        end(f"{LOCAL}:6", f"{LOCAL}:7", inode=THEIRS),
        end(f"{LOCAL}:8", f"{LOCAL}:5", inode=THEIRS),
    )
    assert not strange(mine, same_server, same_client, end(f"{LOCAL}:6", f"{LOCAL}:5", inode=12))
    assert strange(
        mine, end(f"{LOCAL}:6", f"{LOCAL}:7", inode=12), end(f"{LOCAL}:8", f"{LOCAL}:5", inode=12)
    )


def test_a_loopback_is_of_one_namespace_and_other_addresses_are_of_all() -> None:
    """The same loopback address on another test host is somebody else's."""
    mine, turned = end(f"{LOCAL}:5", f"{LOCAL}:6"), end(f"{LOCAL}:6", f"{LOCAL}:5", inode=12)
    assert strange(mine, everywhere=(turned,))
    far, answer = end(f"{OTHER}:5", f"{AWAY}:6"), end(f"{AWAY}:6", f"{OTHER}:5", inode=12)
    assert not strange(far, everywhere=(answer,))
    long, back = end_of_ipv6(5, 6, 11), end_of_ipv6(6, 5, 12)
    assert strange(long, everywhere=(back,))


def end_of_ipv6(own: int, peer: int, inode: int) -> InetEnd:
    return InetEnd(("::1", own), ("::1", peer), ESTABLISHED, inode)


@pytest.mark.parametrize(
    ("peer", "state", "is_strange"),
    [
        (f"{LOCAL}:6", ESTABLISHED, True),
        (f"{LOCAL}:6", CLOSE_WAIT, False),
        (f"{OTHER}:6", CLOSE_WAIT, False),
        (f"{AWAY}:6", CLOSE_WAIT, True),
        (f"{AWAY}:6", ESTABLISHED, True),
    ],
)
def test_a_connection_without_another_end(peer: str, state: int, *, is_strange: bool) -> None:
    """It leads to another machine, unless its other end was here and has closed."""
    assert strange(end(f"{OTHER}:5", peer, state=state)) is is_strange


@pytest.mark.parametrize(
    ("state", "listens", "is_strange"),
    [
        (ESTABLISHED, THEIRS, True),
        (SYN_RECV, THEIRS, True),
        (ESTABLISHED, 12, False),
        (5, THEIRS, False),
    ],
)
def test_a_connection_that_nobody_has_accepted(
    state: int, listens: int, *, is_strange: bool
) -> None:
    """It is of whoever listens there; where it was closed, nobody comes any more."""
    mine = end(f"{LOCAL}:5", f"{LOCAL}:6")
    other = end(f"{LOCAL}:6", f"{LOCAL}:5", state=state, inode=0)
    door = end(f"{LOCAL}:6", f"{LOCAL}:0", state=LISTEN, inode=listens)
    beside = end(f"{LOCAL}:7", f"{LOCAL}:0", state=LISTEN, inode=THEIRS)
    no_door = end(f"{LOCAL}:6", f"{LOCAL}:0", state=ESTABLISHED, inode=THEIRS)
    assert strange(mine, other, door, beside, no_door) is is_strange


def test_datagrams_come_from_whoever_has_the_port() -> None:
    """A connected socket of UDP hears from its peer.

    A TCP socket with that address is another one.
    """
    mine = end(f"{LOCAL}:5", f"{LOCAL}:6", udp=True)
    assert not strange(mine, end(f"{LOCAL}:6", f"{LOCAL}:5", inode=12, udp=True))
    assert strange(mine, end(f"{LOCAL}:6", f"{LOCAL}:5", inode=THEIRS, udp=True))
    assert strange(mine, end(f"{LOCAL}:6", f"{LOCAL}:5", inode=12))
    assert strange(mine, end(f"{LOCAL}:7", f"{LOCAL}:5", inode=12, udp=True))


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (end(f"{LOCAL}:5", f"{LOCAL}:0", udp=True), "port 5, to which any process can send"),
        (end(f"{LOCAL}:5", f"{LOCAL}:1", udp=True, state=7), ""),
        (end(f"{LOCAL}:5", f"{LOCAL}:0", state=LISTEN), ""),
        (end(f"{LOCAL}:5", f"{LOCAL}:0"), ""),
        (end(f"{LOCAL}:5", f"{AWAY}:6", state=7), ""),
        (end(f"{LOCAL}:5", f"{AWAY}:6", state=SYN_SENT), "is connecting to 10.0.0.9:6"),
        (end(f"{LOCAL}:5", f"{AWAY}:1"), "outside the world"),
        (end(f"{LOCAL}:5", f"{AWAY}:6", state=CLOSE_WAIT), "outside the world"),
    ],
)
def test_what_a_socket_hears(one: InetEnd, words: str) -> None:
    """Anybody, whom it connects to, a stranger; one that listens or is closed hears nobody."""
    told = _hears(one, [one], [one], OURS)
    assert words in told.replace("to whose", "whose")
    assert bool(told) is bool(words)


def test_the_peers_of_unix_sockets() -> None:
    """Joined to a stranger's, waiting at a stranger's door, or with a name for all.

    A peer of the world's is none.
    """
    own = {11: None, 12: None}

    def told(*sockets: UnixSocket) -> list[tuple[int, str]]:
        return [
            (inode, what.split(",")[0]) for inode, what in _strange_peers(sockets, list(own), OURS)
        ]

    joined = "has a connection to a socket of this machine"
    assert told(UnixSocket(11, THEIRS, ())) == [(11, joined)]
    assert told(UnixSocket(11, 1, ())) == [(11, joined)]
    assert told(UnixSocket(11, 12, ()), UnixSocket(12, 11, ()), UnixSocket(11, 0, ())) == []
    assert told(UnixSocket(THEIRS, 98, ())) == []
    assert told(UnixSocket(11, 0, (), is_open_to_all=True)) == [(11, "has a named UNIX socket")]
    assert told(UnixSocket(THEIRS, 0, (), is_open_to_all=True)) == []
    assert told(UnixSocket(THEIRS, 0, (12, 97))) == [(12, joined)]
    assert told(UnixSocket(11, 0, (12,))) == []


def attribute(kind: int, content: bytes) -> bytes:
    """An attribute as netlink pads it."""
    length = 4 + len(content)
    return struct.pack("=HH", length, kind) + content + b"\0" * (-length % 4)


def message(kind: int, inode: int, *attributes: bytes) -> bytes:
    return struct.pack("=BBBBIII", socket.AF_UNIX, kind, 7, 0, inode, 0, 0) + b"".join(attributes)


def test_a_unix_socket_as_the_kernel_tells_of_it() -> None:
    """Inode, peer, and who waits; a datagram socket with a name and no peer hears from all."""
    number = struct.pack("=I", 42)
    stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
    name = attribute(NAME, b"/x")
    assert _unix_socket(message(stream, 7)) == UnixSocket(7, 0, ())
    assert _unix_socket(message(stream, 7, attribute(PEER, number))) == UnixSocket(7, 42, ())
    assert _unix_socket(message(stream, 7, name, attribute(WAITING, number * 2))) == UnixSocket(
        7, 0, (42, 42)
    )
    assert _unix_socket(message(datagram, 7, name)) == UnixSocket(7, 0, (), is_open_to_all=True)
    assert _unix_socket(message(datagram, 7)) == UnixSocket(7, 0, ())
    assert _unix_socket(message(datagram, 7, name, attribute(PEER, number))) == UnixSocket(
        7, 42, ()
    )
    # The last attribute may be as short as its head.
    assert _unix_socket(message(datagram, 7, attribute(NAME, b""))) == UnixSocket(
        7, 0, (), is_open_to_all=True
    )


class Netlink:
    """Answers as the kernel does, with what it is given."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def settimeout(self, _seconds: float) -> None: ...

    def send(self, _request: bytes) -> None: ...

    def recv(self, _size: int) -> bytes:
        if not self.answers:
            raise TimeoutError("nobody answers")
        return self.answers.pop(0)


def netlink(kind: int, content: bytes) -> bytes:
    padded = content + b"\0" * (-len(content) % 4)
    return struct.pack("=IHHII", 16 + len(content), kind, 0, 1, 0) + padded


def test_every_unix_socket_is_listed_until_the_kernel_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over several answers, several in one; the last may be a head alone.

    An error or silence is not a list.
    """

    def listed(*answers: bytes) -> list[UnixSocket]:
        monkeypatch.setattr(socket, "socket", lambda *_: Netlink(*answers))
        return room._unix_sockets()

    one, two = (netlink(room.SOCK_DIAG, message(socket.SOCK_STREAM, inode)) for inode in (7, 8))
    assert [each.inode for each in listed(one + two, one, netlink(DONE, b""))] == [7, 8, 7]
    with pytest.raises(UnreadableProcess, match="does not list"):
        listed(one, netlink(ERROR, b"\0" * 4))
    with pytest.raises(UnreadableProcess, match="cannot be listed"):
        listed(one)


def test_addresses_are_read_in_the_machines_order() -> None:
    """IPv4, IPv6, and IPv4 written as IPv6, which is the same address."""
    four = struct.pack("=I", struct.unpack("=I", bytes([127, 0, 0, 1]))[0])
    words = f"{struct.unpack('=I', four)[0]:08X}"
    assert _address(f"{words}:1F90") == (LOCAL, 8080)
    mapped = bytes(10) + b"\xff\xff" + bytes([127, 0, 0, 1])
    text = "".join(f"{struct.unpack('=I', mapped[at : at + 4])[0]:08X}" for at in range(0, 16, 4))
    assert _address(f"{text}:0001") == (LOCAL, 1)
    loop = bytes(15) + b"\x01"
    text = "".join(f"{struct.unpack('=I', loop[at : at + 4])[0]:08X}" for at in range(0, 16, 4))
    assert _address(f"{text}:0001") == ("::1", 1)


def test_what_a_ring_has_not_completed() -> None:
    """Requests taken less requests complete; without either number nobody knows."""
    assert _pending("CachedSqHead:\t5\nCachedCqTail:\t3\n") == 2
    assert _pending("CachedSqHead:\t5\nCachedCqTail:\t5\n") == 0
    assert _pending("CachedSqHead:\t5\n") is None
    assert _pending("CachedCqTail:\t5\n") is None


def opened(
    monkeypatch: pytest.MonkeyPatch, what: str, about: str, *, left: float = 9.0
) -> list[str]:
    """What is told of a process 5 of the world 5 and 6 that has one thing open."""
    monkeypatch.setattr(room, "_open", lambda _pid: [("3", what)])
    monkeypatch.setattr(room, "_about", lambda _pid, _entry: about)
    return list(_of_descriptors(5, [5, 6], left=left))


@pytest.mark.parametrize(
    ("what", "about", "words"),
    [
        (room.TIMER, "it_value: (0, 0)\n", ""),
        (room.TIMER, "it_value: (0, 1)\n", "fires in 0.0 s"),
        (room.TIMER, "it_value: (9, 0)\n", "fires in 9.0 s"),
        (room.TIMER, "it_value: (9, 1)\n", ""),
        (room.TIMER, "it_value: (0, 500000000)\n", "fires in 0.5 s"),
        (room.TIMER, "", "fires in"),
        (room.PIDFD, "Pid:\t6\n", ""),
        (room.PIDFD, "Pid:\t-1\n", ""),
        (room.PIDFD, "Pid:\t7\n", "outside the world (pidfd)"),
        (room.PIDFD, "Pid:\t0\n", "outside the world (pidfd)"),
        (room.PIDFD, "", "outside the world (pidfd)"),
        (room.RING, "CachedSqHead:\t5\nCachedCqTail:\t5\n", ""),
        (room.RING, "CachedSqHead:\t5\nCachedCqTail:\t4\n", "1 io_uring requests"),
        (room.RING, "", "some io_uring requests"),
        ("anon_inode:[eventpoll]", "", ""),
        ("anon_inode:[new]", "", "is not known"),
        ("anon_inode:inotify", "", "inotify"),
        ("pipe:[5]", "", ""),
    ],
)
def test_what_a_process_has_open(
    what: str, about: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer that fires in time, a process outside, a request that is not complete, a kind that
    nobody knows.
    """
    told = opened(monkeypatch, what, about)
    assert len(told) == bool(words)
    assert words in "".join(told)


def test_a_named_pipe_is_shared_with_whoever_has_it_open(tmp_path: Path) -> None:
    """With a process outside of the world it is a doubt, and within the world it is none."""
    pipes = tmp_path / "one", tmp_path / "two"
    for pipe in pipes:
        os.mkfifo(pipe)
    mine, other = (os.open(pipe, os.O_RDWR) for pipe in pipes)
    try:
        me, everybody = (
            os.getpid(),
            {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()},
        )
        file = Path(f"/proc/{me}/fd/{mine}")
        assert room._is_shared_pipe(file, [])
        assert not room._is_shared_pipe(file, everybody)
        assert not room._is_shared_pipe(tmp_path / "none", [])
        (tmp_path / "plain").touch()
        assert not room._is_shared_pipe(tmp_path / "plain", [])
    finally:
        os.close(mine)
        os.close(other)


def locked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> list[tuple[int, int]]:
    (tmp_path / "locks").write_text(text)
    monkeypatch.setattr(room, "PROC", tmp_path)
    return list(_locks([5, 6]))


def test_who_waits_for_a_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a process outside; of a process of the world it is its own affair, and others' waits are
    theirs.
    """
    held, waits = (
        "1: POSIX  ADVISORY  WRITE {} 08:01:77 0 EOF\n",
        "1: -> POSIX  ADVISORY  WRITE {} 08:01:77 0 EOF\n",
    )
    assert locked(monkeypatch, tmp_path, held.format(9) + waits.format(5)) == [(5, 9)]
    assert locked(monkeypatch, tmp_path, held.format(6) + waits.format(5)) == []
    assert locked(monkeypatch, tmp_path, held.format(9) + waits.format(8)) == []
    assert locked(monkeypatch, tmp_path, held.format(9)) == []
    (tmp_path / "locks").unlink()
    assert list(_locks([5, 6])) == []


@pytest.mark.parametrize("waiter", [0, -1])
def test_a_lock_of_an_open_file_has_no_waiter_by_number(
    waiter: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever of the world has the file open may wait for it: those with its inode, and no
    others.
    """
    monkeypatch.setattr(room, "_open", lambda pid: [(str(pid), "/x")])
    monkeypatch.setattr(
        room, "_about", lambda pid, _entry: {5: "ino:\t77\n", 6: "ino:\t78\n"}.get(pid, "")
    )
    text = (
        f"1: OFDLCK ADVISORY  WRITE -1 08:01:77 0 EOF\n1: -> OFDLCK ADVISORY  WRITE {waiter}"
        " 08:01:77 0 EOF\n"
    )
    assert locked(monkeypatch, tmp_path, text) == [(5, -1)]


@pytest.mark.parametrize(
    ("holder", "whose"),
    [(-1, "an unknown process"), (0, "an unknown process"), (1, "a process outside")],
)
def test_whose_lock_it_is(holder: int, whose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has no number for some; process 1 is one like any other."""
    monkeypatch.setattr(room, "_locks", lambda _pids: iter([(5, holder)]))
    monkeypatch.setattr(room, "_strangers", lambda _pids, **_: iter(()))
    (told,) = doubts([999_999_999], left=9.0, served=None, name=str)
    assert whose in told


def test_a_socket_that_no_table_lists() -> None:
    """One of the internet that was never connected hears nobody.

    One of another family may hear anybody.
    """
    me = os.getpid()
    with socket.socket() as idle, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as idle6:
        assert _unlisted(me, idle.fileno()) == ""
        assert _unlisted(me, idle6.fileno()) == ""
    with socket.socket(socket.AF_UNIX) as unix:
        assert _unlisted(me, unix.fileno()) == ""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as netlink_socket:
        assert "of family 16" in _unlisted(me, netlink_socket.fileno())
    with (
        socket.create_server((LOCAL, 0)) as server,
        socket.create_connection(server.getsockname()) as connected,
    ):
        assert "whose other end" in _unlisted(me, connected.fileno())
    read, write = os.pipe()
    assert _unlisted(me, read) == "has a socket whose other end the kernel does not show"
    os.close(read)
    os.close(write)
    if os.geteuid() == 0:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
            assert "of family 2" in _unlisted(me, raw.fileno())
