r"""Safe text: what cannot be seen is shown, and nothing acts on a terminal. Standard library only.

Control characters, direction controls, zero-width and other format characters, and lone surrogates
appear as escapes such as \\x1b. What people write is left alone: accents, CJK, right-to-left
scripts, emoji with their joiners.

The ranges are written out and not asked of `unicodedata`: its tables change with the Python
version, and a report must render to the same bytes on every machine that verifies it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby

SHOWN_LIMIT = 60
"""Characters of a stranger's value that a message shows.

A hostile file must not fill the terminal.
"""

# Scripts in which ZERO WIDTH JOINER and NON-JOINER are part of correct spelling: Arabic and
# Persian, Syriac, Indic, Mongolian. Anywhere else a joiner hides something.
_SPELLED = "\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18af"
_PICTURE = "\u00a9\u00ae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_JOINER = (
    f"(?<![{_SPELLED}])\u200c|\u200c(?![{_SPELLED}])"
    f"|(?<![{_SPELLED}{_PICTURE}\ufe0f])\u200d|(?<=[{_SPELLED}])\u200d(?![{_SPELLED}])"
    f"|(?<=[{_PICTURE}\ufe0f])\u200d(?![{_PICTURE}])"
)
# The three subdivision flags that exist are the only correct use of tag characters, which otherwise
# hide ASCII.
_FLAGS = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
_NONCHARACTERS = "".join(
    f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17)
)
_INVISIBLE = (
    "\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff" + _NONCHARACTERS
)
# A variation selector after another one, or after nothing, selects nothing and can carry hidden
# data.
_SELECTOR = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_HIDDEN = f"(?P<flag>{_FLAGS})|[{_INVISIBLE}]|{_JOINER}|(?<![^{_SELECTOR}])[{_SELECTOR}]"

# Lines by which a verifier finds its way. Only the tool itself may write them.
_LANDMARK = r"-----(?:BEGIN|END) SSH SIGNATURE-----|Manifest: `|Made: `"


def bounded(text: str, limit: int | None) -> str:
    """Return `text`, or its first `limit` characters and how many were left out.

    Where saying so would be longer than what is left out, all of it.
    """
    if limit is None or len(text) <= limit:
        return text
    left = f"... ({len(text) - limit} more characters)"
    return text if len(text) <= limit + len(left) else text[:limit] + left


def visible(text: str, limit: int | None = None) -> str:
    """Return one line in which every invisible character is shown as an escape and no landmark of a
    report is left.

    Args:
        text: anybody's.
        limit: characters of it that are shown, with a count of the rest; None: all.
    """
    return _compiled(_LANDMARK).sub(
        lambda m: escape(m[0][0]) + m[0][1:], _visible(bounded(text, limit))
    )


def visible_lines(text: str) -> str:
    """Return several lines for a terminal. Landmarks stay: nothing looks for them there."""
    return "\n".join(_visible(line) for line in text.split("\n"))


def printable(text: str, *, limit: int = SHOWN_LIMIT) -> str:
    """Return one line for a message, cut to `limit` characters with an ellipsis."""
    return _visible(text if len(text) <= limit else f"{text[: limit - 1]}…")


def quoted(text: str) -> str:
    """Put a text in quotes unless it brings its own."""
    return printable(text) if text.startswith('"') else f'"{printable(text)}"'


def listed(words: Iterable[str]) -> str:
    """Join words for a sentence: ``a, b or c``."""
    names = list(words)
    if len(names) < 2:
        return names[0] if names else "nothing"
    return f"{', '.join(names[:-1])} or {names[-1]}"


def joined(words: Iterable[str]) -> str:
    """Join words for a sentence: ``a, b and c``."""
    names = list(words)
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def plural(count: int, noun: str) -> str:
    """Return `1 rank`, `2 ranks`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """Return `rank 1`, `ranks 0, 2`, `ranks 1-63`, or `no rank`. The numbers are ascending."""
    if not numbers:
        return f"no {noun}"
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    ]
    spans = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"{noun}{'' if len(numbers) == 1 else 's'} {', '.join(spans)}"


def escape(character: str) -> str:
    """Write one character as an escape that Python, and YAML's double-quoted style, understand."""
    if short := {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character):
        return short
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _visible(text: str) -> str:
    # Most text is printable ASCII, in which nothing is hidden; asking that first takes a tenth of
    # the time.
    if text.isascii() and text.isprintable():
        return text
    return _compiled(_HIDDEN).sub(
        lambda match: match[0] if match["flag"] else escape(match[0]), text
    )


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile at first use: most commands print nothing but ASCII."""
    return re.compile(pattern)
