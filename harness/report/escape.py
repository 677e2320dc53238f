"""Text made safe for one output format each: one line of markdown, a markdown code block, HTML.

What cannot be seen is shown first, by `harness.forms.text`.
"""

from __future__ import annotations

import re

from harness.forms.text import bounded, visible

_MARKDOWN = re.compile(
    r"[\\`*\[\]#~$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|[<>&|]|(?<=:)/(?=/)|(?<=www)\.", re.ASCII
)
_ENTITY = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;"}
# A paragraph that begins so would be a list, a rule, a heading underline or an indented code block.
_BLOCK_START = re.compile(
    r"(?P<sign>[-+=])|(?P<number>[0-9]{1,9})(?=[.)])|(?P<space>[ ])", re.ASCII
)
_HTML = str.maketrans({**_ENTITY, '"': "&quot;", "'": "&#39;", "`": "&#96;", "\\": "&#92;"})
_CODE_HTML = re.compile(r"[!-+:-@\[-`{-~]|(?<=www)\.|^ | $", re.ASCII)


def markdown(text: str, limit: int | None = None) -> str:
    r"""One line that GitHub's markdown shows as the words of `text`, with no markup, link, HTML,
    maths or table bar.

    A bar becomes `&#124;` because parsers disagree about `\\|` behind a backslash. `block_start` is
    still needed where the result begins a line.
    """
    return _MARKDOWN.sub(lambda m: _ENTITY.get(m[0]) or "\\" + m[0], visible(text, limit))


def block_start(line: str) -> str:
    """Escaped markdown that stays a paragraph at the beginning of a line, with no blank at its
    end.
    """
    line = _BLOCK_START.sub(_harmless_start, line, count=1) if _BLOCK_START.match(line) else line
    return f"{line[:-1]}&#32;" if line.endswith(" ") else line


def inline_code(text: str, limit: int | None = None) -> str:
    """One line of markdown that shows `text` verbatim, also within a table."""
    shown = visible(text, limit)
    if not shown or re.search(r"[`|]|\\$", shown) or shown.strip() != shown:
        # In a code span a table bar, a backslash before the end and a backtick each have rules of
        # their own; entities have none.
        return f"<code>{_code_html(shown)}</code>"
    return f"`{shown}`"


def code_block(text: str, limit: int | None = None, *, is_diff: bool = False) -> tuple[str, ...]:
    """Lines of a code block, each visible.

    A blank at the end of a line is shown too, as editors remove it.

    In a diff it is shown as `␠`, and only where the line changed: elsewhere both sides have it.
    """
    lines = bounded(text, limit).split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    if is_diff:
        return tuple(_diff_blank(visible(line)) for line in lines)
    return tuple(_last_blank(visible(line)) for line in lines)


def fence(lines: tuple[str, ...]) -> str:
    """Run of backticks longer than any in `lines`."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    return "`" * max(3, longest + 1)


def html(text: str, limit: int | None = None) -> str:
    """HTML text or a quoted attribute value that shows the words of `text`."""
    return visible(text, limit).translate(_HTML)


def _code_html(shown: str) -> str:
    # Inside <code> markdown still reads inline markup, so all its characters become entities.
    return _CODE_HTML.sub(lambda m: f"&#{ord(m[0])};", shown)


def _diff_blank(line: str) -> str:
    kept = line.rstrip(" ")
    return kept + "␠" * (len(line) - len(kept)) if line.startswith(("+", "-")) else kept


def _last_blank(line: str) -> str:
    return f"{line[:-1]}\\x20" if line.endswith(" ") else line


def _harmless_start(match: re.Match[str]) -> str:
    if match["number"]:
        return match["number"] + "\\"
    return "&#32;" if match["space"] else "\\" + match["sign"]
