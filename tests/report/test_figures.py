"""Figures: deterministic, whole, and harmless whatever text is in them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.events import Event
from harness.history import History
from harness.report import svg
from harness.report.figures import rank_lanes, wires_picture
from harness.report.markdown import render_markdown
from harness.report.shown_trial import wires_section
from harness.stats.shown_trial import wires
from tests.kit.histories import healthy

SPACE = "{http://www.w3.org/2000/svg}"


def test_lanes_are_the_same_bytes_every_time() -> None:
    """The same events draw the same bytes, with one lane per rank and its pid."""
    first, second = (rank_lanes(History(healthy(3), size=3), title="it") for _ in range(2))
    assert first == second
    labels = {element.text for element in ET.fromstring(first).iter(f"{SPACE}text")}
    assert {f"rank {rank}, pid {200 + rank}" for rank in range(3)} <= labels


def test_a_failure_is_red_and_a_rank_that_never_started_has_no_life() -> None:
    """A rank that failed is drawn otherwise than one that did not, and nothing is drawn for one
    that was not there.
    """
    events = [event for event in healthy(2) if event.rank != 1]
    events.append(
        Event(ns=10_000_000, by="rank", rank=0, pid=200, name="rank.error", values={"type": "E"})
    )
    drawn = rank_lanes(
        History(sorted(events, key=lambda event: event.ns), size=2), title="it"
    ).decode()
    assert svg.BAD in drawn
    assert drawn.count('fill-opacity="0.2"') == 1


def test_no_events_at_all_can_be_drawn() -> None:
    """A trial without a single event still draws its lanes."""
    ET.fromstring(rank_lanes(History([], size=2), title="nothing"))


@given(st.text())
def test_any_text_stays_text(text: str) -> None:
    """Whatever a cell is called, the picture stays well-formed and holds no markup of it."""
    root = ET.fromstring(
        svg.picture(
            10, 10, text, [svg.label(0, 0, text), svg.box(0, 0, 1, 1, svg.GOOD, title=text)]
        )
    )
    assert {element.tag.removeprefix(SPACE) for element in root.iter()} <= {
        "svg",
        "title",
        "rect",
        "text",
    }


def joined(
    hosts: int,
    *,
    name: str = "host",
    fault: str = "cut",
    links: object = None,
    carried: object = None,
) -> History:
    """A trial of a rank on each of some hosts: a link of the last one was struck, and what each
    carried is told.
    """
    made = [{"name": f"{name}-{host}", "address": f"10.77.0.{host + 1}"} for host in range(hosts)]
    sent = [
        {"source": one, "target": other, "packets": 7, "bytes": 3000, "lost": 0}
        for one in range(hosts)
        for other in range(hosts)
        if one != other
    ]
    told: list[tuple[str, str, int | None, dict[str, Any]]] = [
        ("harness", "world.begin", None, {"hosts": list(range(hosts))}),
        ("server", "hosts.made", None, {"hosts": made}),
        (
            "server",
            "wire.struck",
            0,
            {"fault": fault, "links": [[hosts - 1, 0]] if links is None else links},
        ),
        ("server", "wire.undone", 0, {"fault": fault, "matched": 9, "struck": 4}),
        ("server", "wire.carried", None, {"links": sent if carried is None else carried}),
    ]
    events = [
        Event(ns=(place + 1) * 1_000_000, by=by, rank=rank, name=event, values=values)  # type: ignore[arg-type]
        for place, (by, event, rank, values) in enumerate(told)
    ]
    return History(events, size=hosts)


@pytest.mark.parametrize(("hosts", "lines"), [(2, 1), (3, 3), (64, 28)])
def test_hosts_that_were_joined_have_a_line_and_the_struck_one_is_red(
    hosts: int, lines: int
) -> None:
    """Each two of at most eight hosts, the struck ones among them.

    Beside it, what was done to how many packets.
    """
    found = wires(joined(hosts))
    assert found is not None
    first, second = (wires_picture(found, title="it") for _ in range(2))
    assert first == second
    root = ET.fromstring(first)
    drawn = [
        line.get("stroke")
        for line in root.iter(f"{SPACE}line")
        if line.get("stroke-width") in ("1.5", "2.5")
    ]
    assert (len(drawn), drawn.count(svg.BAD)) == (lines, 1)
    texts = [element.text for element in root.iter(f"{SPACE}text")]
    assert "← cut at rank 0: applied to 4 of 9 packets" in texts
    assert {"host-0", f"host-{hosts - 1}"} <= set(texts)
    assert [(strike.from_ms, strike.to_ms) for strike in found.strikes] == [(2.0, 3.0)]


HOSTILE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["source", "target", "packets"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@example("<script>|`\u202e", [0, 1], {"source": 0})
@given(st.text(max_size=20), HOSTILE, HOSTILE)
def test_whatever_a_wire_is_said_to_have_done_can_be_drawn(
    name: str, links: object, carried: object
) -> None:
    """Forged evidence of any form, and hosts and faults of any name, give a picture, whole and
    without their markup.
    """
    found = wires(joined(3, name=name, fault=name, links=[[2, 0], links], carried=[carried]))
    assert found is not None
    root = ET.fromstring(wires_picture(found, title=name))
    assert {element.tag.removeprefix(SPACE) for element in root.iter()} <= {
        "svg",
        "title",
        "rect",
        "text",
        "line",
    }
    blocks = wires_section(
        found, picture="evidence/figures/a.wires.svg", evidence="evidence/a/events.jsonl"
    )
    assert not re.search(r"(?<!\\)<script", render_markdown(blocks))


def test_a_trial_without_hosts_has_no_wires() -> None:
    """On this machine as it is there is nothing to draw."""
    assert wires(History(healthy(2), size=2)) is None
