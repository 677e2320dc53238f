"""The Markdown pages of the repository, as a reader of the rendered page has them: headings, links,
blocks of code.
"""

from __future__ import annotations

import re
import subprocess
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
MARKDOWN = MarkdownIt("commonmark").enable("table")
SIGNED = (":(exclude)docs/*/*/report.md", ":(exclude)docs/*/*/appendix.md")
# Blocks with one of these words, or none, hold commands: whatever else is shown says what it is.
OF_COMMANDS = ("", "sh", "console")
ATTRIBUTE = re.compile(r"""\b(?:href|src|srcset)=["']([^"' ]+)""")


@dataclass(frozen=True)
class Link:
    """A link, an image, or a link of HTML."""

    target: str
    line: int


@dataclass(frozen=True)
class Block:
    """A block of code."""

    info: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
        name: path below the repository.
        text: its source.
    """

    name: str
    text: str

    @cached_property
    def _tokens(self) -> list[Token]:
        return MARKDOWN.parse(self.text)

    def _inside(self) -> Iterator[tuple[Token, int]]:
        for token in self._tokens:
            line = (token.map or [0])[0] + 1
            yield token, line
            for child in token.children or ():
                yield child, line

    @cached_property
    def links(self) -> list[Link]:
        """Every link and image."""
        found = []
        for token, line in self._inside():
            target = token.attrGet("href") or token.attrGet("src")
            if isinstance(target, str):
                found.append(Link(target, line))
            if token.type.startswith("html"):
                found += [Link(one, line) for one in ATTRIBUTE.findall(token.content)]
        return found

    @cached_property
    def anchors(self) -> set[str]:
        """What a link may name behind `#`: of each heading the words as GitHub joins them, and ids
        of HTML.
        """
        seen: Counter[str] = Counter()
        names = set(re.findall(r"""<a [^>]*\b(?:id|name)=["']([^"']+)""", self.text))
        for token, after in zip(self._tokens, self._tokens[1:], strict=False):
            if token.type == "heading_open":
                slug = slug_of("".join(child.content for child in after.children or ()))
                names.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
                seen[slug] += 1
        return names

    @cached_property
    def blocks(self) -> list[Block]:
        """Every block of code, fenced or indented."""
        return [
            Block(token.info.split(" ")[0], token.content, (token.map or [0])[0] + 1)
            for token in self._tokens
            if token.type in {"fence", "code_block"}
        ]

    @cached_property
    def spans(self) -> list[tuple[str, int]]:
        """Every `code` in the text, with the line of its paragraph."""
        return [
            (token.content, line) for token, line in self._inside() if token.type == "code_inline"
        ]

    @property
    def paragraphs(self) -> list[str]:
        """The source of every paragraph, one line of text each."""
        pairs = zip(self._tokens, self._tokens[1:], strict=False)
        return [
            " ".join(text.content.split())
            for token, text in pairs
            if token.type == "paragraph_open"
        ]

    @property
    def commands(self) -> list[tuple[str, int]]:
        """Every command that a block shows, with its line: without prompt and comment, continued
        lines joined.
        """
        found = []
        for block in self.blocks:
            if block.info not in OF_COMMANDS:
                continue
            if block.info == "sh":  # one script: its lines mean nothing one by one
                found.append((block.text.strip(), block.line))
                continue
            text = re.sub(r"(\||&&|\\)\n\s*", r"\1 ", block.text).replace("\\ ", "")
            for line in text.splitlines():
                shown = re.sub(r"(^|\s)# .*", "", line.strip().removeprefix("$ ")).strip()
                if shown:
                    found.append((shown, block.line))
        return found


def slug_of(heading: str) -> str:
    """The anchor that GitHub makes of a heading: letters, digits, `-` and `_` stay, blanks become
    `-`.
    """
    kept = (
        "-" if letter == " " else letter
        for letter in heading.strip().lower()
        if letter in " -_"
        or unicodedata.category(letter)[0] in "LN"
        or unicodedata.category(letter) in {"Mn", "Mc"}
    )
    return "".join(kept)


def pages() -> list[Page]:
    """Every page that git knows or does not ignore, but for the signed reports, which are verified
    elsewhere.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", *SIGNED]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    there = [name for name in sorted(set(listed)) if (ROOT / name).is_file()]
    return [Page(name, (ROOT / name).read_text(encoding="utf-8")) for name in there]
