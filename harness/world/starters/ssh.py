"""OpenSSH as it is set up: the user's own configuration, keys and agent start a command on another
machine.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

# Ended by itself within ten seconds where the other end is gone without a word, and never asks a
# question.
OPTIONS = (
    "-T",
    *("-o", "BatchMode=yes"),
    *("-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5"),
    *("-o", "ServerAliveCountMax=2"),
    *("-o", "ClearAllForwardings=yes"),
    *("-o", "ForwardAgent=no"),
    *("-o", "ForwardX11=no"),
    *("-o", "PermitLocalCommand=no"),
    *("-o", "RequestTTY=no"),
    *("-o", "EscapeChar=none"),
    *("-o", "LogLevel=ERROR"),
)
# What OpenSSH says, and what to do about it.
REMEDIES = (
    (
        "Host key verification failed",
        "connect once by hand, compare its fingerprint, and accept it",
    ),
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its key is another one than before: find out why before anything else",
    ),
    (
        "Permission denied (",
        "add your key to its ~/.ssh/authorized_keys (ssh-copy-id), or load it into your agent",
    ),
    ("Permission denied", "name an interpreter that can be executed there by --python"),
    (
        "Could not resolve hostname",
        "mend the name in the hostfile, or give it a HostName in ~/.ssh/config",
    ),
    ("Connection refused", "start sshd there, or mend the port in ~/.ssh/config"),
    ("timed out", "see whether it is up, and whether a firewall drops the port of ssh"),
    ("No route to host", "see whether it is up, and on this network"),
    ("not found", "install Python 3.11 there, or name its interpreter by --python"),
    ("No such file or directory", "name the interpreter that is there by --python"),
)


def command(name: str, argv: Sequence[str], *, configuration: Path | None = None) -> list[str]:
    """The command that starts `argv` on a machine.

    Args:
        name: of the machine, as a hostfile has it: it never begins with a dash.
        argv: what to start there; no login shell sees anything of it but quoted words.
        configuration: read instead of the user's own (`ssh -F`).
    """
    options = ["-F", str(configuration)] if configuration is not None else []
    return ["ssh", *options, *OPTIONS, "--", name, f"exec {shlex.join(argv)}"]


def remedy(said: str) -> str:
    """What to do about what ssh, or the shell there, said; empty where that is not known."""
    return next((what for words, what in REMEDIES if words in said), "")
