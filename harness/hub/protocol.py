"""The hub's protocol as huggingface_hub 1.x and 2.x speak it: requests, and their true answers.

Of HTTP/1.1 what a hub needs is read, within limits: a request's head and its Range header. Answers
are those before any fault.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from harness.hub.repository import File, Revision, ServedRepository
from harness.hub.target import Target

HEAD_LIMIT = 32 * 1024
HEADER_LIMIT = 100
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class BadRequest(Exception):
    """What came is not a request that the hub answers; ``status`` is the answer."""

    def __init__(
        self, status: int, message: str, *, method: str | None = None, address: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.method = method
        self.address = address


class Silent(Exception):
    """The client went away, or stayed idle, without a request: there is nothing to answer or to
    log.
    """


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may cost.

    Attributes:
        connections: open at the same time; more are answered with 503.
        idle: seconds an open connection may wait for its next request.
        head: seconds for the head of a request, from its first byte.
        send: seconds in which a client must take the next part of an answer (256 KiB).
    """

    connections: int = 512
    idle: float = 120.0
    head: float = 10.0
    send: float = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request. Header names are lower-case.

    A repeated header keeps its first value.
    """

    method: str
    address: str
    headers: dict[str, str] = field(default_factory=dict)
    keep_alive: bool = True


async def read_request(reader: asyncio.StreamReader, limits: Limits) -> Request:
    """Read one head; the body, which none of our requests has, is refused.

    Raises:
        Silent: nothing came.
        BadRequest: something came that is not a request, or came too slowly, or is too large.
    """
    try:
        first = await asyncio.wait_for(reader.read(1), limits.idle)
    except (TimeoutError, ConnectionError) as error:
        raise Silent from error
    if not first:
        raise Silent
    try:
        rest = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), limits.head)
    except asyncio.LimitOverrunError as error:
        raise BadRequest(431, f"the head is larger than {HEAD_LIMIT} bytes") from error
    except asyncio.IncompleteReadError as error:
        raise BadRequest(400, "the connection ended inside the head") from error
    except TimeoutError as error:
        raise BadRequest(408, f"the head took longer than {limits.head:g} s") from error
    except ConnectionError as error:
        raise BadRequest(400, "the connection was reset inside the head") from error
    return _head(first + rest)


def _head(data: bytes) -> Request:
    lines = data[:-4].decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if (
        len(words) != 3
        or not TOKEN.fullmatch(words[0])
        or not re.fullmatch(r"HTTP/1\.[01]", words[2])
    ):
        raise BadRequest(400, "the first line is not an HTTP/1.1 request")
    method = words[0]
    address = words[1]
    if len(lines) - 1 > HEADER_LIMIT:
        raise BadRequest(
            431, f"there are more than {HEADER_LIMIT} headers", method=method, address=address
        )
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if (
            not colon
            or not TOKEN.fullmatch(name)
            or not all(char.isprintable() or char == "\t" for char in value)
        ):
            raise BadRequest(400, "a header cannot be read", method=method, address=address)
        headers.setdefault(name.lower(), value.strip())
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(
            413, "a request with a body; the hub only reads", method=method, address=address
        )
    if method not in {"GET", "HEAD"}:
        raise BadRequest(405, "the hub answers GET and HEAD only", method=method, address=address)
    wish = headers.get("connection", "").lower()
    keep = "close" not in wish if words[2] == "HTTP/1.1" else "keep-alive" in wish
    return Request(method, address, headers, keep)


def read_range(text: str | None, size: int) -> tuple[int, int] | None:
    """Read a Range header as (first byte, byte after the last); None: serve the whole.

    Several ranges, and units other than bytes, are ignored, as HTTP allows.

    Raises:
        ValueError: the range begins after the end (416).
    """
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", (text or "").replace(" ", ""))
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        last = int(match[2])
        if last == 0:
            raise ValueError("an empty range")
        return max(0, size - last), size
    first = int(match[1])
    end = min(size, int(match[2]) + 1) if match[2] else size
    if first >= size:
        raise ValueError("the range begins after the end")
    if match[2] and int(match[2]) < first:
        return None
    return first, end


PAGE = 1000
EXPANDED_PAGE = 100
WHEN = "2026-01-01T00:00:00.000Z"
"""Date of every commit: the hub has no clock of its own, and clients only show it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What to send.

    Attributes:
        status: HTTP status.
        headers: without Content-Length.
        body: bytes held in memory, or None where ``file`` is sent.
        file: the file to send, from ``first`` up to ``end``.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = b""
    file: File | None = None
    first: int = 0
    end: int = 0

    @property
    def length(self) -> int:
        """Bytes of the body."""
        return len(self.body) if self.body is not None else self.end - self.first


def failure(
    status: int, message: str, *, code: str | None = None, commit: str | None = None
) -> Answer:
    """Return an answer that says no, with the headers clients tell errors apart by."""
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if code is not None:
        headers["X-Error-Code"] = code
    headers["X-Error-Message"] = message.encode("ascii", "replace").decode()
    if commit is not None:
        headers["X-Repo-Commit"] = commit
    return Answer(status, headers, json.dumps({"error": message}).encode())


