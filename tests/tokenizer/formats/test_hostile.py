"""Files that nobody vouches for, of every format: refused with their path and the reason, at once
and for little.
"""

from __future__ import annotations

import base64
import json
import resource
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.hub.layouts.files import llama_model
from harness.tokenizer import Unreadable, identify_folder
from harness.tokenizer.child import read_form
from tests.tokenizer.formats.conversion import llama_3, of_serialised
from tests.tokenizer.formats.test_formats import ranked, tekken

PIECES = llama_model(700)
TOKENS = ranked(llama_3())
KIB = 1024 if sys.platform == "linux" else 1


def field(number: int, wire: int, content: bytes) -> bytes:
    return varint(number << 3 | wire) + (varint(len(content)) if wire == 2 else b"") + content


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def piece(text: bytes, score: float = 0.0, kind: int = 1) -> bytes:
    inside = field(1, 2, text) + field(2, 5, struct.pack("<f", score)) + field(3, 0, varint(kind))
    return field(1, 2, inside)


UNKNOWN = piece(b"<unk>", 0.0, 2)
MODELS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "holds no piece"),
    "text": (b"this is a text and not a model\n", "is not a SentencePiece model"),
    "cut in a piece": (PIECES[:5000], "bytes, but only"),
    "cut by a byte": (PIECES[:-1], "bytes, but only"),
    "zeros": (bytes(4096), "a field has an invalid number: 0"),
    "a length of 2^40": (b"\x0a" + varint(1 << 40) + b"x", "needs 1099511627776 bytes"),
    "a length of 2^63": (b"\x0a" + varint((1 << 63) - 1) + b"x", "bytes, but only"),
    "a number without an end": (
        b"\x0a" + b"\xff" * 40,
        "a varint is truncated or longer than 64 bits",
    ),
    "a number of 71 bits": (
        b"\x0a" + b"\xff" * 9 + b"\x7f",
        "a varint is truncated or longer than 64 bits",
    ),
    "a group": (UNKNOWN + b"\x0b", "wire type 3"),
    "the end of a group": (UNKNOWN + b"\x0c", "wire type 4"),
    "wire type 7": (UNKNOWN + b"\x0f", "wire type 7"),
    "a field number of 2^60": (UNKNOWN + varint(1 << 63), "a field has an invalid number"),
    "a number for a piece": (b"\x08\x01", "field 1 is not a message"),
    "an empty piece": (UNKNOWN + piece(b""), "piece 1 is empty"),
    "a piece of nothing": (UNKNOWN + field(1, 2, b""), "piece 1 is empty"),
    "not UTF-8": (UNKNOWN + piece(b"\xff\xfe"), "piece 1 is not UTF-8"),
    "half a character": (UNKNOWN + piece(b"\xed\xa0\x80"), "piece 1 is not UTF-8"),
    "type 0": (UNKNOWN + piece(b"a", 0.0, 0), "of type 0"),
    "type 7": (UNKNOWN + piece(b"a", 0.0, 7), "of type 7"),
    "type 2^32": (UNKNOWN + piece(b"a", 0.0, 1 << 32), "of type 4294967296"),
    "NaN": (UNKNOWN + piece(b"a", float("nan")), "score of nan"),
    "infinity": (UNKNOWN + piece(b"a", float("-inf")), "score of -inf"),
    "a score of eight bytes": (
        UNKNOWN + field(1, 2, field(1, 2, b"a") + field(2, 1, bytes(8))),
        "wire type 1",
    ),
    "a text for a type": (
        UNKNOWN + field(1, 2, field(1, 2, b"a") + field(3, 2, b"x")),
        "wire type 2",
    ),
    "two pieces of one text": (
        UNKNOWN + piece(b"a") + piece(b"b") + piece(b"a"),
        "pieces 1 and 3 are both",
    ),
    "two unknown": (UNKNOWN + piece(b"<unk2>", 0.0, 2), "2 pieces are of type UNKNOWN"),
    "nothing unknown": (piece(b"a"), "0 pieces are of type UNKNOWN"),
    "all unused": (UNKNOWN.replace(b"\x18\x02", b"\x18\x05"), "pieces are of type UNKNOWN"),
    "a byte that is none": (
        UNKNOWN + piece(b"ab", 0.0, 6),
        ("of type BYTE, but its text is not a byte"),
    ),
    "bytes, but one": (PIECES.replace(b"<0x41>", b"<0xZZ>"), "no piece for byte 0x41"),
    "a model type of 9": (UNKNOWN + field(2, 2, field(3, 0, varint(9))), "model_type is 9"),
    "a negative model type": (
        UNKNOWN + field(2, 2, field(3, 0, varint((1 << 64) - 1))),
        "model_type is -1",
    ),
    "a damaged setting": (UNKNOWN + field(2, 2, field(35, 2, b"yes")), "a setting is malformed"),
    "a damaged rule": (UNKNOWN + field(3, 2, field(2, 0, varint(1))), "a setting is malformed"),
    "a million empty pieces": (field(1, 2, b"") * 1_000_000, "piece 0 is empty"),
    "a GGUF file": (
        of_serialised(llama_3()).bytes()[:64],
        "the file's 64 bytes cannot contain them",
    ),
}
LINES = [base64.b64encode(one) + b" %d" % rank for rank, one in enumerate(TOKENS)]


