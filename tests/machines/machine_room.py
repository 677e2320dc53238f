"""Machines to try runs over: namespaces with a network, name, /tmp, cache, boot id and monotonic clock of their own.

Each has a real sshd. A bridge joins them to this machine; what is pulled out of it is cut off without a word.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/run/current-system/sw/bin")
CLOCKS = 50_000
SETUP = """
set -e
hostname "$1"
mount --make-rprivate /
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p "$2" && mount -t tmpfs tmpfs "$2"
mkdir -p /run/sshd "$3"
cat > /tmp/boot_id && mount --bind /tmp/boot_id /proc/sys/kernel/random/boot_id
ip link set lo up
echo ready
exec "$4" -D -e -f "$5"
"""


def run(*words: str) -> None:
    """Run a program that has to work."""
    subprocess.run(words, check=True, capture_output=True, text=True)


@dataclass(frozen=True)
class Room:
    """Machines that are there.

    Attributes:
        names: of the machines, as ssh is told.
        config: of an ssh that knows them.
        hostfile: names them, with two slots each.
        pids: of each machine's first process.
    """

    names: tuple[str, ...]
    config: Path
    hostfile: Path
    pids: tuple[int, ...]
    links: tuple[str, ...]

    def cut(self, index: int) -> None:
        """Pull a machine's cable out."""
        run("ip", "link", "set", self.links[index], "down")

    def join(self, index: int) -> None:
        """Put it in again."""
        run("ip", "link", "set", self.links[index], "up")

    def living(self, index: int) -> list[str]:
        """The command lines of Rankproof's processes on a machine."""
        own, found = Path(f"/proc/{self.pids[index]}/ns/net").stat().st_ino, []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if "harness" in words and (process / "ns/net").stat().st_ino == own:
                    found.append(f"{process.name}: {words[:200]}")
        return found


def refusal() -> str:
    """Why there cannot be any here."""
    if SSHD is None:
        return "there is no sshd here: install OpenSSH's server"
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        return "machines to try are made by root, with ip and unshare"
    tried = subprocess.run(["unshare", "-n", "-m", "-u", "true"], check=False, capture_output=True)
    return "" if tried.returncode == 0 else "namespaces may not be made here"


@contextlib.contextmanager
def room(folder: Path, count: int, *, slots: int = 2) -> Iterator[Room]:
    """Make machines, and take them away again."""
    if why := refusal():
        pytest.skip(why)
    mark, network = secrets.token_hex(2), f"10.{78 + secrets.randbelow(100)}.{secrets.randbelow(250)}"
    bridge = f"rb{mark}"
    for name in ("host_key", "key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name))
    (folder / "authorized").write_text((folder / "key.pub").read_text())
    with contextlib.ExitStack() as made:
        run("ip", "link", "add", bridge, "type", "bridge")
        made.callback(run, "ip", "link", "del", bridge)
        run("ip", "addr", "add", f"{network}.254/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")
        names, pids, links, known, own = [], [], [], [], []
        for index in range(count):
            name, address, link = f"machine-{index}", f"{network}.{index + 1}", f"rv{mark}{index}"
            # What lies below /tmp there is its own: what sshd reads is handed over below the cache folder.
            keys = Path("/run") / f"rankproof-sshd-{mark}-{index}"
            keys.mkdir(mode=0o700)
            made.callback(shutil.rmtree, keys)
            for file in ("host_key", "authorized"):
                shutil.copy(folder / file, keys / file)
            lines = (
                *("Port 22", f"ListenAddress {address}", f"HostKey {keys}/host_key", "PidFile none", "UsePAM no"),
                *(f"AuthorizedKeysFile {keys}/authorized", "StrictModes no", "PasswordAuthentication no"),
                *("PermitRootLogin yes", "MaxStartups 64", "ClientAliveInterval 0"),
            )
            (keys / "sshd_config").write_text("".join(f"{line}\n" for line in lines))
            clock = ["--time", "--monotonic", str(CLOCKS * (index + 1)), "--boottime", str(CLOCKS * (index + 1))]
            words = ["unshare", "-n", "-m", "-u", *clock, "--fork", "--kill-child", "--", "sh", "-c"]
            cache = Path.home() / ".cache" / "rankproof"
            arguments = ["setup", name, str(cache), "/run/sshd", str(SSHD), str(keys / "sshd_config")]
            log = made.enter_context((folder / f"{name}.log").open("wb"))
            machine = subprocess.Popen(
                [
                    *words,
                    SETUP.replace("exec", f"ip addr add {address}/24 dev eth0; ip link set eth0 up; exec", 1),
                    *arguments,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
            made.callback(_end, machine)
            child = _child(machine.pid)
            run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(child))
            made.callback(subprocess.run, ["ip", "link", "del", link], check=False, capture_output=True)
            run("ip", "link", "set", link, "master", bridge)
            run("ip", "link", "set", link, "up")
            assert machine.stdin is not None
            assert machine.stdout is not None
            machine.stdin.write(f"{secrets.token_hex(16)}\n".encode())
            machine.stdin.close()
            assert machine.stdout.readline() == b"ready\n", (folder / f"{name}.log").read_text()
            while b"listening" not in (folder / f"{name}.log").read_bytes():
                assert machine.poll() is None, (folder / f"{name}.log").read_text()
            names.append(name)
            pids.append(child)
            links.append(link)
            known.append(f"{address} {(folder / 'host_key.pub').read_text()}")
            own += [f"Host {name}", f"  HostName {address}"]
        own += [
            *("Host *", f"  User {getpass.getuser()}", f"  IdentityFile {folder}/key"),
            *(f"  UserKnownHostsFile {folder}/known", "  IdentitiesOnly yes", "  IdentityAgent none"),
            "  StrictHostKeyChecking yes",
        ]
        (folder / "known").write_text("".join(known))
        (folder / "config").write_text("".join(f"{line}\n" for line in own))
        listed = [{"ssh": name, "ips": [f"{network}.{index + 1}"]} for index, name in enumerate(names)]
        (folder / "hosts.json").write_text(json.dumps({"hosts": listed * slots}))
        yield Room(tuple(names), folder / "config", folder / "hosts.json", tuple(pids), tuple(links))


def _child(pid: int) -> int:
    while True:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if found:
            return int(found[0])


def _end(machine: subprocess.Popen[bytes]) -> None:
    for pid in _below(machine.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    machine.kill()
    machine.wait()
    assert machine.stdout is not None
    machine.stdout.close()


def _below(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [int(child), *_below(int(child))]
    return found
