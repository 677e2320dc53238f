"""Text with a NUL byte, streamed token by token by a detokenizer of mlx-lm."""

from mlx_lm import tokenizer_utils
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode


def stream(context, *, detokenizer):
    """Emit the characters that the detokenizer streams for the bytes of "a" and NUL."""
    letters = bytes_to_unicode()  # byte-level BPE: a token for each byte
    vocabulary = {letter: number for number, letter in enumerate(letters.values())}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False)
    streamer = getattr(tokenizer_utils, detokenizer)(tokenizer)
    text = ""
    for byte in b"a\x00":
        streamer.add_token(vocabulary[letters[byte]])
        text += streamer.last_segment
    streamer.finalize()
    text += streamer.last_segment
    context.emit("streamed", characters=[ord(character) for character in text])
