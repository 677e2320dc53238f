"""Two lines, the second of which begins with a space: decoded at once, or by TextStreamer."""

import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, TextStreamer

PIECES = ["<unk>", "▁a", "▁b", "\n"]


class KeepingStreamer(TextStreamer):
    """TextStreamer that keeps the text instead of printing it."""

    text = ""

    def on_finalized_text(self, text, stream_end=False):  # noqa: ARG002
        self.text += text


def decode(context, *, streamed):
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])  # as Llama 2 has it
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False)
    ids = [vocabulary[piece] for piece in ("▁a", "\n", "▁b")]
    text = through_stream(tokenizer, ids) if streamed else tokenizer.decode(ids)
    context.emit("decoded", text=text)


def through_stream(tokenizer, ids):
    streamer = KeepingStreamer(tokenizer)
    for token in ids:
        streamer.put(torch.tensor([token]))
    streamer.end()
    return streamer.text
