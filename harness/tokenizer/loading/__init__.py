"""Loading a tokenizer so that it is the right one or none.

* `load(source, ...)`: resolves a revision once, fetches every tokenizer file into a verified snapshot, builds from it
  without a request, and compares the result with an expected identity or a lock.
* `Lock`, `read_lock`, `write_lock`, `verify`: `tokenizer.lock.json`.
* The errors, drawn in failure.py.

docs/tokenizer.md says what is guaranteed, against what, and what is not.
"""

from __future__ import annotations

from harness.tokenizer.loading.failure import (
    BuildFailed,
    BytesDiffer,
    CacheFailed,
    DeadlineExceeded,
    HubFailed,
    IdentityDiffers,
    LoadError,
    LockTimeout,
    Request,
    SourceRefused,
)
from harness.tokenizer.loading.load import Loaded, load
from harness.tokenizer.loading.lockfile import Lock
from harness.tokenizer.loading.lockfile import read as read_lock
from harness.tokenizer.loading.lockfile import write as write_lock
from harness.tokenizer.loading.source import Limits
from harness.tokenizer.loading.verify import Verified, verify

__all__ = [
    "BuildFailed",
    "BytesDiffer",
    "CacheFailed",
    "DeadlineExceeded",
    "HubFailed",
    "IdentityDiffers",
    "Limits",
    "LoadError",
    "Loaded",
    "Lock",
    "LockTimeout",
    "Request",
    "SourceRefused",
    "Verified",
    "load",
    "read_lock",
    "verify",
    "write_lock",
]
