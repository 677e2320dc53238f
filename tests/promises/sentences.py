"""The absolute sentences of pages and of the code that writes gates and reports: found by their
words.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "SECURITY.md")
# What a gate or a report says of a run is put together in these folders.
ROOMS = ("harness/gate", "harness/report", "harness/stats")
WORDS = re.compile(
    r"\b(never|always|prov(?:e|es|ed|en|ing)|refus(?:e|es|ed)|nothing|nobody|cannot|none|no|only|any|anybody|anyone|anything"
    r"|every|everybody|everything|all|whatever|bound|bounds|bounded|impossible|guarantee[sd]?)\b",
    re.IGNORECASE,
)
"""A sentence is absolute if it has one of these words: they say something of all cases, or of no
case.

"must", "exactly", "whole" and "each" are left out: nearly everywhere they ask something of the
reader, or count. So a promise in other words ("the files are compared") is not found. The list
makes a new absolute sentence fail a test until it is judged; it does not find every promise.
"""
# Shorter texts are labels of tables and words of verdicts: "no control", "CANNOT TELL".
WORDS_LEAST = 3
# A gate opens by rows with this word: what such a row says is a promise in whatever words.
MET = "MET"
# How a style sheet begins. The rules of CSS: "display: none" is no sentence.
STYLES = ":root{"
# They describe keys of a file that a user writes; the file is held to them when it is read.
DESCRIPTIONS = {"description", "help"}
END = re.compile(r"(?:(?<=[.?!])|(?<=[.?!]\)))\s+")
MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Sentence:
    """A sentence, by the file that it is in. Placeholders of an f-string are written {…}."""

    file: str
    text: str


def absolute(*, root: Path = ROOT) -> list[Sentence]:
    """Every absolute sentence of pages and rooms, once for each file."""
    found: dict[Sentence, None] = {}
    for page in PAGES:
        found |= dict.fromkeys(of_page(page, (root / page).read_text(encoding="utf-8")))
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            found |= dict.fromkeys(_of_module(name, path.read_text(encoding="utf-8")))
    return list(found)


def of_page(name: str, text: str) -> Iterator[Sentence]:
    """The absolute sentences of a page of Markdown, without its blocks of code."""
    for token in MARKDOWN.parse(text):
        if token.type != "inline":
            continue
        words = (child.content or " " for child in token.children or ())
        yield from _absolute(name, "".join(words))


@cache
def _of_module(name: str, source: str) -> tuple[Sentence, ...]:
    return tuple(of_module(name, source))


def of_module(name: str, source: str) -> Iterator[Sentence]:
    """The absolute sentences among a module's texts, without its docstrings.

    Of rows that are met, every sentence.
    """
    tree = ast.parse(source)
    for text in _texts(tree):
        if not text.startswith(STYLES):
            yield from _absolute(name, text)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Tuple)
            and node.elts
            and isinstance(node.elts[0], ast.Constant)
            and node.elts[0].value == MET
        ):
            for text in _texts(node):
                yield from _sentences(name, text)


def _absolute(name: str, text: str) -> Iterator[Sentence]:
    return (sentence for sentence in _sentences(name, text) if WORDS.search(sentence.text))


def _sentences(name: str, text: str) -> Iterator[Sentence]:
    for part in END.split(" ".join(text.split())):
        sentence = part.strip()
        if sentence.endswith("?"):
            continue  # a question claims nothing
        if len(sentence.split()) >= WORDS_LEAST:
            yield Sentence(name, sentence)


def _texts(node: ast.AST) -> Iterator[str]:
    """Each text below a node, an f-string as one; placeholders may hold texts of their own."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
        return
    if isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values
        )
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _texts(part.value)
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring
        if isinstance(child, ast.keyword) and child.arg in DESCRIPTIONS:
            continue
        yield from _texts(child)
