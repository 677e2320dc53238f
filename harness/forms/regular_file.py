"""Reading a file that nobody vouches for: a regular one, within a limit, never waiting.

Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, *, limit: int, follow: bool = True, cut: bool = False) -> bytes:
    """Return the bytes of a regular file.

    Args:
        path: the file.
        limit: bytes that it may have.
        follow: whether it may be a link.
        cut: take the first `limit` bytes of a larger file, and do not refuse it.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger (EFBIG); `strerror` says
            which.
    """
    descriptor, size = open_regular(path, follow=follow)
    larger = OSError(errno.EFBIG, f"has more than {limit} bytes")
    try:
        if size > limit and not cut:
            raise larger
        content = bytearray()
        while len(content) <= limit and (
            part := os.read(descriptor, min(limit + 1 - len(content), 1 << 20))
        ):
            content += part
    finally:
        os.close(descriptor)
    if len(content) > limit and not cut:
        raise larger
    return bytes(content[:limit])


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> tuple[int, int]:
    """Open a regular file for reading, never waiting; its descriptor, and its size in bytes.

    Args:
        path: the file.
        follow: whether it may be a link.

    Raises:
        OSError: it cannot be opened, or is not a regular file; `strerror` says which.
    """
    try:
        # O_NONBLOCK: opening a FIFO that nobody writes to would otherwise wait for ever.
        descriptor = os.open(
            path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        )
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    # Looked at by descriptor, so that it is the file that is read.
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file")
    return descriptor, status.st_size
