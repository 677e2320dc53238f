"""Machines that people name, and how OpenSSH reaches them.

A hostfile is the JSON of `mlx.launch`, or lines of `host slots=n` as Open MPI and DeepSpeed read.
OpenSSH is used as it is set up: the user's own configuration, keys and agent start a command on
another machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.forms.problem import Problem, ScenarioError
from harness.forms.regular_file import read_regular
from harness.forms.strict_json import strict_json

MOST_HOSTS = 1024
MOST_SLOTS = 1024
MOST_BYTES = 2**20
# A name, an address, `user@` before either, or an alias of the user's configuration. Never what ssh
# takes as an option.
NAME = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:%@\[\]-]{0,252}")
SLOTS = re.compile(r"(?:slots|max_slots|max-slots)=([0-9]{1,9})")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Machine of a hostfile.

    Attributes:
        name: what ssh is told.
        slots: how many ranks it has room for.
        addresses: at which other machines reach it, best first; empty where the file has none.
    """

    name: str
    slots: int
    addresses: tuple[str, ...] = ()


def read(path: Path) -> tuple[Machine, ...]:
    """Return the machines of a hostfile, each once, in the order of the file: slots of a name that
    comes again are added.

    Raises:
        OSError: it cannot be read.
        ScenarioError: it is not a hostfile; each problem with its line.
    """
    text = read_regular(path, limit=MOST_BYTES).decode("utf-8", "surrogateescape")
    machines = _of_json(path, text) if text.lstrip()[:1] in ("{", "[") else _of_lines(path, text)
    merged: dict[str, Machine] = {}
    for machine in machines:
        before = merged.get(machine.name)
        addresses = tuple(
            dict.fromkeys((*(before.addresses if before else ()), *machine.addresses))
        )
        slots = machine.slots + (before.slots if before else 0)
        merged[machine.name] = Machine(name=machine.name, slots=slots, addresses=addresses)
    if not merged:
        raise _refused(
            path, 1, "", "it lists no machines; write one per line, such as: node-1 slots=2"
        )
    if len(merged) > MOST_HOSTS:
        raise _refused(path, 1, str(len(merged)), f"a world has at most {MOST_HOSTS} machines")
    return tuple(merged.values())


def _of_lines(path: Path, text: str) -> list[Machine]:
    machines = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        slots = 1
        for word in words[1:]:
            match = SLOTS.fullmatch(word)
            if match is None:
                raise _refused(path, number, word, "only slots=N is allowed after a machine's name")
            if word.startswith("slots="):
                slots = _slots(path, number, int(match[1]))
        machines.append(Machine(name=_name(path, number, words[0]), slots=slots))
    return machines


def placement(
    given: str, *, machines: Sequence[Machine]
) -> Literal["spread", "pack"] | tuple[int, ...]:
    """Where ranks are to be: a rule, or the machine of each rank as in `0=node-1,1=node-2`, by its
    place in the file.

    Raises:
        ScenarioError: it is neither.
    """
    if given in ("spread", "pack"):
        return "spread" if given == "spread" else "pack"
    places = {}
    names = [machine.name for machine in machines]
    for part in given.split(","):
        rank, _, name = part.partition("=")
        if not rank.isascii() or not rank.isdigit() or name not in names or int(rank) in places:
            why = (
                "use spread, pack, or the machine for each rank by its name in the hostfile:"
                " 0=node-1,1=node-2"
            )
            raise _refused(Path("--placement"), 1, part, why)
        places[int(rank)] = names.index(name)
    if sorted(places) != list(range(len(places))):
        raise _refused(
            Path("--placement"),
            1,
            given,
            "it omits some ranks; name a machine for every rank, starting at 0",
        )
    return tuple(places[rank] for rank in range(len(places)))


def _of_json(path: Path, text: str) -> list[Machine]:
    try:
        whole = strict_json(text.encode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise _refused(path, 1, "", f"it begins like JSON, but is not valid: {error}") from None
    hosts: Any = whole.get("hosts") if isinstance(whole, dict) else whole
    if not isinstance(hosts, list):
        raise _refused(
            path,
            1,
            "",
            'it has no list of hosts; mlx.launch expects {"hosts": [{"ssh": NAME, "ips": [...]}]}',
        )
    machines = []
    for place, host in enumerate(hosts):
        where = f"hosts[{place}]"
        if not isinstance(host, dict) or not isinstance(host.get("ssh"), str):
            raise _refused(
                path, 1, where, 'each host needs a name: {"ssh": NAME, "ips": [ADDRESS]}'
            )
        ips = host.get("ips", [])
        if not isinstance(ips, list) or not all(isinstance(ip, str) for ip in ips):
            raise _refused(
                path, 1, f"{where}.ips", "it must be a list of addresses, each in quotes"
            )
        addresses = tuple(_name(path, 1, ip) for ip in ips)
        machines.append(Machine(name=_name(path, 1, host["ssh"]), slots=1, addresses=addresses))
    return machines


def _name(path: Path, line: int, name: str) -> str:
    if not NAME.fullmatch(name):
        why = "it is not a name or an address that ssh accepts"
        raise _refused(
            path,
            line,
            name,
            f"{why}; it must start with a letter or a digit, and contain only letters, digits and"
            " .:@-_",
        )
    return name


def _slots(path: Path, line: int, slots: int) -> int:
    if not 1 <= slots <= MOST_SLOTS:
        raise _refused(
            path,
            line,
            str(slots),
            f"slots must be between 1 and {MOST_SLOTS}; to run no ranks on a machine, remove it from"
            " the hostfile",
        )
    return slots


def _refused(path: Path, line: int, quoted: str, message: str) -> ScenarioError:
    return ScenarioError(
        [Problem(file=str(path), line=line, column=1, key="", found=quoted, message=message)]
    )


# Ended by itself within ten seconds where the other end is gone without a word, and never asks a
# question.
SSH_OPTIONS = (
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
SSH_REMEDIES = (
    (
        "Host key verification failed",
        "connect once by hand, compare its fingerprint, and accept it",
    ),
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its key has changed; find out why before you do anything else",
    ),
    (
        "Permission denied (",
        "add your key to its ~/.ssh/authorized_keys (ssh-copy-id), or load it into your agent",
    ),
    (
        "Permission denied",
        ("use --python to select an interpreter that can be executed on that machine"),
    ),
    (
        "Could not resolve hostname",
        "correct the name in the hostfile, or add a HostName for it to ~/.ssh/config",
    ),
    ("Connection refused", "start sshd on that machine, or correct the port in ~/.ssh/config"),
    ("timed out", "check whether it is up, and whether a firewall blocks its SSH port"),
    ("No route to host", "check whether it is up and on this network"),
    ("not found", "install Python 3.11 on that machine, or select its interpreter with --python"),
    (
        "No such file or directory",
        ("use --python to select an interpreter that is installed on that machine"),
    ),
)


def ssh_command(name: str, argv: Sequence[str], *, configuration: Path | None = None) -> list[str]:
    """Return the command that starts `argv` on a machine.

    Args:
        name: of the machine, as a hostfile has it: it never begins with a dash.
        argv: what to start there; no login shell sees anything of it but quoted words.
        configuration: read instead of the user's own (`ssh -F`).
    """
    options = ["-F", str(configuration)] if configuration is not None else []
    return ["ssh", *options, *SSH_OPTIONS, "--", name, f"exec {shlex.join(argv)}"]


def ssh_remedy(said: str) -> str:
    """Return what to do about what ssh, or the shell there, said; empty where that is not known."""
    return next((what for words, what in SSH_REMEDIES if words in said), "")
