"""The typed blocks a report is made of.

Nothing in a report is raw markup. Text written by the tool is a plain `str`; text that came from
somewhere else (a log, an error message, a scenario file, a file name) is `Foreign` or `Verbatim`.
Renderers escape both for their own format, and bound both in length as well. A statement about what
was observed is a `Claim`, and a claim cannot be built without evidence.

    BlockError(ValueError)
    ├── ClaimWithoutEvidence
    └── UnsafePath
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import quote

FOREIGN_LIMIT = 2_000
VERBATIM_LIMIT = 20_000

_LANGUAGE = re.compile(r"[A-Za-z0-9+#-]{0,20}", re.ASCII)


class BlockError(ValueError):
    """Block that must not exist in a report."""


class ClaimWithoutEvidence(BlockError):
    """A statement about what was observed, without the file that shows it."""


class UnsafePath(BlockError):
    """Path that is not a plain path inside the results folder."""


@dataclass(frozen=True)
class Evidence:
    """Reference to a file of the results folder, and to one of its lines, counted from 1.

    Raises:
        UnsafePath: the path is absolute, leaves the folder, or holds a backslash, control character
            or lone surrogate.
        BlockError: the line is less than 1.
    """

    path: str
    line: int | None = None

    def __post_init__(self) -> None:
        _refuse_unsafe(self.path)
        if self.line is not None and self.line < 1:
            raise BlockError(f"line {self.line} of {self.path!r}: line numbers start at 1")

    @property
    def label(self) -> str:
        """Last two steps of the path, which say which trial of which arm, and the line."""
        shown = "/".join(self.path.split("/")[-2:])
        return f"{shown}:{self.line}" if self.line else shown

    @property
    def target(self) -> str:
        """Relative address of the line, with the whole path."""
        place = quote(self.path, safe="/")
        return f"{place}#L{self.line}" if self.line else place


@dataclass(frozen=True)
class Foreign:
    """Text somebody else wrote. At most `limit` characters are shown.

    Invisible characters are shown as escapes.
    """

    text: str
    limit: int = FOREIGN_LIMIT


@dataclass(frozen=True)
class Strong:
    """Words of the tool that must be seen, such as a verdict."""

    text: str


@dataclass(frozen=True)
class Verbatim:
    """Verbatim text, always treated as foreign. As a block its lines are kept.

    Inside a sentence it is one line.

    Raises:
        BlockError: the language is not a plain word.
    """

    text: str
    language: str = ""
    limit: int = VERBATIM_LIMIT

    def __post_init__(self) -> None:
        if not _LANGUAGE.fullmatch(self.language):
            raise BlockError(f"{self.language!r} is not a valid language name for a code block")


@dataclass(frozen=True, init=False)
class Text:
    """Run of parts that share one cell, list item or claim."""

    parts: tuple[Part, ...]

    def __init__(self, *parts: Part) -> None:
        object.__setattr__(self, "parts", parts)


@dataclass(frozen=True)
class Claim:
    """A statement about what was observed, with the evidence for it.

    Raises:
        ClaimWithoutEvidence: no evidence was given.
        BlockError: there is a claim inside the claim.
    """

    text: Part
    evidence: tuple[Evidence, ...]

    def __post_init__(self) -> None:
        if not self.evidence or not all(
            isinstance(reference, Evidence) for reference in self.evidence
        ):
            raise ClaimWithoutEvidence(
                f"no evidence for {self.text!r}: give at least one Evidence(path, line)"
            )
        if _holds_claim(self.text):
            raise BlockError(f"claims must not be nested: {self.text!r}")


Part: TypeAlias = str | Foreign | Strong | Verbatim | Text | Claim


@dataclass(frozen=True)
class Heading:
    """Heading of level 1 to 6.

    Raises:
        BlockError: no such level.
    """

    level: int
    text: Part

    def __post_init__(self) -> None:
        if not 1 <= self.level <= 6:
            raise BlockError(f"heading level {self.level}: must be 1 to 6")


@dataclass(frozen=True, init=False)
class Paragraph:
    """One paragraph; its parts follow each other without added spaces."""

    parts: tuple[Part, ...]

    def __init__(self, *parts: Part) -> None:
        object.__setattr__(self, "parts", parts)


Align: TypeAlias = Literal["left", "center", "right"]


@dataclass(frozen=True)
class Table:
    """Table; every row has as many cells as the header.

    Raises:
        BlockError: no column, or a row or `align` of another length.
    """

    header: tuple[Part, ...]
    rows: tuple[tuple[Part, ...], ...]
    align: tuple[Align, ...] | None = None

    def __post_init__(self) -> None:
        if not self.header:
            raise BlockError("a table needs at least one column")
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.header):
                raise BlockError(
                    f"row {number} has {len(row)} cells, but the header has {len(self.header)}"
                )
        if self.align is not None and len(self.align) != len(self.header):
            raise BlockError(
                f"align has {len(self.align)} entries, but the header has {len(self.header)}"
            )


@dataclass(frozen=True)
class Figure:
    """Picture in the results folder. `alt` says in words what it shows.

    Raises:
        UnsafePath: as for Evidence.
    """

    path: str
    alt: str | Foreign

    def __post_init__(self) -> None:
        _refuse_unsafe(self.path)


@dataclass(frozen=True)
class Note:
    """The tool's own standing explanation.

    It says nothing about this run, so it needs no evidence.
    """

    text: str


@dataclass(frozen=True)
class BulletList:
    """List without order."""

    items: tuple[Part, ...]


@dataclass(frozen=True)
class Terms:
    """Words of the tool, each with what there is to say of it: what a reader looks for by name."""

    rows: tuple[tuple[str, Part], ...]


@dataclass(frozen=True)
class Details:
    """Blocks that are folded away under a summary."""

    summary: str | Foreign
    blocks: tuple[Block, ...]


Block: TypeAlias = (
    Heading | Paragraph | Table | Verbatim | Figure | Note | BulletList | Terms | Details
)


def first_open(parts: Iterable[tuple[str | Foreign, Sequence[Block]]]) -> list[Block]:
    """Titled parts of a section, of which only the first is unfolded: one screen should do for a
    reader in a hurry.
    """
    blocks: list[Block] = []
    for title, inner in parts:
        blocks += [Details(title, tuple(inner))] if blocks else [Heading(3, title), *inner]
    return blocks


def with_code(text: str, limit: int = FOREIGN_LIMIT) -> Part:
    """Foreign text in which what is between two backticks is shown as code."""
    pieces = text.split("`")
    if len(text) > limit or len(pieces) % 2 == 0:
        return Foreign(text, limit)
    return Text(
        *(
            (Verbatim if position % 2 else Foreign)(piece)
            for position, piece in enumerate(pieces)
            if piece
        )
    )


def _holds_claim(part: Part) -> bool:
    return isinstance(part, Claim) or (
        isinstance(part, Text) and any(_holds_claim(inner) for inner in part.parts)
    )


# Asked for every link of a report: control characters, and halves of a surrogate.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def _refuse_unsafe(path: str) -> None:
    # The link must stay inside the folder wherever the report is opened, also on a system with
    # other separators.
    steps = path.split("/")
    bad = any(step in ("", ".", "..") for step in steps) or "\\" in path or ":" in steps[0]
    if bad or _CONTROLS.search(path):
        raise UnsafePath(f"{path!r} is not a plain path inside the results folder")
