"""Distributions: their names, and one digest of their files. Standard library only: ranks use it too."""

from __future__ import annotations

import csv
import hashlib
import re

# Written by whoever installs, beside what the wheel brings.
INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")


def normal(name: str) -> str:
    """The one name of a distribution, whichever way it is written (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wheel_digest(record: str) -> str:
    """One sha256 over the lines of an installed RECORD that came with the wheel, in hex.

    Left out: compiled files, which have no digest; what the installer adds; and scripts, whose first line names the
    environment's folder. So the same wheel in two virtual environments and in a Nix store has one digest.

    Args:
        record: the text of RECORD: path, digest and size of each file.
    """
    # Ranks ask it of RECORDs with ten thousand lines, of which hardly one is quoted.
    rows = (next(csv.reader([line])) if '"' in line else line.split(",") for line in record.splitlines() if line)
    lines = [
        ",".join(row)
        for row in rows
        if len(row) > 1 and row[1] and not row[0].startswith(("../", "/")) and not _is_installers(row[0])
    ]
    return hashlib.sha256("".join(f"{line}\n" for line in sorted(lines)).encode("utf-8", "surrogatepass")).hexdigest()


def _is_installers(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder.endswith(".dist-info") and name in INSTALLERS
