"""What `tokenizers` writes for a tokenizer, taken apart without parsing its vocabulary.

What `Tokenizer.to_str()` returns is canonical: defaults are filled in, the vocabulary is ordered by id and the merges
by rank. Its large pieces are digested as text, which is ten times faster than parsing them. Inside a JSON string every
quote is escaped, so that `,"model":{` and its like can only be the key.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from harness.tokenizer.problem import Unidentifiable

BEGINNING = b'{"version":"'
MODEL = b',"model":'
ESCAPES = re.compile(rb"\\(.)", re.DOTALL)
TYPE, VOCABULARY, MERGES = b'{"type":"', b',"vocab":', b',"merges":'


def written(backend: Any) -> bytes:
    """What `backend.to_str()` returns, as UTF-8.

    The state that pickle saves is the same text, and comes as bytes. Making text of it and bytes again takes nearly as
    long as the writing itself.
    """
    state = backend.__getstate__()
    return state if isinstance(state, bytes) and state.startswith(BEGINNING) else backend.to_str().encode()


@dataclass(frozen=True, kw_only=True)
class Serialised:
    """The pieces of a serialised tokenizer.

    Attributes:
        head: everything but the model.
        model: the model's small fields.
        vocabulary: JSON text, ordered by id (Unigram: pairs of piece and score, in order of id).
        merges: JSON text of pairs in order of rank; None for a model without.
    """

    head: dict[str, Any]
    model: dict[str, Any]
    vocabulary: bytes
    merges: bytes | None

    @classmethod
    def take_apart(cls, text: bytes) -> Serialised:
        """Take apart what `written` returned.

        Raises:
            Unidentifiable: for a model whose layout is not known.
        """
        at = text.find(MODEL + TYPE)
        if at < 0:
            raise Unidentifiable("this version of tokenizers writes a tokenizer in a layout that is not known here")
        head, begin = json.loads(text[:at] + b"}"), at + len(MODEL)
        kind = text[begin + len(TYPE) : text.index(b'"', begin + len(TYPE))].decode()
        opening = text.find(VOCABULARY, begin)
        if opening < 0 or kind not in FOLLOWS:
            raise Unidentifiable(f"a model of type {kind!r} is not known here")
        start, closing = opening + len(VOCABULARY), FOLLOWS[kind]
        # The last two braces close the model and the tokenizer.
        end = text.find(closing, start) if closing else len(text) - 2
        if end < 0:
            raise Unidentifiable(f"the model of type {kind!r} is written in a layout that is not known here")
        rest, merges = text[end:-2], None
        if kind == "BPE":
            rest, merges = b"", rest.removeprefix(MERGES)
        return cls(
            head=head, model=json.loads(text[begin:opening] + rest + b"}"), vocabulary=text[start:end], merges=merges
        )

    def entries(self) -> int:
        """How many tokens a written vocabulary has (not for Unigram, whose vocabulary is a list)."""
        # A backslash takes the next character with it, so that what is left are the quotes around tokens.
        return (self.vocabulary.count(b'"') - ESCAPES.findall(self.vocabulary).count(b'"')) // 2


# What follows the vocabulary, by type of model.
FOLLOWS = {"BPE": MERGES + b"[", "WordPiece": b"", "WordLevel": b',"unk_token":', "Unigram": b',"byte_fallback":'}
