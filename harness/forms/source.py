"""Bytes of a file that people write: read within limits, decoded to text that means what an
editor shows.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from harness.forms.problem import Problem, ScenarioError
from harness.forms.regular_file import read_regular
from harness.forms.text import escape

SIZE_LIMIT = 256 * 1024
"""Bytes of a file. The longest sensible scenario is a twentieth of that."""
TOO_LARGE = f"is too large (at most {SIZE_LIMIT} bytes); move data into separate files"

NAMES = {
    "\0": "a NUL",
    "\t": "a tab",
    "\r": "a carriage return without a line feed",
    "\ufeff": "a byte order mark",
    "\x85": "a next-line character",
    "\u2028": "a line separator",
    "\u2029": "a paragraph separator",
}

# Besides what YAML forbids: tabs (they look like indentation), the line breaks that YAML 1.1 sees
# and an editor does not (line numbers would disagree), and the bidi overrides that make a signed
# text read differently from what it says.
REFUSED = re.compile(
    "[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f"
    "\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]|\r(?!\n)"
)


def expanded(text: str | Path) -> Path:
    """Return a path with a home folder filled in; without such a user, as it is."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - Path's raises RuntimeError


def real_place(text: str | Path, *, folder: Path = Path()) -> Path:
    """Where a path leads, from a folder: links followed and a home folder filled in.

    Never fails. What leads nowhere (a loop of links, a home of nobody) stays as it is, and whoever
    opens it says why.
    """
    return Path(os.path.realpath(folder / expanded(text)))


def read_source(
    path: Path, *, remedy: str = "pass a scenario file, or a folder that contains scenario.yaml"
) -> bytes:
    """Read a regular file of at most 256 KiB.

    Raise ScenarioError for anything else, without reading it.

    `remedy` says what to do where it cannot be opened.
    """
    try:
        return read_regular(path, limit=SIZE_LIMIT)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise refusal(str(path), TOO_LARGE, found=f"more than {SIZE_LIMIT} bytes") from None
        raise refusal(str(path), f"cannot be read ({error.strerror}); {remedy}") from None


def decode(data: bytes, *, name: str) -> str:
    """Decode UTF-8 without a byte order mark.

    Raise ScenarioError with the place of what is not plain text.
    """
    if len(data) > SIZE_LIMIT:
        raise refusal(name, TOO_LARGE, found=f"{len(data)} bytes")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or (
        len(data) > 1 and (data[0] == 0) != (data[1] == 0)
    ):
        raise refusal(name, "is UTF-16 or UTF-32; save the file as UTF-8 without a byte order mark")
    if data.startswith(b"\xef\xbb\xbf"):
        raise refusal(
            name,
            ("starts with a byte order mark; save the file as UTF-8 without a byte order mark"),
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line, column = position(before, len(before))
        byte = f"byte 0x{data[error.start]:02x}"
        raise ScenarioError(
            [Problem(name, line, column, "", byte, "is not UTF-8; save the file as UTF-8")]
        ) from None
    if problems := refused_characters(text, name=name):
        raise ScenarioError(problems)
    return text


def refused_characters(text: str, *, name: str) -> list[Problem]:
    """Find characters that a file may not hold: one problem per kind, at its first place, with a
    count.
    """
    first: dict[str, int] = {}
    count: dict[str, int] = {}
    for match in REFUSED.finditer(text):
        char = match.group()
        first.setdefault(char, match.start())
        count[char] = count.get(char, 0) + 1
    problems = []
    for char, index in first.items():
        line, column = position(text, index)
        what = NAMES.get(char, "a character that cannot be seen")
        times = f" ({count[char]} times)" if count[char] > 1 else ""
        todo = "use spaces" if char == "\t" else "remove it"
        message = (
            f'contains {what}{times}; {todo}, or write "{escape(char)}" inside a double-quoted text'
        )
        problems.append(Problem(name, line, column, "", escape(char), message))
    return problems


def position(text: str, index: int) -> tuple[int, int]:
    """Return line and column, both from 1, of a character."""
    start = text.rfind("\n", 0, index) + 1
    return text.count("\n", 0, index) + 1, index - start + 1


def refusal(file: str, message: str, *, found: str = "") -> ScenarioError:
    """Build the error for a file that is refused as a whole."""
    return ScenarioError([Problem(file, 1, 1, "", found, message)])
