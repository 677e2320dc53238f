"""Identities of tokenizers, and whether two are the same.

Usable alone: of the harness nothing but its ground floor, `harness.forms`, is imported.

* `identify(tokenizer)`: the identity of an object: transformers (fast, slow, SentencePiece, a
  repository's own class) or `tokenizers.Tokenizer`. The object is left as it is.
* `identify_folder(path)`: the identity of a folder or a `tokenizer.json`, read in a child process
  with limits and without transformers.
* `difference(a, b)`: what differs, in words, with a text that shows it.

`Identity.semantic` is equal where every text gets the same ids, the special tokens have the same
names and the chat templates are the same; `Identity.full` also covers class, backend, decoder and
settings. docs/tokenizer.md says what each part covers and what is comparable with what.

Importing this package imports neither transformers nor tokenizers.
"""

from __future__ import annotations

import os

from harness.tokenizer.comparison import Difference, compare
from harness.tokenizer.identity import Identity
from harness.tokenizer.isolation import ask, identify_folder
from harness.tokenizer.objects import ComparedTokenizer, compared_object, identify
from harness.tokenizer.problem import (
    IdentityMalformed,
    NotComparable,
    TokenizerError,
    Unidentifiable,
    Unreadable,
)

__all__ = [
    "Difference",
    "Identity",
    "IdentityMalformed",
    "NotComparable",
    "TokenizerError",
    "Unidentifiable",
    "Unreadable",
    "difference",
    "identify",
    "identify_folder",
]


def difference(a: object, b: object) -> list[Difference]:
    """List what differs between two tokenizers; the list is empty if nothing does.

    Args:
        a: a tokenizer object, an `Identity`, or the path of a folder or a tokenizer.json.
        b: the same. Objects and paths give better examples than identities, which know the probe
            corpus only.

    Raises:
        NotComparable: a difference between these two means nothing.
        Unreadable, Unidentifiable: as `identify` and `identify_folder`.
    """
    if isinstance(a, (str, os.PathLike)) and isinstance(b, (str, os.PathLike)):
        return [Difference(**row) for row in ask("difference", [a, b])]
    return compare(_subject(a), _subject(b))


def _subject(given: object) -> ComparedTokenizer:
    if isinstance(given, Identity):
        return ComparedTokenizer(identity=given)
    if isinstance(given, (str, os.PathLike)):
        return ComparedTokenizer(identity=identify_folder(given))
    return compared_object(given)
