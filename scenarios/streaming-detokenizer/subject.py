"""Text that is streamed token by token, held against the text itself, for every way to cut a
character into tokens.

The tokenizer is byte-level BPE, as GPT-2's: a token for each byte, and one for each piece of two to
four bytes of the characters below. So a model may end a token anywhere inside a character, as they
do in rare scripts and in emoji.
"""

import itertools
import random

CHARACTERS = (
    "a", " ", "\n", "é", "ß", "ע", "日", "語", "한", "ह", "ि", "\u200b", "\ufffd", "😀", "𝒳", "e\u0301", "🇩🇪", "क्ष",
)  # fmt: skip
AROUND = (("", ""), ("x", "y"), (" x", " y"), ("x ", ""))
"""What stands before and after the character."""
LONGEST = 4
"""Bytes in one token, at most."""


def stream(context, *, engine, each):
    """Entry: stream every text in an order of this rank's; the pieces joined are the text.

    Args:
        context: of the rank.
        engine: whose streaming is tried.
        each: decode each token alone in its place, as loops that print `decode([token])` do.
    """
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()
    vocabulary = {letter: number for number, letter in enumerate(letters.values())}
    for piece in sorted(
        {piece for character in CHARACTERS for piece in pieces(character.encode())}
    ):
        vocabulary.setdefault(spelt(piece, letters), len(vocabulary))
    tokenizer = byte_level(vocabulary)
    streamer = one_by_one(tokenizer) if each else ENGINES[engine](tokenizer)
    texts = [(before, character, after) for character in CHARACTERS for before, after in AROUND]
    random.Random(context.seed).shuffle(texts)
    count = 0
    for before, character, after in texts:
        text = before + character + after
        for cut in cuts(character.encode()):
            tokens = [*singles(before), *cut, *singles(after)]
            streamed = "".join(streamer([vocabulary[spelt(token, letters)] for token in tokens]))
            shown = f"{tokens} became {streamed!r}"
            assert streamed == text, shown
            count += 1
    context.emit("streamed", sequences=count, engine="none" if each else engine)


def pieces(data):
    """Each run of two to LONGEST bytes."""
    return [
        data[at : at + size] for size in range(2, LONGEST + 1) for at in range(len(data) - size + 1)
    ]


def cuts(data):
    """Each way to cut bytes into tokens of the vocabulary."""
    for ends in itertools.product((False, True), repeat=len(data) - 1):
        places = [0, *(at for at, end in enumerate(ends, 1) if end), len(data)]
        cut = [data[begin:end] for begin, end in itertools.pairwise(places)]
        if max(map(len, cut)) <= LONGEST:
            yield cut


def singles(text):
    return [bytes([byte]) for byte in text.encode()]


def spelt(data, letters):
    """Bytes as the vocabulary spells them."""
    return "".join(letters[byte] for byte in data)


def byte_level(vocabulary):
    """A tokenizer of transformers with this vocabulary and no merges: only its decoder is used."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False)


def one_by_one(tokenizer):
    return lambda ids: [tokenizer.decode([one]) for one in ids]


def transformers(tokenizer):
    """TextStreamer, which `generate(streamer=…)` gives each token to."""
    import torch
    from transformers import TextStreamer

    class Kept(TextStreamer):
        def on_finalized_text(self, text, stream_end=False):  # noqa: ARG002
            said.append(text)

    said = []

    def streamer(ids):
        said.clear()
        kept = Kept(tokenizer)
        for one in ids:
            kept.put(torch.tensor([one]))
        kept.end()
        return said

    return streamer


def tokenizers(tokenizer):
    """DecodeStream, which servers written on the library tokenizers use.

    It has no call for the end of a text.
    """
    from tokenizers.decoders import DecodeStream

    def streamer(ids):
        stream = DecodeStream()
        return [stream.step(tokenizer.backend_tokenizer, one) or "" for one in ids]

    return streamer


def mlx(name):
    """A streaming detokenizer of mlx-lm, by its class."""

    def made(tokenizer):
        from mlx_lm import tokenizer_utils

        kind = getattr(tokenizer_utils, name)

        def streamer(ids):
            detokenizer, said = kind(tokenizer), []
            detokenizer.reset()
            for one in ids:
                detokenizer.add_token(one)
                said.append(detokenizer.last_segment)
            detokenizer.finalize()
            return [*said, detokenizer.last_segment]

        return streamer

    return made


ENGINES = {
    "transformers": transformers,
    "tokenizers": tokenizers,
    "mlx-lm": mlx("NaiveStreamingDetokenizer"),
    "mlx-lm-bpe": mlx("BPEStreamingDetokenizer"),
}
