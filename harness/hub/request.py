"""Request of a client: the head of a request of HTTP/1.1, within limits, and what its
address names: repository, revision, file, and the role that fault rules speak of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args
from urllib.parse import parse_qsl, unquote_to_bytes

from pydantic import BeforeValidator, Field, Strict

HEAD_LIMIT = 32 * 1024
HEADER_LIMIT = 100
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class BadRequest(Exception):
    """Refusal of bytes that are no request the hub answers; ``status`` is the answer."""

    def __init__(
        self, status: int, message: str, *, method: str | None = None, address: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.method = method
        self.address = address


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what a client may cost.

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
class HubRequest:
    """Head of a request. Header names are lower-case.

    A repeated header keeps its first value.
    """

    method: str
    address: str
    headers: dict[str, str] = field(default_factory=dict)
    keep_alive: bool = True


def parse_head(data: bytes) -> HubRequest:
    """Read the head of a request, up to and with its empty line.

    Raises:
        BadRequest: it is not one that the hub answers.
    """
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
            413, "the request has a body, but the hub is read-only", method=method, address=address
        )
    if method not in {"GET", "HEAD"}:
        raise BadRequest(405, "the hub answers GET and HEAD only", method=method, address=address)
    wish = headers.get("connection", "").lower()
    keep = "close" not in wish if words[2] == "HTTP/1.1" else "keep-alive" in wish
    return HubRequest(method, address, headers, keep)


Kind = Literal["model_info", "tree", "resolve", "refs", "commits", "other"]
Role = Literal[
    "model_info",
    "tree",
    "templates",
    "refs",
    "commits",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocabulary",
    "chat_template",
    "special_tokens_map",
    "added_tokens",
    "config.json",
    "remote_code",
    "file",
    "other",
]
ROLES: tuple[str, ...] = get_args(Role)
TEMPLATES = "additional_chat_templates"
CLIENT = re.compile(r"[A-Za-z0-9._-]{1,64}")
TARGET_LIMIT = 8192
PARAMETER_LIMIT = 32

_BY_NAME: dict[str, Role] = {
    "tokenizer.json": "tokenizer.json",
    "tokenizer_config.json": "tokenizer_config.json",
    "tokenizer.model": "tokenizer.model",
    "tokenizer.model.v3": "tokenizer.model",
    "spiece.model": "tokenizer.model",
    "sentencepiece.bpe.model": "tokenizer.model",
    "tiktoken.model": "tokenizer.model",
    "tekken.json": "tokenizer.model",
    "vocab.json": "vocabulary",
    "vocab.txt": "vocabulary",
    "merges.txt": "vocabulary",
    "chat_template.jinja": "chat_template",
    "chat_template.json": "chat_template",
    "special_tokens_map.json": "special_tokens_map",
    "added_tokens.json": "added_tokens",
    "config.json": "config.json",
}


class BadTarget(ValueError):
    """Refusal of an address that no client of the hub writes; ``status`` is the answer to give."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Target:
    """Parsed address.

    Attributes:
        client: the name in ``/client/NAME/…``, or None.
        kind: which part of the protocol it is.
        role: what fault rules call it.
        repository: ``org/name``, or empty.
        revision: branch, tag or commit; ``main`` where the address names none.
        path: file or folder inside the repository, or empty.
        parameters: the query, decoded.
    """

    client: str | None
    kind: Kind
    role: Role
    repository: str = ""
    revision: str = "main"
    path: str = ""
    parameters: tuple[tuple[str, str], ...] = ()

    def parameter(self, name: str) -> str:
        """Return the last value of a parameter, or nothing."""
        return dict(self.parameters).get(name, "")


def role_of_file(path: str) -> Role:
    """Return the role of a file by its path in the repository."""
    name = path.rsplit("/", 1)[-1]
    if path.startswith(f"{TEMPLATES}/"):
        return "chat_template"
    if name.endswith(".py"):
        return "remote_code"
    return _BY_NAME.get(name, "file")


