"""Answers of the hub as huggingface_hub 1.x and 2.x expect them, what a fault rule makes of one,
and its bytes.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Literal
from urllib.parse import quote

from harness.forms.strict_json import JSON
from harness.hub import rules
from harness.hub.repository import MAIN, File, Revision, ServedRepository
from harness.hub.request import HubRequest, Target
from harness.hub.rules import Struck

CHUNK = 256 * 1024
PAGE = 1000
EXPANDED_PAGE = 100
WHEN = "2026-01-01T00:00:00.000Z"
"""Date of every commit: the hub has no clock of its own, and clients only show it."""


@dataclass(frozen=True, slots=True)
class HubAnswer:
    """True answer to a request.

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
) -> HubAnswer:
    """Return an answer that says no, with the headers clients tell errors apart by."""
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if code is not None:
        headers["X-Error-Code"] = code
    headers["X-Error-Message"] = message.encode("ascii", "replace").decode()
    if commit is not None:
        headers["X-Repo-Commit"] = commit
    return HubAnswer(status, headers, json.dumps({"error": message}).encode())


def read_range(text: str | None, size: int) -> tuple[int, int] | None:
    """Read a Range header as (first byte, byte after the last); None: serve the whole.

    Several ranges, units other than bytes, and the end of an empty file are ignored, as HTTP
    allows: no Content-Range can name bytes of nothing.

    Raises:
        ValueError: the range begins after the end of the file (416).
    """
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", (text or "").replace(" ", ""))
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        last = int(match[2])
        if last == 0:
            raise ValueError("an empty range")
        return (max(0, size - last), size) if size else None
    first = int(match[1])
    end = min(size, int(match[2]) + 1) if match[2] else size
    if first >= size:
        raise ValueError("the range begins after the end of the file")
    if match[2] and int(match[2]) < first:
        return None
    return first, end


def answer(
    repositories: Mapping[str, ServedRepository],
    target: Target,
    *,
    range_header: str | None,
    base: str,
) -> HubAnswer:
    """Answer a request truly.

    Args:
        repositories: everything that is served, by id.
        target: what is asked for.
        range_header: the Range header, or None.
        base: address of the hub as this client writes it, for links.
    """
    if target.kind == "other":
        return failure(404, "this hub does not serve that address")
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


def _json(value: JSON, **headers: str) -> HubAnswer:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return HubAnswer(200, {"Content-Type": "application/json; charset=utf-8", **headers}, body)


def _model_info(repository: ServedRepository, revision: Revision) -> HubAnswer:
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


def _tree(repository: ServedRepository, revision: Revision, target: Target, base: str) -> HubAnswer:
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


def _entry(revision: Revision, path: str, file: File | None, *, expand: bool) -> dict[str, JSON]:
    entry: dict[str, JSON]
    if file is None:
        entry = {"type": "directory", "oid": revision.folders[path], "size": 0, "path": path}
    else:
        entry = {"type": "file", "oid": file.git, "size": file.size, "path": path}
        if file.lfs:
            pointer = _pointer_size(file)
            entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": pointer}
    if expand:
        entry["lastCommit"] = {"id": revision.commit, "title": "Served by rankproof", "date": WHEN}
    return entry


def _pointer_size(file: File) -> int:
    return len(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.sha256}\nsize {file.size}\n"
    )


def _refs(repository: ServedRepository) -> HubAnswer:
    branches: list[JSON] = []
    tags: list[JSON] = []
    for revision in repository.revisions.values():
        is_branch = revision.name == MAIN
        ref = f"refs/{'heads' if is_branch else 'tags'}/{revision.name}"
        (branches if is_branch else tags).append(
            {"name": revision.name, "ref": ref, "targetCommit": revision.commit}
        )
    return _json({"branches": branches, "tags": tags, "converts": []})


def _commits(revision: Revision) -> HubAnswer:
    commit: dict[str, JSON] = {
        "id": revision.commit,
        "title": "Served by rankproof",
        "message": "",
        "authors": [],
        "date": WHEN,
    }
    return _json([commit], **{"X-Total-Count": "1"})


def _resolve(revision: Revision, target: Target, range_header: str | None) -> HubAnswer:
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
        reply = failure(416, "Range not satisfiable")
        reply.headers["Content-Range"] = f"bytes */{file.size}"
        return reply
    if part is None:
        return HubAnswer(200, headers, None, file, 0, file.size)
    headers["Content-Range"] = f"bytes {part[0]}-{part[1] - 1}/{file.size}"
    return HubAnswer(206, headers, None, file, *part)


def _true(text: str) -> bool:
    return text.lower() in {"true", "1"}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


@dataclass(frozen=True, slots=True)
class OutgoingAnswer:
    """Answer as it will be sent.

    Attributes:
        answer: what to send; None: nothing at all.
        announced: Content-Length.
        sent: bytes of the body to send (for GET).
        then: what happens to the connection afterwards.
        flipped: offset of the byte to change in the body, or None.
        refuse: seconds for which the hub refuses connections afterwards.
    """

    answer: HubAnswer | None
    announced: int = 0
    sent: int = 0
    then: Literal["keep", "close", "reset"] = "keep"
    flipped: int | None = None
    refuse: float | None = None


def truly(answer: HubAnswer) -> OutgoingAnswer:
    """Send an answer as it is."""
    return OutgoingAnswer(answer, answer.length, answer.length)


def changes(rule: rules.Rule, answer: HubAnswer) -> bool:
    """Return whether a rule would change this answer.

    A strike that changes nothing would not be evidence of a fault.
    """
    match rule.answer:
        case rules.Truncate() | rules.Short() | rules.WrongBytes():
            return answer.length > 0
        case rules.WrongEtag():
            return "ETag" in answer.headers
        case _:
            return True


