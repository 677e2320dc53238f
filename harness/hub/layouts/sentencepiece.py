"""A SentencePiece model as bytes: protobuf's wire format, as far as the model needs it.

Field numbers are those of sentencepiece_model.proto (google/sentencepiece, src/).
"""

from __future__ import annotations

import struct

from harness.hub.layouts.vocabulary import OTHERS, piece_merges

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
BPE = 2


def llama_model(size: int) -> bytes:
    """A BPE model of ``size`` pieces laid out like Llama 2's: three specials, 256 bytes, merges, single characters."""
    pieces: list[tuple[str, float, int]] = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    pieces += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    characters = ["▁", *sorted({chr(code) for code in range(0x21, 0x7F)} | set(OTHERS))]
    merged = [left + right for left, right in piece_merges(size - len(pieces) - len(characters))]
    pieces += [(text, -float(rank), NORMAL) for rank, text in enumerate([*merged, *characters])]
    assert len(pieces) == size
    trainer = b"".join(
        (
            _number(3, BPE),
            _number(4, size),
            _number(35, 1),  # byte_fallback
            _number(40, 0),  # unk_id
            _number(41, 1),  # bos_id
            _number(42, 2),  # eos_id
            _number(43, -1),  # pad_id
        )
    )
    normalizer = b"".join(
        (
            _bytes(1, b"identity"),
            _number(3, 1),  # add_dummy_prefix
            _number(4, 0),  # remove_extra_whitespaces
            _number(5, 1),  # escape_whitespaces
        )
    )
    return b"".join(_bytes(1, _piece(*piece)) for piece in pieces) + _bytes(2, trainer) + _bytes(3, normalizer)


def _piece(text: str, score: float, kind: int) -> bytes:
    return _bytes(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # protobuf writes negative numbers as 64-bit two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
