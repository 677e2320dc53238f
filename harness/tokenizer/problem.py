"""What can go wrong.

TokenizerError
├── Unreadable          a file or folder that is not a tokenizer, or that we will not read
│   ├── Absent          it is not there
│   └── Forbidden       we are not allowed to read it
├── Unidentifiable      an object whose behaviour is not data: a custom Python component, an unknown kind, a panic
├── NotComparable       two identities between which no difference has a meaning
└── IdentityMalformed   text that is not an identity as `Identity.to_json` writes it
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from harness.forms.text import visible


class TokenizerError(Exception):
    """Any of the errors of this package."""


class Unreadable(TokenizerError):
    """A file or folder was refused; the message says which and why."""


class Absent(Unreadable):
    """A file or folder is not there."""


class Forbidden(Unreadable):
    """We are not allowed to read a file."""


class Unidentifiable(TokenizerError):
    """This object cannot be given an identity; the message says why and what to identify instead."""


class NotComparable(TokenizerError):
    """Two identities that say different things, so that a difference between them means nothing."""


class IdentityMalformed(TokenizerError, ValueError):
    """Text or values that no identity has."""


def refused(file: object, error: OSError) -> Unreadable:
    """What is raised for a file that the system does not give."""
    kinds: dict[int | None, type[Unreadable]] = {
        **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), Absent),
        **dict.fromkeys((errno.EACCES, errno.EPERM), Forbidden),
    }
    return kinds.get(error.errno, Unreadable)(f"{file}: {error.strerror or first_line(error)}")


@contextmanager
def panics_become(kind: type[TokenizerError], doing: str) -> Iterator[None]:
    """Turn what the Rust library raises while `doing` into `kind`.

    A Rust panic arrives as `pyo3_runtime.PanicException`, which is a BaseException and cannot be imported; an
    `except Exception` around a tokenizer lets it through.
    """
    try:
        yield
    except TokenizerError:
        raise
    except Exception as error:
        raise kind(f"{doing}: {first_line(error)}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise kind(f"{doing}: the tokenizers library panicked: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first 300 characters of what an exception says, on one line."""
    return visible(" ".join(str(error).split())[:300]) or type(error).__name__
