"""A forger with a key of their own: every digest made right again, and signed."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from harness.trust import footer, manifest


def resign(folder: Path, key: Path) -> None:
    """Make the manifest, the report's digest of it, and the signature fit what lies in the folder now."""
    listed = manifest.parse((folder / manifest.NAME).read_bytes())
    before = hashlib.sha256((folder / manifest.NAME).read_bytes()).hexdigest()
    listing = manifest.encode({path: hashlib.sha256((folder / path).read_bytes()).hexdigest() for path in listed})
    (folder / manifest.NAME).write_bytes(listing)
    report = (folder / "report.md").read_bytes()
    body = report[: report.index(footer.SECTION)]
    body = body.replace(before.encode(), hashlib.sha256(listing).hexdigest().encode())
    signed = subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-q", "-f", str(key), "-n", "report@rankproof"],
        input=footer.signed_part(body),
        capture_output=True,
        check=True,
    )
    (folder / "report.md").write_bytes(footer.attach(body, signed.stdout))
