"""Resolving a scenario's inputs: a file, a folder, or a revision of the hub.

Every file by its digest.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.forms.digest import fold, sha256, sha256_of
from harness.forms.distribution import missing
from harness.forms.source import real_place
from harness.forms.variables import cache_folder
from harness.record.facts import HOME_INPUT, InputFacts
from harness.scenario import Input, Scenario

FILES_LIMIT = 10_000
LAYOUTS = "layouts "
"""How the record names an input of layouts; their names follow."""
MADE = "made "
"""The same of a model that is made here."""
PLACES = "inputs"
"""The user's cache that says where inputs lay. A record names no folder of this machine, and a
bundle has to find them.
"""


class InputError(Exception):
    """An input that is not there, or not what the scenario pins.

    The message says which and what to do.
    """


@dataclass(frozen=True)
class ResolvedInput:
    """An input as ranks are given it, and as the record names it."""

    path: Path
    facts: InputFacts


def home(given: str, *, folder: Path) -> ResolvedInput:
    """Return the folder that `world.home` names: what every world finds in its home folder.

    Raises:
        InputError: not there, not a folder, no file in it, or one that cannot be read.
    """
    path = (folder / given).resolve()
    if not path.is_dir():
        raise InputError(f"{HOME_INPUT}: {given} is not a folder (looked in the scenario's folder)")
    files = digests(path, name=HOME_INPUT)
    facts = InputFacts(
        name=HOME_INPUT, given=given, digest=fold(files), pinned=False, revision=None, files=files
    )
    return ResolvedInput(path=path, facts=facts)


def of_scenario(scenario: Scenario, *, folder: Path) -> dict[str, ResolvedInput]:
    """Every input of a scenario, and the home folder of its ranks where they get a copy of one.

    Raises:
        InputError: as for `resolve` and `home`.
    """
    resolved = {
        name: resolve(name, given, folder=folder) for name, given in scenario.inputs.items()
    }
    if scenario.world.home is not None and scenario.world.home_is == "copy":
        resolved[HOME_INPUT] = home(scenario.world.home, folder=folder)
    return resolved


def resolve(name: str, given: Input, *, folder: Path) -> ResolvedInput:
    """Find an input; `folder` is the scenario's, where relative paths start.

    Raises:
        InputError: not there, not readable, no file in it, or another digest than the pinned one.
    """
    revision = None
    if given.path is not None:
        text = given.path if not leaves(given.path) else f"./{Path(given.path).name}"
        path = real_place(given.path, folder=folder)
        if not path.exists():
            raise InputError(
                f"input {name}: {path} does not exist (a relative path starts at the folder of the"
                " scenario, on the command line at the current one)"
            )
    elif given.layouts is not None:
        text = f"{LAYOUTS}{', '.join(given.layouts)}"
        path = _layouts(name, given.layouts)
    elif given.made is not None:
        text = f"{MADE}{given.made}"
        path = _made(name, given.made)
    else:
        assert given.hub is not None
        text = given.hub
        path, revision = _from_hub(name, given.hub)
    files = digests(path, name=name)
    digest = fold(files) if path.is_dir() else next(iter(files.values()))
    if given.sha256 is not None and given.sha256 != digest:
        raise InputError(
            f"input {name}: {text} has sha256 {digest}, but the scenario pins {given.sha256};"
            " restore the files, or pin the new digest"
        )
    facts = InputFacts(
        name=name,
        given=text,
        digest=digest,
        pinned=given.sha256 is not None,
        revision=revision,
        files=files,
    )
    return ResolvedInput(path=path, facts=facts)


def remember(resolved: Iterable[ResolvedInput]) -> None:
    """Note for this user where inputs lie, by what they are.

    Without a cache that can be written nothing is noted.
    """
    with suppress(OSError, RuntimeError):  # of a user without a home
        folder = cache_folder(PLACES)
        folder.mkdir(parents=True, exist_ok=True)
        for given in resolved:
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(os.fsencode(given.path))
            Path(file.name).replace(folder / _key(given.facts))


def remembered(facts: InputFacts) -> Path | None:
    """Where an input of these files lay when a run of this user last had it.

    Whoever takes it looks what lies there.
    """
    try:
        text = (cache_folder(PLACES) / _key(facts)).read_bytes()
    except (OSError, RuntimeError):
        return None
    return Path(os.fsdecode(text)) if text.startswith(b"/") and b"\0" not in text else None


def _key(facts: InputFacts) -> str:
    """One file and a folder that holds nothing else have the same files, and are two inputs."""
    return sha256(f"{facts.digest} {fold(facts.files)}".encode())


def leaves(path: str) -> bool:
    """Return whether a path names folders of this machine: they have no business in a report."""
    return path.startswith(("/", "~")) or ".." in Path(path).parts


def _layouts(name: str, layouts: Sequence[str]) -> Path:
    """Return a folder of the user's cache with these tokenizer repositories, the same bytes on
    every machine.
    """
    from harness.hub import HubError
    from harness.hub.layouts import cached

    try:
        return cached(layouts)
    except (HubError, OSError) as error:
        raise InputError(f"input {name}: {error}") from None


def _made(name: str, model: str) -> Path:
    """Return the folder of the user's cache with a model, the same bytes on every machine."""
    from harness.engines.models import ModelError, cached

    try:
        return cached(model)
    except (ModelError, OSError) as error:
        raise InputError(f"input {name}: {error}") from None


def _from_hub(name: str, given: str) -> tuple[Path, str]:
    """Take a revision from the hub through huggingface_hub, cached where that library caches."""
    if lacks := missing("huggingface_hub"):
        raise InputError(f"input {name}: {given} must come from a hub, but {lacks}")
    from huggingface_hub import snapshot_download

    model, _, revision = given.rpartition("@")
    try:
        path = Path(snapshot_download(model, revision=revision))
    # The library raises from several families; all mean the input is not there.
    except Exception as error:  # noqa: BLE001
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        raise InputError(f"input {name}: cannot fetch {given} from the hub: {reason}") from None
    # The snapshot's folder is named by the commit the revision stood for.
    return path, path.name


def digests(path: Path, *, name: str) -> dict[str, str]:
    """sha256 of each file, by its path inside the input.

    Raises:
        InputError: nothing there, more than 10,000 files, or one that cannot be read.
    """
    files = (
        [path]
        if path.is_file()
        else sorted(by_path for by_path in path.rglob("*") if by_path.is_file())
    )
    if not files:
        raise InputError(f"input {name}: {path.name} contains no files")
    if len(files) > FILES_LIMIT:
        raise InputError(
            f"input {name}: {path.name} contains more than {FILES_LIMIT} files; use only the"
            " folder that the subject reads"
        )
    root = path if path.is_dir() else path.parent
    by_path = {}
    for file in files:
        try:
            by_path[file.relative_to(root).as_posix()] = sha256_of(file)
        except OSError as error:
            raise InputError(
                f"input {name}: {os.path.relpath(file, root)} cannot be read: {error.strerror}"
            ) from None
    return by_path
