"""The tokenizers library, on a tokenizer.json or a folder that holds one."""

from __future__ import annotations

from pathlib import Path

from harness.tokenizer.backend import view
from harness.tokenizer.engines.adapter import MODES, Ids, Mode
from harness.tokenizer.files import read_path


class TokenizersLibrary:
    """What `tokenizers` does with the files, as transformers would load them."""

    modes = MODES

    def __init__(self, where: str) -> None:
        import tokenizers

        backend = read_path(Path(where)).backend
        self.about = f"tokenizers {tokenizers.__version__}"
        self._parsing = view(backend, encode_special_tokens=False)
        self._plain = view(backend, encode_special_tokens=True)

    def encode(self, text: str, mode: Mode) -> Ids:
        """The ids of a text."""
        asked = self._plain if mode == "plain" else self._parsing
        return list(asked.encode(text, add_special_tokens=mode == "around").ids)

    def decode(self, ids: Ids) -> str:
        """The text, with special tokens in it."""
        return str(self._parsing.decode(ids, skip_special_tokens=False))

    def tokens(self) -> list[str]:
        """Tokens as decoded."""
        count = self._parsing.get_vocab_size(with_added_tokens=False)
        return [str(self._parsing.decode([index], skip_special_tokens=False)) for index in range(count)]

    def special(self) -> list[str]:
        """The added tokens."""
        return [str(one.content) for one in self._parsing.get_added_tokens_decoder().values()]
