"""The page over all runs: what it says of each, and that no text of a run acts in it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report.runs_page import (
    NOT_VERIFIED,
    ListedCell,
    ListedRun,
    failure_rate,
    link_to,
    render_runs,
)

TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=40)
HOSTILE = '"><script>alert(1)</script><img src=//evil.example onerror=x> javascript:alert(1) \u202e'


def a_run(**values: object) -> ListedRun:
    """A run that passed, with some of it changed."""
    usual: dict[str, object] = {
        "path": "it/1",
        "name": "it/1",
        "verified": "2026-01-03T10:00:00Z",
        "verdict": "PASS",
        "scenario": "it",
        "title": "It works",
        "question": "Does it?",
        "cells": [ListedCell("ranks=2,backend=gloo", "PASS", 0, 10)],
        "commit": "0123456789abcdef",
        "is_changed": False,
        "made": "2026-01-02T10:00:00Z",
        "signer": "MINE",
        "seconds": 0.5,
        "page": "report.html",
    }
    return ListedRun(**{**usual, **values})  # type: ignore[arg-type]


def page_of(*runs: ListedRun) -> str:
    return render_runs(runs, place="results", made="2026-01-03T11:00:00Z").decode()


class Elements(HTMLParser):
    """Names of the elements of a page, and its links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ("href", "src", "action", "style"):
                self.links.append(f"{name}={value}")


KNOWN = Elements(
    page_of(a_run(), a_run(path="it/2"), a_run(cells=[ListedCell("c", "PASS")] * 9))
).names


@given(
    values=st.dictionaries(
        st.sampled_from(
            ("path", "title", "question", "scenario", "commit", "made", "signer", "why")
        ),
        TEXT | st.just(HOSTILE),
    ),
    verdict=TEXT,
)
def test_no_text_of_a_run_becomes_markup(values: dict[str, str], verdict: str) -> None:
    """Whatever it is: no element, no address and no handler comes of it."""
    refused = a_run(**values, refusal=verdict or "BAD", cells=[ListedCell(verdict, verdict)])
    for run in (a_run(**values, verdict=verdict or "PASS"), refused):
        found = Elements(page_of(run))
        assert found.names <= KNOWN
        assert all(re.match(r"href=\./", link) for link in found.links), found.links


@pytest.mark.parametrize(
    "path", ["javascript:alert(1)", "//evil.example/x", "a b", "a#b?c", "é", "it/\udcff", 'a"b']
)
def test_a_link_leads_below_the_page(path: str) -> None:
    """Names that look like addresses, and bytes that are no text."""
    link = link_to(a_run(path=path))
    assert link.startswith("./")
    assert not set(link) & set(' "<>#?:')


def test_what_was_refused_has_no_verdict() -> None:
    """Whatever its record claims: NOT VERIFIED, and the word of the refusal."""
    run = a_run(verdict="PASS", refusal="EVIDENCE EDITED", why="'a' has sha256 1")
    assert run.word == NOT_VERIFIED
    page = page_of(run)
    assert ">PASS</strong>" not in page
    assert "EVIDENCE EDITED: &#39;a&#39; has sha256 1" in page
    assert "1 run: 1 NOT VERIFIED." in page


def test_a_row_says_what_was_asked_and_what_came_out() -> None:
    """Verdict, title, question, cells, commit, times and signer."""
    cells = [
        ListedCell("ranks=2,backend=gloo", "FAIL", 3, 10),
        ListedCell("ranks=4,backend=gloo", "SKIPPED"),
    ]
    page = page_of(a_run(verdict="FAIL", cells=cells, is_expected=False, is_changed=True))
    for part in (
        ">FAIL</strong>",
        "not as expected",
        "It works",
        "Does it?",
        "ranks=2,backend=gloo: FAIL, 3 of 10 failed",
        "ranks=4,backend=gloo: SKIPPED<",
        "<code>012345678</code>, changed",
        "2026-01-02 10:00",
        "MINE",
        "verified <time>2026-01-03 10:00</time>",
    ):
        assert part in page, part


def test_many_cells_are_folded_and_counted() -> None:
    """The counts by word are shown, and the cells when the row is opened."""
    cells = [ListedCell(f"c{number}", "PASS" if number else "FAIL") for number in range(9)]
    assert "<summary>9 cells: 1 FAIL, 8 PASS</summary>" in page_of(a_run(cells=cells))


def test_the_newest_run_comes_first() -> None:
    """By the time that the signer states."""
    page = page_of(a_run(path="old", made="2025"), a_run(path="new", made="2026"))
    assert page.index("./new/") < page.index("./old/")


def test_an_empty_folder_is_said_to_be_empty() -> None:
    """In place of counts."""
    assert "There is no run here." in page_of()


def test_several_runs_of_a_scenario_are_drawn_oldest_first() -> None:
    """Failure rate and seconds, with a title for who points at a bar; one that was not verified is
    not drawn.
    """
    runs = [
        a_run(path="1", made="2026-01-01", commit="aaaaaaaaaa"),
        a_run(
            path="2",
            made="2026-01-02",
            commit="bbbbbbbbbb",
            verdict="FAIL",
            cells=[ListedCell("c", "FAIL", 1, 4)],
            seconds=2.5,
        ),
        a_run(path="3", made="2026-01-03", commit="cccccccccc", refusal="UNSIGNED"),
    ]
    page = page_of(*runs)
    titles = re.findall(r"<title>([^<]+)</title></rect>", page)
    assert titles == [
        "aaaaaaaaa: 0%, PASS",
        "bbbbbbbbb: 25%, FAIL",
        "aaaaaaaaa: 0.5 s, PASS",
        "bbbbbbbbb: 2.5 s, FAIL",
    ]
    assert "<figure" not in page_of(runs[0], runs[2])


def test_the_failure_rate_is_over_all_cells() -> None:
    """None where no trial counts."""
    cells = [ListedCell("a", "PASS", 0, 6), ListedCell("b", "FAIL", 3, 4)]
    assert failure_rate(a_run(cells=cells)) == 0.3
    assert failure_rate(a_run(cells=[ListedCell("a", "SKIPPED")])) is None


def test_a_row_is_kept_as_json() -> None:
    """What is not a row is refused."""
    run = a_run()
    assert ListedRun.decode(run.encode()) == run
    with pytest.raises((TypeError, KeyError)):
        ListedRun.decode({"path": "x"})
