"""Roll of one world over machines: which rank is on which machine, and what a machine says and
hands over of its ranks, held against what can be true, and bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.rank.artefacts import FOLDER as KEPT
from harness.rank.failure import FILE_NAME
from harness.rank.lifecycle import STACKS
from harness.world.hosts.host import local


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Machines of one world.

    Attributes:
        of: the machine of each rank, by its place in the hostfile.
        called: what evidence calls each machine of the hostfile.
        reached: the address of each.
    """

    of: tuple[int, ...]
    called: tuple[str, ...]
    reached: tuple[str, ...]

    @property
    def addresses(self) -> list[str]:
        """Return the address of each rank's machine."""
        return [self.reached[machine] for machine in self.of]

    @property
    def used(self) -> list[int]:
        """Return the machines that have a rank, in order."""
        return sorted(set(self.of))

    def local(self, rank: int) -> tuple[int, int]:
        """Which of the ranks on its machine a rank is, and how many there are."""
        return local(self.of, rank)

    def ranks(self, machine: int) -> list[int]:
        """Return the ranks on a machine."""
        return [rank for rank, other in enumerate(self.of) if other == machine]


# What a keeper says of a rank, and of its share of a world.
OF_RANKS = frozenset(
    {
        "started",
        "executed",
        "exited",
        "stopped",
        "continued",
        "limited",
        "crowded",
        "covered",
        "spoiled",
    }
)
OF_SHARES = frozenset({"signalled", "survivors", "unable", "gone"})
MOST_WORDS = 256 * 1024
# Of what one machine says of one world beside what its ranks write, which has bounds of its own:
# all of it is kept.
MOST_TOLD = 16 * 2**20
WRITTEN = frozenset({"events", "log", "part"})


class Hostile(ValueError):
    """Message of a machine that no node sends."""


class Roll:
    """Roll of one world.

    Every method raises `Hostile` where a machine says what it cannot know.
    """

    def __init__(self, placed: Placed, *, mark: str) -> None:
        self._placed = placed
        self._mark = mark
        self._pids: dict[int, int] = {}
        self._ended: set[int] = set()
        self._told: dict[int, int] = {}

    def weigh(self, machine: int, message: Mapping[str, Any]) -> None:
        """Count what a machine says: there is an end to what control keeps of it."""
        if message.get("is") not in WRITTEN:
            self._told[machine] = self._told.get(machine, 0) + len(json.dumps(message))
            if self._told[machine] > MOST_TOLD:
                raise Hostile("it sent more data than a world's report can contain")

    def has(self, machine: int, rank: object) -> bool:
        """Return whether a rank is on a machine."""
        return type(rank) is int and rank in self._placed.ranks(machine)

    def left(self, machine: int) -> list[int]:
        """Return the ranks on a machine of which no end was told."""
        return [rank for rank in self._placed.ranks(machine) if rank not in self._ended]

    def check(self, machine: int, message: Any) -> dict[str, Any]:
        """Take what the keeper on a machine says."""
        if (
            not isinstance(message, dict)
            or type(message.get("ns")) is not int
            or len(json.dumps(message)) > MOST_WORDS
        ):
            raise Hostile("its supervisor sent a malformed or unknown message")
        kind = message.get("is")
        if kind in OF_RANKS:
            self._check_rank(machine, message)
        elif kind not in OF_SHARES:
            raise Hostile("its supervisor sent a malformed or unknown message")
        elif kind == "survivors" and (
            type(message.get("count")) is not int or not isinstance(message.get("processes"), list)
        ):
            raise Hostile("its supervisor did not report how many processes survived")
        elif kind == "signalled":
            ranks = message.get("ranks")
            if not isinstance(ranks, list) or not all(self.has(machine, rank) for rank in ranks):
                raise Hostile(
                    "its supervisor reported sending signals to ranks that are not on its machine"
                )
            if type(message.get("signal")) is not int:
                raise Hostile("its supervisor did not report which signal it sent")
        return message

    def _check_rank(self, machine: int, message: dict[str, Any]) -> None:
        kind = message["is"]
        rank = message.get("rank")
        pid = message.get("pid")
        if not self.has(machine, rank) or rank in self._ended:
            raise Hostile(
                "its supervisor reported on a rank that is not on its machine or had already ended"
            )
        assert isinstance(rank, int)
        if kind == "started":
            if (
                rank in self._pids
                or type(pid) is not int
                or pid < 1
                or message.get("world") != self._mark
            ):
                raise Hostile(
                    "its supervisor reported that it started a rank twice, without a valid pid, or"
                    " in another world"
                )
            self._pids[rank] = pid
            message["machine"] = self._placed.called[machine]
        elif pid != self._pids.get(rank):
            raise Hostile("its supervisor reported on a process that is not a rank")
        if kind == "exited":
            code = message.get("code")
            signal = message.get("signal")
            if (type(code) is int) == isinstance(signal, str):
                raise Hostile("its supervisor did not report how a rank ended")
            self._ended.add(rank)


FILE = re.compile(
    rf"{re.escape(FILE_NAME)}|{re.escape(STACKS)}|{KEPT}/(?!\.{{1,2}}\Z)[^/\0]{{1,255}}", re.DOTALL
)
# Of one rank.
MOST_FILES = 1024 + 2
MOST_BYTES = 2 * 2**30
MOST_STACK = 256 * 1024


class HandedOver:
    """What ranks of one world left, as it is handed over.

    Every method raises `Hostile` for what no rank leaves, and `OSError` where there is no space.
    """

    def __init__(self, scratch: Path, *, size: int) -> None:
        self._scratch = scratch
        self._files: dict[int, set[str]] = {rank: set() for rank in range(size)}
        self._odd: set[tuple[int, str]] = set()
        self._bytes = dict.fromkeys(range(size), 0)

    def begin(self, rank: int, name: str, *, odd: bool) -> None:
        """Begin a file; of what is `odd`, take nothing but its name, because it is not a regular
        file.
        """
        known = self._files[rank]
        if not FILE.fullmatch(name) or name in known or len(known) >= MOST_FILES:
            raise Hostile("it sent a file that no rank writes, or sent a file twice")
        known.add(name)
        path = self._place(rank, name)
        if odd:
            self._odd.add((rank, name))
            path.symlink_to("not-a-file")  # so that it is found out here as it would be there
        else:
            path.write_bytes(b"")

    def add(self, rank: int, name: str, content: bytes) -> None:
        """Add more of a file."""
        self._bytes[rank] += len(content)
        if (
            name not in self._files[rank]
            or (rank, name) in self._odd
            or self._bytes[rank] > MOST_BYTES
        ):
            raise Hostile(
                f"it sent files of rank {rank} that it had not announced, or more than"
                f" {MOST_BYTES // 2**20} MiB for this rank"
            )
        with self._place(rank, name).open("ab") as file:
            file.write(content)

    def stand(self, rank: int, text: bytes) -> None:
        """Take where a rank stood, ahead of what it left."""
        if STACKS in self._files[rank]:
            raise Hostile("it sent the stacks of a rank twice")
        self._place(rank, STACKS).write_bytes(text[:MOST_STACK])

    def _place(self, rank: int, name: str) -> Path:
        return self._scratch / f"rank-{rank}" / name
