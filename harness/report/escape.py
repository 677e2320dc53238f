r"""Text made safe for one output format each: one line of markdown, a markdown code block, HTML, a terminal.

What cannot be seen is shown: control characters, direction controls, zero-width and other format characters, and lone
surrogates appear as escapes such as \\x1b or \\u202e. What people write is left alone: accents, CJK, right-to-left
scripts, emoji with their joiners.

The ranges are written out and not asked of `unicodedata`: its tables change with the Python version, and a report must
render to the same bytes on every machine that verifies it.
"""

from __future__ import annotations

import re

# Scripts in which ZERO WIDTH JOINER and NON-JOINER are part of correct spelling: Arabic and Persian, Syriac, Indic,
# Mongolian. Anywhere else a joiner hides something.
_SPELLED = "\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18af"
_PICTURE = "\u00a9\u00ae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_JOINER = (
    f"(?<![{_SPELLED}])\u200c|\u200c(?![{_SPELLED}])"
    f"|(?<![{_SPELLED}{_PICTURE}\ufe0f])\u200d|(?<=[{_SPELLED}])\u200d(?![{_SPELLED}])"
    f"|(?<=[{_PICTURE}\ufe0f])\u200d(?![{_PICTURE}])"
)
# The three subdivision flags that exist are the only correct use of tag characters, which otherwise hide ASCII.
_FLAGS = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
_NONCHARACTERS = "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
_INVISIBLE = (
    "\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff" + _NONCHARACTERS
)
# A variation selector after another one, or after nothing, selects nothing and can carry hidden data.
_SELECTOR = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_HIDDEN = re.compile(f"(?P<flag>{_FLAGS})|[{_INVISIBLE}]|{_JOINER}|(?<![^{_SELECTOR}])[{_SELECTOR}]")

# Lines by which a verifier finds its way. Only the tool itself may write them.
_LANDMARK = re.compile(r"-----(?:BEGIN|END) SSH SIGNATURE-----|Manifest: `|Made: `")

_MARKDOWN = re.compile(r"[\\`*\[\]#~$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|[<>&|]|(?<=:)/(?=/)|(?<=www)\.", re.ASCII)
_ENTITY = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;"}
# A paragraph that begins so would be a list, a rule, a heading underline or an indented code block.
_BLOCK_START = re.compile(r"(?P<sign>[-+=])|(?P<number>[0-9]{1,9})(?=[.)])|(?P<space>[ ])", re.ASCII)
_HTML = str.maketrans({**_ENTITY, '"': "&quot;", "'": "&#39;", "`": "&#96;", "\\": "&#92;"})
_CODE_HTML = re.compile(r"[!-+:-@\[-`{-~]|(?<=www)\.|^ | $", re.ASCII)


def bounded(text: str, limit: int | None) -> str:
    """`text`, or its first `limit` characters and how many were left out."""
    if limit is None or len(text) <= limit:
        return text
    return f"{text[:limit]}... ({len(text) - limit} more characters)"


def visible(text: str) -> str:
    """One line in which every invisible character is shown as an escape and no landmark of a report is left."""
    # Most text is printable ASCII, in which nothing is hidden; asking that first takes a tenth of the time.
    shown = text if text.isascii() and text.isprintable() else _HIDDEN.sub(_shown, text)
    return _LANDMARK.sub(lambda m: _escape(m[0][0]) + m[0][1:], shown)


def escape_markdown(text: str, limit: int | None = None) -> str:
    r"""One line that GitHub's markdown shows as the words of `text`, with no markup, link, HTML, maths or table bar.

    A bar becomes `&#124;` because parsers disagree about `\\|` behind a backslash. `escape_block_start` is still needed
    where the result begins a line.
    """
    return _MARKDOWN.sub(lambda m: _ENTITY.get(m[0]) or "\\" + m[0], visible(bounded(text, limit)))


def escape_block_start(line: str) -> str:
    """Escaped markdown that stays a paragraph at the beginning of a line, with no blank at its end."""
    line = _BLOCK_START.sub(_harmless_start, line, count=1) if _BLOCK_START.match(line) else line
    return f"{line[:-1]}&#32;" if line.endswith(" ") else line


def escape_inline_code(text: str, limit: int | None = None) -> str:
    """One line of markdown that shows `text` verbatim, also within a table."""
    shown = visible(bounded(text, limit))
    if not shown or re.search(r"[`|\\]", shown) or shown.strip() != shown:
        # In a code span a table bar, a backslash and a backtick each have rules of their own; entities have none.
        return f"<code>{_code_html(shown)}</code>"
    return f"`{shown}`"


def escape_code_block(text: str, limit: int | None = None) -> tuple[str, ...]:
    """The lines of a code block, each visible; a blank at the end of a line is shown too, as editors remove it."""
    lines = bounded(text, limit).split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return tuple(_last_blank(visible(line)) for line in lines)


def fence(lines: tuple[str, ...]) -> str:
    """A run of backticks longer than any in `lines`."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    return "`" * max(3, longest + 1)


def escape_html(text: str, limit: int | None = None) -> str:
    """HTML text or a quoted attribute value that shows the words of `text`."""
    return visible(bounded(text, limit)).translate(_HTML)


def escape_terminal(text: str, limit: int | None = None) -> str:
    """One line for a terminal, without any control sequence."""
    return visible(bounded(text, limit))


def escape_lines(text: str) -> str:
    """Several lines for a terminal, without any control sequence. Landmarks stay: nothing looks for them there."""
    return "\n".join(_HIDDEN.sub(_shown, line) for line in text.split("\n"))


def _code_html(shown: str) -> str:
    # Inside <code> markdown still reads inline markup, so all its characters become entities.
    return _CODE_HTML.sub(lambda m: f"&#{ord(m[0])};", shown)


def _last_blank(line: str) -> str:
    return f"{line[:-1]}\\x20" if line.endswith(" ") else line


def _harmless_start(match: re.Match[str]) -> str:
    if match["number"]:
        return match["number"] + "\\"
    return "&#32;" if match["space"] else "\\" + match["sign"]


def _shown(match: re.Match[str]) -> str:
    return match[0] if match["flag"] else _escape(match[0])


def _escape(character: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    code = ord(character)
    return short or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
