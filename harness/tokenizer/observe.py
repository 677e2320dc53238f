"""Observations of a rank about the load of a tokenizer: versions, object, exception, logs, cache.

Everything returned is plain JSON of bounded size, so that it fits one event each. Nothing here
changes what is watched, except that `Logs` makes two libraries write their debug messages for as
long as it is entered. Of the harness only this package is used, and of other packages nothing but
what the rank has loaded itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.forms.digest import git_blob, sha256

PACKAGES = (
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "hf_xet",
    "httpx",
    "sentencepiece",
    "tiktoken",
    "filelock",
    "protobuf",
)
VARIABLES = ("HF_", "TRANSFORMERS_", "TOKENIZERS_")
SECRET = re.compile("TOKEN$|TOKEN_PATH$|SECRET|PASSWORD|KEY$")
NUMBER = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LOGGERS = ("transformers", "huggingface_hub")
PROBES = (
    "Hello world",
    "  two spaces",
    "日本語のテキスト",
    "👩‍👩‍👧 ok",
    "naïve café",
    "x = {'a': 1}\n\n",
    "12345.678",
    "שלום",
)
# Characters of a text, names of a list.
TEXT = 300
NAMES = 40
# Links of a chain: of an exception that was raised, and of one beside a message.
CHAIN = 16
LINKS = 6
# Messages of a log: the first or the last, and those about failures.
LINES = 30
FAILURES = 40
FAILURE = re.compile("fail|error|exception|refused|retry|timed out", re.IGNORECASE)


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are there."""
    versions_by_name = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions_by_name[name] = metadata.version(name)
    return versions_by_name


def versions() -> dict[str, Any]:
    """Python, the packages that take part in loading, and the variables they read.

    Of a secret only that it is set.
    """
    variables = {
        name: "is set" if SECRET.search(name) else short(value)
        for name, value in sorted(os.environ.items())
        if name.startswith(VARIABLES)
    }
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "packages": installed(PACKAGES),
        "variables": variables,
    }


def describe(tokenizer: Any) -> dict[str, Any]:
    """Class, module and backend of a transformers tokenizer, its length, the ids of eight texts,
    its templates.

    Where the object refuses to answer stands the exception that it raised.
    """
    kind = type(tokenizer)
    backend = getattr(tokenizer, "_tokenizer", None)
    template = getattr(tokenizer, "chat_template", None)
    maker = (
        getattr(kind.from_pretrained, "__func__", None)
        if hasattr(kind, "from_pretrained")
        else None
    )
    return {
        "class": kind.__name__,
        "module": kind.__module__,
        "bases": [base.__name__ for base in kind.__mro__[1:-1]][:8],
        "backend": (
            f"{type(backend).__module__}.{type(backend).__name__}" if backend is not None else None
        ),
        "from_pretrained": getattr(maker, "__module__", None),
        "length": _or_error(lambda: len(tokenizer)),
        "ids": _or_error(
            lambda: _digest([list(map(int, tokenizer.encode(text))) for text in PROBES])
        ),
        "template": _digest(template) if template else None,
        "eos": _or_error(
            lambda: str(tokenizer.eos_token) if tokenizer.eos_token is not None else None
        ),
    }


def chain(error: BaseException) -> list[dict[str, Any]]:
    """Return an exception and what led to it, the last first: type, message, deepest frame, and how
    they are tied together.

    `by` of a link says how it is tied to the one before: `cause` (raised from it), `context`
    (raised while it was handled), or `suppressed` (the same, hidden by `from None`). A loop ends
    the chain.
    """
    links: list[dict[str, Any]] = []
    seen: set[int] = set()
    link: BaseException | None = error
    by = "raised"
    while link is not None and id(link) not in seen and len(links) < CHAIN:
        seen.add(id(link))
        response = getattr(link, "response", None)
        status = getattr(response, "status_code", None)
        links.append(
            {
                "by": by,
                "type": type(link).__name__,
                "module": type(link).__module__,
                "message": short(str(link)),
                "deepest": deepest(link.__traceback__),
                **({"status": status} if isinstance(status, int) else {}),
            }
        )
        if (cause := link.__cause__) is not None:
            link = cause
            by = "cause"
        else:
            by = "suppressed" if link.__suppress_context__ else "context"
            link = link.__context__
    return links


def deepest(trace: TracebackType | None) -> str | None:
    """`package/file.py:line:function` of the innermost frame.

    The folders of this machine are left out.
    """
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{_inside(code.co_filename)}:{trace.tb_lineno}:{code.co_name}"


def _inside(file: str) -> str:
    """Return a file's path from the folder that `sys.path` found it in.

    Elsewhere its name alone.
    """
    places = [place for place in sys.path if place and file.startswith(place.rstrip("/") + "/")]
    return file[len(max(places, key=len).rstrip("/")) + 1 :] if places else Path(file).name


