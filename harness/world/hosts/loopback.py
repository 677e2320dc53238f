"""Run a program that reaches no network but its own loopback.

Standard library only: it runs in whatever interpreter starts it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

REFUSED = 97
"""Exit code where the system gives the program no network of its own."""
_NEWUSER = 0x10000000
_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_UP = 0x1 | 0x40


def alone(program: Sequence[str]) -> list[str]:
    """Return a command line that leaves the network, and becomes a program."""
    return [sys.executable, "-I", "-S", str(Path(__file__)), *program]


def main(*program: str) -> None:
    """Leave the network, and become the program. Does not return."""
    user = os.geteuid()
    group = os.getegid()
    library = ctypes.CDLL(None, use_errno=True)
    # Without root, only a user namespace of its own gives the right to make a network.
    if library.unshare(_NEWNET | (0 if user == 0 else _NEWUSER)) != 0:
        why = os.strerror(ctypes.get_errno())
        print(f"this system does not let the script have its own network: {why}", file=sys.stderr)
        sys.exit(REFUSED)
    if user != 0:
        # The kernel takes a map of groups from no user before that.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP))
    os.execvp(program[0], program)  # noqa: S606 - a command line of the harness


if __name__ == "__main__":
    main(*sys.argv[1:])
