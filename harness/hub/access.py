"""Access log: one JSON line for each request, written before the last byte of its answer
leaves.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from harness.forms.strict_json import strict_json
from harness.hub import LogLost

End = Literal[
    "whole", "truncated", "reset", "closed", "peer-left", "timed-out", "stopped", "refused"
]


@dataclass(frozen=True, slots=True)
class Access:
    """One request.

    Attributes:
        n: number of the request, from 1, in the order in which the hub began to answer.
        ns: CLOCK_MONOTONIC when its head was read, in nanoseconds; comparable to events of the same
            machine.
        duration_ns: from then until this line was written, which is before the last bytes are sent.
        client: the name in ``/client/NAME``; otherwise ``process-K``, counted by first contact.
        pid: process that holds the other end of the connection, or None where it cannot be seen.
        started: start time of that process in clock ticks since boot, which tells a reused pid
            apart.
        connection: number of the connection, from 1.
        port: the client's port.
        method: as sent, or None where no request could be read.
        path: the address as sent, cut at 512 characters.
        role: what fault rules call it, or None where the address was refused.
        repository, revision, file: what it asks for, or empty.
        status: of the answer, or None where none was sent.
        rules: ids of the rules that struck, in order. The last is the one that made the answer,
            unless it only delayed.
        bytes: bytes of the body that were sent.
        range: the Range header, or None.
        commit: X-Repo-Commit of the answer, or None.
        end: how the answer ended.
        note: why, where the hub refused.
    """

    n: int
    ns: int
    duration_ns: int
    client: str
    pid: int | None
    started: int | None
    connection: int
    port: int
    method: str | None
    path: str
    role: str | None
    repository: str
    revision: str
    file: str
    status: int | None
    rules: tuple[str, ...]
    bytes: int
    range: str | None
    commit: str | None
    end: End
    note: str = ""

    def line(self) -> str:
        """Return one line of ASCII JSON, without a newline."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(values, ensure_ascii=True, allow_nan=False, separators=(",", ":"))

    @classmethod
    def parse(cls, line: str) -> Access:
        """Read back what `line` wrote.

        Raises:
            ValueError: it is not a line of an access log.
        """
        values = strict_json(line)
        if not isinstance(values, dict) or set(values) != {field.name for field in fields(cls)}:
            raise ValueError(
                "not a valid access-log line: it is not an object with the keys of a request record"
            )
        return cls(**values | {"rules": tuple(values["rules"])})


def read_log(path: Path) -> tuple[Access, ...]:
    """Read an access log. A last line without its newline was never finished, and is an error like
    any other.

    Raises:
        ValueError: a line that is none, with its number.
    """
    requests = []
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if not line:
            continue
        try:
            requests.append(Access.parse(line))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}:{number}: {error}") from error
    return tuple(requests)


def count(requests: Iterable[Access]) -> Mapping[str, int]:
    """Count requests by kind: ``HEAD resolve``, ``GET model_info``, ``GET tree``, …, and ``total``.

    Roles of files are one kind, ``resolve``; so are both kinds of ``tree``.
    """
    counted: Counter[str] = Counter()
    for request in requests:
        counted.update((kind_of(request), "total"))
    return dict(sorted(counted.items()))


def kind_of(request: Access) -> str:
    """Return the kind a request is counted under."""
    kind = "resolve"
    if request.role is None:
        kind = "refused"
    elif request.role in {"model_info", "refs", "commits", "other"}:
        kind = request.role
    elif request.role in {"tree", "templates"}:
        kind = "tree"
    return f"{request.method or '-'} {kind}"


class AccessLog:
    """Where the lines go: a file, a list in memory, or both.

    Each line is one write, whole or an error.
    """

    def __init__(self, path: Path | None, *, keep: bool) -> None:
        """Open the log; lines are appended.

        Raises:
            LogLost: the file cannot be opened.
        """
        self.path = path
        self._keep = keep
        self.kept: list[Access] = []
        self.counted: Counter[str] = Counter()
        self._fd: int | None = None
        if path is not None:
            try:
                # Appended, so that each line is one write, wherever another process writes too.
                self._fd = os.open(
                    path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666
                )
            except OSError as error:
                raise LogLost(
                    f"access log {path} cannot be opened: {error.strerror}; choose another file"
                ) from error

    def write(self, access: Access) -> None:
        """Add a line.

        Raises:
            LogLost: the line could not be written whole.
        """
        if self._fd is not None:
            data = f"{access.line()}\n".encode("ascii")
            try:
                written = os.write(self._fd, data)
            except OSError as error:
                raise self._lost(error.strerror or str(error)) from error
            if written != len(data):
                raise self._lost("no space left for a complete line")
        self.counted.update((kind_of(access), "total"))
        if self._keep:
            self.kept.append(access)

    def _lost(self, why: str) -> LogLost:
        return LogLost(
            f"access log {self.path}: request {self.counted['total'] + 1} cannot be written:"
            f" {why}. The hub has stopped; free some space and start it again"
        )

    def close(self) -> None:
        """Close the file. Calling it twice does nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
