"""Tokenizers of transformers that are Python code.

Tests import this when they run: it takes torch, and seconds.
"""

from __future__ import annotations

from typing import Any, ClassVar

from transformers.tokenization_python import PythonBackend
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend


class Letters(PythonBackend):  # type: ignore[misc]
    """A tokenizer that is Python code: a token per letter."""

    def __init__(
        self, *, lower: bool = False, alphabet: str = "abcdefghijklmnopqrstuvwxyz", **options: Any
    ) -> None:
        self.lower = lower
        self.numbers = {letter: index for index, letter in enumerate(alphabet)}
        super().__init__(unk_token="a", **options)  # type: ignore[no-untyped-call]  # noqa: S106

    @property
    def vocab_size(self) -> int:
        return len(self.numbers)

    def get_vocab(self) -> dict[str, int]:
        return self.numbers | self.added_tokens_encoder

    def _tokenize(self, text: str, **_options: Any) -> list[str]:
        return list(text.lower() if self.lower else text)

    def _convert_token_to_id(self, token: str) -> int:
        return self.numbers.get(token, 0)

    def _convert_id_to_token(self, index: int) -> str:
        return next(letter for letter, number in self.numbers.items() if number == index)

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens)


class Louder(Letters):
    """The same with other code."""

    def _tokenize(self, text: str, **_options: Any) -> list[str]:
        return [letter for letter in text if letter != "z"]


class Pieces(SentencePieceBackend):  # type: ignore[misc]
    """A slow tokenizer on SentencePiece."""

    vocab_files_names: ClassVar[dict[str, str]] = {"vocab_file": "tokenizer.model"}
