"""DecodeStream in tokenizers never emits a trailing U+FFFD."""

import sys

try:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from tokenizers.decoders import DecodeStream
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())  # byte-level BPE: a token for each byte
tokenizer = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(alphabet)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()

ids = tokenizer.encode("end\ufffd").ids
stream = DecodeStream()
got = "".join(stream.step(tokenizer, token) or "" for token in ids)

want = tokenizer.decode(ids)
if got != want:
    print(f"DEFECT: streamed {got!r}, expected {want!r}")
    sys.exit(1)
print("OK")
