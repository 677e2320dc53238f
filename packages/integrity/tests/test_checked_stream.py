"""A server's stream: every chunk is given on as it is, and the first wrong one is one error."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from damage import decode, encode, spell, vocabulary
from kinds_of_tokenizers import SCRIPTS, by_offsets, texts, tokenizer
from rankproof_integrity import (
    CheckedStream,
    EnhancedTokenChunk,
    MessageCorrupt,
    MessageLost,
    OutOfStep,
    spells,
)
from rates import PAGE

TEXT = "naïve 日本語 and 🙂 again"
WAYS: dict[str, dict[str, Any]] = {"bytes": {"token_bytes": spell}, "decode": {"decode": decode}}


def sealed(text: str = TEXT) -> list[EnhancedTokenChunk]:
    """Our own chunks: the text comes with the id that completes a character."""
    ids = encode(text)
    made = []
    given = ""
    for at, token_id in enumerate(ids):
        now = decode(ids[: at + 1]).rstrip("\ufffd")
        made.append(
            EnhancedTokenChunk.sealed(
                token_id=token_id,
                text=now[len(given) :],
                sequence_position=at,
                source_device_rank=1,
                stream="r1",
                finish_reason="stop" if at == len(ids) - 1 else None,
            )
        )
        given = now
    return made


def openai(evidence: str, text: str = TEXT) -> list[dict[str, Any]]:
    """Chunks as OpenAI's API has them, with token ids (vLLM), with logprobs, or with neither."""
    chunks: list[dict[str, Any]] = [choice({"role": "assistant", "content": ""})]
    for chunk in sealed(text):
        more: dict[str, Any] = {}
        if evidence == "ids":
            more = {"token_ids": [chunk.token_id]}
        elif evidence == "logprobs":
            more = {"logprobs": {"content": [{"bytes": list(spell(chunk.token_id))}]}}
        chunks.append(choice({"content": chunk.text}, **more))
    chunks.append(choice({}, finish_reason="length"))
    chunks.append({"id": "r1", "choices": [], "usage": {"completion_tokens": len(chunks)}})
    return chunks


def choice(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "r1", "choices": [{"index": 0, "delta": delta, "finish_reason": None} | more]}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("evidence", ["sealed", "ids", "logprobs", "none"])
def test_a_clean_stream_goes_through_as_it_is(evidence: str, way: str) -> None:
    """Every chunk comes out as the very object that went in; what was compared is counted."""
    chunks: list[Any] = sealed() if evidence == "sealed" else list(openai(evidence))
    stream = CheckedStream(chunks, tokens=vocabulary(), **WAYS[way])
    assert all(out is given for out, given in zip(stream, chunks, strict=True))
    assert stream.compared == (0 if evidence == "none" else len(encode(TEXT)))


