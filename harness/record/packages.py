"""The package table: what is installed, with a digest that does not depend on who installed it, or where."""

from __future__ import annotations

import csv
import importlib.metadata

from harness.forms.digest import sha256
from harness.record.facts import Package

# Written by whoever installs, beside what the wheel brings.
INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")


def packages() -> list[Package]:
    """Every distribution of this interpreter, by name."""
    by_name: dict[str, Package] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if not name or name in by_name:
            continue
        record = distribution.read_text("RECORD")
        digest = wheel_digest(record) if record else None
        by_name[name] = Package(name=name, version=distribution.version, record=digest)
    return [by_name[name] for name in sorted(by_name, key=str.lower)]


def wheel_digest(record: str) -> str:
    """One sha256 over the lines of an installed RECORD that came with the wheel.

    Left out: compiled files, which have no digest; what the installer adds; and scripts, whose first line names the
    environment's folder. So the same wheel in a virtual environment and in a Nix store has one digest.

    Args:
        record: the text of RECORD: path, digest and size of each file.
    """
    lines = [
        ",".join(row)
        for row in csv.reader(record.splitlines())
        if len(row) > 1 and row[1] and not row[0].startswith(("../", "/")) and not _is_installers(row[0])
    ]
    return sha256("".join(f"{line}\n" for line in sorted(lines)).encode())


def _is_installers(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder.endswith(".dist-info") and name in INSTALLERS
