"""`rankproof tokenizer …`: a group of commands, how each ends when a file cannot be had, and the
settings of those that ask a hub or read its cache: their options, and what the environment decides.

What is heavy a command imports inside its `main`, which is called where its libraries are
installed.

The names of variables are those of BitNet.rs, whose guide people bring along (docs/discovery.md).
Each is read by one rule, so that `=0` is off everywhere. What is neither on nor off is an error; a
variable of that family that nobody reads is named.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, USAGE, give_up
from harness.forms.distribution import missing
from harness.forms.text import visible

if TYPE_CHECKING:
    from harness.tokenizer.loading import LoadError
    from harness.tokenizer.problem import Unreadable
import os
import re
from typing import TypeVar

from harness.forms.variables import switch

ABSENT = 3
STRICT = 4
DAMAGED = 5
FORBIDDEN = 15
LAST_LINES = 5
NO_SPACE = 10
NO_LOGIN = 11
RATE = 12
BYTES = 13
NETWORK = 14
LOCKED = 17
_BY_ERRNO = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), NO_SPACE),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), FORBIDDEN),
}
_BY_STATUS = {401: NO_LOGIN, 403: NO_LOGIN, 404: ABSENT, 429: RATE}


@dataclass(frozen=True, kw_only=True)
class TokenizerCommand:
    """Command of the group.

    Attributes:
        help: one line in the list of the group.
        description: what the command does and its exit codes, for its own help.
        arguments: adds its arguments to its parser.
        main: runs it; returns the exit code.
        libraries: what has to be installed before `main` is called.
    """

    help: str
    description: str
    arguments: Callable[[argparse.ArgumentParser], None]
    main: Callable[[argparse.Namespace], int]
    libraries: tuple[str, ...] = ()


# Command to the module that has it, as a constant of its name in capitals.
MODULES = {
    "identity": "identity",
    "diff": "identity",
    "parity": "identity",
    "contract": "identity",
    "resolve": "resolve",
    "fetch": "fetch",
    "lock": "lock",
    "verify": "lock",
    "cache": "cache",
    "doctor": "resolve",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add every command of the group to its parser."""
    commands = parser.add_subparsers(dest="tokenizer_command", metavar="COMMAND", required=True)
    for name in MODULES:
        command = _command(name)
        command.arguments(
            commands.add_parser(name, help=command.help, description=command.description)
        )


def main(options: argparse.Namespace) -> int:
    """Run the command of the group that was named."""
    name = options.tokenizer_command
    command = _command(name)
    if lacks := missing(*command.libraries):
        return give_up(f"tokenizer {name}", lacks, INCONCLUSIVE)
    return command.main(options)


def _command(name: str) -> TokenizerCommand:
    module = importlib.import_module(f"{__name__}.{MODULES[name]}")
    command: TokenizerCommand = getattr(module, name.upper())
    return command


def unreadable(command: str, error: Unreadable) -> int:
    """Say why a file was refused; the exit code of its class."""
    from harness.tokenizer.problem import Absent, Forbidden

    code = FORBIDDEN if isinstance(error, Forbidden) else DAMAGED
    if isinstance(error, Absent):
        code = ABSENT
    return give_up(f"tokenizer {command}", error, code)


def say_what_is_damaged(command: str, *paths: Path) -> None:
    """Say on standard error which of these files is a damaged one of a cache: it is described, and
    not used.
    """
    from harness.tokenizer.loading.intact import damage

    for path in paths:
        if (said := damage(path)) is not None:
            print(
                f"rankproof tokenizer {command}: warning: {visible(f'{path}: {said}')}",
                file=sys.stderr,
            )


def serialised_without_library(*paths: Path) -> str | None:
    """Return what is missing to read these, if one of them is a tokenizer.json.

    Every other format needs no library.
    """
    return (
        missing("tokenizers")
        if any(path.is_dir() or path.suffix == ".json" for path in paths)
        else None
    )


def failed(command: str, error: LoadError) -> int:
    """Say on standard error why: the error, its causes, the requests that failed, what libraries
    said.

    Returns:
        The exit code, which says of which class the error is.
    """
    tell(command, error)
    return code_of(error)


def tell(command: str, error: LoadError) -> None:
    """Say it on standard error."""
    from harness.tokenizer.problem import first_line

    print(f"rankproof tokenizer {command}: {error}", file=sys.stderr)
    cause = error.__cause__
    while cause is not None:
        print(f"  because of {type(cause).__name__}: {first_line(cause)}", file=sys.stderr)
        cause = cause.__cause__
    for request in error.requests:
        if request.problem:
            print(
                f"  {request.method} {request.path}, attempt {request.attempt}: {request.problem}",
                file=sys.stderr,
            )
    for line in error.logs[-LAST_LINES:]:
        seen = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
        print(f"  {seen}", file=sys.stderr)


