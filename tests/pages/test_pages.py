"""The looks at pages: each sees the fault that it is for, and none where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.browser import Browser, find
from tests.pages.looks import Expected, problems

pytestmark = [
    pytest.mark.slow,
    pytest.mark.whole,
    pytest.mark.skipif(
        find() is None, reason="no Chromium is here; `nox -s pages` installs or names it"
    ),
]

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>page</title>
<meta name="viewport" content="width=device-width"><style>
:root {color-scheme: light dark}
body {margin: 20px; color: #222; background: #fff}
@media (prefers-color-scheme: dark) {body {color: #ddd; background: #111}}
pre {overflow-x: auto; max-width: 100%}
@media print {pre {white-space: pre-wrap}}
STYLE</style></head><body><h1>PASS</h1><p>Do all ranks\u2019 tokenizers <b>agree</b>?</p>
<pre>LONG</pre>
BODY</body></html>"""
ASKED = Expected(answers="what was asked", text="Do all ranks' tokenizers agree?")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages."""
    with Browser() as started:
        yield started


def found(
    browser: Browser, place: Path, *, style: str = "", body: str = "", before: str = ""
) -> list[str]:
    """What is wrong with a page that is sound but for what is put into it."""
    page = (
        PAGE.replace("STYLE", style).replace("LONG", "a line of code " * 40).replace("BODY", body)
    )
    file = place / "page.html"
    file.write_text(page.replace("<h1>", f"{before}<h1>", 1))
    return list(problems(browser, file, first=[ASKED], out=place))


def test_a_sound_page_has_no_problem_and_its_pictures(browser: Browser, tmp_path: Path) -> None:
    """Nothing is found, and there is a picture of each look, and the paper as PDF."""
    assert found(browser, tmp_path) == []
    names = {file.name for file in tmp_path.glob("*.png")}
    assert names == {f"page-{look}.png" for look in ("first", "desktop", "phone", "dark", "paper")}
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in names)
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("fault", "looks", "word"),
    [
        (
            {"body": "<script>nothing.there()</script>"},
            5,
            "an error on the console: ReferenceError",
        ),
        ({"body": "<script>console.error('odd', 7)</script>"}, 5, "an error on the console: odd 7"),
        ({"body": '<img src="missing.png" alt="">'}, 5, "ERR_FILE_NOT_FOUND"),
        (
            {"body": '<div class="wall" style="width: 800px">wall</div>'},
            2,
            "wider than the window, 820 of",
        ),
        ({"style": "p {color: #999}"}, 4, "contrast below 4.5: 2.85 p: Do all"),
        ({"body": '<p style="opacity: 0.4">pale</p>'}, 5, "pale"),
        (
            {"style": "@media (prefers-color-scheme: dark) {p {color: #444}}"},
            1,
            "page, dark: contrast below 4.5",
        ),
        (
            {"style": "@media print {pre {white-space: pre}}"},
            1,
            "page, paper: cut off, because paper does not scroll",
        ),
        (
            {"before": '<div style="height: 650px"></div>'},
            1,
            "page, first: the first 900 x 700 px do not say what was",
        ),
        ({"style": "p {display: none}"}, 1, "do not say what was asked"),
    ],
)
def test_each_fault_is_seen(
    browser: Browser, tmp_path: Path, fault: dict[str, str], looks: int, word: str
) -> None:
    """In the looks that it shows in, and in no other."""
    problems = found(browser, tmp_path, **fault)
    assert len(problems) == looks, problems
    assert all(word in problem for problem in problems)


def test_a_page_after_a_bad_one_is_judged_by_itself(browser: Browser, tmp_path: Path) -> None:
    """Nothing of the page before is left over."""
    assert found(browser, tmp_path, body="<script>nothing.there()</script>")
    assert found(browser, tmp_path) == []
