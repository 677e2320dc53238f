"""What the environment decides for commands that fetch, cache or judge tokenizers, where no option does.

The names are those of BitNet.rs, whose guide people bring along (docs/discovery.md). Each is read by one rule, so that
`=0` is off everywhere. What is neither on nor off is an error; a variable of that family that nobody reads is named.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from harness.cli import USAGE, give_up
from harness.forms.switch import switch

DEADLINE = 120.0
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


def decided(options: argparse.Namespace, *, told: bool = True) -> argparse.Namespace:
    """The options, with what the environment decides where they leave it open.

    Read, if they are there: `cache`, `deadline`, `offline`, `strict`, `force_cpu`.

    Args:
        options: as parsed; changed in place.
        told: name variables that are not read on standard error.

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
    if getattr(options, "cache", 0) is None and folder and not os.environ.get("RANKPROOF_TOKENIZERS"):
        options.cache = Path(folder).expanduser() / "tokenizers"
    if getattr(options, "deadline", 0) is None:
        options.deadline = _seconds(os.environ.get(TIMEOUT, ""))
    if told:
        for name in sorted(name for name in os.environ if name.startswith(PREFIX) and name not in READ):
            print(f"rankproof: the variable {name} is not read; these are: {', '.join(READ)}", file=sys.stderr)
    return options


def _seconds(text: str) -> float:
    if not text:
        return DEADLINE
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text) or int(text) > 86_400:
        raise Undecided(f"{TIMEOUT} is {text[:40]!r}: write a number of seconds, at most 86400")
    return float(text)


def refused(command: str, error: Undecided) -> int:
    """Say what cannot be understood; returns the exit code."""
    return give_up(command, error, USAGE)
