"""CheckedStream: a server's stream of chunks, each given on or refused.

Two kinds of chunks: `EnhancedTokenChunk`, and the dictionaries of OpenAI's API (`choices` with
`delta` or `text`). Of the latter the text is compared with the token ids where the server sends
them (`token_ids`), and else with the bytes of `logprobs`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from .encoding import EncodingValidator, validate_text
from .problem import MessageCorrupt, MessageLost, OutOfStep
from .records import (
    VALID,
    EnhancedTokenChunk,
    Level,
    ValidationError,
    ValidationResult,
    failure,
)
from .spelling import REPLACEMENT
from .stream_validator import StreamValidator
from .token_validator import TokenValidator

_ORDER = {
    ValidationError.AFTER_END,
    ValidationError.ANOTHER_STREAM,
    ValidationError.STALE_EPOCH,
    ValidationError.UNKNOWN_EPOCH,
    ValidationError.GAP,
    ValidationError.DUPLICATE,
    ValidationError.CONFLICT,
}
_NO_ID = -1
INTERVAL = 64
"""Tokens after which a text is compared that has to be decoded from all ids."""
_PARSED = ("tool_calls", "function_call", "reasoning", "reasoning_content", "refusal")
"""What a server makes of a text that it does not send as it is."""


class CheckedStream:
    """Chunks of one request, checked one by one. Not for several threads at once.

        stream = CheckedStream(**spelling)  # spelling = spells(tokenizer), once for the server
        send(stream.check(chunk))  # for each chunk
        stream.finish()  # at the end

    Or `CheckedStream(chunks, **spelling)` is iterated in place of the chunks, also with `async
    for`.

    Args:
        chunks: what is iterated: any iterable of chunks, also an asynchronous one.
        tokens: what is known of the vocabulary; None: ids are not compared with one.
        token_bytes, decode: what ids spell, as `spells` gives it. Without one the text of OpenAI's
            chunks is compared with `logprobs` alone, and of others with nothing.
        stops: the request has stop strings, which a server cuts from the text: what ids spell and
            never came as text is then not an error at a `finish_reason` of "stop".

    Attributes:
        compared: how many tokens were compared with the text. 0 at the end: nothing is known of it.
    """

    def __init__(
        self,
        chunks: Any = (),
        *,
        tokens: TokenValidator | None = None,
        token_bytes: Callable[[int], bytes] | None = None,
        decode: Callable[[list[int]], str] | None = None,
        stops: bool = False,
    ) -> None:
        self._chunks = chunks
        self._tokens = TokenValidator(vocabulary=sys.maxsize) if tokens is None else tokens
        self._token_bytes = token_bytes
        self._decode = decode
        self._stops = stops
        self._sealed: StreamValidator | None = None
        self._choices: dict[int, _Choice] = {}
        self._name: str | None = None
        self.compared = 0

    def check(self, chunk: Any) -> Any:
        """Return the chunk, as it was given.

        Raises:
            MessageCorrupt: its checksum, id or text is not what it has to be.
            OutOfStep: it is not the next one, of another request, or behind the end.
        """
        if isinstance(chunk, EnhancedTokenChunk):
            self._demand(self._validator(chunk).check(chunk))
            if self._token_bytes is not None or self._decode is not None:
                self.compared += 1
            return chunk
        said = chunk if isinstance(chunk, Mapping) else chunk.model_dump()
        name = said.get("id") or self._name
        if self._name is None:
            self._name = name
        if name != self._name:
            raise OutOfStep(f"a chunk of {name!r} arrived in the stream of {self._name!r}")
        for choice in said.get("choices") or ():
            number = choice.get("index") or 0
            one = self._choices.setdefault(number, _Choice(self._token_bytes, self._decode))
            for token_id in choice.get("token_ids") or ():
                self._demand(self._tokens.validate_id(token_id, one.ids))
                one.ids += 1
            self._demand(one.take(choice, stops=self._stops))
            self.compared += one.new
        return chunk

    def finish(self) -> None:
        """Say that no chunk comes any more.

        Raises:
            MessageLost: the stream stopped without its last chunk.
            MessageCorrupt: some of its text never came.
        """
        if self._sealed is not None:
            self._demand(self._sealed.finish())
        open_ones = [number for number, one in self._choices.items() if not one.ended]
        if open_ones or (self._sealed is None and not self._choices):
            which = f" (choice {open_ones[0]})" if open_ones else ""
            raise MessageLost(
                f"stream {self._name!r} stopped without a finish_reason{which}",
                peer=self._name or "",
            )

    def __iter__(self) -> Iterator[Any]:
        for chunk in self._chunks:
            yield self.check(chunk)
        self.finish()

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for chunk in self._chunks:
            yield self.check(chunk)
        self.finish()

    def _validator(self, chunk: EnhancedTokenChunk) -> StreamValidator:
        if self._sealed is None:
            spelled = self._token_bytes is not None or self._decode is not None
            self._name = chunk.stream
            self._sealed = StreamValidator(
                tokens=self._tokens,
                level=Level.FULL if spelled else Level.LIGHT,
                token_bytes=self._token_bytes,
                decode=self._decode,
                stream=chunk.stream,
                epoch=chunk.epoch,
            )
        return self._sealed

    def _demand(self, result: ValidationResult) -> None:
        if result.is_valid:
            return
        name = self._name or ""
        if result.error_type in _ORDER:
            raise OutOfStep(f"stream {name!r}: {result.words}")
        kind = MessageLost if result.error_type is ValidationError.UNFINISHED else MessageCorrupt
        raise kind(f"stream {name!r}: {result.words}", peer=name, sequence=result.position)


class _Choice:
    """One of OpenAI's choices: its text against its ids, or against the bytes of its logprobs.

    Attributes:
        ids: how many came.
        ended: whether a finish_reason came.
        new: how many tokens of the last chunk were compared.
    """

    def __init__(
        self,
        token_bytes: Callable[[int], bytes] | None,
        decode: Callable[[list[int]], str] | None,
    ) -> None:
        self.ids = 0
        self.ended = False
        self.new = 0
        self._token_bytes = token_bytes
        self._decode = decode
        self._encoding: EncodingValidator | None = None
        self._by_ids = False
        self._comparable = True

    def take(self, choice: Mapping[str, Any], *, stops: bool) -> ValidationResult:
        """Judge the choice of the next chunk."""
        delta = choice.get("delta") or {}
        text = choice.get("text") or delta.get("content") or ""
        reason = choice.get("finish_reason")
        pieces = self._pieces(choice)
        self.new = 0
        if self.ended and (text or pieces or reason):
            words = "a chunk with a text or tokens arrived behind the finish_reason"
            return failure(ValidationError.AFTER_END, words)
        self.ended = self.ended or reason is not None
        result = validate_text(text)
        if not result.is_valid or not self._compares(delta, pieces):
            return result
        encoding = self._encoding or self._begun(pieces, text)
        if encoding is None:
            return VALID
        self.new = len(pieces)
        # The text of a chunk is that of all its tokens, and it may lag behind them.
        for piece in pieces[:-1]:
            encoding.feed_token(piece, "")
        nothing: Any = _NO_ID if self._by_ids else ()
        result = encoding.feed_token(pieces[-1] if pieces else nothing, text)
        # Of logprobs a last token may be one that a text does not show.
        cuts = stops or not self._by_ids
        if not result.is_valid or reason is None:
            return result
        if reason != "stop" or not cuts:
            return encoding.finish(cut=reason == "length")
        # The end is not judged, but what came is: all that waits for more tokens to be compared.
        for _ in range(INTERVAL):
            result = encoding.feed_token(nothing, "")
        return result

    def _pieces(self, choice: Mapping[str, Any]) -> list[Any]:
        """Return the ids of its tokens, or else the bytes of them."""
        ids = choice.get("token_ids")
        spelled = self._token_bytes is not None or self._decode is not None
        if ids is not None and spelled and (self._by_ids or self._encoding is None):
            return list(ids)
        entries = (choice.get("logprobs") or {}).get("content") or ()
        return [] if self._by_ids else [entry.get("bytes") or () for entry in entries]

    def _compares(self, delta: Mapping[str, Any], pieces: list[Any]) -> bool:
        """Return whether the text is still what the tokens spell, and in one way."""
        parsed = any(delta.get(name) for name in _PARSED)
        # Some servers write U+FFFD for the bytes of half a character.
        unknown = any(
            REPLACEMENT.encode() in bytes(piece) for piece in pieces if not isinstance(piece, int)
        )
        self._comparable = self._comparable and not parsed and not unknown
        return self._comparable

    def _begun(self, pieces: list[Any], text: str) -> EncodingValidator | None:
        if not pieces:
            # Text without tokens at the begin: this server sends none.
            self._comparable = not text
            return None
        self._by_ids = isinstance(pieces[0], int)
        if not self._by_ids:
            # `bytes` of a list of numbers, which is what a piece is here.
            self._encoding = EncodingValidator(token_bytes=bytes)
        elif self._token_bytes is not None:
            spell = self._token_bytes
            self._encoding = EncodingValidator(
                token_bytes=lambda token_id: b"" if token_id == _NO_ID else spell(token_id)
            )
        elif self._decode is not None:
            decode = self._decode
            self._encoding = EncodingValidator(
                decode=lambda ids: decode([one for one in ids if one != _NO_ID]),
                interval=INTERVAL,
            )
        return self._encoding
