"""What `tokenizers` writes for a tokenizer, taken apart without parsing its vocabulary.

`Tokenizer.to_str()` is canonical: defaults are filled in, the vocabulary is ordered by id and the merges by rank. Its
large pieces are digested as text, which is ten times faster than parsing them. Inside a JSON string every quote is
escaped, so that `,"model":{` and its like can only be the key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from harness.tokenizer.problem import Unidentifiable

MODEL = b',"model":'
TYPE, VOCABULARY, MERGES = b'{"type":"', b',"vocab":', b',"merges":'


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
    def take_apart(cls, serialised: str) -> Serialised:
        """Take apart what `Tokenizer.to_str()` returned.

        Raises:
            Unidentifiable: for a model whose layout is not known.
        """
        text = serialised.encode()
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
        # A quote is escaped after an odd run of backslashes; N(k) quotes follow at least k of them, and
        # N(1) - N(2) + N(3) - … of them are escaped. Counting is thirty times faster than parsing.
        structural, needle, sign = self.vocabulary.count(b'"'), b'\\"', -1
        while found := self.vocabulary.count(needle):
            structural, needle, sign = structural + sign * found, b"\\" + needle, -sign
        return structural // 2


# What follows the vocabulary, by type of model.
FOLLOWS = {"BPE": MERGES + b"[", "WordPiece": b"", "WordLevel": b',"unk_token":', "Unigram": b',"byte_fallback":'}
