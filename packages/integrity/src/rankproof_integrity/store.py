"""Small store of keys that ranks share: what a barrier, a rendezvous and a stream of tokens keep
in step by.

`MemoryStore` is for the threads of one process, `FolderStore` for the processes of one host,
`TorchStore` wraps a store of torch.distributed (TCPStore, FileStore, HashStore). Any other takes
these five methods.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

LONGEST = 150
"""Characters of a key that the name of its file has: a request's id may be longer than a file
system takes.
"""


class SharedStore(Protocol):
    """Each method takes effect at once for everybody, in one order. Values are not empty."""

    def get(self, key: str) -> bytes | None:
        """Return what is there now; None where nothing is. Never waits."""

    def set(self, key: str, value: bytes) -> None: ...

    def add(self, key: str, amount: int) -> int:
        """Add to a number, which begins at 0; gives the sum."""

    def claim(self, key: str, value: bytes) -> bytes:
        """Set it where nothing is there.

        Gives what is there then: of many who claim, all are given the first's.
        """

    def delete(self, key: str) -> None:
        """Remove it, if it is there."""


def next_epoch(store: SharedStore, who: str) -> int:
    """Return a number greater than all that this name was given before: take one at each start."""
    return store.add(f"epoch/{who}", 1)


class MemoryStore:
    """For the threads of one process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        with self._lock:
            return self._values.get(key)

    def set(self, key: str, value: bytes) -> None:
        with self._lock:
            self._values[key] = value

    def add(self, key: str, amount: int) -> int:
        with self._lock:
            total = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(total).encode()
            return total

    def claim(self, key: str, value: bytes) -> bytes:
        with self._lock:
            return self._values.setdefault(key, value)

    def delete(self, key: str) -> None:
        with self._lock:
            self._values.pop(key, None)


class FolderStore:
    """For the processes of one host: a file for each key, in a folder that is empty at first.

    A file is written aside and renamed, so that nobody reads half a value; who reads and then
    writes holds a lock that the kernel takes back from whoever dies.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def _path(self, key: str) -> Path:
        name = quote(key, safe="", errors="surrogatepass")
        if len(name) > LONGEST:
            whole = hashlib.sha256(key.encode(errors="surrogatepass"))
            name = f"{name[:LONGEST]}-{whole.hexdigest()}"
        return self._folder / ("k-" + name)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        # A file of its own, opened anew each time: a lock on a key's file would go with it when the
        # next value is renamed over it, and one descriptor would let all threads of a process in.
        # Closing it, by the kernel too, gives the lock back.
        with (self._folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, key: str, value: bytes) -> None:
        # Aside and renamed: `get` takes no lock, and reads the old value or the new one.
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix="new-", delete=False) as aside:
            try:
                aside.write(value)
                aside.flush()
                Path(aside.name).replace(self._path(key))
            except BaseException:
                # On a full disk half a value would stay, and take the last space.
                Path(aside.name).unlink(missing_ok=True)
                raise

    def get(self, key: str) -> bytes | None:
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            return None

    def set(self, key: str, value: bytes) -> None:
        with self._alone():
            self._write(key, value)

    def add(self, key: str, amount: int) -> int:
        with self._alone():
            total = int(self.get(key) or b"0") + amount
            self._write(key, str(total).encode())
            return total

    def claim(self, key: str, value: bytes) -> bytes:
        with self._alone():
            first = self.get(key)
            if first is not None:
                return first
            self._write(key, value)
            return value

    def delete(self, key: str) -> None:
        with self._alone():
            self._path(key).unlink(missing_ok=True)


class TorchStore:
    """Store of torch.distributed.

    Args:
        store: a TCPStore, FileStore, HashStore or PrefixStore; its processes may wait for each
            other in it, but this never does.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def get(self, key: str) -> bytes | None:
        # Its own get waits for a key that is not there.
        return bytes(self._store.get(key)) if self._store.check([key]) else None

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def add(self, key: str, amount: int) -> int:
        return int(self._store.add(key, amount))

    def claim(self, key: str, value: bytes) -> bytes:
        # An expected value of nothing stands for: not there. Bytes go as they are, where a text
        # would be encoded.
        return bytes(self._store.compare_set(key, "", value))

    def delete(self, key: str) -> None:
        self._store.delete_key(key)