class Logs(logging.Handler):
    """A log handler that keeps what transformers and huggingface_hub log while it is entered, from
    DEBUG up, by thread.

    They are the only trace inside the process of an error that was swallowed. A message written
    while an exception is handled is kept with the chain of that exception, as `handling`: the
    message itself may tell only its outer end, and the chain is gone as soon as the handler is
    left. Nothing more is printed than before. Equal messages are counted. Of the different ones the
    first and the last thirty are kept, and besides them the first forty that are warnings or speak
    of a failure: a second attempt writes as much as the first, and pushes others out.
    """

    def __init__(self, names: tuple[str, ...] = LOGGERS, *, hide: str = "") -> None:
        """Watch these loggers; a folder to `hide` is written as `…`, and so is the number that each
        request has.
        """
        super().__init__(logging.DEBUG)
        self._names = names
        self._hide = hide
        self._undo: contextlib.ExitStack | None = None
        # Threads log at once, and a message is counted in one of three tables.
        self._guard = threading.Lock()
        self._first: dict[tuple[str, str, str], list[Any]] = {}
        self._failures: dict[tuple[str, str, str], list[Any]] = {}
        self._last: dict[tuple[str, str, str], list[Any]] = {}
        self._dropped = 0
        self._order = 0
        self._chains = 0

    def __enter__(self) -> Self:
        self._undo = contextlib.ExitStack()
        for name in self._names:
            logger = logging.getLogger(name)
            for handler in logger.handlers:
                self._undo.callback(handler.setLevel, handler.level)
                handler.setLevel(max(handler.level, logger.getEffectiveLevel()))
            self._undo.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.DEBUG)
            self._undo.callback(logger.removeHandler, self)
            logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._undo is not None:
            self._undo.close()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        try:
            text = record.getMessage()
        # A message that does not fit its arguments is not ours to complain about.
        except (TypeError, ValueError):
            text = str(record.msg)
        text = NUMBER.sub("…", text.replace(self._hide, "…") if self._hide else text)
        key = (record.levelname, record.name, short(text))
        is_failure = record.levelno >= logging.WARNING or FAILURE.search(text) is not None
        with self._guard:
            known = self._first.get(key) or self._failures.get(key) or self._last.get(key)
            if known is None:
                error = sys.exc_info()[1]
                handled = (
                    chain(error)[:LINKS] if error is not None and self._chains < FAILURES else []
                )
                self._chains += bool(handled)
                known = self._room(is_failure)[key] = [self._order, 0, set(), handled]
                self._order += 1
                if len(self._last) > LINES:
                    self._dropped += self._last.pop(next(iter(self._last)))[1]
            known[1] += 1
            known[2].add(record.threadName)

    def _room(self, is_failure: bool) -> dict[tuple[str, str, str], list[Any]]:
        if len(self._first) < LINES:
            return self._first
        return self._failures if is_failure and len(self._failures) < FAILURES else self._last

    def messages(self) -> dict[str, Any]:
        """Return the messages, oldest first, and how many were dropped."""
        with self._guard:
            kept = [*self._first.items(), *self._failures.items(), *self._last.items()]
            rows = [
                {
                    "level": level,
                    "logger": name,
                    "message": text,
                    "times": times,
                    "threads": len(threads),
                    **({"handling": handled} if handled else {}),
                }
                for (level, name, text), (_, times, threads, handled) in sorted(
                    kept, key=lambda row: row[1][0]
                )
            ]
            return {"messages": rows, "dropped": self._dropped}


def cache(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a hub cache folder: references, snapshots, blobs with digests worked out anew, and
    what was left lying about.

    A blob is named by the digest of what it should hold: 40 hex digits are git's sha1 of it, 64 its
    sha256. `wrong` lists those that hold something else. A file in `.no_exist` makes every later
    load believe that the repository has no such file.
    """
    root = Path(folder)
    blobs = 0
    size = 0
    lists: dict[str, list[str]] = {
        name: [] for name in ("refs", "files", "wrong", "incomplete", "no_exist", "locks")
    }
    for path in sorted(_walk(root)):
        inside = path.relative_to(root).as_posix()
        parts = path.relative_to(root).parts
        if ".locks" in parts:
            lists["locks"].append(inside)
        elif path.name.endswith(".incomplete"):
            lists["incomplete"].append(inside)
        elif ".no_exist" in parts:
            lists["no_exist"].append(inside)
        elif "refs" in parts:
            lists["refs"].append(f"{inside} {_read(path)}")
        elif "blobs" in parts:
            blobs += 1
            with contextlib.suppress(OSError):
                size += path.stat().st_size
            if not _holds_its_name(path):
                lists["wrong"].append(inside)
        elif "snapshots" in parts:
            lists["files"].append(inside)
    contents: dict[str, Any] = {"blobs": blobs, "bytes": size}
    for name, entries in lists.items():
        contents[name] = [short(entry) for entry in entries[:NAMES]]
        if len(entries) > NAMES:
            contents[f"{name}_more"] = len(entries) - NAMES
    return contents


def _walk(root: Path) -> Iterator[Path]:
    for folder, _, files in os.walk(root):
        for name in files:
            yield Path(folder, name)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(200).decode("utf-8", "replace").strip()
    except OSError as error:
        return type(error).__name__


def _holds_its_name(path: Path) -> bool:
    """Tell whether a blob's bytes have the digest in its name.

    A name that is not a digest says nothing.
    """
    if not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", path.name):
        return True
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            digest = hashlib.file_digest(
                stream, hashlib.sha256 if len(path.name) == 64 else lambda: git_blob(size)
            )
    except OSError:
        return False
    return digest.hexdigest() == path.name


def short(text: str) -> str:
    """Return a text cut to what an event may hold of it."""
    return text if len(text) <= TEXT else text[:TEXT] + f"… ({len(text) - TEXT} more)"


def _or_error(ask: Any) -> Any:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001  # an object that raises is what is looked for
        return {"error": type(error).__name__, "message": short(str(error))}


def _digest(value: Any) -> str:
    return sha256(repr(value).encode("utf-8", "backslashreplace"))
