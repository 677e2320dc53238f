"""Compare a cached file with what was fetched, where the file is about to be used.

A path belongs to a cache by where it is, whoever names it: as a candidate, on the command line, or
as a model's folder.

* A snapshot of ours is compared with its manifest, byte for byte, as `tokenizer cache verify` does.
* A file that is named in huggingface_hub's cache, or a tokenizer file of a folder there, has to be
  a link to a blob whose bytes have the digest in its name, where that is one.
* What was put aside, what is still being fetched, and what lies beside the files of a snapshot is
  refused.

`unchanged` asks before a file is used and again afterwards, so that damage in between is found too.

huggingface_hub's cache (`CACHE/models--org--name/blobs/<sha256, or git's id>`) is a place to copy
from too: read, never written. A blob is named by a digest of its bytes, and nobody compares the two
when it is used. Here its bytes are compared with what the hub, or a lock, promised; its snapshots,
links, refs and `.no_exist` decide nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.tokenizer.loading.snapshot import ASIDE, PARTIAL, Damaged, manifest_of, verified
from harness.tokenizer.loading.source import (
    COMMIT,
    TEMPLATES,
    HubRepository,
    Promise,
    is_tokenizer_file,
)
from harness.tokenizer.problem import CacheFailed, Unreadable

PREFIX = "models--"
# Which digest a blob's name is, by its length.
DIGESTS = {64: "sha256", 40: "blob"}


def hub_cache() -> Path:
    """Return the folder of huggingface_hub's cache, by its own variables.

    It is read, never written.
    """
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
        """Return the cache that huggingface_hub's own variables name."""
        return cls(root=hub_cache())

    def blob(self, repository: HubRepository, commit: str, promise: Promise) -> Path | None:
        """Find a file that may have the promised digest; None if there is none.

        By its digest, or, since a lock does not know git's id of a file, by the link that its name
        at the commit is.
        """
        place = self.root / f"{PREFIX}{repository.name.replace('/', '--')}"
        blobs = place / "blobs"
        named = [blobs / name for name in (promise.sha256, promise.blob) if name]
        named.append(Path(os.path.realpath(place / "snapshots" / commit / promise.path)))
        # A link may lead anywhere: to a file that only this user may read, for one.
        inside = os.path.realpath(blobs)
        return next(
            (blob for blob in named if os.path.realpath(blob.parent) == inside and _is_plain(blob)),
            None,
        )

    def blobs(self) -> Iterator[Path]:
        """Every blob, by repository and name. What a link leads to elsewhere is not one."""
        for folder in sorted(self.root.glob(f"{PREFIX}*/blobs")):
            if folder.is_symlink() or folder.parent.is_symlink():
                continue
            yield from sorted(path for path in folder.iterdir() if _is_plain(path))


def blob_harm(blob: Path) -> str | None:
    """Describe how a blob's bytes differ from its name; None if they do not, or if the name is not
    a digest.

    Raises:
        CacheFailed: it cannot be read.
    """
    kind = DIGESTS.get(len(blob.name))
    if kind is None:
        return None
    return Promise(path="blob", size=blob.stat().st_size, **{kind: blob.name}).broken_by_file(blob)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


_SNAPSHOT = re.compile(rf"{COMMIT.pattern}(-[0-9a-f]{{8}})?")
# The folder that holds the snapshots of a repository.
_IN_A_CACHE = re.compile(r".+-[0-9a-f]{8}")
# The most links that a path may lead through: systems have such a limit too.
_LINKS = 40
State = dict[str, tuple[int, ...]]


