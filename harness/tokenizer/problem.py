"""Errors of this package.

    TokenizerError
    ├── Unreadable               a file or folder is not a tokenizer, or is refused
    │   ├── Absent               it is not there
    │   └── Forbidden            we are not allowed to read it
    ├── Unidentifiable           behaviour is not data: Python code, an unknown kind, a panic
    ├── NotComparable            no difference between these two identities has a meaning
    ├── IdentityMalformed        text is not an identity as `Identity.to_json` writes it
    ├── EngineFailed             an engine is not here, or failed (engines)
    ├── EngineRefused            no engine here can run a model file (engines.generation)
    ├── Malformed                a file is not GGUF, or is damaged (gguf.reader)
    └── LoadError                no tokenizer is loaded
        ├── SourceRefused        the source, a name in it, an option or its code may not be used
        ├── HubFailed            the hub did not give what it has
        │   ├── DeadlineExceeded ... and the one deadline of the load is over
        │   └── BytesDiffer      ... and what it sent is not what its own listing says
        ├── CacheFailed          the cache cannot be written or read
        │   └── LockTimeout      another process fetches the same snapshot and does not finish
        ├── BuildFailed          transformers could not build a tokenizer from verified files
        └── IdentityDiffers      a tokenizer was built, and it is not the expected one

Each load error says what, where and what to do, and carries what libraries swallow: `__cause__` is
the lowest error, `requests` every request that was made for this load, `logs` what transformers and
huggingface_hub said at any level.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
    """This object cannot be given an identity.

    The message says why and what to identify instead.
    """


class NotComparable(TokenizerError):
    """Two identities that say different things, so that a difference between them means nothing."""


class IdentityMalformed(TokenizerError, ValueError):
    """Text or values that no identity has."""


def refused(file: object, error: OSError) -> Unreadable:
    """Return the error for a file that the system refuses."""
    kinds: dict[int | None, type[Unreadable]] = {
        **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), Absent),
        **dict.fromkeys((errno.EACCES, errno.EPERM), Forbidden),
    }
    return kinds.get(error.errno, Unreadable)(f"{file}: {error.strerror or first_line(error)}")


@contextmanager
def panics_become(kind: type[TokenizerError], doing: str) -> Iterator[None]:
    """Turn what the Rust library raises while `doing` into `kind`.

    A Rust panic arrives as `pyo3_runtime.PanicException`, which is a BaseException and cannot be
    imported; an `except Exception` around a tokenizer lets it through.
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
    """Return the first 300 characters of what an exception says, on one line."""
    return visible(" ".join(str(error).split())[:300]) or type(error).__name__


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """One request as it went.

    Attributes:
        method: the HTTP method; a load only uses GET.
        path: path and query on the hub, or the whole address after a redirect to another host.
        attempt: 1 for the first time this was asked.
        status: the answer's status; None where no answer came.
        received: bytes of the body.
        seconds: from connecting to the last byte.
        problem: what went wrong, in words; None if nothing did.
    """

    method: str
    path: str
    attempt: int
    status: int | None
    received: int
    seconds: float
    problem: str | None


class LoadError(TokenizerError):
    """No tokenizer is handed back.

    Attributes:
        requests: the requests made for this load, in order, failed ones included.
        logs: log lines of transformers and huggingface_hub in this thread, from DEBUG up.
    """

    requests: tuple[LoadRequest, ...] = ()
    logs: tuple[str, ...] = ()


class SourceRefused(LoadError, ValueError):
    """The source, a name or size in its listing, an option or its code may not be used.

    Nothing was written for it.
    """


class HubFailed(LoadError):
    """The hub did not give what it has.

    Attributes:
        status: the HTTP status of its last answer; None where there was none.
        attempts: how often the request that failed was made.
    """

    def __init__(self, message: str, *, status: int | None = None, attempts: int = 1) -> None:
        super().__init__(message)
        self.status = status
        self.attempts = attempts


class DeadlineExceeded(HubFailed, TimeoutError):
    """The deadline of the load is over, or the hub asks to wait longer than what is left of it."""


class BytesDiffer(HubFailed):
    """The hub sent bytes that are not what its own listing, or the lock, says."""


class CacheFailed(LoadError):
    """The cache cannot be written or read."""


class LockTimeout(CacheFailed, TimeoutError):
    """Another process holds the snapshot's lock and did not finish in time.

    Attributes:
        pid: the holder, as it wrote itself down; None if it did not.
    """

    def __init__(self, message: str, *, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


class BuildFailed(LoadError):
    """Transformers could not build a tokenizer from verified files.

    A panic of its Rust code counts.
    """


class IdentityDiffers(LoadError):
    """A tokenizer was built, and it is not the expected one. It is not handed back."""
