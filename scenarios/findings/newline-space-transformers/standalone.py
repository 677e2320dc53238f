# TextStreamer in transformers drops a space at the start of a line
import sys

try:
    import torch
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast, TextStreamer
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

vocabulary = {"<unk>": 0, "▁a": 1, "▁b": 2, "\n": 3}  # SentencePiece, with the decoder of Llama 2
made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False)
ids = [vocabulary[piece] for piece in ("▁a", "\n", "▁b")]

streamer, pieces = TextStreamer(tokenizer), []
streamer.on_finalized_text = lambda text, **_: pieces.append(text)
for token in ids:
    streamer.put(torch.tensor([token]))
streamer.end()

got, want = "".join(pieces), tokenizer.decode(ids)
if got != want:
    print(f"DEFECT: streamed {got!r}, expected {want!r}")
    sys.exit(1)
print("OK")
