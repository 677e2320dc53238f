"""Distributions: their names, and one digest of their files.

Standard library only: ranks use it too.
"""

from __future__ import annotations

import csv
import hashlib
import re

# Where a RECORD lists scripts: not among the packages.
OUTSIDE = ("../", "/")
# Written by whoever installs, beside what the wheel brings.
INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")


def normal(name: str) -> str:
    """The one name of a distribution, whichever way it is written (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wheel_digest(record: str) -> str:
    """One sha256 over the lines of an installed RECORD that came with the wheel, in hex.

    Left out: compiled files, which have no digest; what the installer adds; and scripts, whose
    first line names the environment's folder. So the same wheel in two virtual environments and in
    a Nix store has one digest.

    Args:
        record: the text of RECORD: path, digest and size of each file.
    """
    # Ranks ask it of RECORDs with ten thousand lines, of which hardly one is quoted.
    lines = [
        line
        for line in (_plain(line) if '"' in line else line for line in record.splitlines())
        if "," in line
        and not line.endswith(",,")
        and not line.startswith(OUTSIDE)
        and not _is_installers(line)
    ]
    return hashlib.sha256(
        "".join(f"{line}\n" for line in sorted(lines)).encode("utf-8", "surrogatepass")
    ).hexdigest()


def _plain(line: str) -> str:
    return ",".join(next(csv.reader([line])))


def _is_installers(line: str) -> bool:
    return (
        ".dist-info/" in line and line.partition(".dist-info/")[2].partition(",")[0] in INSTALLERS
    )
