"""Figures: deterministic, whole, and harmless whatever text is in them."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from harness.events import Event
from harness.history import History
from harness.report import svg
from harness.report.figures import rank_lanes
from tests.checks.conftest import healthy

SPACE = "{http://www.w3.org/2000/svg}"


def test_lanes_are_the_same_bytes_every_time() -> None:
    """The same events draw the same bytes, with one lane per rank and its pid."""
    first, second = (rank_lanes(History(healthy(3), size=3), title="it") for _ in range(2))
    assert first == second
    labels = {element.text for element in ET.fromstring(first).iter(f"{SPACE}text")}
    assert {f"rank {rank}, pid {200 + rank}" for rank in range(3)} <= labels


def test_a_failure_is_red_and_a_rank_that_never_started_has_no_life() -> None:
    """A rank that failed is drawn otherwise than one that did not, and nothing is drawn for one that was not there."""
    events = [event for event in healthy(2) if event.rank != 1]
    events.append(Event(ns=10_000_000, by="rank", rank=0, pid=200, name="rank.error", values={"type": "E"}))
    drawn = rank_lanes(History(sorted(events, key=lambda event: event.ns), size=2), title="it").decode()
    assert svg.BAD in drawn
    assert drawn.count('fill-opacity="0.2"') == 1


def test_no_events_at_all_can_be_drawn() -> None:
    """A trial without a single event still draws its lanes."""
    ET.fromstring(rank_lanes(History([], size=2), title="nothing"))


@given(st.text())
def test_any_text_stays_text(text: str) -> None:
    """Whatever a cell is called, the picture stays well-formed and holds no markup of it."""
    root = ET.fromstring(svg.picture(10, 10, text, [svg.label(0, 0, text), svg.box(0, 0, 1, 1, svg.GOOD, title=text)]))
    assert {element.tag.removeprefix(SPACE) for element in root.iter()} <= {"svg", "title", "rect", "text"}
