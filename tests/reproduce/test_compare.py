"""Two records compared: when a row is the same, when it changed, and when nobody can tell."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.record.model import Record
from harness.report.markdown import render_markdown
from harness.report.terminal import render_terminal
from harness.reproduce.comparison import OtherScenario, Row, as_json, blocks, compare
from tests.kit.records import cell, record

CLEAN = ["pass"] * 59


def row(found: object, kind: str, what: str = "") -> Row:
    rows = [each for each in getattr(found, "rows", ()) if each.kind == kind and what in each.what]
    assert len(rows) == 1, rows
    result: Row = rows[0]
    return result


def test_the_same_run_is_the_same() -> None:
    """A record beside itself is the same in every row, and 59 pairs are named."""
    one = record(cell(candidate=CLEAN))
    found = compare(one, one)
    assert (found.word, found.pairs) == ("same", 59)
    assert {each.word for each in found.rows if each.decides} == {"same"}
    assert not [
        each
        for each in found.rows
        if each.kind in ("scenario", "environment") and each.word != "same"
    ]


def test_shared_seeds_are_paired() -> None:
    """With the same seeds McNemar judges the discordant pairs: six on one side are a change, five
    are not.
    """
    base = record(cell(candidate=["pass"] * 30))
    for failed, word in ((6, "changed"), (5, "cannot tell")):
        other = record(cell(candidate=["fail"] * failed + ["pass"] * (30 - failed)))
        found = row(compare(base, other), "candidate")
        assert found.word == word
        assert f"{failed} of 30 pairs differ, McNemar" in found.how


def test_all_trials_are_counted_where_some_have_no_pair() -> None:
    """0 of 59 against 5 of 5 is a change: the five pairs alone could not show one, whatever became
    of them, and 54 trials would be dropped.
    """
    first = record(cell(candidate=CLEAN))
    second = record(cell(candidate=["fail"] * 5))
    for one, other in ((first, second), (second, first)):
        found = row(compare(one, other), "candidate")
        assert found.word == "changed"
        assert found.how == "Fisher p = 1.3e-07; only 5 pairs, so all trials are counted"


@pytest.mark.parametrize("outcome", ["pass", "fail", "void"])
@pytest.mark.parametrize(("others", "test"), [(8, "McNemar"), (7, "Fisher"), (9, "Fisher")])
def test_outcomes_do_not_choose_the_test(outcome: str, others: int, test: str) -> None:
    """How many trials were made does, those that are void among them."""
    one = record(cell(candidate=["pass"] * 8))
    for where in range(others):
        outcomes = ["pass"] * others
        outcomes[where] = outcome
        found = row(compare(one, record(cell(candidate=outcomes))), "candidate")
        assert test in found.how


def test_other_seeds_are_counted() -> None:
    """With other seeds Fisher judges the counts."""
    found = compare(
        record(cell(candidate=CLEAN)), record(cell(candidate=["fail"] * 9 + CLEAN[9:], seed=5))
    )
    assert found.pairs == 0
    assert row(found, "candidate").word == "changed"
    assert "Fisher" in row(found, "candidate").how
    assert found.word == "changed"


def test_three_failures_of_59_are_no_change() -> None:
    """3 of 59 against 0 of 59 is p = 0.24: the verdicts differ, nobody can tell, and it says what
    would settle it.
    """
    found = compare(
        record(cell(candidate=CLEAN, seed=1)), record(cell(candidate=["fail"] * 3 + CLEAN[3:]))
    )
    rate = row(found, "candidate")
    assert (rate.word, rate.values) == ("cannot tell", ("0 of 59", "3 of 59"))
    assert "p = 0.24" in rate.how
    assert rate.more is not None
    assert 50 < rate.more < 300
    assert row(found, "verdict").word == found.word == "cannot tell"


def test_few_clean_trials_do_not_make_a_same() -> None:
    """Five clean trials on both sides bound nothing: 54 more would."""
    found = row(compare(record(), record()), "candidate")
    assert (found.word, found.more) == ("cannot tell", 54)
    found = row(compare(record(), record(cell(seed=1))), "candidate")
    assert (found.word, found.more) == ("cannot tell", 54)


def test_a_control_that_changed() -> None:
    """A control that no longer fails as required is a change of the results."""
    found = compare(
        record(cell(candidate=CLEAN, control=["fail"] * 8)),
        record(cell(candidate=CLEAN, control=["pass"] * 8)),
    )
    assert row(found, "control").word == "changed"
    assert found.word == "changed"


def test_void_trials_are_not_counted_and_not_paired() -> None:
    """A void trial says nothing in either record."""
    found = compare(
        record(cell(candidate=["void", *CLEAN])), record(cell(candidate=["pass", *CLEAN]))
    )
    assert found.pairs == 59
    assert row(found, "candidate").values == ("0 of 59", "0 of 60")


def test_check_by_check() -> None:
    """The same number of failures by another check is a change of both checks, and the trials stay
    the same.
    """
    one = record(cell(candidate=["fail"] * 30, check="met"))
    other = record(cell(candidate=["fail"] * 30, check="ended"))
    found = compare(one, other)
    assert row(found, "candidate").values == ("30 of 30", "30 of 30")
    assert {each.what: each.word for each in found.rows if each.kind == "check"} == {
        "met failed": "changed",
        "ended failed": "changed",
    }
    assert found.word == "changed"


def test_cells_that_only_one_has() -> None:
    """A cell that is missing or skipped on one side cannot be told."""
    found = compare(
        record(cell("ranks=2", candidate=CLEAN)), record(cell("ranks=3", candidate=CLEAN))
    )
    assert [(each.cell, each.word) for each in found.rows if each.kind == "verdict"] == [
        ("ranks=2", "cannot tell"),
        ("ranks=3", "cannot tell"),
    ]
    skipped = record(
        {**cell(verdict="SKIPPED"), "candidate": None, "control": None, "measured": []}
    )
    assert compare(record(), skipped).word == "cannot tell"
    assert compare(skipped, skipped).word == "cannot tell"


def test_no_trial_that_counts() -> None:
    """Records without a counted trial compare without an error."""
    nothing = record(cell(candidate=["void"], control=["void"]))
    assert compare(nothing, nothing).word == "cannot tell"


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ([1.0, 1.01, 1.02, 1.03, 1.04, 1.05], [2.0, 2.01, 2.02, 2.03, 2.04, 2.05], "changed"),
        ([1.0, 1.01, 1.02, 1.03, 1.04, 1.05], [1.0, 1.02, 1.03, 1.03, 1.04, 1.06], "same"),
        ([1.0, 1.2, 1.5, 2.0, 2.5, 3.0], [1.1, 1.3, 1.6, 2.1, 2.6, 3.1], "cannot tell"),
        ([1.0, 1.01], [9.0, 9.01], "cannot tell"),
    ],
)
def test_measurements(before: list[float], after: list[float], word: str) -> None:
    """Measurements go by their intervals, and never decide the answer."""
    found = compare(
        record(cell(candidate=CLEAN, load=before)), record(cell(candidate=CLEAN, load=after))
    )
    assert row(found, "measured").word == word
    assert found.word == "same"


def test_times_of_the_trials() -> None:
    """How long the trials took is compared too."""
    found = compare(
        record(cell(candidate=CLEAN, ms=100.0)), record(cell(candidate=CLEAN, ms=300.0))
    )
    time = row(found, "time")
    assert time.word == "changed"
    assert "ratio of medians 3.00" in time.how


def test_context() -> None:
    """Differences of scenario, code, machine, packages and variables are named one by one."""
    one = record()
    packages = [
        {"name": "torch", "version": "2.14.0", "record": "bb"},
        {"name": "extra", "version": "1", "record": None},
    ]
    other = record(
        scenario={"seed": "8", "sha256": "00" * 32},
        environment={
            "packages": packages,
            "host": "ffffffffffff",
            "variant": "cuda",
            "variables": {"LANG": "C"},
        },
        source={"commit": "ee" * 20, "dirty": True},
        arms={"candidate": {"files": {"subject.py": "99" * 32}, "arguments": '{"x":1}'}},
    )
    found = {
        (each.kind, each.what): each.values for each in compare(one, other).rows if not each.cell
    }
    assert found["environment", "package torch"] == ("2.13.0", "2.14.0")
    assert found["environment", "package extra"] == ("none", "1")
    assert found["environment", "variant"] == ("none", "cuda")
    assert found["environment", "variable LANG"] == ("none", "C")
    assert found["environment", "host"] == ("0123456789ab", "ffffffffffff")
    assert found["scenario", "root seed"] == ("7", "8")
    assert found["scenario", "commit"] == (
        "abababababab, clean",
        "eeeeeeeeeeee, with uncommitted changes",
    )
    assert ("scenario", "candidate: subject.py") in found
    assert ("environment", "interpreter") not in found


def test_environments_of_the_arms() -> None:
    """What an arm's own environment holds is compared by version and files.

    Where a wheel came from says nothing.
    """

    def installed(**more: str) -> dict[str, object]:
        return {"name": "tool", "version": "1.0", "wheel": "aa" * 32, "record": "bb" * 32, **more}

    def made(*packages: dict[str, object]) -> Record:
        own = {"python": "3.13.0", "implementation": "cpython", "packages": list(packages)}
        return record(run={"environments": {"candidate": own}})

    def found(*packages: dict[str, object]) -> dict[str, tuple[str, str]]:
        rows = compare(made(installed()), made(*packages)).rows
        return {
            each.what: each.values
            for each in rows
            if each.kind == "environment" and each.word == "changed"
        }

    assert found(installed()) == {}
    assert found(installed(wheel="cc" * 32)) == {}
    assert found(installed(version="1.1")) == {"package tool of the candidate": ("1.0", "1.1")}
    assert found(installed(record="dd" * 32)) == {
        "package tool of the candidate": ("1.0 (bbbbbbbbbbbb)", "1.0 (dddddddddddd)")
    }
    assert found() == {"package tool of the candidate": ("1.0", "none")}


def kept(*, failed: int, counted: int = 5, flag: str = "1") -> Record:
    """A record of a cell of 30 trials that keeps its server, over so many starts."""
    shared = cell(candidate=["fail"] * (6 * failed) + ["pass"] * (30 - 6 * failed))
    counts = {"made": counted, "counted": counted, "voids": 0}
    shared["candidate"]["starts"] = {**counts, "failed": failed, "as_stated": 0}
    shared["control"]["starts"] = {**counts, "failed": counted, "as_stated": counted}
    server = {
        "name": "engine",
        "arm": "candidate",
        "program": ["serve", "--chunk", flag],
        "env": {"A": "b c"},
        "processes": 1,
        "keep": "cell",
        "starts": counted,
        "unready": 0,
        "unhealthy": 0,
        "seconds": 4.0,
        "max_rss_kib": 1024,
        "events": "",
    }
    return record({**shared, "services": [server]})


def test_starts_of_a_kept_server_are_counted_in_place_of_trials() -> None:
    """Six trials that failed after one start are one failure: no change of five starts."""
    found = compare(kept(failed=0), kept(failed=1))
    rate = row(found, "candidate", "starts of the services that failed")
    assert (rate.word, rate.values) == ("cannot tell", ("0 of 5", "1 of 5"))
    assert "Fisher" in rate.how
    assert row(found, "check").word == "cannot tell"
    assert row(found, "check").values == ("0 of 30", "6 of 30")
    assert row(compare(kept(failed=0), kept(failed=5)), "candidate").word == "changed"
    assert row(compare(record(), kept(failed=0)), "candidate").word == "cannot tell"


def test_the_program_of_a_service_is_compared() -> None:
    """Its program and variables belong to what was asked, and are named where they differ."""
    rows = compare(kept(failed=0, flag="1"), kept(failed=0, flag="2")).rows
    (changed,) = (each for each in rows if each.kind == "scenario")
    assert changed.what.startswith("program of engine of the ")
    assert changed.values == ("A='b c' serve --chunk 1", "A='b c' serve --chunk 2")


def test_two_scenarios_are_not_compared() -> None:
    """Two records that answer two questions are an error that names both."""
    with pytest.raises(OtherScenario, match="meet and part"):
        compare(record(), record(scenario={"id": "part"}))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["pass", "fail", "void"]), min_size=1, max_size=12),
    st.lists(st.sampled_from(["pass", "fail", "void"]), min_size=1, max_size=12),
    st.integers(0, 1),
)
def test_any_two_records(one: list[str], other: list[str], seed: int) -> None:
    """Whatever became of the trials, comparing ends, in the same word from either side, and in
    every form.
    """
    first, second = record(cell(candidate=one)), record(cell(candidate=other, seed=seed))
    found = compare(first, second)
    assert found.word == compare(second, first).word
    assert all(
        each.more is None or (each.more > 0 and each.word == "cannot tell") for each in found.rows
    )
    told = list(blocks(found, first, second, verified=(True, False)))
    assert found.word.upper() in render_terminal(told).plain
    assert found.word.upper() in render_markdown(told)
    assert json.loads(
        json.dumps(as_json(found, first, second, verified=(True, False)), allow_nan=False)
    )
