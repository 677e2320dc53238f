"""Test machines: what a hostfile names, made of this machine, each with a real sshd.

Namespaces give each a network, a name, a /tmp, a cache, a boot id and a monotonic clock of its own.
A bridge joins them to this machine, and what is pulled out of it is cut off without a word. By
root, with `ip`, `unshare` and OpenSSH's server; they share the processors, the other files and the
clock on the wall. Whatever is made is claimed before (`harness.world.starters.machine_claims`), so
that a run that is killed leaves none of it.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.world.starters.machine_claims import MachineClaim

PREFIX = "test:"
MOST = 16
SLOTS = 8
SSHD = shutil.which("sshd") or shutil.which(
    "sshd", path="/usr/sbin:/usr/local/sbin:/run/current-system/sw/bin"
)
IFF_UP = 0x1
CLOCKS = 50_000
"""Seconds that each machine's monotonic clock is ahead of that of the one before it."""
SETUP = """
set -e
hostname "$1"
mount --make-rprivate /
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p "$2" && mount -t tmpfs tmpfs "$2"
mkdir -p /run/sshd
cat > /tmp/boot_id && mount --bind /tmp/boot_id /proc/sys/kernel/random/boot_id
ip link set lo up
ip addr add "$3/24" dev eth0
ip link set eth0 up
echo ready
exec "$4" -D -e -f "$5"
"""


class NoMachines(OSError):
    """They cannot be made here; the message says why, and what to do."""


@dataclass(frozen=True)
class TestMachines:
    """Machines that are there.

    Attributes:
        names: of the machines, as ssh is told.
        config: of an ssh that knows them.
        hostfile: names them, with their slots.
        pids: of each machine's first process.
        links: of each machine, the end of its cable that is in the bridge.
    """

    __test__ = False

    names: tuple[str, ...]
    config: Path
    hostfile: Path
    pids: tuple[int, ...]
    links: tuple[str, ...]

    def cut(self, index: int) -> str:
        """Pull a machine's cable out; the state of the link, as the kernel tells it then."""
        _run("ip", "link", "set", self.links[index], "down")
        return self._state(index)

    def join(self, index: int) -> str:
        """Put it in again; the state of the link."""
        _run("ip", "link", "set", self.links[index], "up")
        return self._state(index)

    def _state(self, index: int) -> str:
        # What the kernel was told is in force at once; whether a carrier is seen follows a moment
        # later.
        flags = int(Path("/sys/class/net", self.links[index], "flags").read_text("ascii"), 16)
        return "up" if flags & IFF_UP else "down"


def refusal() -> str:
    """Why there cannot be any here, with what to do; empty where they can be made."""
    if SSHD is None:
        return "sshd was not found; install the OpenSSH server"
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        return (
            "test machines need root, ip (iproute2) and unshare (util-linux); run this as root"
            " with both installed"
        )
    if Path(sys.prefix).is_relative_to("/tmp"):  # noqa: S108 - theirs is another one
        return (
            "test machines have their own /tmp, so they cannot read Python's environment in"
            f" {sys.prefix}; move it out of /tmp"
        )
    tried = subprocess.run(["unshare", "-n", "-m", "-u", "true"], check=False, capture_output=True)
    return (
        ""
        if tried.returncode == 0
        else "this user may not create namespaces; run this outside the container, or allow it"
    )


def count_of(given: str) -> int:
    """How many `test:N` asks for.

    Raises:
        ValueError: it is not a number of machines.
    """
    number = given.removeprefix(PREFIX)
    if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= MOST:
        raise ValueError(
            f"--hosts {given}: test:N makes N test machines, and N must be 1 to {MOST}"
        )
    return int(number)


