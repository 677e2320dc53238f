"""Sources of tokenizers: a repository on a hub or a local folder, and which files of it belong to a tokenizer."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.tokenizer.problem import SourceRefused

DEFAULT_ENDPOINT = "https://huggingface.co"
COMMIT = re.compile(r"[0-9a-f]{40}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}(/[A-Za-z0-9][A-Za-z0-9_.-]{0,95})?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/@-]{0,254}")

# What the tokenizer classes of transformers open, by suffix: their `vocab_files_names`, the configurations, templates.
_SUFFIXES = frozenset(
    {".bpe", ".codes", ".jinja", ".json", ".model", ".py", ".spm", ".tiktoken", ".tokenizer", ".txt", ".vocab"}
)
TEMPLATES = "additional_chat_templates"
# Files with those suffixes at the root of model repositories that no tokenizer reads.
_NOT_TOKENIZER = re.compile(r".*\.index\.json|license.*|requirements.*\.txt|.*trainer_state\.json", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on what a source may ask this machine to take.

    Attributes:
        file_bytes: bytes of one tokenizer file. The largest published `tokenizer.json` files are near 35 MB.
        total_bytes: bytes of all tokenizer files together.
        files: number of tokenizer files.
        entries: number of entries in the repository's listing, whatever they are.
    """

    file_bytes: int = 256 * 2**20
    total_bytes: int = 2**30
    files: int = 512
    entries: int = 100_000


@dataclass(frozen=True, kw_only=True)
class HubRepository:
    """A repository on a hub."""

    endpoint: str
    name: str


def parse(source: str | os.PathLike[str], *, endpoint: str | None) -> HubRepository | Path:
    """Tell a repository's name from a folder.

    A `Path`, and text that starts with `.`, `/` or `~`, is a folder; other text is a name such as `org/model`. Where a
    folder of that very name lies in the working directory, transformers silently prefers it; here it is refused.

    Raises:
        SourceRefused: neither, or both.
    """
    if not isinstance(source, str) or source.startswith((".", "/", "~")):
        folder = Path(source).expanduser()
        try:
            is_folder = folder.is_dir()
        except OSError as error:
            raise SourceRefused(f"{folder} cannot be looked at: {error.strerror}") from error
        if not is_folder:
            raise SourceRefused(
                f"{folder} is not a folder: pass a folder of tokenizer files, or a name as in org/model"
            )
        return folder
    checked_repository(source)
    if Path(source).is_dir():
        raise SourceRefused(
            f"{source!r} is a repository's name and a folder in the working directory: pass ./{source} for the folder, "
            "or start elsewhere for the repository"
        )
    return HubRepository(endpoint=checked_endpoint(endpoint), name=source)


def checked_repository(name: str) -> str:
    """A repository's name, as in `org/model`.

    Raises:
        SourceRefused: it is none.
    """
    if not _REPOSITORY.fullmatch(name) or ".." in name or "--" in name:
        raise SourceRefused(
            f"{name!r} names neither a repository (org/model) nor a folder (a folder starts with ./, / or ~)"
        )
    return name


def checked_endpoint(endpoint: str | None) -> str:
    """The hub's address: what was given, else HF_ENDPOINT, else the public hub.

    Raises:
        SourceRefused: not an http or https address.
    """
    address = (endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if not re.fullmatch(r"https?://[^\s/?#@\\]+(/[^\s?#\\]*)?", address):
        raise SourceRefused(f"the hub's address {address!r} is not of the form https://host or http://host:port")
    return address


def checked_revision(revision: str) -> str:
    """A branch, a tag or a commit that cannot leave the place it is put in.

    Raises:
        SourceRefused: it holds `..`, control characters or other things git does not allow in a name.
    """
    parts = revision.split("/")
    if not _REVISION.fullmatch(revision) or any(part in {"", ".", ".."} or ".." in part for part in parts):
        raise SourceRefused(f"the revision {revision!r} is not a branch, a tag or a commit")
    return revision


def checked_name(name: str) -> str:
    """A file's path inside a repository that cannot leave the folder it is put in.

    Raises:
        SourceRefused: absolute, with `..`, backslashes, control characters, or too long for a file system.
    """
    problem = _unsafe(name)
    if problem:
        raise SourceRefused(f"the source lists a file {name[:200]!r}, which {problem}: nothing of it is used")
    return name


def _unsafe(name: str) -> str | None:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "is not text"
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "holds a control character"
    if "\\" in name or re.match(r"[A-Za-z]:", name):
        return "is a path of another system"
    if name.startswith(("/", "~")):
        return "is absolute"
    if any(part in {"", ".", ".."} for part in name.split("/")):
        return "leaves its folder"
    if len(encoded) > 1024 or any(len(part.encode()) > 255 for part in name.split("/")):
        return "is too long"
    return None


def is_tokenizer_file(name: str) -> bool:
    """Tell whether this path of a repository belongs to its tokenizer.

    By suffix and place, and generously: a file that is left out looks like one that does not exist, so all
    small text formats at the root count, chat templates in their folder, and Python files anywhere (remote code).
    """
    path = PurePosixPath(name)
    if path.suffix == ".py":
        return True
    if len(path.parts) == 2:
        return path.parts[0] == TEMPLATES and path.suffix == ".jinja"
    if len(path.parts) != 1 or name.startswith(".") or _NOT_TOKENIZER.fullmatch(name):
        return False
    return path.suffix in _SUFFIXES or name.startswith("tokenizer.model")


def check_limits(sizes: Iterable[tuple[str, int]], *, limits: Limits) -> None:
    """Refuse more than the limits allow, before a byte is fetched.

    Args:
        sizes: path and bytes of every tokenizer file.
        limits: what is allowed.

    Raises:
        SourceRefused: names the first file that is too large, or the sum.
    """
    total = count = 0
    for name, size in sizes:
        if size > limits.file_bytes:
            raise SourceRefused(
                f"{name} has {size:,} bytes, more than {limits.file_bytes:,}: no tokenizer file is that large; "
                "raise Limits(file_bytes=...) if this one is"
            )
        total += size
        count += 1
    if total > limits.total_bytes:
        raise SourceRefused(
            f"its tokenizer files have {total:,} bytes together, more than {limits.total_bytes:,}: "
            "see Limits(total_bytes=...)"
        )
    if count > limits.files:
        raise SourceRefused(f"it has {count:,} tokenizer files, more than {limits.files:,}: see Limits(files=...)")
    if not count:
        raise SourceRefused("it has no tokenizer files: is this the repository or folder you mean?")
