"""GGUF files, written by hand so that each byte of them can be wrong on purpose."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from harness.tokenizer.form import BYTE, BYTE_LEVEL, CONTROL, NORMAL, UNKNOWN

CODES = {
    "uint8": (0, "B"),
    "int8": (1, "b"),
    "uint16": (2, "H"),
    "int16": (3, "h"),
    "uint32": (4, "I"),
    "int32": (5, "i"),
    "float32": (6, "f"),
    "bool": (7, "?"),
    "uint64": (10, "Q"),
    "int64": (11, "q"),
    "float64": (12, "d"),
}


def text(content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return struct.pack("<Q", len(raw)) + raw


def value(kind: str, content: Any) -> bytes:
    """A type and a value as they are stored; `[string]` is an array of strings."""
    if kind == "string":
        return struct.pack("<I", 8) + text(content)
    if kind.startswith("["):
        inner = kind[1:-1]
        number = 8 if inner == "string" else CODES[inner][0]
        elements = (
            b"".join(map(text, content))
            if inner == "string"
            else struct.pack(f"<{len(content)}{CODES[inner][1]}", *content)
        )
        return struct.pack("<IIQ", 9, number, len(content)) + elements
    number, code = CODES[kind]
    return struct.pack(f"<I{code}", number, content)


@dataclass
class Tensor:
    """A tensor as it is announced, and how many bytes of data it really gets."""

    name: str
    dimensions: tuple[int, ...]
    type: int = 0
    size: int = 0
    offset: int | None = None


@dataclass
class File:
    """What is written; change it, then `bytes()`."""

    keys: dict[str, tuple[str, Any]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    version: int = 3
    alignment: int = 32

    def bytes(self) -> bytes:
        out = b"GGUF" + struct.pack("<IQQ", self.version, len(self.tensors), len(self.keys))
        for name, (kind, content) in self.keys.items():
            out += text(name) + value(kind, content)
        at, data = 0, b""
        for one in self.tensors:
            offset = at if one.offset is None else one.offset
            out += text(one.name) + struct.pack("<I", len(one.dimensions))
            out += struct.pack(f"<{len(one.dimensions)}Q", *one.dimensions) + struct.pack(
                "<IQ", one.type, offset
            )
            size = -(-one.size // self.alignment) * self.alignment
            data += bytes(size)
            at += size
        return out + bytes(-len(out) % self.alignment) * bool(self.tensors) + data


def bpe() -> File:
    """A small Llama with a byte-level BPE tokenizer, in which nothing is wrong."""
    characters = sorted(BYTE_LEVEL, key=BYTE_LEVEL.__getitem__)
    tokens = [*characters, "he", "ll", "hell", "o", "<|begin|>", "<|end|>"]
    tokens = list(dict.fromkeys(tokens))
    types = [CONTROL if one.startswith("<|") else NORMAL for one in tokens]
    return File(
        keys={
            "general.architecture": ("string", "llama"),
            "general.name": ("string", "small"),
            "llama.block_count": ("uint32", 1),
            "llama.context_length": ("uint32", 64),
            "llama.embedding_length": ("uint32", 8),
            "llama.attention.head_count": ("uint32", 4),
            "llama.attention.head_count_kv": ("uint32", 2),
            "llama.attention.layer_norm_rms_epsilon": ("float32", 1e-5),
            "tokenizer.ggml.model": ("string", "gpt2"),
            "tokenizer.ggml.pre": ("string", "llama-bpe"),
            "tokenizer.ggml.tokens": ("[string]", tokens),
            "tokenizer.ggml.token_type": ("[int32]", types),
            "tokenizer.ggml.merges": ("[string]", ["h e", "l l", "he ll"]),
            "tokenizer.ggml.bos_token_id": ("uint32", tokens.index("<|begin|>")),
            "tokenizer.ggml.eos_token_id": ("uint32", tokens.index("<|end|>")),
            "tokenizer.ggml.add_bos_token": ("bool", True),
        },
        tensors=[
            Tensor("token_embd.weight", (8, len(tokens)), 0, 8 * len(tokens) * 4),
            Tensor("blk.0.attn_norm.weight", (8,), 0, 32),
        ],
    )


def spm() -> File:
    """The same with a SentencePiece tokenizer."""
    made = bpe()
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁he", "llo"]
    types = [UNKNOWN, CONTROL, CONTROL, *([BYTE] * 256), NORMAL, NORMAL]
    for name in [name for name in made.keys if name.startswith("tokenizer.")]:
        del made.keys[name]
    made.keys |= {
        "tokenizer.ggml.model": ("string", "llama"),
        "tokenizer.ggml.tokens": ("[string]", tokens),
        "tokenizer.ggml.scores": ("[float32]", [-float(number) for number in range(len(tokens))]),
        "tokenizer.ggml.token_type": ("[int32]", types),
        "tokenizer.ggml.bos_token_id": ("uint32", 1),
        "tokenizer.ggml.eos_token_id": ("uint32", 2),
        "tokenizer.ggml.unknown_token_id": ("uint32", 0),
        "tokenizer.ggml.add_bos_token": ("bool", True),
    }
    made.tensors[0] = Tensor("token_embd.weight", (8, len(tokens)), 0, 8 * len(tokens) * 4)
    return made
