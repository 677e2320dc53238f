"""The ledgers of a world's ranks, once they have ended: cut to what was written, and held against each other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.checks import Check
from harness.checks.ledger_agrees import asks_ledgers
from harness.checks.transfers_intact import asks_digests
from harness.forms.regular_file import read_regular
from harness.history import LEDGERS_COMPARED
from harness.ledger.account import account
from harness.ledger.file import ARTEFACT, LARGEST, NotALedger, encode, parse
from harness.rank.artefacts import BYTES, FOLDER
from harness.run.artefacts import Found
from harness.world.control.world import World


def cut(scratch: Path, *, size: int) -> None:
    """Leave of each rank's ledger what was written. What is not one stays as it is, and is found out.

    To be called before artefacts are taken: the evidence holds what this leaves.

    Raises:
        OSError: it cannot be written.
    """
    for rank in range(size):
        folder = scratch / f"rank-{rank}" / FOLDER
        path = folder / (ARTEFACT + BYTES)
        if folder.is_symlink():
            continue  # nobody writes for a rank where it points to
        with contextlib.suppress(NotALedger):
            try:
                left = read_regular(path, limit=LARGEST, follow=False)
            except OSError:
                continue
            written = encode(parse(left))
            # In place of the rank's file, which may have other names.
            path.unlink()
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(written)


def compare(world: World, kept: Mapping[tuple[int, str], Found], *, size: int, checks: Sequence[Check]) -> None:
    """Hold them against each other, and note what they differ by.

    Args:
        world: takes the event.
        kept: what the ranks kept.
        size: world size.
        checks: of the scenario.

    Raises:
        OSError: a ledger cannot be read.
    """
    files = {}
    for rank in range(size):
        if (found := kept.get((rank, ARTEFACT))) is not None and int(found.values["bytes"]) <= LARGEST:
            files[rank] = found.path.read_bytes()
    asked, transferred = asks_ledgers(checks, size=size), asks_digests(checks, size=size)
    noted = account(files, size=size, world=world.mark, asked=asked, transferred=transferred)
    world.note(LEDGERS_COMPARED, **noted)
