"""The sentencepiece library, on a model file. It never reads a special token in a text, and puts none around it."""

from __future__ import annotations

from harness.tokenizer.engines.adapter import Ids, Mode


class SentencePieceLibrary:
    """What `sentencepiece` does with a model file."""

    modes: tuple[Mode, ...] = ("plain",)

    def __init__(self, where: str) -> None:
        import sentencepiece

        self.about = f"sentencepiece {sentencepiece.__version__}"
        self._processor = sentencepiece.SentencePieceProcessor(model_file=where)

    def encode(self, text: str, mode: Mode) -> Ids:  # noqa: ARG002 - it has one
        """The ids of a text."""
        return list(self._processor.encode(text))

    def decode(self, ids: Ids) -> str:
        """The text."""
        return str(self._processor.decode(ids))

    def tokens(self) -> list[str]:
        """Pieces with spaces for their marks."""
        size = self._processor.vocab_size()
        return [self._processor.id_to_piece(index).replace("▁", " ") for index in range(size)]

    def special(self) -> list[str]:
        """Control pieces: they are text here, and tokens elsewhere."""
        size = self._processor.vocab_size()
        return [self._processor.id_to_piece(index) for index in range(size) if self._processor.is_control(index)]
