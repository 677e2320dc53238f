"""How GGUF stores values and tensors: the numbers of its types, their names and their sizes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
"""Bytes; where `general.alignment` is not given."""
STRING, ARRAY, BOOL = 8, 9, 7


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type of fixed size."""

    name: str
    packed: struct.Struct

    @property
    def size(self) -> int:
        """Bytes."""
        return self.packed.size


SCALARS = {
    number: Scalar(name, struct.Struct(f"<{code}"))
    for number, name, code in (
        (0, "uint8", "B"),
        (1, "int8", "b"),
        (2, "uint16", "H"),
        (3, "int16", "h"),
        (4, "uint32", "I"),
        (5, "int32", "i"),
        (6, "float32", "f"),
        (BOOL, "bool", "B"),
        (10, "uint64", "Q"),
        (11, "int64", "q"),
        (12, "float64", "d"),
    )
}
NAMES = {**{number: scalar.name for number, scalar in SCALARS.items()}, STRING: "string", ARRAY: "array"}


@dataclass(frozen=True, slots=True)
class Block:
    """A tensor's type: its elements are stored in blocks."""

    name: str
    elements: int
    """In a block; the first dimension is a multiple of it."""
    size: int
    """Bytes of a block."""


# As in ggml.h and gguf's GGML_QUANT_SIZES (0.19); numbers that are left out were given up.
BLOCKS = {
    number: Block(name, elements, size)
    for number, name, elements, size in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
    )
}