def code_of(error: LoadError) -> int:
    """Exit code that says of which class an error is; by what it is, never by its words."""
    from harness.tokenizer.loading import (
        BuildFailed,
        BytesDiffer,
        CacheFailed,
        HubFailed,
        IdentityDiffers,
        LockTimeout,
        SourceRefused,
    )

    cause = error.__cause__
    by_errno = (
        _BY_ERRNO.get(cause.errno or 0, INCONCLUSIVE)
        if isinstance(cause, OSError)
        else INCONCLUSIVE
    )
    if isinstance(error, HubFailed):
        return (
            BYTES if isinstance(error, BytesDiffer) else _BY_STATUS.get(error.status or 0, NETWORK)
        )
    kinds: dict[type[LoadError], int] = {
        SourceRefused: USAGE,
        LockTimeout: LOCKED,
        CacheFailed: by_errno,
        BuildFailed: DAMAGED,
        IdentityDiffers: FAIL,
    }
    return next((code for kind, code in kinds.items() if isinstance(error, kind)), INCONCLUSIVE)


DEADLINE = 120.0
LOCK_FILE = "tokenizer.lock.json"
PREFIX = "BITNET_"
CACHE = f"{PREFIX}CACHE_DIR"
TIMEOUT = f"{PREFIX}DOWNLOAD_TIMEOUT"
GGUF = f"{PREFIX}GGUF"
OFFLINE = f"{PREFIX}OFFLINE"
STRICT_TOKENIZERS = f"{PREFIX}STRICT_TOKENIZERS"
FORCE_CPU = f"{PREFIX}FORCE_CPU"
# Nothing here is drawn by chance, so these two have nothing to decide.
WITHOUT_EFFECT = (f"{PREFIX}DETERMINISTIC", f"{PREFIX}SEED")
READ = (CACHE, TIMEOUT, GGUF, OFFLINE, STRICT_TOKENIZERS, FORCE_CPU, *WITHOUT_EFFECT)


class Undecided(ValueError):
    """A variable says something that cannot be understood."""


def decided(options: argparse.Namespace) -> None:
    """Fill into the options what the environment decides where they leave it open.

    Read, if they are there: `cache`, `deadline`, `offline`, `strict`, `force_cpu`. A variable of
    the family that is not read is named on standard error.

    Args:
        options: as parsed; changed in place.

    Raises:
        Undecided: a variable cannot be understood; the message names it.
    """
    try:
        for key, variable in {
            "offline": OFFLINE,
            "strict": STRICT_TOKENIZERS,
            "force_cpu": FORCE_CPU,
        }.items():
            is_on = switch(variable)
            if hasattr(options, key):
                setattr(options, key, bool(getattr(options, key)) or is_on)
    except ValueError as error:
        raise Undecided(str(error)) from None
    folder = os.environ.get(CACHE)
    if (
        getattr(options, "cache", 0) is None
        and folder
        and not os.environ.get("RANKPROOF_TOKENIZERS")
    ):
        options.cache = Path(folder).expanduser() / "tokenizers"
    if getattr(options, "deadline", 0) is None:
        options.deadline = _seconds(os.environ.get(TIMEOUT, ""))
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in READ:
            print(
                f"rankproof: the variable {name} is ignored; these are read: {', '.join(READ)}",
                file=sys.stderr,
            )


def _seconds(text: str) -> float:
    if not text:
        return DEADLINE
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text) or int(text) > 86_400:
        raise Undecided(f"{TIMEOUT} is {text[:40]!r}; set it to a number of seconds, at most 86400")
    return float(text)


def refused(command: str, error: Undecided) -> int:
    """Say what cannot be understood; returns the exit code."""
    return give_up(command, error, USAGE)


# -- options ---------------------------------------------------------------------------------------

T = TypeVar("T")


def cache_argument(parser: argparse.ArgumentParser) -> None:
    """Where snapshots are kept."""
    parser.add_argument(
        "--cache", type=Path, metavar="FOLDER", help="folder of the cached snapshots"
    )


def asking(parser: argparse.ArgumentParser) -> None:
    """Which hub is asked, for how long, or that none is."""
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="URL of the hub (default: HF_ENDPOINT, else the public hub)",
    )
    cache_argument(parser)
    parser.add_argument(
        "--deadline",
        type=duration,
        metavar="TIME",
        help="time limit for everything that waits (default: 2min)",
    )
    parser.add_argument("--offline", action="store_true", help="make no network requests")


def hub(parser: argparse.ArgumentParser) -> None:
    """And how files are taken."""
    asking(parser)
    parser.add_argument(
        "--lock-timeout",
        type=duration,
        default=60.0,
        metavar="TIME",
        help="time to wait for another process (default: 1min)",
    )
    parser.add_argument(
        "--no-hub-cache",
        action="store_false",
        dest="hub_cache",
        help="do not reuse files from huggingface_hub's cache, even if their digests match",
    )


def duration(text: str) -> float:
    """Time with its unit, in seconds."""
    from harness.forms import units

    return _quantity(units.duration, text)


def bytes_(text: str) -> int:
    """Size with its unit, in bytes."""
    from harness.forms import units

    return _quantity(units.size, text)


def _quantity(parse: Callable[[str], T], text: str) -> T:
    from pydantic_core import PydanticCustomError

    try:
        return parse(text)
    except PydanticCustomError as error:
        meant = (error.context or {}).get("suggestion")
        raise argparse.ArgumentTypeError(
            f"{error}{f'; did you mean {meant}?' if meant else ''}"
        ) from None
