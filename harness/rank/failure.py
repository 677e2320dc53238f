"""How a rank failed, as structure: type, message, frames, source line.

Written to a file, because a subject that closes its descriptors still has to be heard.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.ledger import inside
from harness.ledger.inside.book import short_name

TEXT_LIMIT = 4_000
FRAME_LIMIT = 60
CHAIN_LIMIT = 10
CLASS_LIMIT = 20
NAME_LIMIT = 200
FILE_NAME = "error.json"
RUNTIME = os.path.realpath(Path(__file__).parent) + os.sep
LEDGER = os.path.realpath(Path(inside.__file__).parent) + os.sep
# What stands between a subject and the library it calls, and is neither. Nothing in the ledger
# raises by itself: what passes there is the library's error, whichever of its layers the call went
# through.
WATCHES = (f"{RUNTIME}groups.py", LEDGER)
# Parts of their names, as frames have them.
BY_NAME = ("groups.py", f"ledger{os.sep}inside{os.sep}")
IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: a class of the interpreter itself


def record(error: BaseException, *, scratch: str, folder: str) -> None:
    """Describe an exception and write it down, whatever the exception does to whoever looks at it.

    Args:
        error: what ended the subject. Its class may be hostile: a property that raises, a name that
            is not a text.
        scratch: the rank's folder.
        folder: the arm's folder.
    """
    try:
        write(scratch, describe(error, folder=folder))
    # The failure must be told even if it cannot be described.
    except BaseException as broken:  # noqa: BLE001
        # Of the nearest built-in class that it descends from.
        known = next(kind for kind in type(error).__mro__ if kind.__flags__ & IMMUTABLE_TYPE)
        with contextlib.suppress(BaseException):
            message = f"(it could not be described: {type(broken).__name__})"
            write(scratch, _plain(known, message=message))


def describe(error: BaseException, *, folder: str) -> dict[str, Any]:
    """Describe an exception.

    Args:
        error: what was raised.
        folder: the arm's folder; frames from it are the subject's own, and their files are named
            relative to it.

    Returns:
        JSON object: `type`, `module`, `message`, `mro` (names of the class and of those it descends
        from, in Python's order), `ours` (whether this runtime itself raised it, a refused event for
        one, and neither the subject nor a fault), `source` and `line` (stripped source and number
        of the last frame inside the subject, else None), `frames` (outermost first; of a deep stack
        both ends), `causes` (the chain below, nearest first, and the members of a group), `ns`.
    """
    frames = _frames(error.__traceback__, folder=folder)
    if isinstance(error, SyntaxError) and error.filename:
        # The file that could not be read has no frame of its own.
        frames.append(_frame(error.filename, error.lineno or 0, function="<module>", folder=folder))
    of_subject = [frame for frame in frames if frame["subject"]]
    return {
        **_plain(type(error), message=_text(error)),
        "ours": _is_ours(error.__traceback__),
        **{key: frame[key] for frame in of_subject[-1:] for key in ("file", "line", "source")},
        "frames": frames,
        "causes": _causes(error),
    }


def _plain(kind: type, *, message: str) -> dict[str, Any]:
    """Describe an exception by its class alone."""
    return {
        "ns": time.monotonic_ns(),
        "type": str(kind.__name__),
        "module": str(kind.__module__),
        "message": message,
        "mro": [str(above.__name__)[:NAME_LIMIT] for above in kind.__mro__[:CLASS_LIMIT]],
        "ours": False,
        **dict.fromkeys(("file", "line", "source")),
        "frames": [],
        "causes": [],
    }


def _is_ours(trace: TracebackType | None) -> bool:
    """Return True if the innermost frame is the runtime's own."""
    file = ""
    while trace is not None:
        if not _is_watch(trace):
            file = trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return bool(file) and os.path.realpath(file).startswith(RUNTIME)


def _is_watch(step: TracebackType) -> bool:
    # By its name first: a stack may be a million frames deep.
    file = step.tb_frame.f_code.co_filename
    return any(name in file for name in BY_NAME) and os.path.realpath(file).startswith(WATCHES)


def write(scratch: str, description: dict[str, Any]) -> None:
    """Write the description where the harness looks for it, whole or not at all.

    The subject may have put anything in its place: a link is replaced and never followed, a folder
    is moved away.
    """
    target = Path(scratch) / FILE_NAME
    text = json.dumps(description, ensure_ascii=True, allow_nan=False).encode("ascii")
    draft = Path(scratch) / f"{FILE_NAME}.{os.urandom(8).hex()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    try:
        draft.replace(target)
    except IsADirectoryError:
        target.rename(target.with_name(f"{FILE_NAME}.subject"))
        draft.replace(target)


def _causes(error: BaseException) -> list[dict[str, str]]:
    causes: list[dict[str, str]] = []
    seen = {id(error)}
    queue = deque([error])
    while queue and len(causes) < CHAIN_LIMIT:
        above = queue.popleft()
        below = [above.__cause__ or above.__context__]
        if isinstance(above, BaseExceptionGroup):
            below += above.exceptions
        for cause in below:
            if cause is not None and id(cause) not in seen and len(causes) < CHAIN_LIMIT:
                seen.add(id(cause))
                causes.append({"type": str(type(cause).__name__), "message": _text(cause)})
                queue.append(cause)
    return causes


def _text(error: BaseException) -> str:
    try:
        # A str of a class of its own may lie about its length: only the real text counts.
        text = str.__str__(str(error))
    # A subject's __str__ may do anything, and the failure must still be told.
    except BaseException as broken:  # noqa: BLE001
        text = f"(its message could not be read: {type(broken).__name__})"
    if len(text) > TEXT_LIMIT:
        text = text[:TEXT_LIMIT] + f"… ({len(text) - TEXT_LIMIT} more characters)"
    return text


def _frames(trace: TracebackType | None, *, folder: str) -> list[dict[str, Any]]:
    """Describe both ends of the stack.

    A recursion may be a million frames deep, and only the ends of it matter.
    """
    first: list[TracebackType] = []
    last: deque[TracebackType] = deque(maxlen=FRAME_LIMIT // 2)
    while trace is not None:
        if not _is_watch(trace):
            end = first if len(first) < FRAME_LIMIT // 2 else last
            end.append(trace)
        trace = trace.tb_next
    return [
        _frame(
            step.tb_frame.f_code.co_filename,
            step.tb_lineno,
            function=step.tb_frame.f_code.co_name,
            folder=folder,
        )
        for step in (*first, *last)
    ]


def _frame(name: str, line: int, *, function: str, folder: str) -> dict[str, Any]:
    inside = os.path.realpath(name).startswith(os.path.realpath(folder) + os.sep)
    return {
        "file": short_name(name, folder=folder),
        "line": line,
        "function": function,
        "source": linecache.getline(name, line).strip()[:300],
        "subject": inside,
    }
