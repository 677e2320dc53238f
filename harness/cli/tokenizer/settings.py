"""The settings of commands that ask a hub or read its cache: their options, and what the
environment decides.

The names of variables are those of BitNet.rs, whose guide people bring along (docs/discovery.md).
Each is read by one rule, so that `=0` is off everywhere. What is neither on nor off is an error; a
variable of that family that nobody reads is named.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from harness.cli import USAGE, give_up
from harness.forms.variables import switch

DEADLINE = 120.0
LOCK_FILE = "tokenizer.lock.json"
PREFIX = "BITNET_"
CACHE = f"{PREFIX}CACHE_DIR"
TIMEOUT = f"{PREFIX}DOWNLOAD_TIMEOUT"
GGUF = f"{PREFIX}GGUF"
OFFLINE = f"{PREFIX}OFFLINE"
STRICT = f"{PREFIX}STRICT_TOKENIZERS"
FORCE_CPU = f"{PREFIX}FORCE_CPU"
# Nothing here is drawn by chance, so these two have nothing to decide.
WITHOUT_EFFECT = (f"{PREFIX}DETERMINISTIC", f"{PREFIX}SEED")
READ = (CACHE, TIMEOUT, GGUF, OFFLINE, STRICT, FORCE_CPU, *WITHOUT_EFFECT)


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
        for key, variable in {"offline": OFFLINE, "strict": STRICT, "force_cpu": FORCE_CPU}.items():
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
                f"rankproof: the variable {name} is not read; these are: {', '.join(READ)}",
                file=sys.stderr,
            )


def _seconds(text: str) -> float:
    if not text:
        return DEADLINE
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text) or int(text) > 86_400:
        raise Undecided(f"{TIMEOUT} is {text[:40]!r}: write a number of seconds, at most 86400")
    return float(text)


def refused(command: str, error: Undecided) -> int:
    """Say what cannot be understood; returns the exit code."""
    return give_up(command, error, USAGE)


# -- options ---------------------------------------------------------------------------------------

T = TypeVar("T")


def cache(parser: argparse.ArgumentParser) -> None:
    """Where snapshots are kept."""
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where snapshots are kept")


def asking(parser: argparse.ArgumentParser) -> None:
    """Which hub is asked, for how long, or that none is."""
    parser.add_argument(
        "--endpoint", metavar="URL", help="the hub (default: HF_ENDPOINT, else the public one)"
    )
    cache(parser)
    parser.add_argument(
        "--deadline",
        type=duration,
        metavar="TIME",
        help="for everything that waits (default: 2min)",
    )
    parser.add_argument("--offline", action="store_true", help="make no request")


def hub(parser: argparse.ArgumentParser) -> None:
    """And how files are taken."""
    asking(parser)
    parser.add_argument(
        "--lock-timeout",
        type=duration,
        default=60.0,
        metavar="TIME",
        help="for another process (default: 1min)",
    )
    parser.add_argument(
        "--no-hub-cache",
        action="store_false",
        dest="hub_cache",
        help="do not copy files with the promised digest from huggingface_hub's cache",
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
