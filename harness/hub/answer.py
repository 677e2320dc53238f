"""The true answer to a request, before any fault: the hub's protocol as huggingface_hub 1.x and 2.x
speak it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from harness.hub.repository import File, Revision, ServedRepository
from harness.hub.target import Target
from harness.hub.wire import read_range

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
    """An answer that says no, with the headers clients tell errors apart by."""
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
