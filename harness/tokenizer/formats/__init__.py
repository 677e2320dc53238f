"""Tokenizers of every format in one form: GGUF, tokenizer.json, SentencePiece, tiktoken and tekken.

* `gguf_form`, `serialised_form`, `sentencepiece_form`, `tiktoken_form`, `tekken_form`: read one.
* `Form.fingerprint`: equal where two files describe one encoder, whatever their format.
Two forms are compared in `harness.tokenizer.comparison`.

Reading needs no library but, for a tokenizer.json, tokenizers.
"""

from __future__ import annotations

from harness.tokenizer.form import BESIDE, ENCODER, Form
from harness.tokenizer.formats.gguf import gguf_form
from harness.tokenizer.formats.tokenizer_json import serialised_form
from harness.tokenizer.formats.tokenizer_model import sentencepiece_form, tekken_form, tiktoken_form

__all__ = [
    "BESIDE",
    "ENCODER",
    "Form",
    "gguf_form",
    "sentencepiece_form",
    "serialised_form",
    "tekken_form",
    "tiktoken_form",
]
