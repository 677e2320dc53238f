"""Findings about a model's shape: do the keys and the tensors tell of the same model, and is its
data all there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness.forms.text import listed, plural, quoted
from harness.tokenizer.gguf.known import ARCHITECTURES, TOKENS, types_of
from harness.tokenizer.gguf.reader import ALIGNMENT, BLOCKS, Array, GgufFile, Key

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFinding:
    """A finding about a GGUF file.

    Attributes:
        code: which kind it is, for programs: words with hyphens.
        severity: error: an engine refuses the file, or computes something wrong; warning: engines
            guess or differ here; note: worth knowing, and nothing is wrong.
        where: the key or tensor.
        offset: byte of the file, -1 where it is about something that is not there.
        message: what is so, and why it matters.
        remedy: what to do; empty for a note.
    """

    code: str
    severity: Severity
    where: str
    offset: int
    message: str
    remedy: str = ""


def finding(
    file: GgufFile, where: str, code: str, severity: Severity, message: str, remedy: str = ""
) -> GgufFinding:
    """Return a finding about a key or a tensor of a file, with the byte at which that lies."""
    place = file.keys.get(where) or file.tensors.get(where)
    offset = place.offset if place is not None else -1
    return GgufFinding(
        code=code, severity=severity, where=where, offset=offset, message=message, remedy=remedy
    )


def is_text(content: bytes) -> bool:
    """Tell whether bytes are UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


_EMBEDDING = "token_embd.weight"
_QUANTIZED = frozenset(block.name for block in BLOCKS.values() if block.elements > 1)
_CONVERT = "convert the model again"


def keys(file: GgufFile) -> Iterator[GgufFinding]:
    """Keys of another type than engines read them with, and names that no engine looks for."""
    for key in file.keys.values():
        stored = f"array of {key.value.type}" if isinstance(key.value, Array) else key.type
        wanted = types_of(key.name)
        if wanted is not None and stored not in wanted:
            yield finding(
                file,
                key.name,
                "key-type",
                "error",
                f"is {stored}, but engines read {listed(wanted)}",
                _CONVERT,
            )
        if not re.fullmatch(r"[\x21-\x7e]+", key.name):
            yield finding(
                file,
                key.name,
                "key-name",
                "warning",
                (
                    "its name contains spaces, control characters or non-ASCII characters, so engines"
                    " never look for it"
                ),
                "remove the key, or write its name as engines do",
            )
        if key.type == "string" and isinstance(key.value, bytes) and not is_text(key.value):
            yield finding(file, key.name, "encoding", "error", "its text is not UTF-8", _CONVERT)


def architecture(file: GgufFile) -> Iterator[GgufFinding]:
    """Findings about the architecture, and the numbers that follow from it."""
    key = file.keys.get("general.architecture")
    if key is None or not isinstance(key.value, bytes):
        if key is None:
            yield finding(
                file,
                "general.architecture",
                "architecture",
                "error",
                "is missing, so no engine knows how to use the tensors",
                _CONVERT,
            )
        return
    name = key.value.decode(errors="backslashreplace")
    if name not in ARCHITECTURES:
        yield finding(
            file,
            key.name,
            "architecture",
            "warning",
            f"{quoted(name)} is not among the {len(ARCHITECTURES)} architectures that this version"
            " knows",
            "check whether your engine supports it",
        )
    yield from _parts(file)
    yield from _blocks(file, name)
    yield from _heads(file, name)
    yield from _embedding(file, name)


