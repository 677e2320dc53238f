# mlx-lm's NaiveStreamingDetokenizer drops a space at the start of a line
import sys

try:
    from mlx_lm.tokenizer_utils import NaiveStreamingDetokenizer
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

pieces = ["<unk>", "▁a", "▁b", ",", "\n"]
made = Tokenizer(models.BPE(vocab={p: n for n, p in enumerate(pieces)}, merges=[]))
made.decoder = decoders.Metaspace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False)
ids = [made.token_to_id(piece) for piece in ("▁a", "\n", "▁b")]

streamer, got = NaiveStreamingDetokenizer(tokenizer), ""
for token in ids:
    streamer.add_token(token)
    got += streamer.last_segment
streamer.finalize()
got += streamer.last_segment

want = tokenizer.decode(ids)
if got != want:
    print(f"DEFECT: streamed {got!r}, expected {want!r}")
    sys.exit(1)
print("OK")
