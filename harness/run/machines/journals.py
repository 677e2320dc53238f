"""Journals of machines that were lost in a run: who to ask for them, and what they answer, within
bounds.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from harness.forms.digest import sha256
from harness.forms.regular_file import read_regular
from harness.forms.strict_json import NotStrict, strict_json
from harness.forms.variables import cache_folder
from harness.run.machines.collected import Fetch, Missing
from harness.world.control.names import ROOT
from harness.world.machines import agent, node_channel, store
from harness.world.machines.agent_channel import LEASE, Unreachable, argv
from harness.world.machines.heartbeat import BEAT, MachineLine
from harness.world.machines.roll import Hostile
from harness.world.starters import hostfile

REACHED_WITHIN = 60.0
COLLECTED_WITHIN = 300.0
# What a run remembers here of machines that did not come back: names, which its evidence need not
# have.
REMEMBERED = "lost-machines"
MOST_REMEMBERED = 2**20
DIGITS = 12


def digest_of(name: str) -> str:
    """What a record calls a machine of this name, unless it was asked to name it."""
    return sha256(name.encode())[:DIGITS]


def commands_of(
    hosts: Path, *, interpreter: str, configuration: Path | None
) -> dict[str, list[str]]:
    """By what evidence may call each machine of a hostfile, its name or a digest of that, what
    starts an agent there.

    Raises:
        OSError, ScenarioError: as for `harness.world.starters.hostfile.read`.
    """
    found = {}
    for one in hostfile.read(hosts):
        command = hostfile.ssh_command(one.name, argv(interpreter), configuration=configuration)
        found[one.name] = found[digest_of(one.name)] = command
    return found


def over_ssh(commands: Mapping[str, Sequence[str]] | None, *, lease: float = LEASE) -> Fetch:
    """Fetches from machines.

    Args:
        commands: by what evidence calls each, the command that starts an agent there; None: as the
            run remembered.
        lease: seconds without a heartbeat after which the other end gives up.
    """
    files = {
        f"harness/{name}": path for name, path in store.files_of(Path(ROOT, "harness")).items()
    }
    root = store.digest_of(files), files

    def fetch(missing: Missing, place: Path) -> None:
        known = remembered(missing.run) if commands is None else commands
        command = known.get(missing.share.called)
        if command is None:
            raise Unreachable(
                "no machine of the hostfile is it: name the hostfile of the run by --hosts"
            )
        line = MachineLine(
            missing.share.machine,
            command,
            within=REACHED_WITHIN,
            lease=lease,
            demand=lambda _facts: None,
            root=root,
            run=missing.run,
        )
        beating = _Beating(line)
        try:
            with place.open("wb") as stream:
                line.hears = _Taking(stream, world=missing.share.mark)
                given = line.ask(
                    "collect", world=missing.share.mark, after=0, within=COLLECTED_WITHIN
                )
                stream.flush()
                os.fsync(stream.fileno())
            if not given.get("there"):
                raise Unreachable("it has nothing of this world any more")
            line.send({"ask": "done", "world": missing.share.mark})
        finally:
            beating.end()
            line.close()

    return fetch


class _Taking:
    """Writes what a machine sends of a world, up to what a journal may hold."""

    def __init__(self, stream: BinaryIO, *, world: str) -> None:
        self._stream = stream
        self._world = world
        self._left = node_channel.MOST_JOURNAL

    def __call__(self, _line: MachineLine, message: dict[str, Any], content: bytes) -> None:
        words = json.dumps(message).encode()
        self._left -= len(words) + len(content)
        if message.get("world") != self._world or self._left < 0:
            raise Hostile("it sends what it was not asked for, or more than a journal holds")
        self._stream.write(agent.HEAD.pack(len(words), len(content)) + words + content)


class _Beating:
    """Heartbeats while a line is asked."""

    def __init__(self, line: MachineLine) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._beat, args=(line,), daemon=True, name="heartbeats"
        )
        self._thread.start()

    def _beat(self, line: MachineLine) -> None:
        while not self._over.wait(BEAT) and not line.lost:
            line.beat()

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def remember(run: str, commands: Mapping[str, Sequence[str]]) -> None:
    """Keep how the machines of a run are reached, for who collects without its hostfile.

    In this user's cache alone.
    """
    place = cache_folder(REMEMBERED)
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        told = {called: list(command) for called, command in commands.items()}
        (place / f"{run}.json").write_text(json.dumps(told))


def remembered(run: str) -> dict[str, list[str]]:
    """What `remember` kept; nothing where it is not there, or was tampered with."""
    with contextlib.suppress(OSError, NotStrict):
        found = strict_json(
            read_regular(cache_folder(REMEMBERED) / f"{run}.json", limit=MOST_REMEMBERED)
        )
        if isinstance(found, dict):
            return {
                called: [str(word) for word in command]
                for called, command in found.items()
                if isinstance(command, list)
            }
    return {}
