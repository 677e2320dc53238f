"""Test hosts: machines of a world that are none, each with a network, a name, a /tmp and a
monotonic clock of its own.

A host is a set of namespaces. The wire (`harness.world.hosts.wire`) makes them, one after the
other, and hands their descriptors to the keeper; a rank enters those of its host after it was
forked. What hosts share, as no real ones do: processes, every file outside /tmp and the ranks'
temporary folder, the clock on the wall.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

from harness.reason import Skip, SkipCode
from harness.world.below import isolation

# As the backends know it (harness.backends.backend.WIRE), which a server in an arm's environment
# cannot import.
INTERFACE = "wire"
NETWORK = "10.77.0"
"""Its first address is that of host 0. Nobody else is there: the networks are new."""
# The longest packet that fits: fewer of them carry more.
MTU = 65_000
# So far apart that a time of one host taken for another's cannot be overlooked.
CLOCK_STEP = 100_000
ROOT = str(Path(__file__).resolve().parents[3])  # of our own code, which is not found by sys.path
TUN = Path("/dev/net/tun")
TEMPORARY = Path("/tmp")  # noqa: S108 - what is at this path is what a host has of its own
KINDS = ("net", "uts", "ipc", "mnt", "time_for_children")
_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x1001
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_SIOCSIFMTU = 0x8922
_UP_AND_RUNNING = 0x41
ANSWER_WITHIN = 30.0
NETLINK_SOCK_DIAG = 4
BACKLOG = 1024


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """Hosts of one world.

    Attributes:
        count: how many there are.
        of: the host of each rank.
        served: port of a hub that is reached on the loopback of every host; None where there is
            none.
    """

    count: int
    of: tuple[int, ...]
    served: int | None = None

    @property
    def addresses(self) -> list[str]:
        """Return the address of each rank's host."""
        return [address(host) for host in self.of]

    def local(self, rank: int) -> tuple[int, int]:
        """Which of the ranks on its host a rank is, and how many there are."""
        return local(self.of, rank)


def local(of: Sequence[int], rank: int) -> tuple[int, int]:
    """Number of a rank among the ranks on its host, and how many there are.

    Args:
        of: the host of each rank.
        rank: of the world.
    """
    ranks = [other for other, host in enumerate(of) if host == of[rank]]
    return ranks.index(rank), len(ranks)


def name_of(host: int) -> str:
    """Return what a host is called."""
    return f"host-{host}"


def address(host: int) -> str:
    """Return the IPv4 address of a host."""
    return f"{NETWORK}.{host + 1}"


def names_file(count: int) -> str:
    """Return an /etc/hosts in which every host stands by its name."""
    lines = ["127.0.0.1 localhost", *(f"{address(host)} {name_of(host)}" for host in range(count))]
    return "".join(f"{line}\n" for line in lines)


class HostPlaces(TypedDict):
    """Files and folders of a host.

    Attributes:
        own: a folder to be of this host's alone.
        names: the file that it has as /etc/hosts.
        temporary: the temporary folder of the ranks, or nothing.
        kept: files and folders that must be seen below /tmp as they are outside.
    """

    own: str
    names: str
    temporary: str | None
    kept: list[str]


@dataclass(frozen=True, kw_only=True)
class Host:
    """Host that was made.

    Attributes:
        tun: descriptor of its end of the wire: what it sends is read there, what is written there
            it receives.
        namespaces: descriptors of its namespaces, by the name the kernel has for their kind.
        clock_ahead: nanoseconds that its monotonic clock is ahead of the harness's; 0 where it
            shares that clock.
    """

    tun: int
    namespaces: dict[str, int]
    clock_ahead: int


def make(host: int, *, places: HostPlaces) -> Host:
    """Make a host around this process, which is left in it.

    In a user namespace of its own, with one thread.

    Args:
        host: its number.
        places: its files and folders.

    Raises:
        OSError: something is not allowed here; the message says which step.
    """
    flags = (
        isolation.CLONE_NEWNET
        | isolation.CLONE_NEWUTS
        | isolation.CLONE_NEWIPC
        | isolation.CLONE_NEWNS
    )
    ahead = CLOCK_STEP * (host + 1) if isolation.has_clocks() else 0
    # All at once: each belongs to the user namespace that its maker is in then.
    isolation.unshare(
        flags | (isolation.CLONE_NEWTIME if ahead else 0), step="create a host's namespaces"
    )
    if ahead:
        isolation.set_clock_ahead(ahead * 1_000_000_000)
    socket.sethostname(name_of(host))
    isolation.without_ipv6()
    tun = _interface(address(host))
    _mount(places, Path(places["own"]))
    kinds = KINDS if ahead else KINDS[:-1]
    descriptors = {
        kind: os.open(isolation.OWN / kind, os.O_RDONLY | os.O_CLOEXEC) for kind in kinds
    }
    return Host(tun=tun, namespaces=descriptors, clock_ahead=ahead * 1_000_000_000)


def serve(port: int) -> list[int]:
    """On the host that this process is in: a socket bound to the loopback, and one that tells who
    is connected to it.

    A hub that serves the world stays outside and answers at these. So what it says passes through
    no wire, and a fault of a link meets what ranks say to each other alone.
    """
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    # A rank may ask before the hub has begun to listen.
    bound.listen(BACKLOG)
    return [
        bound.detach(),
        socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG).detach(),
    ]


