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

from harness.tokenizer.loading.listing import Promise
from harness.tokenizer.loading.source import HubRepository

PREFIX = "models--"
DIGESTS = {64: "sha256", 40: "blob"}
"""Which digest a blob's name is, by its length."""


def hub_cache() -> Path:
    """Where huggingface_hub keeps what it fetched, by its own variables; it is read, never written."""
    if given := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(given).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "huggingface" / "hub"


@dataclass(frozen=True, kw_only=True)
class HubCache:
    """The cache below `root`."""

    root: Path

    @classmethod
    def of_user(cls) -> HubCache:
        """Where huggingface_hub keeps it, by its own variables."""
        return cls(root=hub_cache())

    def blob(self, repository: HubRepository, commit: str, promise: Promise) -> Path | None:
        """Where a file with the promised digest may lie; None if nothing does.

        By its digest, or, since a lock does not know git's id of a file, by the link that its name at the commit is.
        """
        place = self.root / f"{PREFIX}{repository.name.replace('/', '--')}"
        blobs = place / "blobs"
        named = [blobs / name for name in (promise.sha256, promise.blob) if name]
        named.append(Path(os.path.realpath(place / "snapshots" / commit / promise.path)))
        # A link may lead anywhere: to a file that only this user may read, for one.
        inside = os.path.realpath(blobs)
        return next((one for one in named if os.path.realpath(one.parent) == inside and _is_plain(one)), None)

    def blobs(self) -> Iterator[Path]:
        """Every blob, by repository and name. What a link leads to elsewhere is not one."""
        for folder in sorted(self.root.glob(f"{PREFIX}*/blobs")):
            if folder.is_symlink() or folder.parent.is_symlink():
                continue
            yield from sorted(path for path in folder.iterdir() if _is_plain(path))


def harm(blob: Path) -> str | None:
    """In words how a blob's bytes differ from its name; None if they do not, or if the name says nothing of them.

    Raises:
        CacheFailed: it cannot be read.
    """
    kind = DIGESTS.get(len(blob.name))
    if kind is None:
        return None
    return Promise(path="blob", size=blob.stat().st_size, **{kind: blob.name}).broken_by_file(blob)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