def damage(path: Path) -> str | None:
    """Say why a path must not be used; None if it is in no cache, or its files are as the cache
    says.
    """
    for spelled in dict.fromkeys(spelled for spelled, _ in _way(path)):
        if (said := _damage(spelled)) is not None:
            return said
    return None


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Use a file, or the tokenizer files of a folder, that stay as they are meanwhile.

    Raises:
        Unreadable: it is damaged, or it changed while it was used.
    """
    # The state is taken first: a change between it and the comparison is then found at the end.
    before = state(path)
    if (said := damage(path)) is not None:
        raise Unreadable(f"{path}: {said}")
    yield
    if (said := damage(path)) is not None:
        raise Unreadable(f"{path} was damaged while it was being read: {said}")
    if (after := state(path)) != before:
        changed = sorted(
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        )
        raise Unreadable(
            f"{path}: the file changed while it was being read ({changed[0]}); try again"
        )


def state(path: Path) -> State:
    """Inode, size and times of a file, or of the tokenizer files in a folder, by name.

    A file's change time cannot be set back by whoever writes it, so equal states mean that nothing
    was written. Links that lead there, and the folders of a snapshot, have their times too: each
    may be exchanged, and put back.
    """
    states: State = {}
    try:
        names = sorted(_files(path)) if path.is_dir() else [""]
        for spelled, step in _way(path):
            for passed in (*filter(None, [step]), *_folders(spelled)):
                seen = passed.lstat()
                states[str(passed)] = (seen.st_ino, seen.st_ctime_ns)
    except OSError as error:
        return {"": (error.errno or 0,)}
    for name in names:
        try:
            link = (path / name).lstat()
            file = (path / name).stat()
        except OSError as error:
            states[name] = (error.errno or 0,)
            continue
        states[name] = (
            link.st_ino,
            link.st_ctime_ns,
            file.st_dev,
            file.st_ino,
            file.st_size,
            file.st_mtime_ns,
            file.st_ctime_ns,
        )
    return states


def _way(path: Path) -> Iterator[tuple[Path, Path | None]]:
    """The path as it was named, and as it is spelled at each link on its way, with that link.

    Then where it ends.

    A link may lead out of a cache, into one, or through one.
    """
    named = Path(path).absolute()
    yield Path(os.path.normpath(named)), None
    done = Path(named.anchor)
    ahead = list(reversed(named.parts[1:]))
    links = 0
    while ahead and links < _LINKS:
        part = ahead.pop()
        step = done / part
        if part == "..":
            done = done.parent
            continue
        try:
            target = step.readlink()
        except OSError:  # no link, or nothing that this user may look at
            done = step
            continue
        yield Path(os.path.normpath(step.joinpath(*reversed(ahead)))), step
        done = Path(target.anchor) if target.is_absolute() else done
        ahead += reversed(target.relative_to(target.anchor).parts)
        links += 1
    yield done, None


def _folders(path: Path) -> list[Path]:
    """Return the folders of our snapshot that a path is in; none where it is in none."""
    for folder in (path, *path.parents):
        if folder.name == "files" and _SNAPSHOT.fullmatch(folder.parent.name):
            return [
                above
                for above in (*path.parents, path)
                if above.is_relative_to(folder.parent) and above.is_dir()
            ]
    return []


def _files(folder: Path) -> Iterator[str]:
    """The tokenizer files in a folder and in that of its templates.

    The folder above a model may hold anything else.
    """
    for place in (folder, folder / TEMPLATES):
        if not place.is_dir():
            continue
        for path in place.iterdir():
            name = path.relative_to(folder).as_posix()
            if is_tokenizer_file(name):
                yield name


def _damage(path: Path) -> str | None:
    for part in path.parts:
        if part == ASIDE:
            return f"is in {ASIDE}, where damaged files are kept for inspection and are never used"
        if part.startswith(PARTIAL):
            return "is part of an unfinished fetch"
    for folder in path.parents:
        if folder.parent.name.startswith(PREFIX) and folder.name in ("snapshots", "blobs"):
            # First, since a repository may have a folder "files" of its own.
            return _of_hub(folder.parent, path)
    for folder in (path, *path.parents):
        above = folder.parent
        if folder.name == "files" and _is_snapshot(above):
            return _of_ours(above)
        if _SNAPSHOT.fullmatch(folder.name) and _IN_A_CACHE.fullmatch(above.name):
            return (
                f"is in the folder of a snapshot, {folder}, where only files below files/ are used"
            )
    return None


def _is_snapshot(place: Path) -> bool:
    """By its name, so that a manifest which was damaged or removed frees nothing.

    Else by a manifest of ours.
    """
    if _SNAPSHOT.fullmatch(place.name):
        return True
    try:
        return manifest_of(place) is not None
    except (Damaged, CacheFailed):
        return False


def _of_ours(place: Path) -> str | None:
    try:
        verified(place, by_name=_SNAPSHOT.fullmatch(place.name) is not None)
    except Damaged as error:
        return f"is damaged and is not used: {error}"
    except CacheFailed as error:
        return f"cannot be verified and is not used: {error}"
    return None


def _of_hub(repository: Path, path: Path) -> str | None:
    """Say why a file of huggingface_hub's cache, or the tokenizer files in a folder of it, must not
    be used; None if they may.
    """
    blobs = repository / "blobs"
    real = os.path.realpath(blobs)
    try:
        if path.parent == blobs:
            said = blob_harm(path) if path.is_file() else None
            return said and f"is damaged and is not used: {path}: {said}"
        files = [path / name for name in sorted(_files(path))] if path.is_dir() else [path]
        # Where the hub's library could not make links it copies, and keeps no blob: then no digest
        # is known.
        linked = blobs.is_dir() and any(blobs.iterdir())
        for file in files:
            blob = Path(os.path.realpath(file))
            if linked and os.path.lexists(file) and os.path.realpath(blob.parent) != real:
                return (
                    f"is damaged and is not used: {file} does not point to a blob of its repository"
                )
            # A file that is named itself is followed to its blob by whoever asks, and compared
            # there.
            if linked and file != path and (said := blob_harm(blob)) is not None:
                return f"is damaged and is not used: {file}: {said}"
    except OSError as error:
        return f"cannot be verified and is not used: {error.filename}: {error.strerror}"
    except CacheFailed as error:
        return f"cannot be verified and is not used: {error}"
    return None