def spoiled(
    struck: Struck, answer: HubAnswer, *, target: Target, commit: str | None
) -> OutgoingAnswer:
    """Apply the rule that struck to the true answer.

    Args:
        struck: what the rules said; without a rule the answer stays true.
        answer: the true answer.
        target: what was asked for.
        commit: of the revision asked for, or None.
    """
    if struck.rule is None:
        return truly(answer)
    match struck.rule.answer:
        case rules.Missing() | rules.RateLimit() | rules.ServerError() as wrong:
            return truly(_refusal(wrong, struck, target, commit))
        case rules.Reset():
            return OutgoingAnswer(None, then="reset")
        case rules.Refuse() as wrong:
            return OutgoingAnswer(None, then="reset", refuse=wrong.lasting)
        case rules.Close():
            return OutgoingAnswer(None, then="close")
        case rules.Truncate() as wrong:
            cut = wrong.after if wrong.after is not None else int(answer.length * wrong.share)
            return OutgoingAnswer(answer, answer.length, min(cut, answer.length - 1), wrong.ending)
        case rules.Short() as wrong:
            kept = int(answer.length * wrong.share)
            return OutgoingAnswer(answer, kept, kept)
        case rules.WrongEtag() as wrong:
            return truly(_another_etag(wrong, answer))
        case rules.WrongBytes(text=None):
            return replace(truly(answer), flipped=answer.length // 2)
        case rules.WrongBytes() as wrong:
            return truly(HubAnswer(answer.status, answer.headers, (wrong.text or "").encode()))
        case rules.Latency():
            return truly(answer)


def _refusal(
    wrong: rules.Missing | rules.RateLimit | rules.ServerError,
    struck: Struck,
    target: Target,
    commit: str | None,
) -> HubAnswer:
    if isinstance(wrong, rules.Missing):
        code = None if wrong.code == "none" else wrong.code
        return failure(404, "Entry not found", code=code, commit=commit if wrong.commit else None)
    if isinstance(wrong, rules.RateLimit):
        return _rate_limited(wrong, struck, target)
    reply = failure(
        wrong.status, "Internal Error - We're working hard to fix this as soon as possible!"
    )
    if wrong.retry_after is not None:
        reply.headers["Retry-After"] = str(math.ceil(wrong.retry_after))
    return reply


def _rate_limited(wrong: rules.RateLimit, struck: Struck, target: Target) -> HubAnswer:
    reply = failure(429, "Too Many Requests")
    left = math.ceil(struck.left if struck.left is not None else wrong.reset)
    if wrong.headers in {"ratelimit", "both"}:
        kind = "resolvers" if target.kind == "resolve" else "api"
        reply.headers["RateLimit"] = f'"{kind}";r=0;t={left}'
        when = struck.rule.when if struck.rule is not None else None
        if when is not None and when.quota is not None and when.window is not None:
            window = math.ceil(when.window)
            reply.headers["RateLimit-Policy"] = f'"fixed window";"{kind}";q={when.quota};w={window}'
    if wrong.headers in {"retry-after", "both"}:
        reply.headers["Retry-After"] = str(left)
    return reply


def _another_etag(wrong: rules.WrongEtag, answer: HubAnswer) -> HubAnswer:
    true = answer.headers["ETag"].strip('"')
    etag = wrong.etag
    if etag is None:
        # As long as the true one, so that only comparing bytes with digests can tell.
        etag = true[::-1] if true != true[::-1] else "0" * len(true)
    headers = {**answer.headers, "ETag": f'"{etag}"'}
    if "X-Linked-Etag" in headers:
        headers["X-Linked-Etag"] = f'"{etag}"'
    return replace(answer, headers=headers)


class FileChanged(Exception):
    """File that has changed since the hub read it at its start; the message names it."""


def body_chunks(outgoing: OutgoingAnswer) -> list[tuple[int, int]]:
    """Return the pieces of the body as (from, to), the last of them last.

    One empty piece for an answer without a body.
    """
    ends = [*range(CHUNK, outgoing.sent, CHUNK), outgoing.sent]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def read_piece(answer: HubAnswer, first: int, end: int, *, flipped: int | None) -> bytes:
    """Read bytes of the body.

    Raises:
        FileChanged: the file changed since the hub started.
    """
    if answer.body is not None:
        data = answer.body[first:end]
    elif answer.file is None or first == end:
        data = b""
    else:
        file = answer.file
        try:
            with file.source.open("rb") as stream:
                status = os.fstat(stream.fileno())
                if (status.st_size, status.st_mtime_ns) != (file.size, file.stamp):
                    raise FileChanged(
                        f"{file.path} changed after the hub started; start the hub again"
                    )
                stream.seek(answer.first + first)
                data = stream.read(end - first)
        except OSError as error:
            raise FileChanged(f"{file.path} can no longer be read: {error.strerror}") from error
        if len(data) != end - first:
            raise FileChanged(f"{file.path} shrank after the hub started; start the hub again")
    if flipped is not None and first <= flipped < end:
        at = flipped - first
        data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    return data


def head_of(outgoing: OutgoingAnswer, answer: HubAnswer, request: HubRequest | None) -> bytes:
    """Return the head of the answer. After it the connection stays open only if both sides wish it.

    Header values are our own or checked before; none holds a line break.
    """
    keep = outgoing.then == "keep" and request is not None and request.keep_alive
    headers = answer.headers | {
        "Content-Length": str(outgoing.announced),
        "Connection": "keep-alive" if keep else "close",
    }
    reason = (
        HTTPStatus(answer.status).phrase
        if answer.status in HTTPStatus._value2member_map_
        else "Fault"
    )
    lines = [
        f"HTTP/1.1 {answer.status} {reason}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
