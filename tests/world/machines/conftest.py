"""A real sshd on the loopback, with keys of its own and a client that knows nothing else."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SSHD = shutil.which("sshd") or shutil.which(
    "sshd", path="/usr/sbin:/usr/local/sbin:/run/current-system/sw/bin"
)


@pytest.fixture(scope="session")
def ssh_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The configuration of a client for which every name is this machine, through sshd;
    `nobody-here` refuses.
    """
    if SSHD is None:
        pytest.skip("sshd was not found; install the OpenSSH server")
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host_key", "key"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)]
        subprocess.run(made, check=True, stdin=subprocess.DEVNULL)
    shutil.copy(folder / "key.pub", folder / "authorized")
    if os.geteuid() == 0:
        # Where sshd drops its rights, as its package would make it.
        Path("/run/sshd").mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lines = (
        *(
            f"Port {port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {folder}/host_key",
            "PidFile none",
            "UsePAM no",
        ),
        *(
            f"AuthorizedKeysFile {folder}/authorized",
            "StrictModes no",
            "PasswordAuthentication no",
            "MaxStartups 64",
        ),
    )
    (folder / "sshd_config").write_text("".join(f"{line}\n" for line in lines))
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    (folder / "unknown").touch()
    own = (
        *(
            "Host nobody-here",
            "  Port 1",
            "Host a-stranger",
            f"  UserKnownHostsFile {folder}/unknown",
        ),
        *(
            "Host no-key",
            "  PubkeyAuthentication no",
            "Host *",
            "  HostName 127.0.0.1",
            f"  Port {port}",
        ),
        *(
            f"  User {getpass.getuser()}",
            f"  IdentityFile {folder}/key",
            f"  UserKnownHostsFile {folder}/known",
        ),
        *("  IdentitiesOnly yes", "  IdentityAgent none", "  StrictHostKeyChecking yes"),
    )
    (folder / "config").write_text("".join(f"{line}\n" for line in own))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        _listens(server, port, folder / "log")
        yield folder / "config"
    finally:
        server.terminate()
        server.wait()


def _listens(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until it listens: it says so in its log."""
    while f"port {port}" not in log.read_text():
        if server.poll() is not None:
            pytest.fail(f"sshd ended: {log.read_text()}")
        with socket.socket() as probe:
            probe.settimeout(0.05)
            probe.connect_ex(("127.0.0.1", port))
