"""The ids of a tokenizer.json: each belongs to one token, and none lies far beyond the others.

The tokenizers library takes files in which that is not so, and decides by itself: of two tokens with one id the last
decodes, an added token whose id is taken silently gets another one, and an id of 2^32 - 1 is past every embedding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.forms.text import quoted
from harness.tokenizer.problem import Unreadable

MOST = 1 << 24
"""Ids from here on belong to no model: the largest vocabularies have a million tokens."""


def look_at_ids(path: Path, raw: dict[str, Any]) -> None:
    """Refuse ids that no tokenizer means.

    Args:
        path: for the message.
        raw: the content of the tokenizer.json, which the tokenizers library has taken.

    Raises:
        Unreadable: with the tokens and the id.
    """
    vocabulary = raw["model"].get("vocab")
    by_id: dict[int, str] = {}
    if isinstance(vocabulary, dict):
        for token, index in vocabulary.items():
            _in_range(path, token, index)
            if index in by_id:
                raise _shared(path, by_id[index], token, index)
            by_id[index] = token
    elif isinstance(vocabulary, list):
        by_id = {index: entry[0] for index, entry in enumerate(vocabulary)}
    ids = {token: index for index, token in by_id.items()}
    for added in raw.get("added_tokens") or ():
        token, index = added["content"], added["id"]
        _in_range(path, token, index)
        if by_id.get(index, token) != token:
            raise _shared(path, by_id[index], token, index)
        if ids.get(token, index) != index:
            raise Unreadable(
                f"{path}: {quoted(token)} has the ids {ids[token]} and {index}: in the vocabulary and as an added token"
            )
        by_id[index], ids[token] = token, index


def _in_range(path: Path, token: str, index: int) -> None:
    if not 0 <= index < MOST:
        raise Unreadable(f"{path}: {quoted(token)} has the id {index}, which is past every model's embedding")


def _shared(path: Path, first: str, second: str, index: int) -> Unreadable:
    return Unreadable(f"{path}: {quoted(first)} and {quoted(second)} share the id {index}: text gets one of them only")