@contextlib.contextmanager
def made(folder: Path, count: int, *, slots: int = SLOTS) -> Iterator[TestMachines]:
    """Make machines, and take them away again.

    Args:
        folder: empty; takes keys, logs, the configuration of ssh and the hostfile.
        count: how many.
        slots: for how many ranks each has room.

    Raises:
        NoMachines: they cannot be made here.
    """
    if why := refusal():
        raise NoMachines(why)
    network = f"10.{78 + secrets.randbelow(100)}.{secrets.randbelow(250)}"
    with contextlib.ExitStack() as taken:
        claim = taken.enter_context(contextlib.closing(MachineClaim()))
        for name in ("known", "config", "hosts.json"):
            claim.file(folder / name)
        for name in ("host_key", "key"):
            claim.file(folder / name)
            claim.file(folder / f"{name}.pub")
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name))
        bridge = f"rb{claim.mark}"
        _run("ip", "link", "add", bridge, "address", claim.link(bridge), "type", "bridge")
        _run("ip", "addr", "add", f"{network}.254/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        names = []
        pids = []
        links = []
        known = []
        config = []
        for index in range(count):
            name = f"machine-{index}"
            address = f"{network}.{index + 1}"
            link = f"rv{claim.mark}{index}"
            machine = _start(claim, folder, name=name, address=address, link=link, index=index)
            taken.callback(_end, machine)
            pids.append(_join(machine, claim, folder / f"{name}.log", link=link, bridge=bridge))
            names.append(name)
            links.append(link)
            known.append(f"{address} {(folder / 'host_key.pub').read_text()}")
            config += [f"Host {name}", f"  HostName {address}"]
        config += [
            *("Host *", f"  User {getpass.getuser()}", f"  IdentityFile {folder}/key"),
            *(
                f"  UserKnownHostsFile {folder}/known",
                "  IdentitiesOnly yes",
                "  IdentityAgent none",
            ),
            "  StrictHostKeyChecking yes",
        ]
        (folder / "known").write_text("".join(known))
        (folder / "config").write_text("".join(f"{line}\n" for line in config))
        listed = [
            {"ssh": name, "ips": [f"{network}.{index + 1}"]} for index, name in enumerate(names)
        ]
        (folder / "hosts.json").write_text(json.dumps({"hosts": listed * slots}))
        yield TestMachines(
            tuple(names), folder / "config", folder / "hosts.json", tuple(pids), tuple(links)
        )


def _start(
    claim: MachineClaim, folder: Path, *, name: str, address: str, link: str, index: int
) -> subprocess.Popen[bytes]:
    """One of them, which waits for its end of the cable."""
    # What lies below /tmp there is its own: what sshd reads is handed over below /run.
    keys = claim.folder / link
    keys.mkdir(mode=0o700)
    shutil.copy(folder / "host_key", keys / "host_key")
    shutil.copy(folder / "key.pub", keys / "authorized")
    lines = (
        *(
            "Port 22",
            f"ListenAddress {address}",
            f"HostKey {keys}/host_key",
            "PidFile none",
            "UsePAM no",
        ),
        *(f"AuthorizedKeysFile {keys}/authorized", "StrictModes no", "PasswordAuthentication no"),
        *("PermitRootLogin yes", "MaxStartups 64", "ClientAliveInterval 0"),
    )
    (keys / "sshd_config").write_text("".join(f"{line}\n" for line in lines))
    clock = [
        "--time",
        "--monotonic",
        str(CLOCKS * (index + 1)),
        "--boottime",
        str(CLOCKS * (index + 1)),
    ]
    words = [
        "unshare",
        "-n",
        "-m",
        "-u",
        *clock,
        "--fork",
        "--kill-child",
        "--",
        "sh",
        "-c",
        SETUP,
        "setup",
    ]
    words += [
        name,
        str(Path.home() / ".cache" / "rankproof"),
        address,
        str(SSHD),
        str(keys / "sshd_config"),
    ]
    log = folder / f"{name}.log"
    claim.file(log)
    with log.open("wb") as stream:
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream)


def _join(
    machine: subprocess.Popen[bytes], claim: MachineClaim, log: Path, *, link: str, bridge: str
) -> int:
    """Join it to the bridge and let it go on; the pid of its first process, which listens."""
    child = _child(machine, log)
    # Who is killed before this line leaves a process that ends by itself: it has no cable to set
    # up.
    claim.process(child)
    claim.process(machine.pid)
    address = claim.link(link)
    _run(
        "ip",
        "link",
        "add",
        link,
        "address",
        address,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        str(child),
    )
    _run("ip", "link", "set", link, "master", bridge)
    _run("ip", "link", "set", link, "up")
    assert machine.stdin is not None
    assert machine.stdout is not None
    # It waits for this line, so its end of the cable is there when it sets that up.
    machine.stdin.write(f"{secrets.token_hex(16)}\n".encode())
    machine.stdin.close()
    said = machine.stdout.readline()
    while said and b"listening" not in log.read_bytes():
        if machine.poll() is not None:
            break
    if not said or machine.poll() is not None:
        raise NoMachines(f"a test machine did not start: {log.read_text().strip()[-300:]}")
    return child


def _run(*words: str) -> None:
    """Run a program that has to work."""
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise NoMachines(f"{' '.join(words[:4])} failed: {done.stderr.strip()[-300:]}")


def _child(machine: subprocess.Popen[bytes], log: Path) -> int:
    while machine.poll() is None:
        if children := _children(machine.pid):
            return children[0]
    raise NoMachines(
        "a test machine did not start; check that this host allows namespaces:"
        f" {log.read_text().strip()[-300:] or 'unshare exited without a message'}"
    )


def _end(machine: subprocess.Popen[bytes]) -> None:
    for pid in _below(machine.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    machine.kill()
    machine.wait()
    assert machine.stdout is not None
    machine.stdout.close()


def _below(pid: int) -> list[int]:
    return [process for child in _children(pid) for process in (child, *_below(child))]


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []
