"""huggingface_hub's cache as a place to copy from: read, never written, and believed in nothing.

    CACHE/models--org--name/blobs/<sha256, or git's id of the content>

A blob is named by a digest of its bytes, and nobody compares the two when it is used. Here its bytes are compared with
what the hub, or a lock, promised; its snapshots, links, refs and `.no_exist` decide nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.forms.digest import git_blob, sha256_of
from harness.tokenizer.loading.listing import Promise
from harness.tokenizer.loading.source import HubRepository

_PREFIX = "models--"


@dataclass(frozen=True, kw_only=True)
class HubCache:
    """The cache below `root`."""

    root: Path

    @classmethod
    def of_user(cls) -> HubCache:
        """Where huggingface_hub keeps it: HF_HUB_CACHE, else `hub` below HF_HOME, else the user's cache."""
        if given := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
            return cls(root=Path(given).expanduser())
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cls(root=Path(os.environ.get("HF_HOME") or base / "huggingface").expanduser() / "hub")

    def blob(self, repository: HubRepository, promise: Promise) -> Path | None:
        """Where a file with the promised digest would lie; None if nothing does."""
        name = promise.sha256 or promise.blob
        for known in (name, promise.blob):
            place = self.root / f"{_PREFIX}{repository.name.replace('/', '--')}" / "blobs" / (known or "")
            if known and place.is_file() and not place.is_symlink():
                return place
        return None

    def blobs(self) -> Iterator[Path]:
        """Every blob, by repository and name. What a link leads to elsewhere is not one."""
        for folder in sorted(self.root.glob(f"{_PREFIX}*/blobs")):
            if folder.is_symlink() or folder.parent.is_symlink():
                continue
            yield from sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())


def harm(blob: Path) -> str | None:
    """In words how a blob's bytes differ from its name; None if they do not, or if the name says nothing of them.

    Raises:
        OSError: it cannot be read.
    """
    if len(blob.name) == 64:
        found = sha256_of(blob)
    elif len(blob.name) == 40:
        made = git_blob(blob.stat().st_size)
        with blob.open("rb") as stream:
            while piece := stream.read(2**20):
                made.update(piece)
        found = made.hexdigest()
    else:
        return None
    return None if found == blob.name else f"its bytes have the digest {found[:12]}…, its name is {blob.name[:12]}…"
