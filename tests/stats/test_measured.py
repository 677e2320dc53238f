"""Measurements: medians with intervals, per rank and arm; what did not happen is not zero."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.events import Event
from harness.history import History
from harness.scenario import Measure
from harness.stats.measured import rows, summarise, values
from tests.kit.histories import healthy

LOAD = Measure.model_validate({"id": "load", "event": "load", "against": "control"})
HOG = Measure.model_validate({"id": "hog", "probe": "rss"})


def measured(at: str, rank: int, ns: int, private: int) -> Event:
    values = {
        "at": at,
        "private_bytes": private,
        "cpu_seconds": 0.1,
        "read_bytes": 0,
        "written_bytes": 0,
    }
    return Event(
        ns=ns, by="harness", rank=rank, pid=200 + rank, name="rank.measured", values=values
    )


def said(name: str, rank: int, ns: int) -> Event:
    return Event(ns=ns, by="rank", rank=rank, pid=200 + rank, name=name)


def history(*more: Event) -> History:
    return History(sorted([*healthy(), *more], key=lambda event: event.ns), size=2)


def test_time_and_growth_are_of_the_rank_that_shows_them() -> None:
    """Only what a rank began and ended is measured, and growth is the difference between both ends
    of the subject.
    """
    told = history(
        said("load.begin", 0, 4_000_000),
        said("load.end", 0, 5_500_000),
        said("load.begin", 1, 4_000_000),
        measured("subject.begin", 1, 11_000_000, 10),
        measured("subject.end", 1, 12_000_000, 310),
        measured("subject.begin", 0, 11_000_000, 10),
    )
    assert values([LOAD, HOG], told) == {("load", 0): pytest.approx(0.0015), ("hog", 1): 300.0}


def test_a_rank_cannot_measure_itself() -> None:
    """What a rank says of its own memory does not count."""
    forged = Event(
        ns=11,
        by="rank",
        rank=0,
        pid=200,
        name="rank.measured",
        values={"at": "subject.begin", "private_bytes": 1},
    )
    assert values([HOG], history(forged, measured("subject.end", 0, 12_000_000, 310))) == {}


def test_peak_memory_is_told_by_the_process_that_forked_the_rank() -> None:
    """The peak comes from the kernel's account of the rank that has ended, in bytes."""
    peak = Measure.model_validate({"id": "peak", "probe": "peak"})
    told = [
        (
            event._replace(values={**event.values, "max_rss_kib": 1000 + event.rank})
            if event.rank is not None
            else event
        )
        for event in healthy()
        if event.name == "rank.exited"
    ]
    ended = History([event for event in healthy() if event.name != "rank.exited"] + told, size=2)
    assert values([peak], ended) == {("peak", 0): 1_024_000.0, ("peak", 1): 1_025_024.0}


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (9, 2), (20, 6), (59, 22)])
def test_the_interval_is_the_published_one(count: int, rank: int) -> None:
    """The 95 % interval of a median lies between the order statistics that tables of the sign test
    print.
    """
    found = summarise([float(value) for value in range(1, count + 1)])
    assert (found.low, found.high) == (float(rank), float(count + 1 - rank))


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=100))
def test_the_median_lies_in_its_interval(sample: list[float]) -> None:
    """Whatever the values are, the interval holds their median and lies among them."""
    found = summarise(sample)
    assert min(sample) <= found.low <= found.median <= found.high <= max(sample)
    assert found.count == len(sample)


def test_an_arm_without_values_is_absent() -> None:
    """A control that never got to the end of the load is not measured, and a row not asked against
    it leaves it out.
    """
    table = rows(
        [LOAD, HOG],
        size=1,
        arms={"candidate": {("load", 0): [1.0], ("hog", 0): [2.0]}, "control": {("hog", 0): [1.0]}},
    )
    assert [(row.id, sorted(row.arms)) for row in table] == [
        ("load", ["candidate"]),
        ("hog", ["candidate"]),
    ]
