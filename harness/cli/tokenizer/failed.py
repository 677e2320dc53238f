"""What a command says, and how it ends, when something could not be fetched or loaded."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, USAGE
from harness.cli.tokenizer import ABSENT, DAMAGED, FORBIDDEN

if TYPE_CHECKING:
    from harness.tokenizer.loading import LoadError

LAST_LINES = 5
NO_SPACE = 10
NO_LOGIN = 11
RATE = 12
BYTES = 13
NETWORK = 14
LOCKED = 17
_BY_ERRNO = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), NO_SPACE),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), FORBIDDEN),
}
_BY_STATUS = {401: NO_LOGIN, 403: NO_LOGIN, 404: ABSENT, 429: RATE}


def failed(command: str, error: LoadError) -> int:
    """Say on standard error why: the error, its causes, the requests that failed, what libraries
    said.

    Returns:
        The exit code, which says of which class the error is.
    """
    tell(command, error)
    return code_of(error)


def tell(command: str, error: LoadError) -> None:
    """Say it on standard error."""
    from harness.tokenizer.problem import first_line

    print(f"rankproof tokenizer {command}: {error}", file=sys.stderr)
    cause = error.__cause__
    while cause is not None:
        print(f"  because of {type(cause).__name__}: {first_line(cause)}", file=sys.stderr)
        cause = cause.__cause__
    for request in error.requests:
        if request.problem:
            print(
                f"  {request.method} {request.path}, attempt {request.attempt}: {request.problem}",
                file=sys.stderr,
            )
    for line in error.logs[-LAST_LINES:]:
        seen = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
        print(f"  {seen}", file=sys.stderr)


def code_of(error: LoadError) -> int:
    """The exit code that says of which class an error is; by what it is, never by its words."""
    from harness.tokenizer.loading import (
        BuildFailed,
        BytesDiffer,
        CacheFailed,
        HubFailed,
        IdentityDiffers,
        LockTimeout,
        SourceRefused,
    )

    cause = error.__cause__
    by_errno = (
        _BY_ERRNO.get(cause.errno or 0, INCONCLUSIVE)
        if isinstance(cause, OSError)
        else INCONCLUSIVE
    )
    if isinstance(error, HubFailed):
        return (
            BYTES if isinstance(error, BytesDiffer) else _BY_STATUS.get(error.status or 0, NETWORK)
        )
    kinds: dict[type[LoadError], int] = {
        SourceRefused: USAGE,
        LockTimeout: LOCKED,
        CacheFailed: by_errno,
        BuildFailed: DAMAGED,
        IdentityDiffers: FAIL,
    }
    return next((code for kind, code in kinds.items() if isinstance(error, kind)), INCONCLUSIVE)
