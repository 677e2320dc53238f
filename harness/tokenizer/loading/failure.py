"""What can go wrong while a tokenizer is loaded.

    TokenizerError                 any error of this package (problem.py)
    └── LoadError
        ├── SourceRefused          the source, a name in it, an option or its code may not be used
        ├── HubFailed              the hub did not give what it has: status, reset, after how many attempts
        │   ├── DeadlineExceeded   ... and the one deadline of the load is over, or would be before it answers again
        │   └── BytesDiffer        ... and what it sent is not what its own listing says
        ├── CacheFailed            the cache cannot be written or read
        │   └── LockTimeout        another process is fetching the same snapshot and does not finish; names its pid
        ├── BuildFailed            transformers could not build a tokenizer from verified files
        └── IdentityDiffers        a tokenizer was built, and it is not the expected one

Every one of them says what, where and what to do, and carries what libraries swallow: `__cause__` is the lowest error,
`requests` every request that was made for this load, `logs` what transformers and huggingface_hub said at any level.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.tokenizer.problem import TokenizerError


@dataclass(frozen=True, kw_only=True)
class Request:
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

    requests: tuple[Request, ...] = ()
    logs: tuple[str, ...] = ()


class SourceRefused(LoadError, ValueError):
    """The source, a name or size in its listing, an option or its code may not be used. Nothing was written for it."""


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
    """Transformers could not build a tokenizer from verified files; a panic of its Rust code counts."""


class IdentityDiffers(LoadError):
    """A tokenizer was built, and it is not the expected one. It is not handed back."""
