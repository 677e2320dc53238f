"""Loading a tokenizer so that it is the right one or none.

* `load(source, ...)`: resolves a revision once, fetches every tokenizer file into a verified
  snapshot, builds from it without a request, and compares the result with an expected identity or a
  lock.
* `fetch(source, ...)`: the first half of that: files by name, or a tokenizer's, and nothing is
  built.
* `Lock`, `read_lock`, `write_lock`, `verify`: `tokenizer.lock.json`.
* The errors, drawn in `harness.tokenizer.problem`.

docs/tokenizer.md says what is guaranteed, against what, and what is not.
"""

from __future__ import annotations

from harness.tokenizer.loading.fetch import Fetched, fetch
from harness.tokenizer.loading.intact import HubCache
from harness.tokenizer.loading.load import Loaded, Verified, load, verify
from harness.tokenizer.loading.manifest import Lock, ModelRecord, read_lock, write_lock
from harness.tokenizer.loading.source import SourceLimits
from harness.tokenizer.problem import (
    BuildFailed,
    BytesDiffer,
    CacheFailed,
    DeadlineExceeded,
    HubFailed,
    IdentityDiffers,
    LoadError,
    LoadRequest,
    LockTimeout,
    SourceRefused,
)

__all__ = [
    "BuildFailed",
    "BytesDiffer",
    "CacheFailed",
    "DeadlineExceeded",
    "Fetched",
    "HubCache",
    "HubFailed",
    "IdentityDiffers",
    "LoadError",
    "LoadRequest",
    "Loaded",
    "Lock",
    "LockTimeout",
    "ModelRecord",
    "SourceLimits",
    "SourceRefused",
    "Verified",
    "fetch",
    "load",
    "read_lock",
    "verify",
    "write_lock",
]