def enter(descriptors: Iterable[int], *, before: tuple[int, ...]) -> None:
    """Enter a host with this process, and keep of its rights what it had `before` it came near
    one.
    """
    for descriptor in descriptors:
        isolation.enter(descriptor, step="enter the namespaces of a host")
    isolation.keep_capabilities(before)


def _interface(own_address: str) -> int:
    """Make the interface to the wire, and bring it and the loopback up; returns the wire's end."""
    try:
        tun = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise isolation.NotAllowed(error.errno, f"cannot open {TUN}: {error.strerror}") from None
    name = INTERFACE.encode()
    try:
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH", name, _TUN_WITHOUT_HEADER))
    except OSError as error:
        raise isolation.NotAllowed(
            error.errno, f"cannot create a TUN device: {error.strerror}"
        ) from None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:

        def tell(request: int, interface: bytes, value: bytes) -> None:
            fcntl.ioctl(control, request, struct.pack("16s24s", interface, value))

        def as_address(text: str) -> bytes:
            return struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(text))

        tell(_SIOCSIFFLAGS, b"lo", struct.pack("h", _UP_AND_RUNNING))
        tell(_SIOCSIFADDR, name, as_address(own_address))
        tell(_SIOCSIFNETMASK, name, as_address("255.255.255.0"))
        tell(_SIOCSIFMTU, name, struct.pack("i", MTU))
        tell(_SIOCSIFFLAGS, name, struct.pack("h", _UP_AND_RUNNING))
    return tun


def _mount(places: HostPlaces, own_folder: Path) -> None:
    """Give the host its own /tmp and temporary folder, with what its ranks need below /tmp where it
    was.
    """
    isolation.keep_mounts_private()
    # Opened while they can still be seen: the new /tmp covers them.
    kept = {Path(path): os.open(path, os.O_PATH | os.O_CLOEXEC) for path in places["kept"]}
    own_folder.mkdir()
    # In memory, for what is mounted in it goes with it at once; what ranks write goes where TMPDIR
    # leads, to the disk.
    isolation.mount_memory(TEMPORARY)
    for path, descriptor in kept.items():
        outside = Path(f"/proc/self/fd/{descriptor}")
        path.parent.mkdir(parents=True, exist_ok=True)
        if outside.is_dir():
            path.mkdir()
        else:
            path.touch()
        isolation.mount_over(outside, path)
        os.close(descriptor)
    if places["temporary"]:
        isolation.mount_over(own_folder, Path(places["temporary"]))
    with suppress(OSError):  # a system without the file resolves no name by it
        isolation.mount_over(Path(places["names"]), Path("/etc/hosts"))


def below_tmp(paths: Iterable[str | Path]) -> list[str]:
    """Of these files and folders, what lies below /tmp, without what lies below another of them."""
    real = os.path.realpath(TEMPORARY)
    inside = {
        Path(real_path)
        for real_path in map(os.path.realpath, paths)
        if real_path.startswith(real + os.sep) and os.access(real_path, os.F_OK)
    }
    # Where a path leads to it through a link below /tmp, the link is needed as well as its target:
    # both are kept.
    inside |= {
        Path(path) for path in map(os.path.abspath, paths) if Path(path).is_relative_to(TEMPORARY)
    }
    tops = [
        path
        for path in inside
        if path != TEMPORARY and inside.isdisjoint(path.parents) and path.exists()
    ]
    return sorted(map(str, tops))


@cache
def refusal(count: int = 2) -> Skip | None:
    """Why this machine cannot have test hosts, and what to do, or None.

    Makes some to find out, in another process.
    """
    if not sys.platform.startswith("linux"):
        return Skip(SkipCode.MACHINE_HOSTS, "test hosts need Linux namespaces; use a Linux machine")
    room = "harness.world.hosts.wire"
    code = f"import sys; sys.path.insert(0, {ROOT!r}); from {room} import attempt; attempt({count})"
    argv = [sys.executable, "-s", "-P", "-c", code]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=ANSWER_WITHIN, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Skip(
            SkipCode.MACHINE_HOSTS, f"test hosts cannot be created on this machine: {error}"
        )
    if done.returncode == 0:
        return None
    why = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
    return Skip(
        SkipCode.MACHINE_HOSTS,
        f"test hosts cannot be created on this machine: {why}; {_remedy(why)}",
    )


def _remedy(why: str) -> str:
    """Return what to do about a refusal, in words."""
    if str(TUN) in why or "TUN" in why:
        return (
            f"load the module tun, and let this user open {TUN} (for a container, --device {TUN})"
        )
    return (
        _setting()
        or "let this user create namespaces (for a container, --security-opt seccomp=unconfined)"
    )


def _setting() -> str:
    """Return the setting of this system that forbids it, and the value that does not.

    Empty where none is known to.
    """
    settings: Sequence[tuple[str, str]] = (
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("user/max_user_namespaces", "0"),
    )
    for name, forbids in settings:
        with suppress(OSError):
            if Path("/proc/sys", name).read_text().strip() == forbids and os.geteuid() != 0:
                allows = {"0": "1", "1": "0"}[forbids] if "max" not in name else "1000"
                return f"set sysctl {name.replace('/', '.')}={allows}"
    return ""
