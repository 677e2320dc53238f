"""Tokenizers of every format in one form: GGUF, tokenizer.json, SentencePiece, tiktoken and tekken.

* `gguf_form`, `serialised_form`, `sentencepiece_form`, `tiktoken_form`, `tekken_form`: read one.
* `Form.fingerprint`: equal where two files describe one encoder, whatever their format.
* `compared(a, b)`: what differs, what one of the formats cannot say, and what is worth knowing.

Reading needs no library but, for a tokenizer.json, tokenizers.
"""

from __future__ import annotations

from harness.tokenizer.form.comparison import compared
from harness.tokenizer.form.form import BESIDE, ENCODER, Form
from harness.tokenizer.form.gguf import gguf_form
from harness.tokenizer.form.ranks import tekken_form, tiktoken_form
from harness.tokenizer.form.sentencepiece import sentencepiece_form
from harness.tokenizer.form.serialised import serialised_form

__all__ = [
    "BESIDE",
    "ENCODER",
    "Form",
    "compared",
    "gguf_form",
    "sentencepiece_form",
    "serialised_form",
    "tekken_form",
    "tiktoken_form",
]
