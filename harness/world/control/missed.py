"""Models that a rank did not find offline, and that lie in the user's own cache of the hub: a room has none of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

# What huggingface_hub raises offline, as an error or as the cause of one, and what transformers makes of it.
TYPES = frozenset({"LocalEntryNotFoundError", "OfflineModeIsEnabled"})
WORDS = "couldn't find them in the cached files"
CODE_LIMIT = 2**20
PREFIX = "models--"


def missed(error: Mapping[str, Any], *, given: object, code: Path) -> list[str]:
    """Names of the models that the user's cache holds and that the failed subject speaks of; empty as a rule.

    The error itself seldom names the model, so the name is looked for in what the subject was given too.

    Args:
        error: how the rank failed.
        given: arguments and variables of the ranks, as JSON.
        code: the folder that they import from.
    """
    causes = (
        [cause for cause in error["causes"] if isinstance(cause, dict)] if isinstance(error["causes"], list) else []
    )
    messages = [str(one.get("message")) for one in (error, *causes)]
    if TYPES.isdisjoint(str(one.get("type")) for one in (error, *causes)) and WORDS not in messages[0]:
        return []
    if not (known := list(_models(users_cache()))):
        return []
    text = "\n".join([*messages, json.dumps(given), *_sources(code)])
    return [name for name in known if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w/-])", text)]


def users_cache() -> Path:
    """Where the user's own processes cache what they take from the hub."""
    if given := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(given).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("HF_HOME") or Path(caches) / "huggingface").expanduser() / "hub"


def is_below_home() -> bool:
    """Whether a rank with the user's own home folder finds that cache: it gets no variable of the user's."""
    return users_cache() == Path.home() / ".cache" / "huggingface" / "hub"


def _models(cache: Path) -> Iterator[str]:
    for folder in sorted(cache.glob(f"{PREFIX}*")):
        if any((folder / "snapshots").glob("*/*")):
            yield folder.name.removeprefix(PREFIX).replace("--", "/")


def _sources(code: Path) -> Iterable[str]:
    for path in sorted(code.rglob("*")):
        with suppress(OSError):  # a rank may have done anything to it
            if path.is_file() and path.stat().st_size <= CODE_LIMIT:
                yield path.read_bytes().decode("utf-8", "replace")