def test_an_asynchronous_stream_goes_through_too() -> None:
    """The same with `async for`, and an error where it is cut off."""

    async def server(chunks: list[Any]) -> AsyncIterator[Any]:
        for chunk in chunks:
            yield chunk

    async def read(chunks: list[Any]) -> list[Any]:
        return [chunk async for chunk in CheckedStream(server(chunks), token_bytes=spell)]

    chunks = openai("ids")
    assert asyncio.run(read(chunks)) == chunks
    with pytest.raises(MessageLost, match="stopped without a finish_reason"):
        asyncio.run(read(chunks[:-2]))
    with pytest.raises(MessageLost, match="stopped at position"):
        asyncio.run(read(sealed()[:-1]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("evidence", ["sealed", "ids", "logprobs"])
def test_a_changed_text_is_one_error(evidence: str, way: str) -> None:
    """Wherever one character of the text is another one, the stream ends with MessageCorrupt."""
    chunks: list[Any] = sealed() if evidence == "sealed" else list(openai(evidence))
    for at, chunk in enumerate(chunks):
        if isinstance(chunk, EnhancedTokenChunk):
            if not chunk.text:
                continue
            # With a checksum of its own: only the ids tell.
            fields = {
                name: getattr(chunk, name) for name in ("token_id", "stream", "finish_reason")
            }
            wrong: Any = EnhancedTokenChunk.sealed(
                text=chunk.text[:-1] + "?", sequence_position=at, source_device_rank=1, **fields
            )
        else:
            delta = chunk["choices"][0]["delta"] if chunk["choices"] else {}
            if not delta.get("content"):
                continue
            one = chunk["choices"][0] | {"delta": {"content": delta["content"][:-1] + "?"}}
            wrong = chunk | {"choices": [one]}
        stream = CheckedStream([*chunks[:at], wrong, *chunks[at + 1 :]], **WAYS[way])
        with pytest.raises(MessageCorrupt, match="the ids decode to") as raised:
            list(stream)
        assert raised.value.peer == "r1"


@pytest.mark.parametrize("evidence", ["ids", "logprobs"])
def test_a_text_that_never_came_is_one_error(evidence: str) -> None:
    """A lost text shows at the end at the latest."""
    chunks = openai(evidence)
    chunks[-3]["choices"][0]["delta"] = {"content": ""}
    with pytest.raises(MessageCorrupt, match="never arrived"):
        list(CheckedStream(chunks, token_bytes=spell))


def test_order_is_one_error() -> None:
    """A chunk that is missing, twice, of another request, or behind the end is OutOfStep."""
    ours = sealed()
    theirs = openai("ids")
    other = theirs[2] | {"id": "r2"}
    for chunks in (
        [*ours[:2], *ours[3:]],
        [*ours[:2], *ours[1:]],
        [ours[0], EnhancedTokenChunk.sealed(token_id=9, sequence_position=1, source_device_rank=1)],
        [*theirs[:2], other],
        [*theirs[:-1], theirs[1]],
    ):
        with pytest.raises(OutOfStep):
            list(CheckedStream(chunks, token_bytes=spell))


def test_ids_and_checksums_are_looked_at_without_a_spelling() -> None:
    """An id of no vocabulary, a wrong checksum and half of a surrogate pair are MessageCorrupt."""
    ours = sealed()
    for chunks in (
        [replace(ours[0], token_id=ours[0].token_id ^ 1)],
        [choice({"content": "a"}, token_ids=[10**6])],
        [choice({"content": "\ud800"})],
    ):
        with pytest.raises(MessageCorrupt):
            list(CheckedStream(chunks, tokens=vocabulary()))


@pytest.mark.parametrize("way", WAYS)
def test_a_stop_string_that_the_server_cuts_is_no_error(way: str) -> None:
    """With `stops` what was cut is not missed, and a changed text still is; without, it is."""
    chunks = openai("ids", TEXT + " STOP")
    held = [chunk for chunk in chunks[:-2] if "STOP" not in str(chunk)]
    cut = next(at for at in range(len(held)) if "again" in text_until(held, at))
    for chunk in held[cut + 1 :]:
        chunk["choices"][0]["delta"] = {"content": ""}
    held.append(choice({}, finish_reason="stop"))
    list(CheckedStream(held, stops=True, **WAYS[way]))
    with pytest.raises(MessageCorrupt, match=r"never arrived|the ids decode to"):
        list(CheckedStream(held, **WAYS[way]))
    held[3]["choices"][0]["delta"] = {"content": "x"}
    with pytest.raises(MessageCorrupt, match="the ids decode to"):
        list(CheckedStream(held, stops=True, **WAYS[way]))


def text_until(chunks: list[dict[str, Any]], at: int) -> str:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[: at + 1]]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_what_a_server_parsed_is_not_compared() -> None:
    """Behind a tool call, and with U+FFFD for the bytes of half a character, nothing is claimed."""
    call = choice({"tool_calls": [{"index": 0}]}, token_ids=[40, 41])
    end = choice({}, finish_reason="tool_calls")
    stream = CheckedStream([call, choice({"content": "?"}, token_ids=[42]), end], token_bytes=spell)
    list(stream)
    assert stream.compared == 0
    half = choice({"content": "語"}, logprobs={"content": [{"bytes": list("\ufffd".encode())}]})
    stream = CheckedStream([half, choice({}, finish_reason="stop")])
    list(stream)
    assert stream.compared == 0


@pytest.mark.parametrize("kind", ["byte-level BPE", "Llama 2 and Mistral", "Gemma", "WordPiece"])
def test_no_clean_stream_of_any_tokenizer_is_refused(kind: str) -> None:
    """What serving engines stream of texts in all scripts, several tokens to a chunk, passes."""
    spelling = spells(tokenizer(kind))
    chance = random.Random(kind)
    for text in (one for script in SCRIPTS[::4] for one in texts(script, 0)):
        ids = list(tokenizer(kind).encode(text, add_special_tokens=False).ids)
        parts = by_offsets(kind, ids)
        chunks = []
        at = 0
        while at < len(ids):
            end = at + chance.randint(1, 4)
            new = "".join(parts[at:end])
            chunks.append(choice({"content": new}, token_ids=ids[at:end]))
            at = end
        chunks.append(choice({}, finish_reason="length"))
        stream = CheckedStream(chunks, **spelling)
        assert list(stream) == chunks
        assert stream.compared == len(ids)


def test_the_lines_of_the_page_run() -> None:
    """The generator that docs/integrity.md shows gives a clean stream on, and refuses another."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    names: dict[str, Any] = {"tokenizer": tokenizer("byte-level BPE")}
    exec(next(block for block in blocks if "CheckedStream(" in block), names)  # noqa: S102
    ids = tokenizer("byte-level BPE").encode("a naïve fox").ids
    end = choice({}, finish_reason="length")
    for text, wrong in ((" a naïve fox", False), (" a naive fox", True)):
        chunks = [choice({"content": text}, token_ids=ids), end]
        if wrong:
            with pytest.raises(MessageCorrupt, match="the ids decode to"):
                list(names["checked"](chunks))
        else:
            assert list(names["checked"](chunks)) == chunks