def answer(
    repositories: Mapping[str, ServedRepository],
    target: Target,
    *,
    range_header: str | None,
    base: str,
) -> Answer:
    """Answer a request truly.

    Args:
        repositories: everything that is served, by id.
        target: what is asked for.
        range_header: the Range header, or None.
        base: address of the hub as this client writes it, for links.
    """
    if target.kind == "other":
        return failure(404, "the hub of this harness has no such address")
    repository = repositories.get(target.repository)
    if repository is None:
        return failure(404, "Repository not found", code="RepoNotFound")
    if target.kind == "refs":
        return _refs(repository)
    revision = repository.revision(target.revision)
    if revision is None:
        return failure(404, f"Invalid rev id: {target.revision}", code="RevisionNotFound")
    match target.kind:
        case "model_info":
            return _model_info(repository, revision)
        case "tree":
            return _tree(repository, revision, target, base)
        case "commits":
            return _commits(revision)
        case _:
            return _resolve(revision, target, range_header)


def _json(value: Any, **headers: str) -> Answer:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return Answer(200, {"Content-Type": "application/json; charset=utf-8", **headers}, body)


def _model_info(repository: ServedRepository, revision: Revision) -> Answer:
    return _json(
        {
            "_id": revision.commit[:24],
            "id": repository.id,
            "modelId": repository.id,
            "author": repository.id.rpartition("/")[0] or None,
            "sha": revision.commit,
            "private": False,
            "gated": False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": list(revision.tags),
            "createdAt": WHEN,
            "lastModified": WHEN,
            "siblings": [{"rfilename": path} for path in revision.files],
            "spaces": [],
            "usedStorage": sum(file.size for file in revision.files.values()),
        }
    )


def _tree(repository: ServedRepository, revision: Revision, target: Target, base: str) -> Answer:
    if target.path in revision.files:
        return failure(
            404, f"{target.path} is a file", code="EntryNotFound", commit=revision.commit
        )
    try:
        entries = revision.under(target.path, recursive=_true(target.parameter("recursive")))
    except KeyError:
        message = f"{target.path} does not exist on {target.revision}"
        return failure(404, message, code="EntryNotFound", commit=revision.commit)
    expand = _true(target.parameter("expand"))
    limit = _number(target.parameter("limit"))
    start = _number(target.parameter("cursor")) or 0
    page = min(limit or PAGE, EXPANDED_PAGE if expand else PAGE)
    shown = [
        _entry(revision, path, file, expand=expand) for path, file in entries[start : start + page]
    ]
    headers = {"X-Repo-Commit": revision.commit}
    if start + page < len(entries):
        kept = "".join(
            f"{quote(name, safe='')}={quote(value, safe='')}&"
            for name, value in target.parameters
            if name != "cursor"
        )
        place = "/".join(quote(part, safe="") for part in target.path.split("/"))
        url = f"{base}/api/models/{repository.id}/tree/{quote(target.revision, safe='')}"
        url += f"/{place}" if place else ""
        headers["Link"] = f'<{url}?{kept}cursor={start + page}>; rel="next"'
    return _json(shown, **headers)


def _entry(revision: Revision, path: str, file: File | None, *, expand: bool) -> dict[str, Any]:
    if file is None:
        out: dict[str, Any] = {
            "type": "directory",
            "oid": revision.folders[path],
            "size": 0,
            "path": path,
        }
    else:
        out = {"type": "file", "oid": file.git, "size": file.size, "path": path}
        if file.lfs:
            out["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": _pointer_size(file)}
    if expand:
        out["lastCommit"] = {"id": revision.commit, "title": "Served by rankproof", "date": WHEN}
    return out


def _pointer_size(file: File) -> int:
    return len(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.sha256}\nsize {file.size}\n".encode(
            "ascii"
        )
    )


def _refs(repository: ServedRepository) -> Answer:
    def entry(revision: Revision, kind: str) -> dict[str, str]:
        return {
            "name": revision.name,
            "ref": f"refs/{kind}/{revision.name}",
            "targetCommit": revision.commit,
        }

    held = repository.revisions.values()
    return _json(
        {
            "branches": [entry(one, "heads") for one in held if one.name == "main"],
            "tags": [entry(one, "tags") for one in held if one.name != "main"],
            "converts": [],
        }
    )


def _commits(revision: Revision) -> Answer:
    one = {
        "id": revision.commit,
        "title": "Served by rankproof",
        "message": "",
        "authors": [],
        "date": WHEN,
    }
    return _json([one], **{"X-Total-Count": "1"})


def _resolve(revision: Revision, target: Target, range_header: str | None) -> Answer:
    file = revision.files.get(target.path)
    if file is None:
        return failure(404, "Entry not found", code="EntryNotFound", commit=revision.commit)
    headers = {
        "Content-Type": "application/octet-stream",
        "ETag": f'"{file.etag}"',
        "X-Repo-Commit": revision.commit,
        "Accept-Ranges": "bytes",
    }
    if file.lfs:
        headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
    try:
        part = read_range(range_header, file.size)
    except ValueError:
        no = failure(416, "Range not satisfiable")
        no.headers["Content-Range"] = f"bytes */{file.size}"
        return no
    if part is None:
        return Answer(200, headers, None, file, 0, file.size)
    headers["Content-Range"] = f"bytes {part[0]}-{part[1] - 1}/{file.size}"
    return Answer(206, headers, None, file, *part)


def _true(text: str) -> bool:
    return text.lower() in {"true", "1"}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
