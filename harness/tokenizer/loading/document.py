"""The JSON files of a tokenizer: read so that they mean the same to Python and to Rust."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.forms.strict_json import strict_json
from harness.tokenizer.loading.failure import BuildFailed

OBJECTS = (
    "added_tokens.json",
    "config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)


def examine(folder: Path, names: Iterable[str]) -> None:
    """Read every such file once: a key that stands twice means the last one to some readers and the first to others.

    Raises:
        BuildFailed: one of them is not a JSON object with one meaning.
    """
    for name in sorted(set(names) & set(OBJECTS)):
        read(folder, name)


def read(folder: Path, name: str) -> dict[str, Any]:
    """One of these files.

    Raises:
        BuildFailed: it is not a JSON object with one meaning.
    """
    try:
        tree = strict_json((folder / name).read_bytes(), constants=True)
    except ValueError as error:
        raise BuildFailed(f"{folder / name} is not JSON with one meaning: {error}") from error
    if not isinstance(tree, dict):
        raise BuildFailed(f"{folder / name} is not an object")
    return tree
