"""llama.cpp by way of llama-cpp-python, on a GGUF file. No tensor is read: the vocabulary alone is loaded."""

from __future__ import annotations

import ctypes
from typing import Any

from harness.tokenizer.engines.adapter import MODES, Ids, Mode

_CONTROL, _USER_DEFINED = 1 << 3, 1 << 4


class LlamaCpp:
    """What llama.cpp does with the tokenizer inside a GGUF file."""

    modes = MODES

    def __init__(self, where: str) -> None:
        import llama_cpp  # type: ignore[import-not-found]  # whoever wants it installs it: it is in no extra

        self._library: Any = llama_cpp
        self.about = f"llama.cpp of llama-cpp-python {llama_cpp.__version__}"
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only, parameters.use_mmap = True, False
        model = llama_cpp.llama_model_load_from_file(where.encode(), parameters)
        if not model:
            raise ValueError("llama.cpp does not load this file; `rankproof gguf check` may say why")
        self._model, self._vocabulary = model, llama_cpp.llama_model_get_vocab(model)

    def encode(self, text: str, mode: Mode) -> Ids:
        """The ids of a text."""
        raw = text.encode()
        room = len(raw) + 16
        while True:
            held = (self._library.llama_token * room)()
            count = self._library.llama_tokenize(
                self._vocabulary, raw, len(raw), held, room, mode == "around", mode != "plain"
            )
            if count >= 0:
                return list(held[:count])
            room = -count

    def decode(self, ids: Ids) -> str:
        """The text, with special tokens in it."""
        given, room = (self._library.llama_token * len(ids))(*ids), 64
        while True:
            held = ctypes.create_string_buffer(room)
            count = self._library.llama_detokenize(self._vocabulary, given, len(ids), held, room, False, True)
            if count >= 0:
                return held.raw[:count].decode(errors="replace")
            room = -count

    def tokens(self) -> list[str]:
        """Tokens as llama.cpp writes them."""
        return [self._piece(index) for index in range(self._library.llama_vocab_n_tokens(self._vocabulary))]

    def special(self) -> list[str]:
        """Control tokens, and those that users defined."""
        ask, count = self._library.llama_vocab_get_attr, self._library.llama_vocab_n_tokens(self._vocabulary)
        kinds = [(index, ask(self._vocabulary, index)) for index in range(count)]
        return [self._piece(index) for index, kind in kinds if kind & (_CONTROL | _USER_DEFINED)]

    def _piece(self, index: int) -> str:
        held = ctypes.create_string_buffer(1 << 12)
        count = self._library.llama_token_to_piece(self._vocabulary, index, held, len(held), 0, True)
        return held.raw[: max(0, count)].decode(errors="replace")
