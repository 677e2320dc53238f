"""Reading GGUF files that are right, damaged, and made to do harm."""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tokenizer.gguf import Array, GgufFile, Malformed
from harness.tokenizer.gguf.reader import WINDOW
from tests.tokenizer.gguf.writing import File, Tensor, bpe, spm, text, value

HEAD = b"GGUF" + struct.pack("<I", 3)


def head(tensors: int, keys: int, rest: bytes = b"") -> bytes:
    return HEAD + struct.pack("<QQ", tensors, keys) + rest


def one_key(rest: bytes, padding: int = 64) -> bytes:
    return head(0, 1, text("k.k") + rest + bytes(padding))


def one_tensor(**changed: object) -> bytes:
    return File(
        tensors=[Tensor(**{"name": "t", "dimensions": (8, 4), "size": 128, **changed})]
    ).bytes()  # type: ignore[arg-type]


HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "too short"),
    "three bytes": (b"GGU", "too short"),
    "a header and no more": (head(0, 0)[:23], "too short"),
    "another magic": (b"GGJT" + bytes(40), "magic"),
    "an old GGML file": (b"lmgg" + bytes(40), "magic"),
    "a page of a web site": (b"<!DOCTYPE html><html><body>404</body></html>", "magic"),
    "a pointer of Git LFS": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        "magic",
    ),
    "version 0": (b"GGUF" + bytes(40), "version"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version"),
    "version 4": (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "version"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "2^63 keys": (head(0, 1 << 63), "too many"),
    "2^63 tensors": (head(1 << 63, 0), "too many"),
    "60000 keys in no bytes": (head(0, 60_000), "truncated"),
    "a million tensors in no bytes": (head(1_000_000, 0), "truncated"),
    "one key that is not there": (head(0, 1) + bytes(14), "empty key"),
    "a key of 2^40 bytes": (head(0, 1, struct.pack("<Q", 1 << 40) + bytes(64)), "too long"),
    "a key of 2^63 bytes": (head(0, 1, struct.pack("<Q", 1 << 63) + bytes(64)), "too long"),
    "a key past the end": (head(0, 1, struct.pack("<Q", 60_000) + bytes(64)), "truncated"),
    "a key that is not text": (head(0, 1, text(b"\xff\xfe") + bytes(64)), "key encoding"),
    "no type": (head(0, 1, text("key") + bytes(6))[: 24 + 8 + 3 + 2] + b"", "truncated"),
    "type 13": (one_key(struct.pack("<I", 13)), "value type"),
    "type 200": (one_key(struct.pack("<I", 200)), "value type"),
    "type 2^32-1": (one_key(struct.pack("<I", 2**32 - 1)), "value type"),
    "a bool of 2": (one_key(struct.pack("<IB", 7, 2)), "bool"),
    "a text of 2^40": (one_key(struct.pack("<IQ", 8, 1 << 40)), "too long"),
    "a text of 2^64-1": (one_key(struct.pack("<IQ", 8, 2**64 - 1)), "too long"),
    "a text past the end": (one_key(struct.pack("<IQ", 8, 100_000)), "truncated"),
    "10^9 bytes in 118": (one_key(struct.pack("<IIQ", 9, 0, 10**9)), "truncated"),
    "2^62 numbers": (one_key(struct.pack("<IIQ", 9, 10, 1 << 62)), "truncated"),
    "2^64-1 numbers": (one_key(struct.pack("<IIQ", 9, 4, 2**64 - 1)), "truncated"),
    "2^61 numbers of 8 bytes, which is 0 in 64 bits": (
        one_key(struct.pack("<IIQ", 9, 12, 1 << 61)),
        "truncated",
    ),
    "10^9 strings": (one_key(struct.pack("<IIQ", 9, 8, 10**9)), "too many"),
    "a million strings in no bytes": (one_key(struct.pack("<IIQ", 9, 8, 10**6)), "truncated"),
    "a string past the end": (one_key(struct.pack("<IIQQ", 9, 8, 2, 1 << 20)), "truncated"),
    "a string of 2^64-1": (one_key(struct.pack("<IIQQ", 9, 8, 1, 2**64 - 1)), "truncated"),
    "a string that wraps back to the first": (
        one_key(struct.pack("<IIQQ", 9, 8, 3, 2**64 - 8)),
        "truncated",
    ),
    "arrays in an array": (
        one_key(struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 0, 1)),
        "nested array",
    ),
    "arrays 20000 deep": (
        one_key(struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 20_000),
        "nested array",
    ),
    "an array of type 77": (one_key(struct.pack("<IIQ", 9, 77, 1)), "value type"),
    "a key twice": (head(0, 2, (text("k") + value("uint8", 1)) * 2 + bytes(64)), "duplicate key"),
    "alignment 0": (
        File(keys={"general.alignment": ("uint32", 0)}).bytes() + bytes(64),
        "alignment",
    ),
    "alignment 7": (
        File(keys={"general.alignment": ("uint32", 7)}).bytes() + bytes(64),
        "alignment",
    ),
    "alignment 2^31": (
        File(keys={"general.alignment": ("uint32", 1 << 31)}).bytes() + bytes(64),
        "alignment",
    ),
    "alignment as a text": (
        File(keys={"general.alignment": ("string", "32")}).bytes() + bytes(64),
        "alignment",
    ),
    "alignment as a float": (
        File(keys={"general.alignment": ("float32", 32.0)}).bytes() + bytes(64),
        "alignment",
    ),
    "a tensor without a name": (one_tensor(name=""), "tensor name"),
    "a tensor's name of 65 bytes": (one_tensor(name="t" * 65), "too long"),
    "a tensor twice": (
        File(tensors=[Tensor("t", (8,), 0, 32), Tensor("t", (8,), 0, 32)]).bytes(),
        "tensor name",
    ),
    "no dimension": (one_tensor(dimensions=()), "dimensions"),
    "five dimensions": (one_tensor(dimensions=(1, 1, 1, 1, 1)), "dimensions"),
    "dimensions that are 0 in 64 bits": (one_tensor(dimensions=(1 << 32, 1 << 32)), "dimensions"),
    "2^63 columns": (one_tensor(dimensions=(1 << 63,)), "dimensions"),
    "columns that are not whole blocks": (
        one_tensor(dimensions=(33, 2), type=2, size=64),
        "dimensions",
    ),
    "an offset between": (one_tensor(offset=7), "tensor offset"),
    "an offset past the end": (one_tensor(offset=1 << 40), "truncated"),
    "an offset of 2^64-32": (one_tensor(offset=2**64 - 32), "truncated"),
    "data that is cut": (one_tensor()[:-1], "truncated"),
    "no data": (one_tensor(size=0), "truncated"),
    "a tensor larger than the file": (one_tensor(dimensions=(1 << 20, 1 << 20)), "truncated"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_damage_is_refused_by_its_kind_and_place(name: str, tmp_path: Path) -> None:
    """Each damaged or hostile file is refused, with the kind of damage and a byte of the file."""
    content, code = HOSTILE[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(Malformed) as caught:
        GgufFile(path)
    assert caught.value.code == code
    assert 0 <= caught.value.offset <= len(content)
    assert str(caught.value).isprintable()


def test_all_hostile_files_cost_little(tmp_path: Path) -> None:
    """All of them together, with a file of two million empty strings, need little time and almost
    no memory.
    """
    for number, (content, _) in enumerate(HOSTILE.values()):
        (tmp_path / f"{number}.gguf").write_bytes(content)
    many = one_key(struct.pack("<IIQ", 9, 8, 2_000_000), padding=16_000_000)
    (tmp_path / "many.gguf").write_bytes(many)
    program = (
        "import resource, sys, pathlib\n"
        "from harness.tokenizer.gguf import GgufFile, Malformed\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "refused = 0\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    try: GgufFile(path).close()\n"
        "    except Malformed: refused += 1\n"
        "print(refused, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    run = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    refused, kibibytes = map(int, run.stdout.split())
    assert refused == len(HOSTILE)
    assert kibibytes < 5 * 1024


@pytest.mark.parametrize("made", [bpe, spm])
@pytest.mark.parametrize("version", [2, 3])
def test_what_was_written_is_read(made: Callable[[], File], version: int, tmp_path: Path) -> None:
    """Keys, arrays and tensors come back as they were written, in their order."""
    written = made()
    written.version = version
    path = tmp_path / "model.gguf"
    path.write_bytes(written.bytes())
    with GgufFile(path) as file:
        assert file.version == version
        assert list(file.keys) == list(written.keys)
        for name, (kind, content) in written.keys.items():
            read = file.value(name)
            if isinstance(read, Array):
                assert f"[{read.type}]" == kind
                elements = (
                    list(file.strings(read)) if read.type == "string" else list(file.numbers(read))
                )
                assert elements == [
                    one.encode() if isinstance(one, str) else one for one in content
                ]
            elif kind == "float32":
                assert read == pytest.approx(content)
            else:
                assert read == (content.encode() if isinstance(content, str) else content)
        assert [(one.name, one.dimensions, one.type) for one in file.tensors.values()] == [
            (one.name, one.dimensions, "F32") for one in written.tensors
        ]
        assert max(one.offset + one.size for one in file.tensors.values()) == file.size


def test_strings_longer_than_what_is_read_at_a_time(tmp_path: Path) -> None:
    """Strings that end at, before and after the edge of the window come back whole, and longer ones
    too.
    """
    lengths = [0, 1, WINDOW - 20, WINDOW, 3 * WINDOW + 5, 0, 7, *([1000] * 600)]
    strings = [os.urandom(length) for length in lengths]
    path = tmp_path / "model.gguf"
    path.write_bytes(File(keys={"a.b": ("[string]", strings), "c.d": ("uint8", 9)}).bytes())
    with GgufFile(path) as file:
        read = file.value("a.b")
        assert isinstance(read, Array)
        assert list(file.strings(read)) == strings
        assert file.value("c.d") == 9


def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    """A file that somebody makes shorter after it was opened is refused; the process lives."""
    path = tmp_path / "model.gguf"
    path.write_bytes(bpe().bytes())
    with GgufFile(path) as file:
        tokens = file.value("tokenizer.ggml.tokens")
        assert isinstance(tokens, Array)
        os.truncate(path, tokens.start + 10)
        with pytest.raises(Malformed, match="the file shrank"):
            list(file.strings(tokens))


@pytest.mark.parametrize("what", ["folder", "pipe", "device", "nothing", "NUL"])
def test_what_is_not_a_regular_file(what: str, tmp_path: Path) -> None:
    """A folder, a pipe nobody writes to, a device or no file at all is an OSError, at once."""
    path = tmp_path / "model.gguf"
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path = Path("/dev/zero")
    with pytest.raises(OSError, match=r"not a regular file|No such file|null byte"):
        GgufFile("a\0b" if what == "NUL" else path)


@given(st.binary(max_size=200), st.integers(0, 2000), st.sampled_from([bpe, spm]))
def test_any_change_is_read_or_refused(change: bytes, at: int, made: Callable[[], File]) -> None:
    """Whatever bytes are written over a file, it is read or refused as damaged, and nothing else
    happens.
    """
    content = bytearray(made().bytes())
    content[at : at + len(change)] = change
    with tempfile.NamedTemporaryFile() as written:
        written.write(content)
        written.flush()
        try:
            with GgufFile(written.name) as file:
                for key in file.keys.values():
                    if isinstance(key.value, Array) and key.value.type == "string":
                        assert len(list(file.strings(key.value))) == key.value.count
        except Malformed:
            pass
