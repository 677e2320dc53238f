"""What ranks on other machines left, laid out here as they left it there: bounded in names, number and bytes."""

from __future__ import annotations

import re
from pathlib import Path

from harness.rank.artefacts import FOLDER as KEPT
from harness.rank.failure import FILE_NAME
from harness.rank.lifecycle import STACKS
from harness.world.machines.roll import Hostile

FILE = re.compile(rf"{re.escape(FILE_NAME)}|{re.escape(STACKS)}|{KEPT}/(?!\.{{1,2}}\Z)[^/\0]{{1,255}}", re.DOTALL)
# Of one rank.
MOST_FILES = 1024 + 2
MOST_BYTES = 2 * 2**30
MOST_STACK = 256 * 1024


class HandedOver:
    """Of one world. Every method raises `Hostile` for what no rank leaves, and `OSError` where there is no space."""

    def __init__(self, scratch: Path, *, size: int) -> None:
        self._scratch = scratch
        self._files: dict[int, set[str]] = {rank: set() for rank in range(size)}
        self._odd: set[tuple[int, str]] = set()
        self._bytes = dict.fromkeys(range(size), 0)

    def begin(self, rank: int, name: str, *, odd: bool) -> None:
        """A file comes; of what is `odd`, nothing but its name, because it is not a regular file."""
        known = self._files[rank]
        if not FILE.fullmatch(name) or name in known or len(known) >= MOST_FILES:
            raise Hostile("it hands over a file that no rank leaves, or leaves twice")
        known.add(name)
        path = self._place(rank, name)
        if odd:
            self._odd.add((rank, name))
            path.symlink_to("not-a-file")  # so that it is found out here as it would be there
        else:
            path.write_bytes(b"")

    def add(self, rank: int, name: str, content: bytes) -> None:
        """More of a file comes."""
        self._bytes[rank] += len(content)
        if name not in self._files[rank] or (rank, name) in self._odd or self._bytes[rank] > MOST_BYTES:
            raise Hostile("it hands over more than a rank keeps")
        with self._place(rank, name).open("ab") as file:
            file.write(content)

    def stand(self, rank: int, text: bytes) -> None:
        """Where a rank stood, ahead of what it left."""
        if STACKS in self._files[rank]:
            raise Hostile("a rank stands where it has left already")
        self._place(rank, STACKS).write_bytes(text[:MOST_STACK])

    def _place(self, rank: int, name: str) -> Path:
        return self._scratch / f"rank-{rank}" / name