def data(file: GgufFile) -> Iterator[GgufFinding]:
    """Tensors whose bytes overlap, are of a type nobody knows, or do not reach to the end of the
    file.
    """
    alignment = file.value("general.alignment")
    unit = alignment if isinstance(alignment, int) else ALIGNMENT
    end = file.data
    before = ""
    for tensor in sorted(file.tensors.values(), key=lambda stored: stored.offset):
        if tensor.type.startswith("type "):
            yield finding(
                file,
                tensor.name,
                "tensor-type",
                "error",
                f"is of {tensor.type}, which this version does not know, so we cannot tell whether"
                " its data is complete",
                "use an engine that knows the type, or convert the model again",
            )
            end = tensor.offset
            continue
        if tensor.offset < end:
            yield finding(
                file,
                tensor.name,
                "tensor-overlap",
                "error",
                f"begins inside the data of {quoted(before)}, which ends at byte {end}",
                _CONVERT,
            )
        elif tensor.offset > -(-end // unit) * unit:
            yield finding(
                file,
                tensor.name,
                "tensor-gap",
                "warning",
                (
                    f"begins {tensor.offset - end} bytes after the data before it; engines reject a"
                    " file with a gap"
                ),
                _CONVERT,
            )
        end = max(end, tensor.offset + tensor.size)
        before = tensor.name
    if file.tensors and file.size > -(-end // unit) * unit:
        yield finding(
            file,
            before,
            "trailing-bytes",
            "note",
            f"{file.size - end} bytes follow the last tensor, from byte {end}",
        )
    quantized = [stored.name for stored in file.tensors.values() if stored.type in _QUANTIZED]
    if quantized and "general.quantization_version" not in file.keys:
        yield finding(
            file,
            "general.quantization_version",
            "quantization-version",
            "warning",
            f"is missing, but {plural(len(quantized), 'tensor')} are quantized",
            "engines assume the version they know; quantize the model again",
        )


def _part_count(file: GgufFile) -> int:
    return _number(file.keys.get("split.count")) or 1


def _parts(file: GgufFile) -> Iterator[GgufFinding]:
    parts = _part_count(file)
    if parts > 1:
        yield finding(
            file,
            "split.count",
            "split",
            "note",
            f"is {parts}, so the file is one part of a model, and the other parts were not checked",
        )
        number = _number(file.keys.get("split.no"))
        if number is not None and number >= parts:
            yield finding(
                file,
                "split.no",
                "split",
                "error",
                f"is {number}, but the parts of a model of {parts} have the numbers 0 to"
                f" {parts - 1}",
                "split the model again",
            )
        return
    whole = _number(file.keys.get("split.tensors.count"))
    if whole is not None and whole != len(file.tensors):
        yield finding(
            file,
            "split.tensors.count",
            "split",
            "error",
            f"is {whole}, but the file, which is the only part, contains"
            f" {plural(len(file.tensors), 'tensor')}",
            "use the whole model, or split it again",
        )


def _blocks(file: GgufFile, name: str) -> Iterator[GgufFinding]:
    if _part_count(file) > 1:
        return
    key = file.keys.get(f"{name}.block_count")
    count = _number(key)
    blocks: dict[int, set[str]] = {}
    for match in map(re.compile(r"blk\.(\d{1,6})\.(.*)").match, file.tensors):
        if match:
            blocks.setdefault(int(match[1]), set()).add(match[2])
    where = f"{name}.block_count"
    if key is None and not file.tensors:
        yield finding(
            file,
            where,
            "blocks",
            "warning",
            "is missing, and the file contains no tensors, so it has no weights to run",
            "use it only for its tokenizer",
        )
    elif key is None and blocks:
        yield finding(
            file,
            where,
            "blocks",
            "error",
            (
                f"is missing, but the file contains tensors of {plural(len(blocks), 'block')}; engines"
                " reject such a file"
            ),
            _CONVERT,
        )
    if key is None or count is None:
        return
    missing = sorted(set(range(min(count, 1 << 16))) - set(blocks))
    beyond = sorted(number for number in blocks if number >= count)
    if count == 0:
        yield finding(
            file,
            key.name,
            "blocks",
            "error",
            "is 0, but a model without blocks computes nothing",
            _CONVERT,
        )
    elif not file.tensors:
        message = (
            f"is {count}, but the file contains no tensors, so it describes a model without"
            " weights to run"
        )
        remedy = "use it only for its tokenizer, or use the file with the weights"
        yield finding(file, key.name, "blocks", "error", message, remedy)
    elif missing or beyond:
        what = (
            f"tensors of block {missing[0]} are missing"
            if missing
            else f"block {beyond[0]} has tensors"
        )
        yield finding(
            file,
            key.name,
            "blocks",
            "error",
            f"is {count}, but {what}: the file contains tensors of {plural(len(blocks), 'block')}",
            _CONVERT,
        )
    if blocks and TOKENS in file.keys and _EMBEDDING not in file.tensors:
        yield finding(
            file,
            _EMBEDDING,
            "embedding",
            "error",
            "is missing, but the file contains tokens, so the model has no row for any of them",
            _CONVERT,
        )
    yield from _uneven(file, blocks)


def _uneven(file: GgufFile, blocks: dict[int, set[str]]) -> Iterator[GgufFinding]:
    """A single block that lacks what most others have.

    Models with several kinds of blocks have several of each.
    """
    alike = Counter(frozenset(names) for names in blocks.values())
    if not alike:
        return
    usual, many = max(alike.items(), key=lambda entry: (entry[1], len(entry[0])))
    for number, names in sorted(blocks.items()):
        lacks = sorted(usual - names)
        if names < usual and alike[frozenset(names)] == 1:
            others = "another block has" if many == 1 else f"{many} other blocks have"
            more = f" (and {len(lacks) - 1} more)" if lacks[1:] else ""
            yield finding(
                file,
                f"blk.{number}",
                "blocks",
                "warning",
                f"block {number} has no {lacks[0]}{more}, which {others}",
                _CONVERT,
            )


def _heads(file: GgufFile, name: str) -> Iterator[GgufFinding]:
    key = file.keys.get(f"{name}.attention.head_count")
    heads = _number(key)
    kv = _number(file.keys.get(f"{name}.attention.head_count_kv"))
    width = _number(file.keys.get(f"{name}.embedding_length"))
    if key is None or heads is None:
        return
    wrong = ""
    if heads == 0:
        wrong = "is 0"
    elif kv is not None and (kv > heads or (kv and heads % kv)):
        wrong = f"is {heads}, which is not a multiple of the {kv} KV heads"
    elif width is not None and width % heads and f"{name}.attention.key_length" not in file.keys:
        wrong = f"is {heads}, which does not divide the embedding's {width}"
    if wrong:
        yield finding(file, key.name, "heads", "error", wrong, _CONVERT)


def _embedding(file: GgufFile, name: str) -> Iterator[GgufFinding]:
    key = file.keys.get(f"{name}.embedding_length")
    tensor = file.tensors.get(_EMBEDDING)
    width = _number(key)
    if (
        key is not None
        and tensor is not None
        and width is not None
        and tensor.dimensions[0] != width
    ):
        yield finding(
            file,
            key.name,
            "embedding",
            "error",
            f"is {width}, but {_EMBEDDING} has {tensor.dimensions[0]} columns",
            _CONVERT,
        )


def embedding_rows(file: GgufFile) -> int | None:
    """Rows of the model's embedding; None where it has no such tensor."""
    tensor = file.tensors.get(_EMBEDDING)
    return tensor.dimensions[1] if tensor is not None and len(tensor.dimensions) > 1 else None


def _number(key: Key | None) -> int | None:
    return (
        key.value
        if key is not None and isinstance(key.value, int) and not isinstance(key.value, bool)
        else None
    )
