"""mlx-lm's BPEStreamingDetokenizer drops a leading space."""

import sys

try:
    from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

letters = bytes_to_unicode()  # byte-level BPE: a token for each byte
made = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(letters.values())}, merges=[]))
made.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False)
ids = [made.token_to_id(letters[byte]) for byte in b" a"]

streamer, got = BPEStreamingDetokenizer(tokenizer), ""
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