def lines(*changed: tuple[int, bytes]) -> bytes:
    made = list(LINES)
    for at, line in changed:
        made[at] = line
    return b"\n".join(made)


RANKS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "contains no tokens"),
    "blank lines": (b"\n\n\n", "contains no tokens"),
    "no rank": (lines((5, b"YQ==")), "line 6 must be a base64 token and a rank"),
    "three fields": (lines((5, b"YQ== 5 5")), "line 6 must be a base64 token and a rank"),
    "a rank in words": (lines((5, b"YQ== five")), "line 6 must be a base64 token and a rank"),
    "a negative rank": (lines((5, b"YQ== -5")), "line 6 must be a base64 token and a rank"),
    "a rank of a thousand digits": (
        lines((5, b"YQ== " + b"9" * 1000)),
        "line 6 must be a base64 token and a rank",
    ),
    "a rank of 2^24": (lines((5, b"YQ== 16777216")), "outside the vocabulary of every model"),
    "not base64": (lines((5, b"Y*== 5")), "is not base64"),
    "half of base64": (lines((5, b"YQ= 5")), "is not base64"),
    "a token of nothing": (lines((5, b"==== 5")), "line 6"),
    "a token of 70 kB": (
        lines((5, base64.b64encode(b"x" * 70_000) + b" 5")),
        "the token has 70000 bytes",
    ),
    "a rank twice": (lines((5, LINES[4])), "rank 4 is listed twice"),
    "one text, two ranks": (
        lines((5, LINES[4].split()[0] + b" 5")),
        "ranks 4 and 5 have the same bytes",
    ),
    "a gap": (lines((5, b"")), "no token has the rank 5"),
    "no byte": (
        lines((TOKENS.index(b"\n"), b"QUJDREVGRw== %d" % TOKENS.index(b"\n"))),
        "no token for byte 0x0a",
    ),
    "NUL bytes": (lines((5, b"\0" * 100)), "line 6 must be a base64 token"),
}


def with_(**changed: Any) -> bytes:
    return json.dumps(tekken(llama_3()) | changed).encode()


def config(**changed: Any) -> bytes:
    return with_(config=tekken(llama_3())["config"] | changed)


def entry(**changed: Any) -> bytes:
    made = tekken(llama_3())
    made["vocab"][7] |= changed
    return json.dumps(made).encode()


def special(*given: Any) -> bytes:
    return with_(special_tokens=list(given))


TEKKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not JSON"),
    "a list": (b"[]", "lacks a config object or a vocab list"),
    "nested deeply": (b"[" * 100_000, "nested deeper"),
    "cut": (with_()[:-20], "not JSON"),
    "a key twice": (b'{"config": {}, ' + with_()[1:], "appears twice"),
    "no vocab": (with_(vocab=None), "lacks a config object or a vocab list"),
    "no pattern": (config(pattern=None), "its config must contain pattern"),
    "a size in words": (config(default_vocab_size="many"), "its config must contain pattern"),
    "a size that is true": (config(default_vocab_size=True), "its config must contain pattern"),
    "a negative size": (config(default_vocab_size=-1), "its config must contain pattern"),
    "a size of 2^40": (config(default_vocab_size=1 << 40), "its config must contain pattern"),
    "nothing special": (config(default_num_special_tokens=0), "its config must contain pattern"),
    "more than there is": (config(default_vocab_size=1000), "default_vocab_size requires 997"),
    "only special": (config(default_num_special_tokens=1000), "its config must contain pattern"),
    "an entry of text": (
        with_(vocab=["a"]),
        "entry 0 of vocab must have token_bytes, a string, and rank, an integer",
    ),
    "no bytes": (
        entry(token_bytes=None),
        "entry 7 of vocab must have token_bytes, a string, and rank, an integer",
    ),
    "not base64": (entry(token_bytes=chr(0xE9)), "is not base64"),
    "a rank of 2^32 - 1": (
        entry(rank=2**32 - 1),
        "entry 7 of vocab must have token_bytes, a string, and rank",
    ),
    "a rank of 1.5": (
        entry(rank=1.5),
        "entry 7 of vocab must have token_bytes, a string, and rank",
    ),
    "a rank twice": (entry(rank=6), "rank 6 is listed twice"),
    "special without a text": (special({"rank": 0}), "a special token has no token_str"),
    "special past the end": (
        special({"rank": 3, "token_str": "<x>"}),
        "or its rank is not an integer from 0 to 2",
    ),
    "special of text": (special("x"), "a special token has no token_str"),
    "two with one id": (
        special(*({"rank": 1, "token_str": one} for one in "xy")),
        "share the id 1",
    ),
}
FILES = {
    **{
        f"model: {name}": ("tokenizer.model", *one)
        for name, one in MODELS.items()
        if name != "empty"
    },
    **{f"tiktoken: {name}": ("a.tiktoken", *one) for name, one in RANKS.items()},
    **{f"tekken: {name}": ("tekken.json", *one) for name, one in TEKKEN.items()},
}


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused(name: str, tmp_path: Path) -> None:
    """Each is refused with its path and the reason, and nothing else is raised."""
    file, content, reason = FILES[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(Unreadable) as caught:
        read_form(tmp_path / file)
    assert str(caught.value).startswith(str(tmp_path / file))
    assert reason in str(caught.value)


def test_all_of_them_cost_little(tmp_path: Path) -> None:
    """None takes a second or 200 MB; there are more than sixty."""
    assert len(FILES) > 60
    for number, (file, content, _) in enumerate(FILES.values()):
        place = tmp_path / str(number)
        place.mkdir()
        (place / file).write_bytes(content)
        before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        with pytest.raises(Unreadable):
            read_form(place / file)
        assert time.process_time() - begin < 1
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * KIB < 200 << 20


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        ("tokenizer.model", PIECES[:5000], 5),
        ("a.tiktoken", b"x", 5),
        ("tekken.json", b"{}", 5),
        ("model.gguf", b"GGUF", 5),
        ("nothing.model", None, 3),
    ],
)
def test_the_exit_code_is_that_of_the_class(
    file: str, content: bytes | None, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever asks for the identity of a file that is refused gets 5, and 3 where it is not
    there.
    """
    if content is not None:
        (tmp_path / file).write_bytes(content)
    assert main(["tokenizer", "identity", str(tmp_path / file)]) == code
    assert str(tmp_path / file) in capsys.readouterr().err


def test_a_link_out_of_nothing_is_not_there(tmp_path: Path) -> None:
    """A dangling link is a file that is not there, and a pipe is not waited for."""
    import os

    (tmp_path / "a.model").symlink_to(tmp_path / "b")
    os.mkfifo(tmp_path / "c.model")
    for name, said in (("a.model", "No such file"), ("c.model", "is not a regular file")):
        with pytest.raises(Unreadable, match=said):
            identify_folder(tmp_path / name)
