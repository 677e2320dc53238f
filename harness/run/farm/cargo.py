"""What a node is sent: our code, the arms and the inputs, each file by its digest and once."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from pydantic import Field, JsonValue

from harness.forms.digest import sha256_of
from harness.forms.model import Model
from harness.forms.variables import cache_folder
from harness.record.facts import InputFacts
from harness.run.arms.staging import StagedArm
from harness.run.inputs import ResolvedInput
from harness.world.control.names import ROOT
from harness.world.machines import store

PIECE = 16 * 2**20
CACHE = "farm"


class CargoSpoiled(Exception):
    """A file is not what its digest says, or a path leads elsewhere."""


class ArmCargo(Model):
    """An arm's code: path to sha256, those of its files that may be executed, and the arguments of
    its entry.
    """

    files: dict[str, str]
    executable: list[str]
    arguments: dict[str, JsonValue]


class Manifest(Model):
    """All that trials are made of.

    Attributes:
        scenario: the scenario's file.
        overrides: given beside it.
        arms: by name.
        inputs: as the record names them, by name.
        single: those inputs that are one file, not a folder.
        recipes: per arm, the digest of what its trials are made of.
        declared: per arm, the distributions that its repository declares.
        cells: ids of those that are to run.
        number: of the node.
        lanes: worlds at the same time.
    """

    scenario: str
    overrides: list[str]
    arms: dict[str, ArmCargo]
    inputs: dict[str, InputFacts]
    single: list[str]
    recipes: dict[str, str]
    declared: dict[str, list[str]] = Field(default_factory=dict)
    cells: list[str]
    number: int
    lanes: int


def own_code() -> bytes:
    """Return the package `harness` as a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        # Links are followed: in a checkout harness/_integrity is one.
        for name, path in sorted(store.files_of(Path(ROOT, "harness")).items()):
            archive.write(path, f"harness/{name}")
    return buffer.getvalue()


def arm(staged: StagedArm, files: Mapping[str, str]) -> ArmCargo:
    """Return an arm as it is sent."""
    executable = [name for name in sorted(files) if os.access(staged.folder / name, os.X_OK)]
    return ArmCargo(files=dict(files), executable=executable, arguments=dict(staged.arguments))


def sources(
    arms: Mapping[str, tuple[StagedArm, Mapping[str, str]]], inputs: Mapping[str, ResolvedInput]
) -> dict[str, Path]:
    """Where each file lies here, by its digest."""
    found = {
        digest: staged.folder / name
        for staged, files in arms.values()
        for name, digest in files.items()
    }
    for one in inputs.values():
        single = one.path.is_file()
        found |= {
            digest: one.path if single else one.path / name
            for name, digest in one.facts.files.items()
        }
    return found


def digests(manifest: Manifest) -> set[str]:
    """Return the sha256 of every file that a manifest names."""
    listed = [
        *(one.files for one in manifest.arms.values()),
        *(one.files for one in manifest.inputs.values()),
    ]
    return {digest for files in listed for digest in files.values()}


class Store:
    """Files by their digest, in a cache of the node's user, so that what was sent once is not sent
    again.
    """

    def __init__(self) -> None:
        self._folder = cache_folder(CACHE)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def lacks(self, wanted: Iterable[str]) -> list[str]:
        """Those of these files that are not here, or not any more what they were."""
        return sorted(digest for digest in wanted if not self._holds(digest))

    def _holds(self, digest: str) -> bool:
        path = self.path(digest)
        try:
            return path.is_file() and not path.is_symlink() and sha256_of(path) == digest
        except OSError:
            return False

    def path(self, digest: str) -> Path:
        """Where a file lies."""
        if len(digest) != 64 or not digest.isalnum():
            raise CargoSpoiled(f"{digest!r} is not a digest")
        return self._folder / digest

    def add(self, digest: str, piece: bytes, *, first: bool, last: bool) -> None:
        """Take a piece of a file; the last one gives it its name.

        Raises:
            CargoSpoiled: what came is not what the digest says.
            OSError: no space.
        """
        draft = self._folder / f".{digest}-{os.getpid()}"
        try:
            with draft.open("wb" if first else "ab") as file:
                file.write(piece)
        except OSError:
            draft.unlink(missing_ok=True)  # where there is no space, it would take some for good
            raise
        if not last:
            return
        if sha256_of(draft) != digest:
            draft.unlink()
            raise CargoSpoiled(f"what came is not {digest}")
        draft.chmod(0o400)
        draft.replace(self.path(digest))

    def lay(
        self, target: Path, files: Mapping[str, str], *, executable: Sequence[str] = (), link: bool
    ) -> None:
        """Lay files out below a folder.

        Args:
            target: the folder; made here.
            files: path to sha256.
            executable: those that may be executed.
            link: whether they may be the very files of the cache, as large ones are; what a rank
                writes into one is found when it is wanted again.

        Raises:
            CargoSpoiled: a path leads out of the folder.
            OSError: no space.
        """
        for name, digest in files.items():
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts or not parts.parts:
                raise CargoSpoiled(f"{name!r} leads out of its folder")
            path = target / parts
            path.parent.mkdir(parents=True, exist_ok=True)
            if link:
                with suppress(OSError):
                    path.hardlink_to(self.path(digest))
                    continue
            shutil.copyfile(self.path(digest), path)
            path.chmod(0o755 if name in executable else 0o644)


def lay_out(
    manifest: Manifest, store: Store, folder: Path
) -> tuple[dict[str, StagedArm], dict[str, ResolvedInput]]:
    """Return the arms and inputs of a manifest, laid out below a folder.

    Raises:
        CargoSpoiled: a path leads out of the folder.
        OSError: no space.
    """
    arms = {}
    inputs = {}
    for place, (name, one) in enumerate(manifest.arms.items()):
        target = folder / f"arm-{place}"
        target.mkdir(parents=True)
        store.lay(target, one.files, executable=one.executable, link=False)
        arms[name] = StagedArm(folder=target, arguments=one.arguments)
    for place, (name, facts) in enumerate(manifest.inputs.items()):
        target = folder / f"input-{place}"
        store.lay(target, facts.files, link=True)
        path = target / next(iter(facts.files)) if name in manifest.single else target
        inputs[name] = ResolvedInput(path=path, facts=facts)
    return arms, inputs