def parse(raw: str) -> Target:
    """Read the target of a request line.

    Raises:
        BadTarget: dots, encoded slashes, NUL, backslashes, bad UTF-8, or far too long.
    """
    if len(raw) > TARGET_LIMIT:
        raise BadTarget(f"the request target is longer than {TARGET_LIMIT} characters", status=414)
    if not raw.startswith("/") or not raw.isascii() or "#" in raw:
        raise BadTarget(
            "the request target must start with / and contain only printable ASCII, without #"
        )
    address, _, query = raw.partition("?")
    parts = [_segment(part) for part in address[1:].split("/")]
    try:
        parameters = tuple(
            parse_qsl(
                query, keep_blank_values=True, max_num_fields=PARAMETER_LIMIT, errors="strict"
            )
        )
    except ValueError as error:
        raise BadTarget(f"the query cannot be read: {error}") from error
    client = None
    if len(parts) >= 2 and parts[0] == "client":
        client = parts[1]
        parts = parts[2:]
        if not CLIENT.fullmatch(client):
            raise BadTarget(
                "a client name must consist of 1 to 64 letters, digits, '.', '_' or '-'"
            )
    if parts[:2] == ["api", "models"]:
        return _api(parts[2:], client, parameters)
    # After NAME or ORG/NAME.
    if "resolve" in parts[1:3]:
        at = parts.index("resolve", 1)
        repository = _repository(parts[:at])
        rest = parts[at + 1 :]
        if len(rest) >= 2:
            path = _path(rest[1:])
            return Target(
                client, "resolve", role_of_file(path), repository, rest[0], path, parameters
            )
    return Target(client, "other", "other", parameters=parameters)


def _api(parts: list[str], client: str | None, parameters: tuple[tuple[str, str], ...]) -> Target:
    """``[org,] name[, verb, revision, path…]``: the verb tells where the name ends."""
    for at in (1, 2):
        verb = parts[at] if len(parts) > at else ""
        if len(parts) < at or (verb and verb not in {"revision", "tree", "refs", "commits"}):
            continue
        if not verb and at == 1 and len(parts) > 1:
            continue
        repository = _repository(parts[:at])
        rest = parts[at + 1 :]
        revision = rest[0] if rest else "main"
        match verb:
            case "" if len(parts) == at:
                return Target(client, "model_info", "model_info", repository, parameters=parameters)
            case "revision" if len(rest) == 1:
                return Target(
                    client, "model_info", "model_info", repository, revision, parameters=parameters
                )
            case "tree" if rest:
                path = _path(rest[1:])
                role: Role = "templates" if path == TEMPLATES else "tree"
                return Target(client, "tree", role, repository, revision, path, parameters)
            case "refs" if not rest:
                return Target(client, "refs", "refs", repository, parameters=parameters)
            case "commits" if len(rest) <= 1:
                return Target(
                    client, "commits", "commits", repository, revision, parameters=parameters
                )
    return Target(client, "other", "other", parameters=parameters)


def _segment(raw: str) -> str:
    """Decode one segment. A slash may be encoded only where a revision stands; `_path` and
    `_repository` refuse it.
    """
    if re.search(r"%(?![0-9A-Fa-f]{2})", raw):
        raise BadTarget("a % must be followed by two hexadecimal digits")
    try:
        text = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadTarget("the request target is not UTF-8") from error
    if not text.isprintable() or "\\" in text:
        raise BadTarget("the request target contains a control character or a backslash")
    if {"..", "."} & set(text.split("/")):
        raise BadTarget("the request target contains a . or .. path segment")
    return text


def _path(parts: list[str]) -> str:
    if any("/" in part for part in parts):
        raise BadTarget("the file path contains an encoded slash")
    kept = parts[:-1] if parts and not parts[-1] else parts
    if "" in kept:
        raise BadTarget("the file path has an empty segment")
    return "/".join(kept)


def _repository(parts: list[str]) -> str:
    if any("/" in part or not part for part in parts):
        raise BadTarget("the repository id contains an encoded slash or an empty segment")
    return "/".join(parts)


def one_or_list(value: Any) -> Any:
    """Take a text alone for a list of one."""
    return (value,) if isinstance(value, str) else value


Roles = Annotated[
    tuple[Literal[Role, "any"], ...],
    Strict(False),
    BeforeValidator(one_or_list),
    Field(min_length=1),
]
