"""Two lines, the second of which begins with a space: decoded at once, or streamed by mlx-lm."""

from mlx_lm.tokenizer_utils import NaiveStreamingDetokenizer
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

PIECES = ["<unk>", "▁a", "▁b", ",", "\n"]


def decode(context, *, streamed):
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False)
    ids = [vocabulary[piece] for piece in ("▁a", "\n", "▁b")]
    text = through_stream(tokenizer, ids) if streamed else tokenizer.decode(ids)
    context.emit("decoded", text=text)


def through_stream(tokenizer, ids):
    streamer, text = NaiveStreamingDetokenizer(tokenizer), ""
    for token in ids:
        streamer.add_token(token)
        text += streamer.last_segment
    streamer.finalize()
    return text + streamer.last_segment
