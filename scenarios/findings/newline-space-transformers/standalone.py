# TextStreamer of transformers drops the space that begins a line
import sys

try:
    import torch
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast, TextStreamer
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

pieces = {"<unk>": 0, "▁a": 1, "▁b": 2, "\n": 3}  # SentencePiece, with the decoder of Llama 2
made = Tokenizer(models.BPE(vocab=pieces, merges=[], unk_token="<unk>"))
steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False)
ids = [pieces[piece] for piece in ("▁a", "\n", "▁b")]
got = ""


class Kept(TextStreamer):
    def on_finalized_text(self, text, stream_end=False):
        global got
        got += text


streamer = Kept(tokenizer)
for token in ids:
    streamer.put(torch.tensor([token]))
streamer.end()

want = tokenizer.decode(ids)
if got != want:
    print(f"DEFECT: streamed {got!r}, should be {want!r}")
    sys.exit(1)
print("right")
