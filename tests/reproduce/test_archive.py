"""Archives from strangers: what is not, byte for byte, a bundle is refused, and nothing of it
stays.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import subprocess
import tarfile
import tracemalloc
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.reproduce.archive import (
    INDEX,
    LARGEST_TOTAL,
    ArchiveError,
    Index,
    Member,
    pack,
    unpack,
)

GOOD = {
    "run/evidence/run.json": b"{}\n",
    "run/report.md": b"# A report\n" * 100,
    "run/é/empty": b"",
}
MIB = 2**20


def index_of(contents: Mapping[str, bytes], **more: Any) -> Index:
    paths = sorted(contents, key=lambda path: path.encode("utf-8", "surrogatepass"))
    members = [
        Member(
            path=path, size=len(contents[path]), sha256=hashlib.sha256(contents[path]).hexdigest()
        )
        for path in paths
    ]
    return Index(
        **{
            "bundle": 1,
            "rankproof": "0",
            "report": "0" * 64,
            "inputs": [],
            "members": members,
            **more,
        }
    )


def packed(contents: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    pack(out, index_of(contents), lambda path: io.BytesIO(contents[path]))
    return out.getvalue()


def entry(path: str, data: bytes = b"", **header: Any) -> bytes:
    """A file of a tar as a bundle has it, but for what `header` changes."""
    about = tarfile.TarInfo(path)
    about.size, about.mode = len(data), 0o644
    style = header.pop("style", tarfile.PAX_FORMAT)
    for name, value in header.items():
        setattr(about, name, value)
    return about.tobuf(style, "utf-8", "surrogatepass") + data + bytes(-len(data) % 512)


def archive(
    index: bytes, *entries: bytes, end: bytes = bytes(1024), first: bytes | None = None
) -> bytes:
    """An archive put together by hand."""
    return lzma.compress(
        (entry(INDEX, index) if first is None else first) + b"".join(entries) + end,
        check=lzma.CHECK_CRC32,
    )


def declaring(contents: Mapping[str, bytes], **more: Any) -> bytes:
    """A consistent archive with whatever names: only what they are can be wrong."""
    index = index_of(contents, **more)
    return archive(
        index.encode(), *(entry(member.path, contents[member.path]) for member in index.members)
    )


def named(*paths: str) -> bytes:
    return declaring(dict.fromkeys(paths, b"x"))


def swapped(**header: Any) -> bytes:
    """An archive whose report has another header than the index says."""
    index = index_of({"run/report.md": b"x"})
    return archive(index.encode(), entry("run/report.md", b"x", **header))


def edited(change: Callable[[dict[str, Any]], Any]) -> bytes:
    """An archive whose index was changed as JSON, and is written as an index is."""
    found = json.loads(index_of({"run/report.md": b"x"}).encode())
    change(found)
    text = json.dumps(found, ensure_ascii=True, indent=1).encode() + b"\n"
    return archive(text, entry("run/report.md", b"x"))


def twice() -> bytes:
    member = index_of({"run/a": b"x"}).members[0]
    index = index_of({}, members=[member, member])
    return archive(index.encode(), entry("run/a", b"x"), entry("run/a", b"x"))


def unsorted() -> bytes:
    index = index_of({"run/a": b"x", "run/b": b"x"})
    index = index_of({}, members=index.members[::-1])
    return archive(index.encode(), entry("run/b", b"x"), entry("run/a", b"x"))


def plain() -> bytes:
    return lzma.decompress(packed(GOOD))


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("../outside", "x")
    return out.getvalue()


def greedy() -> bytes:
    """A stream that asks whoever reads it for a dictionary of 1 GiB."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**20}]
    data = bytearray(lzma.compress(plain(), filters=filters, check=lzma.CHECK_CRC32))
    # The dictionary's size stands behind the id of the filter in the header of the first block.
    place = data.index(b"\x21\x01", 12) + 2
    data[place] = 36  # 1 GiB
    length = (data[12] + 1) * 4
    data[12 + length - 4 : 12 + length] = zlib.crc32(bytes(data[12 : 12 + length - 4])).to_bytes(
        4, "little"
    )
    return bytes(data)


def pax(**records: str) -> bytes:
    """A header of a kind that changes the name or the size of what follows."""
    about = tarfile.TarInfo("run/report.md")
    about.size, about.mode = 1, 0o644
    about.pax_headers = dict(records)
    index = index_of({"run/report.md": b"x"})
    return archive(index.encode(), about.tobuf(tarfile.PAX_FORMAT) + b"x" + bytes(511))


