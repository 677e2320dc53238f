"""A GGUF file with a byte-level tokenizer and an embedding, as llama.cpp's converter lays it
out.
"""

from __future__ import annotations

import struct

ALIGNMENT, WIDTH = 32, 4
NORMAL, CONTROL = 1, 3


def written(path, content, *, rows, pre="gpt-2"):
    """Write the tokenizer of a tokenizer.json into a model whose embedding has so many rows.

    Returns the path.
    """
    ids = dict(content["model"]["vocab"])
    kinds = dict.fromkeys(ids.values(), NORMAL)
    for one in content["added_tokens"]:
        ids[one["content"]] = one["id"]
        kinds[one["id"]] = CONTROL
    tokens = sorted(ids, key=ids.__getitem__)
    merges = [one if isinstance(one, str) else " ".join(one) for one in content["model"]["merges"]]
    keys = [
        ("general.architecture", string("llama")),
        ("llama.block_count", number(1)),
        ("llama.context_length", number(64)),
        ("llama.embedding_length", number(WIDTH)),
        ("llama.attention.head_count", number(1)),
        ("tokenizer.ggml.model", string("gpt2")),
        ("tokenizer.ggml.pre", string(pre)),
        ("tokenizer.ggml.tokens", strings(tokens)),
        ("tokenizer.ggml.token_type", numbers([kinds[ids[token]] for token in tokens])),
        ("tokenizer.ggml.merges", strings(merges)),
        ("tokenizer.ggml.add_bos_token", struct.pack("<I?", 7, False)),
    ]
    out = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys))
    for name, value in keys:
        out += text(name) + value
    out += text("token_embd.weight") + struct.pack("<IQQIQ", 2, WIDTH, rows, 0, 0)
    out += bytes(-len(out) % ALIGNMENT)
    path.write_bytes(out + bytes(rows * WIDTH * 4))
    return path


def numbers(contents):
    """A value that is an array of int32."""
    return struct.pack(f"<IIQ{len(contents)}i", 9, 5, len(contents), *contents)


def text(content):
    """A text as the format stores it."""
    raw = content.encode()
    return struct.pack("<Q", len(raw)) + raw


def string(content):
    """A value that is a text."""
    return struct.pack("<I", 8) + text(content)


def number(content):
    """A value that is a uint32."""
    return struct.pack("<II", 4, content)


def strings(contents):
    """A value that is an array of texts."""
    return struct.pack("<IIQ", 9, 8, len(contents)) + b"".join(map(text, contents))
