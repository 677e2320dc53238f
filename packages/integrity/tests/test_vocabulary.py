"""The bytes of each id are those that its tokenizer's decoder makes a text of, or they are not
claimed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, trainers

from kinds_of_tokenizers import BYTES, KINDS, LEARNED, LEFT_OUT, SCRIPTS, texts, tokenizer
from rankproof_integrity import EncodingValidator, Misused, spells, token_bytes

ANY_TEXT = st.text() | st.sampled_from([one for script in SCRIPTS for one in texts(script, 1)])
WHOLE = ("byte-level BPE", "Gemma", "GPT-NeoX", "metaspace, never")
"""Kinds of which every id has bytes of its own."""


def trained(model: str) -> Tokenizer:
    """A tokenizer with byte fallback, trained on a few words: rare characters are bytes."""
    made = Tokenizer(models.BPE(byte_fallback=True) if model == "BPE" else models.Unigram())
    made.normalizer = normalizers.Replace(" ", "▁")
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    if model == "BPE":
        made.train_from_iterator(
            [LEARNED],
            trainers.BpeTrainer(vocab_size=340, special_tokens=BYTES, show_progress=False),
        )
        return made
    made.train_from_iterator(
        [LEARNED],
        trainers.UnigramTrainer(vocab_size=60, show_progress=False, unk_token="<unk>"),  # noqa: S106
    )
    learned = json.loads(made.to_str())["model"]["vocab"]
    pieces = [("<unk>", 0.0), *((byte, -20.0) for byte in BYTES), *learned]
    unique = list(dict(pieces).items())
    made.model = models.Unigram(unique, unk_id=0, byte_fallback=True)
    return made


def trained_by_sentencepiece(model: str) -> Any:
    """The same by sentencepiece itself."""
    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([LEARNED] * 20),
        model_writer=out,
        model_type=model,
        vocab_size=330,
        byte_fallback=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


@cache
def known(kind: str) -> tuple[Any, list[bytes | None]]:
    """A tokenizer, and what is claimed of its ids."""
    if kind.startswith("trained "):
        made: Any = trained(kind.removeprefix("trained "))
    else:
        made = tokenizer(kind)
    return made, token_bytes(made, skip_special_tokens=kind in LEFT_OUT)


def joined(spelled: Sequence[bytes | None], ids: Sequence[int]) -> bytes | None:
    """The bytes of ids together; None where one is not known."""
    parts = [spelled[one] for one in ids]
    return None if None in parts else b"".join(part for part in parts if part is not None)


@pytest.mark.parametrize("kind", [*KINDS, "trained BPE", "trained Unigram"])
def test_what_is_claimed_is_what_the_decoder_spells(kind: str) -> None:
    """For any text, the bytes of its ids one after the other are the text that they decode to, and
    where nothing was normalized, the text itself.
    """
    one, spelled = known(kind)
    claimed: list[str] = []

    @settings(max_examples=150, deadline=None)
    @given(ANY_TEXT)
    def holds(text: str) -> None:
        ids = one.encode(text, add_special_tokens=False).ids
        whole = joined(spelled, ids)
        if whole is None:
            return
        decoded = one.decode(ids, skip_special_tokens=kind in LEFT_OUT)
        assert whole == decoded.encode()
        if decoded.removeprefix(" ") == text:  # byte-level BPE may put a space first
            claimed.append(text)

    holds()
    if kind in WHOLE or kind.startswith("trained"):
        assert None not in spelled
        assert len(claimed) > 20


@pytest.mark.parametrize("kind", ["trained BPE", "trained Unigram"])
def test_every_byte_of_byte_fallback_is_known(kind: str) -> None:
    """Each of the 256 byte tokens has its byte, also those that no text has."""
    one, spelled = known(kind)
    assert [spelled[one.token_to_id(token)] for token in BYTES] == [
        bytes([byte]) for byte in range(256)
    ]


def test_a_token_that_depends_on_its_neighbours_is_not_claimed() -> None:
    """A `▁` that is stripped at the begin, and a piece of a word, have no bytes alone."""
    llama, spelled = known("Llama 2 and Mistral")
    assert spelled[llama.token_to_id("▁th")] is None
    assert spelled[llama.token_to_id("the")] == b"the"
    pieces, of_words = known("WordPiece")
    assert of_words[pieces.token_to_id("##ing")] is None


def test_a_token_that_is_a_replacement_character_has_its_bytes() -> None:
    """U+FFFD as a token of its own is not taken for half of a character."""
    one, spelled = known("U+FFFD as a token")
    assert spelled[one.token_to_id("\ufffd")] == "\ufffd".encode()
    assert spelled[one.token_to_id("▁\ufffd")] is None  # its space is stripped at the begin


def test_a_decoder_that_gives_the_wrong_bytes_is_not_believed() -> None:
    """What a token's name says counts only where the decoder spells it: here two bytes are
    exchanged, and the decoder does not know.
    """
    made = trained("BPE")
    made.decoder = decoders.Sequence(
        [decoders.Replace("<0xE3>", "<0xE4>"), decoders.Replace("▁", " "), decoders.ByteFallback()]
    )
    spelled = token_bytes(made, skip_special_tokens=False)
    assert spelled[made.token_to_id("<0xE3>")] is None
    assert spelled[made.token_to_id("<0xF1>")] == b"\xf1"


@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_sentencepiece_answers_too(model: str) -> None:
    """Models with byte fallback that sentencepiece trained: as its own encoding into bytes."""
    pytest.importorskip("sentencepiece")
    one = trained_by_sentencepiece(model)
    spelled = token_bytes(one)
    claimed = 0
    for text in [one for script in SCRIPTS for one in texts(script, 0)]:
        ids = one.encode(text)
        whole = joined(spelled, ids)
        if whole is not None:
            assert whole == one.decode(ids).encode()
            claimed += 1
    assert claimed > 20
    assert spelled[one.piece_to_id("<0x0A>")] == b"\n"
    assert spelled[one.piece_to_id("<0xE6>")] == b"\xe6"


@pytest.mark.slow
def test_transformers_answers_too(tmp_path: Path) -> None:
    """A fast tokenizer of transformers says the same as the one it holds; special tokens spell
    nothing.
    """
    transformers = pytest.importorskip("transformers")
    one = tokenizer("GPT-NeoX")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=one, eos_token="<|end|>")  # noqa: S106
    spelled = token_bytes(fast)
    assert spelled[: len(known("GPT-NeoX")[1])] == known("GPT-NeoX")[1]
    assert spelled[fast.eos_token_id] == b""
    assert token_bytes(fast, skip_special_tokens=False)[fast.eos_token_id] == b"<|end|>"


def test_tiktoken_answers_too() -> None:
    """Its own bytes, and nothing for a special token."""
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"\xe6\x97": 256}
    one = tiktoken.Encoding(
        "small", pat_str=r".+", mergeable_ranks=ranks, special_tokens={"<|end|>": 260}
    )
    spelled = token_bytes(one)
    assert spelled[256:] == [b"\xe6\x97", None, None, None, b""]
    assert joined(spelled, one.encode("日 a")) == "日 a".encode()


def test_whatever_is_no_tokenizer_is_refused() -> None:
    """One error that says what would do."""
    with pytest.raises(Misused, match=r"builtins\.dict cannot be asked for the bytes of its ids"):
        token_bytes({})


@pytest.mark.parametrize("kind", [*KINDS, "trained BPE"])
def test_spells_gives_what_accuses_no_clean_stream(kind: str) -> None:
    """What `spells` gives accepts the decoder's own text, also of bytes that are no character, and
    refuses another.
    """
    one = known(kind)[0]
    skip = kind in LEFT_OUT
    spelling = spells(one, skip_special_tokens=skip)
    assert list(spelling) == (
        ["token_bytes"] if kind in ("byte-level BPE", "GPT-NeoX") else ["decode"]
    )
    broken = [one.token_to_id(token) for token in ("<0xE3>", "<0x41>", "<0xC3>", "<0xA9>")]
    streams = [one.encode(text, add_special_tokens=False).ids for text in texts(SCRIPTS[0], 2)]
    if None not in broken:
        streams.append(broken)
    for ids in streams:
        decoded = one.decode(ids, skip_special_tokens=skip)
        for text, valid in ((decoded, True), (decoded + "?", False)):
            judge = EncodingValidator(**spelling)
            for number in ids[:-1]:
                judge.feed_token(number, "")
            judge.feed_token(ids[-1], text)
            assert judge.finish().is_valid is valid