X = index_of({"run/report.md": b"x"}).encode()
REPORT = entry("run/report.md", b"x")
HOSTILE: dict[str, Callable[[], bytes]] = {
    # names
    "absolute": lambda: named("/outside"),
    "up": lambda: named("../outside"),
    "up-from-inside": lambda: named("run/../../outside"),
    "up-at-the-end": lambda: named("run/.."),
    "empty-name": lambda: named(""),
    "empty-step": lambda: named("run//report.md"),
    "dot-step": lambda: named("run/./report.md"),
    "ends-with-slash": lambda: named("run/"),
    "backslash": lambda: named("run/..\\outside"),
    "nul": lambda: declaring({"run/a\0b": b"x"}),
    "newline": lambda: named("run/a\nb"),
    "newline-that-forges-a-line": lambda: named(f"run/a\n{'0' * 64}  run/b"),
    "escape-sequence": lambda: named("run/\x1b[2J"),
    "right-to-left": lambda: named("run/\u202egpj.sh"),
    "drive": lambda: named("C:/outside"),
    "another-folder": lambda: named("bin/sh"),
    "hidden-folder": lambda: named(".git/hooks/post-checkout"),
    "index-again": lambda: named("index.json"),
    "folder-as-file": lambda: named("run"),
    "same-name-twice": twice,
    "same-but-for-case": lambda: named("run/Report.md", "run/report.md"),
    "same-but-for-accents": lambda: named("run/é", f"run/{unicodedata.normalize('NFD', 'é')}"),
    "file-and-folder": lambda: named("run/a", "run/a/b"),
    "file-and-folder-but-for-case": lambda: named("run/A", "run/a/b"),
    "unsorted": unsorted,
    "long-step": lambda: named("run/" + "x" * 256),
    "long-path": lambda: named("run/" + "x" * 200 + ("/" + "x" * 200) * 5),
    "deep": lambda: named("run" + "/x" * 40),
    "half-a-character": lambda: edited(lambda index: index["members"][0].update(path="run/\ud800")),
    # what is declared, and what is there
    "other-content": lambda: archive(X, entry("run/report.md", b"y")),
    "more-than-declared": lambda: archive(X, entry("run/report.md", b"x" * 5000)),
    "less-than-declared": lambda: archive(X, entry("run/report.md", b"")),
    "member-missing": lambda: archive(X),
    "member-undeclared": lambda: archive(X, REPORT, entry("run/more", b"x")),
    "ends-in-a-file": lambda: archive(X, REPORT[:512], end=b""),
    "too-much-declared": lambda: edited(
        lambda index: index["members"][0].update(size=LARGEST_TOTAL + 1)
    ),
    "too-much-together": lambda: edited(
        lambda index: index.update(
            members=[
                {"path": f"run/{n}", "size": LARGEST_TOTAL // 2, "sha256": "0" * 64}
                for n in range(3)
            ]
        )
    ),
    "negative-size": lambda: edited(lambda index: index["members"][0].update(size=-1)),
    "size-as-text": lambda: edited(lambda index: index["members"][0].update(size="1")),
    "size-as-fraction": lambda: edited(lambda index: index["members"][0].update(size=1.0)),
    "bomb-behind-the-end": lambda: archive(X, REPORT, end=bytes(40 * MIB)),
    "bomb-as-index": lambda: archive(b" " * (33 * MIB)),
    "index-of-a-terabyte": lambda: archive(
        X, first=entry(INDEX, b"", size=2**40, style=tarfile.GNU_FORMAT)
    ),
    # headers
    "link": lambda: swapped(type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "link-inside": lambda: swapped(type=tarfile.SYMTYPE, linkname="evidence"),
    "hard-link": lambda: swapped(type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "character-device": lambda: swapped(type=tarfile.CHRTYPE, devmajor=1, devminor=5),
    "block-device": lambda: swapped(type=tarfile.BLKTYPE, devmajor=8),
    "pipe": lambda: swapped(type=tarfile.FIFOTYPE),
    "folder": lambda: swapped(type=tarfile.DIRTYPE),
    "sparse": lambda: swapped(type=tarfile.GNUTYPE_SPARSE),
    "unknown-type": lambda: swapped(type=b"Z"),
    "set-user-id": lambda: swapped(mode=0o4755),
    "executable": lambda: swapped(mode=0o755),
    "owner": lambda: swapped(uid=1000, uname="somebody"),
    "time": lambda: swapped(mtime=1),
    "another-name": lambda: archive(X, entry("run/other", b"x")),
    "another-dialect": lambda: swapped(style=tarfile.GNU_FORMAT),
    "renamed-by-pax": lambda: pax(path="../outside"),
    "resized-by-pax": lambda: pax(size="1000000"),
    "long-name-by-gnu": lambda: archive(
        X, entry("././@LongLink", b"../outside\0", type=tarfile.GNUTYPE_LONGNAME), REPORT
    ),
    "wrong-checksum": lambda: archive(X, REPORT[:148] + b"0000000\0" + REPORT[156:]),
    "padding-that-speaks": lambda: archive(X, REPORT[:-1] + b"!"),
    "index-as-link": lambda: archive(
        X, first=entry(INDEX, b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    ),
    "index-behind": lambda: archive(b"", REPORT, entry(INDEX, X), first=b""),
    # the index
    "index-not-json": lambda: archive(b"members: []", REPORT),
    "index-other-version": lambda: edited(lambda index: index.update(bundle=2)),
    "index-unknown-key": lambda: edited(lambda index: index.update(run="rm")),
    "index-key-twice": lambda: archive(
        X.replace(b'"bundle": 1', b'"bundle": 1, "bundle": 1'), REPORT
    ),
    "index-other-blanks": lambda: archive(X + b"\n", REPORT),
    "index-nested": lambda: archive(b"[" * 100_000, REPORT),
    "index-not-utf8": lambda: archive(X.replace(b"report.md", b"repor\xff.md"), REPORT),
    # the stream
    "nothing": lambda: b"",
    "zip": zipped,
    "only-its-magic": lambda: b"\xfd7zXZ\0",
    "not-packed": plain,
    "old-lzma": lambda: lzma.compress(plain(), format=lzma.FORMAT_ALONE),
    "cut": lambda: packed(GOOD)[:-40],
    "cut-by-a-byte": lambda: packed(GOOD)[:-1],
    "two-streams": lambda: packed(GOOD) + packed(GOOD),
    "tail": lambda: packed(GOOD) + b"#!/bin/sh\n",
    "stream-padding": lambda: packed(GOOD) + bytes(4),
    "no-end": lambda: archive(X, REPORT, end=b""),
    "half-an-end": lambda: archive(X, REPORT, end=bytes(512)),
    "end-that-speaks": lambda: archive(X, REPORT, end=b"!" * 1024),
    "greedy-dictionary": greedy,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    """It is refused with a reason, nothing is written in or outside the target, and memory stays
    small.
    """
    data = HOSTILE[name]()
    before = sorted(tmp_path.iterdir())
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError) as refused:
            unpack(io.BytesIO(data), tmp_path / "target")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(refused.value)
    assert sorted(tmp_path.iterdir()) == before
    assert peak < 24 * MIB


def test_at_least_fifty_archives_are_hostile() -> None:
    """The list above is not cut down by accident."""
    assert len(HOSTILE) >= 50


def test_a_bundle_comes_out_as_it_went_in(tmp_path: Path) -> None:
    """Every file has its bytes, nobody else may read them, and plain tar finds the same."""
    data = packed(GOOD)
    index = unpack(io.BytesIO(data), tmp_path / "target")
    assert {member.path for member in index.members} == set(GOOD)
    for path, content in GOOD.items():
        assert (tmp_path / "target" / path).read_bytes() == content
        assert (tmp_path / "target" / path).stat().st_mode & 0o777 == 0o600
    (tmp_path / "file").write_bytes(data)
    (tmp_path / "plain").mkdir()
    subprocess.run(
        ["tar", "-xJf", str(tmp_path / "file"), "-C", str(tmp_path / "plain")], check=True
    )
    assert (tmp_path / "plain" / "run" / "report.md").read_bytes() == GOOD["run/report.md"]


def test_a_folder_that_is_there_is_not_unpacked_into(tmp_path: Path) -> None:
    """What lies in the target's place stays as it is, a link included."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "target").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        unpack(io.BytesIO(packed(GOOD)), tmp_path / "target")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_name_no_reader_takes_is_not_written(tmp_path: Path) -> None:
    """The writer holds its own bundles to the reader's rules."""
    with pytest.raises(ArchiveError, match="upper and lower case"):
        packed({"run/A": b"", "run/a": b""})


def test_a_file_that_changes_while_it_is_packed_is_found_out() -> None:
    """A content that is not the declared one ends the packing."""
    with pytest.raises(ArchiveError, match="changed"):
        pack(io.BytesIO(), index_of(GOOD), lambda path: io.BytesIO(GOOD[path] + b"more"))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(place=st.integers(min_value=0), change=st.integers(min_value=1, max_value=255))
def test_no_byte_of_a_bundle_can_be_changed(
    place: int, change: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A bundle with one byte altered is refused, or is still the same bundle."""
    data = bytearray(packed(GOOD))
    data[place % len(data)] ^= change
    target = tmp_path_factory.mktemp("altered") / "target"
    try:
        index = unpack(io.BytesIO(bytes(data)), target)
    except ArchiveError:
        assert not target.exists()
    else:
        assert index == index_of(GOOD)
