"""The first screen has every row and fits a terminal of 80 columns and 40 lines, whatever came out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.conformance.judgement import ControlResult
from harness.conformance.record import (
    LOST,
    MAY_HARM,
    NOT_NAMED,
    ONLY_WITH_ALL,
    AgainstFacts,
    ConformanceFacts,
    ConformanceRecord,
    RowResult,
    ServerFacts,
    verdict_of,
)
from harness.conformance.report import first_screen
from harness.conformance.rows import ROWS
from harness.conformance.rows.kinds import UNDECIDED, WRONG
from harness.conformance.rows.row import Word, shown
from harness.record.facts import SignerFacts
from harness.report.terminal import render_terminal

BELOW = 4
"""Lines that a command prints below it: a blank one, where the report is, how to verify it."""
KEY = "SHA256:" + "a" * 43
WORDS: tuple[Word, ...] = ("CONFORMS", "VIOLATES", "REFUSES", "CANNOT TELL", "NOT ASKED")
REASONS = (
    NOT_NAMED,
    ONLY_WITH_ALL,
    MAY_HARM,
    "needs --tokenizer FOLDER",
    "no time was left after 150 s (--within)",
    f"{LOST} after echo: {'it ended ' * 40}",
)


def result(name: str, word: Word, *, about: str = "", fact: str = "kept") -> RowResult:
    """A row that came out so, with a control where it has one."""
    does = ROWS[name].defect.does
    on = {"CONFORMS": "this server", "CANNOT TELL": "no server"}.get(word, "our correct server")
    control = ControlResult(shown=word != "CANNOT TELL", on=on, does=does, fact=fact)  # type: ignore[arg-type]
    evidence = "" if word == "NOT ASKED" else f"evidence/rows/{name}/bare-1.jsonl"
    return RowResult(
        name=name,
        promises=ROWS[name].promises,
        word=word,
        about=about,
        fact=fact,
        requests=3,
        count="3 of 3",
        evidence=evidence,
        control=None if word == "NOT ASKED" else control,
        curls=[],
        places={},
    )


def record(rows: list[RowResult], *, against: AgainstFacts | None = None) -> ConformanceRecord:
    """What came out of a server at an address, with nothing else that the first screen has."""
    server = ServerFacts(
        engine=None,
        requested="http://127.0.0.1:8000/v1",
        mode="",
        base="http://127.0.0.1:8000",
        model="m",
        command=[],
        versions={},
        starts=0,
        exits=[],
        authorized=False,
    )
    facts = ConformanceFacts.model_construct(
        server=server, signer=SignerFacts(key=KEY, name=None), against=against
    )
    return ConformanceRecord.model_construct(
        format=1, facts=facts, rows=rows, verdict=verdict_of(rows), unsteady="", tells=[]
    )


def lines_of(found: ConformanceRecord) -> list[str]:
    return render_terminal(first_screen(found), 80).plain.splitlines()


@st.composite
def rows(draw: st.DrawFn) -> list[RowResult]:
    """Every row with some word, and a fact as servers make them."""
    found: list[RowResult] = []
    most = draw(st.sampled_from(WORDS))
    for name in ROWS:
        word = draw(st.sampled_from((most, *WORDS)))
        about = ""
        fact = draw(st.sampled_from(("kept", shown("x" * 200), "é世" * 70, "a short fact")))
        if word == "VIOLATES":
            about = draw(st.sampled_from(sorted(WRONG)))
        elif word == "CANNOT TELL":
            about = draw(st.sampled_from(sorted(UNDECIDED)))
        elif word == "NOT ASKED":
            fact = draw(st.sampled_from(REASONS))
        found.append(result(name, word, about=about, fact=fact))
    return found


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(found=rows(), against=st.none() | st.sampled_from(WORDS))
def test_the_first_screen_fits_whatever_came_out(
    found: list[RowResult], against: Word | None
) -> None:
    """With every row, the question, the controls, what was not tested and who signed; not cut."""
    older = None
    if against is not None:
        older = AgainstFacts(
            id="x",
            record="0" * 64,
            server="http://127.0.0.1:7000/v1",
            words=dict.fromkeys(ROWS, against),
        )
    lines = lines_of(record(found, against=older))
    text = " ".join(" ".join(lines).split())
    assert len(lines) <= 40 - BELOW, len(lines)
    assert max(map(len, lines)) <= 80
    assert "..." not in text
    assert "more characters" not in text
    for row in found:
        if row.word != "NOT ASKED":
            assert row.name in text
    for part in ("Question ", "Controls ", "Not tested ", f"Signed by {KEY}", verdict_of(found)):
        assert part in text


def test_facts_are_stated_as_they_are_where_they_fit() -> None:
    """Rows with the same fact share a line, and a long text of the server is left to the rows."""
    found = [result(name, "CONFORMS") for name in ROWS]
    by_name = {row.name: place for place, row in enumerate(found)}
    fact = "whole: 1 choice although 2 were requested"
    for name in ("n", "chat-n"):
        found[by_name[name]] = result(name, "VIOLATES", about="count", fact=fact)
    long = f"stop 'ab': {shown('x' * 99)}, not 'x'"
    found[by_name["stop-string"]] = result("stop-string", "VIOLATES", about="stop", fact=long)
    found[by_name["order"]] = result("order", "CANNOT TELL", about="uncontrolled", fact="z" * 300)
    lines = lines_of(record(found))
    assert f"* VIOLATES n, chat-n: {fact}" in lines
    assert "* VIOLATES stop-string: the text does not end at the stop string" in lines
    assert "* CANNOT TELL order: its control did not work" in lines
    assert lines[0] == "Conformance of http://127.0.0.1:8000/v1"


def test_kinds_take_the_place_of_facts_where_those_do_not_fit() -> None:
    """Rows of one kind share a line then, so a server that breaks everything is told on a screen."""
    kinds = ("ignored", "schema", "text")
    found = [
        result(name, "VIOLATES", about=kinds[place % 3], fact=f"{name} {'is not kept ' * 8}")
        for place, name in enumerate(ROWS)
    ]
    text = "\n".join(lines_of(record(found)))
    assert "is not kept" not in text
    assert text.count("* VIOLATES ") == 3
    assert "a parameter is accepted and ignored" in " ".join(text.split())
