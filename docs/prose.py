"""Wraps the prose of every Markdown file at 120 columns: `python docs/prose.py [FILE …]`; `--check`
only names lines.

Left alone are headings, tables, code, comments, what has no blank to break at, and paragraphs that
fit already.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
WIDTH = 120
FENCE = re.compile(r" *(```|~~~)")
ITEM = re.compile(r"( *)([*+-]|\d+\.)( +)(?=\S)")
QUOTE = re.compile(r" {0,3}> ?")
# Begins something else than a paragraph: a heading, a table, a comment or HTML, a rule, a
# reference, an image.
OTHER = re.compile(r" *(#{1,6} |\||<|---|\[[^]]+\]: |!\[)")
CODE_SPAN = re.compile(r"`[^`\n]{1,100}`")
# Must not begin a line in the middle of a paragraph: it would become a list, a heading or a
# quotation.
MARKER = re.compile(r"(?:[*+-]|\d+\.|#{1,6}|>)$")
KEPT = "\x00"
SIGNED = (":(exclude)docs/*/*/report.md", ":(exclude)docs/*/*/appendix.md")


def pages() -> list[Path]:
    """Every Markdown file that git knows or does not ignore, but for reports, which are signed as
    they are.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", *SIGNED]
    listed = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    return [
        PROJECT / line for line in sorted(set(listed.splitlines())) if (PROJECT / line).is_file()
    ]


def wrapped(text: str) -> str:
    """The text with each paragraph that is too wide wrapped anew."""
    out: list[str] = []
    for kind, lines in _blocks(text.split("\n")):
        fits = all(len(line) <= WIDTH for line in lines)
        out += lines if kind != "prose" or fits else _wrapped(lines)
    return "\n".join(out)


def too_wide(text: str) -> list[int]:
    """Numbers of the lines that `wrapped` would wrap, from 1."""
    number, found = 1, []
    for kind, lines in _blocks(text.split("\n")):
        if kind == "prose" and _wrapped(lines) != lines:
            found += [number + index for index, line in enumerate(lines) if len(line) > WIDTH]
        number += len(lines)
    return found


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The lines in runs: `prose` (a paragraph, or one item of a list) and everything else."""
    at = 0
    indent = 0  # of the text of the list that we are in
    while at < len(lines):
        line = lines[at]
        start = at
        if match := FENCE.match(line):
            at += 1
            while at < len(lines) and not lines[at].strip().startswith(match[1]):
                at += 1
            at += 1
            yield "other", lines[start:at]
            continue
        if line.lstrip().startswith("<!--"):
            while at < len(lines) and "-->" not in lines[at]:
                at += 1
            at += 1
            yield "other", lines[start:at]
            continue
        item = ITEM.match(line)
        depth = len(line) - len(line.lstrip(" "))
        if item is None and line.strip() and depth < indent:
            indent = 0
        if not line.strip() or OTHER.match(line) or depth >= indent + 4:
            at += 1
            yield "other", lines[start:at]
            continue
        if item is not None:
            indent = item.end()
        at += 1
        while (
            at < len(lines)
            and lines[at].strip()
            and not (ITEM.match(lines[at]) or FENCE.match(lines[at]) or OTHER.match(lines[at]))
        ):
            at += 1
        yield "prose", lines[start:at]


def _wrapped(lines: list[str]) -> list[str]:
    first = ITEM.match(lines[0]) or QUOTE.match(lines[0])
    if first is not None:
        head = first[0]
        rest = head if QUOTE.match(lines[0]) else " " * len(head)
    else:
        head = rest = re.match(" *", lines[0])[0]  # type: ignore[index]
    bodies = [lines[0][len(head) :], *(line.strip().removeprefix("> ") for line in lines[1:])]
    text = CODE_SPAN.sub(lambda span: span[0].replace(" ", KEPT), " ".join(bodies))
    made = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    # A break that would turn a word into a marker is undone: that line stays a word shorter.
    for number in range(1, len(made)):
        word, _, after = made[number].strip().partition(" ")
        if MARKER.match(word):
            before, _, last = made[number - 1].rpartition(" ")
            made[number - 1], made[number] = before, f"{rest}{last} {word} {after}".rstrip()
    return [line.replace(KEPT, " ") for line in made]


def main(arguments: list[str]) -> int:
    """Wrap the files, or with `--check` say which lines are too wide.

    Exit code 1 where there are some.
    """
    chosen = [Path(one).resolve() for one in arguments if one != "--check"] or pages()
    bad = 0
    for path in chosen:
        text = path.read_text(encoding="utf-8")
        if "--check" in arguments:
            for number in too_wide(text):
                bad = 1
                print(
                    f"{path.relative_to(PROJECT)}:{number}: wider than {WIDTH}: run python"
                    " docs/prose.py"
                )
        elif (made := wrapped(text)) != text:
            path.write_text(made, encoding="utf-8")
            print(path.relative_to(PROJECT))
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
