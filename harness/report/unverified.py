"""Blocks of a report that did not verify: that comes first, and no verdict in them is shown as one.

A log and a diff stay as they are: what they quote is nobody's verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from harness.report.blocks import (
    Block,
    BulletList,
    Claim,
    Details,
    Foreign,
    Heading,
    Paragraph,
    Part,
    Strong,
    Table,
    Terms,
    Text,
)
from harness.report.summary import SIGNED

NOT_VERIFIED = "NOT VERIFIED"
# The words that speak for what was tested.
GOOD = re.compile(r"(?<!NOT )\b(?:PASS|SHOWN|CONFORMS)\b")


def unverified(blocks: Iterable[Block], *, word: str, is_signed: bool) -> Iterator[Block]:
    """Yield the blocks below a line that says that they did not verify.

    Args:
        blocks: what would be shown of the report.
        word: of the refusal, such as BAD SIGNATURE.
        is_signed: whether a good signature covers the text: else nobody is named as its signer.
    """
    yield Paragraph(
        Strong(NOT_VERIFIED),
        f": {word}. The report did not pass rankproof verify, so nothing below is established.",
    )
    left_out = () if is_signed else (SIGNED,)
    for block in blocks:
        yield _block(block, left_out)


def _block(block: Block, left_out: tuple[str, ...]) -> Block:
    match block:
        case Heading(level, text):
            return Heading(level, _part(text))
        case Paragraph(parts):
            return Paragraph(*map(_part, parts))
        case Table(header, rows, align):
            return Table(header, tuple(tuple(map(_part, row)) for row in rows), align)
        case BulletList(items):
            return BulletList(tuple(map(_part, items)))
        case Terms(rows):
            return Terms(
                tuple((name, _part(value)) for name, value in rows if name not in left_out)
            )
        case Details(summary, inner):
            return Details(_words(summary), tuple(_block(one, left_out) for one in inner))
        case _:
            return block


def _part(part: Part) -> Part:
    match part:
        case str() | Foreign():
            return _words(part)
        case Strong(text):
            return Strong(_marked(text))
        case Text(parts):
            return Text(*map(_part, parts))
        case Claim(text, evidence):
            return Claim(_part(text), evidence)
        case _:
            return part


def _words(text: str | Foreign) -> str | Foreign:
    if isinstance(text, Foreign):
        return Foreign(_marked(text.text), text.limit)
    return _marked(text)


def _marked(text: str) -> str:
    return GOOD.sub(r"unverified \g<0>", text)
