"""Say whether something still is the locked tokenizer."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from harness.tokenizer.loading.failure import BuildFailed, BytesDiffer, IdentityDiffers
from harness.tokenizer.loading.load import differs_from, load
from harness.tokenizer.loading.lockfile import Lock
from harness.tokenizer.loading.manifest import FileRecord, changes, records
from harness.tokenizer.loading.source import parse


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What was found.

    Attributes:
        differences: in words; empty if it is the locked tokenizer.
        remarks: what does not make it another one, such as other library versions.
    """

    differences: tuple[str, ...]
    remarks: tuple[str, ...]


def verify(
    source: str | os.PathLike[str],
    *,
    lock: Lock,
    cache: str | os.PathLike[str] | None = None,
    deadline: float = 120.0,
    trust_remote_code: bool = False,
    endpoint: str | None = None,
    token: str | bool | None = None,
    offline: bool = False,
) -> Verified:
    """Compare a folder, or what a hub has at the locked commit, with a lock: files first, then what is built from them.

    A folder with other files is built all the same, to say what they change, unless its code is what differs.

    Raises:
        LoadError: that could not be found out.
    """
    where = parse(source, endpoint=endpoint)
    if not isinstance(where, Path):
        try:
            loaded = load(
                source,
                lock=lock,
                cache=cache,
                deadline=deadline,
                trust_remote_code=trust_remote_code,
                endpoint=endpoint,
                token=token,
                offline=offline,
            )
        except (IdentityDiffers, BytesDiffer) as error:
            return Verified(differences=(str(error),), remarks=())
        return Verified(differences=(), remarks=loaded.remarks)
    files = records(where, only_tokenizer_files=True)
    said = changes(lock.files, files)
    remarks: list[str] = []
    if trust_remote_code and _python_files(lock.files) != _python_files(files):
        return Verified(differences=(*said, "its code is not the locked code, so it was not run"), remarks=())
    try:
        built = load(where, trust_remote_code=trust_remote_code, options=lock.options).tokenizer
        words = differs_from(lock, built, remarks)
    except BuildFailed as error:
        words = str(error)
    return Verified(differences=(*said, *([words] if words else [])), remarks=tuple(remarks))


def _python_files(files: tuple[FileRecord, ...]) -> list[FileRecord]:
    return [file for file in files if file.path.endswith(".py")]
