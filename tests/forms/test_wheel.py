"""Wheels as evidence: one form, read within bounds, whoever wrote them."""

from __future__ import annotations

import io
import random
import zipfile

import pytest

from harness.forms.distribution import (
    WheelError,
    evident_wheel,
    pack_wheel,
    unpack_wheel,
    wheel_identity,
)

FILES = {
    "own/b.py": b"B = 1\n",
    "own/a.py": b"A = 1\n",
    "own-1.0+x.dist-info/RECORD": b"own/a.py,,\n",
}


def test_the_same_files_are_the_same_bytes() -> None:
    """Order, times, compression and the machine that packs leave no trace.

    What was packed comes back.
    """
    assert pack_wheel(FILES) == pack_wheel(dict(reversed(FILES.items())))
    assert evident_wheel(pack_wheel(FILES)) == FILES
    assert wheel_identity(FILES) == ("own", "1.0+x")
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("own")
        for path, text in FILES.items():
            archive.writestr(path, text)
    assert pack_wheel(unpack_wheel(other.getvalue(), most=100)) == pack_wheel(FILES)
    with pytest.raises(WheelError, match="not packed by Rankproof"):
        evident_wheel(other.getvalue())


def test_what_is_not_a_wheel_is_refused_in_words() -> None:
    """Noise, a bomb, a name twice, two packages in one: each is refused, and nothing else is
    raised.
    """
    with pytest.raises(WheelError, match="cannot be read"):
        evident_wheel(b"no archive")
    with pytest.raises(
        WheelError, match=r"its files total [0-9,]+ bytes, but at most [0-9,]+ are allowed"
    ):
        unpack_wheel(pack_wheel({"large": bytes(1000)}), most=999)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(10**6))
    with pytest.raises(
        WheelError, match=r"its files total [0-9,]+ bytes, but at most [0-9,]+ are allowed"
    ):
        evident_wheel(bomb.getvalue())
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as archive:
        archive.writestr("a", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", b"2")
    with pytest.raises(WheelError, match="with the same name"):
        evident_wheel(twice.getvalue())
    for files in ({"a.py": b""}, {"a-1.dist-info/X": b"", "b-1.dist-info/X": b""}):
        with pytest.raises(WheelError, match="name and version"):
            wheel_identity(files)
    whole, dice = pack_wheel(FILES), random.Random(7)
    for _ in range(1500):
        changed = bytearray(whole)
        for _ in range(dice.choice((1, 1, 2, 8))):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        if changed != whole:
            try:
                found = evident_wheel(bytes(changed))
            except WheelError:
                continue
            assert found != FILES
