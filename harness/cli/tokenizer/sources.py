"""Options of every command that asks a hub, or reads the cache of what it gave."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def cache(parser: argparse.ArgumentParser) -> None:
    """Where snapshots are kept."""
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where snapshots are kept")


def asking(parser: argparse.ArgumentParser) -> None:
    """Which hub is asked, for how long, or that none is."""
    parser.add_argument("--endpoint", metavar="URL", help="the hub (default: HF_ENDPOINT, else the public one)")
    cache(parser)
    parser.add_argument("--deadline", type=duration, metavar="TIME", help="for everything that waits (default: 2min)")
    parser.add_argument("--offline", action="store_true", help="make no request")


def hub(parser: argparse.ArgumentParser) -> None:
    """And how files are taken."""
    asking(parser)
    parser.add_argument(
        "--lock-timeout", type=duration, default=60.0, metavar="TIME", help="for another process (default: 1min)"
    )
    parser.add_argument(
        "--no-hub-cache",
        action="store_false",
        dest="hub_cache",
        help="do not copy files with the promised digest from huggingface_hub's cache",
    )


def duration(text: str) -> float:
    """A time with its unit, in seconds."""
    from harness.forms import units

    return _quantity(units.duration, text)


def bytes_(text: str) -> int:
    """A size with its unit, in bytes."""
    from harness.forms import units

    return _quantity(units.size, text)


def _quantity(parse: Callable[[str], T], text: str) -> T:
    from pydantic_core import PydanticCustomError

    try:
        return parse(text)
    except PydanticCustomError as error:
        meant = (error.context or {}).get("suggestion")
        raise argparse.ArgumentTypeError(f"{error}{f'; did you mean {meant}?' if meant else ''}") from None
