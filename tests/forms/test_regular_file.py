"""Reading files that nobody vouches for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness.forms.regular_file import read_regular


def test_a_file_up_to_the_limit_is_read(tmp_path: Path) -> None:
    """The limit itself is allowed; a larger file is refused, or cut where the caller says so."""
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_regular(file, limit=5) == b"12345"
    assert read_regular(file, limit=4, cut=True) == b"1234"
    with pytest.raises(OSError, match="more than 4 bytes") as caught:
        read_regular(file, limit=4)
    assert caught.value.errno == errno.EFBIG


def test_a_link_is_followed_only_where_it_may_be(tmp_path: Path) -> None:
    """What a stranger may have put there is not followed elsewhere."""
    (tmp_path / "file").write_bytes(b"x")
    link = tmp_path / "link"
    link.symlink_to("file")
    assert read_regular(link, limit=1) == b"x"
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        read_regular(link, limit=1, follow=False)


def test_nothing_but_a_file_is_read_and_nothing_waits(tmp_path: Path) -> None:
    """A folder, a pipe without a writer, a device and a name with a NUL are errors, at once."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero"), Path("a\0b")):
        with pytest.raises(OSError, match=r"regular file|null byte"):
            read_regular(path, limit=10)
