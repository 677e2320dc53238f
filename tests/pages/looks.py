"""What a page must keep to on a desktop, a phone, in the dark and on paper, as far as no eyes are
needed for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.pages.browser import Browser

MEASURE = (Path(__file__).parent / "measure.js").read_text()
SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Look:
    """A way to look at a page. Lengths are in CSS pixels; paper is A4 within margins of 1 cm."""

    name: str
    width: int
    height: int
    phone: bool = False
    dark: bool = False
    paper: bool = False


LOOKS = (
    Look(name="desktop", width=1280, height=900),
    Look(name="phone", width=390, height=844, phone=True),
    Look(name="dark", width=1280, height=900, dark=True),
    Look(name="paper", width=718, height=1047, paper=True),
)
# What the first screen has to answer is measured in a small window.
FIRST = Look(name="first", width=900, height=700)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A text that the first screen must hold, whatever its case, and what it answers."""

    answers: str
    text: str


def problems(
    browser: Browser, page: Path, *, first: Sequence[Expected], out: Path | None = None
) -> Iterator[str]:
    """Everything that is wrong with a page, each with where it was seen; pictures go into `out`."""
    for look in (FIRST, *LOOKS):
        browser.open(
            page,
            width=look.width,
            height=look.height,
            phone=look.phone,
            dark=look.dark,
            paper=look.paper,
        )
        measured = browser.evaluate(MEASURE)
        yield from (
            f"{page.stem}, {look.name}: {what}" for what in _of(look, measured, browser, first)
        )
        if out is not None:
            (out / f"{page.stem}-{look.name}.png").write_bytes(
                browser.picture(whole=look is not FIRST)
            )
            if look.paper:
                (out / f"{page.stem}.pdf").write_bytes(browser.pdf())


def _of(
    look: Look, measured: dict[str, Any], browser: Browser, first: Sequence[Expected]
) -> Iterator[str]:
    for complaint in browser.complaints:
        yield f"an error on the console: {complaint}"
    if measured["width"] > measured["window"] + 1:
        yield (
            f"wider than the window, {measured['width']} of {measured['window']} px:"
            f" {_some(measured['wide'])}"
        )
    if look.paper and measured["cut"]:
        yield f"cut off, because paper does not scroll: {_some(measured['cut'])}"
    if faint := [f"{one['contrast']} {one['what']}" for one in measured["faint"]]:
        yield f"contrast below 4.5: {_some(faint)}"
    if look is FIRST:
        seen = _plain(measured["first"])
        for one in first:
            if _plain(one.text) not in seen:
                yield (
                    f"the first {look.width} x {look.height} px do not say {one.answers}:"
                    f" {one.text!r} is not there"
                )


def _plain(text: str) -> str:
    """Without what typography does to a text: case, quotation marks, breaks."""
    return (
        re.sub(r"[\s\u200b\u00ad]+", " ", re.sub("[\u2018\u2019\u201c\u201d`'\"]", "'", text))
        .strip()
        .casefold()
    )


def _some(items: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(items))
    more = f" (and {len(distinct) - SHOWN} more)" if len(distinct) > SHOWN else ""
    return "; ".join(distinct[:SHOWN]) + more
