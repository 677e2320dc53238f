"""The first screen: it says what the evidence says, of the control above all, and changes with
it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from harness.events import Event
from harness.history import History
from harness.record.facts import InputFacts, RevisionFacts
from harness.record.model import Record
from harness.report.appendix import appendix_blocks, render_appendix
from harness.report.blocks import Claim, Evidence, Paragraph
from harness.report.figures import rank_lanes
from harness.report.html import render_page
from harness.report.markdown import render_markdown
from harness.report.report import render, report_blocks
from harness.report.summary import first_screen, over_cells, share_in_words, summary
from harness.report.terminal import render_terminal
from harness.report.view import Basis
from harness.report.words import ranks_in_words
from harness.scenario import cells, parse_scenario
from harness.stats.outcome import EVENTS, CellFacts, trial_folder
from harness.stats.shown_trial import lifelines
from harness.stats.verdict import ArmCode, Judgement, judge
from tests.kit.histories import healthy
from tests.kit.records import cell, record
from tests.stats.test_verdict import broken, clean, judged, loosened

KEY = "SHA256:" + "k" * 43
REVISION = {"repo": None, "rev": "main", "tree": "cd" * 20, "patch": None, "folder": ""}


def shown(judgement: Judgement, **more: Any) -> str:
    """The first screen of a report on this judgement, without its links."""
    made = record(**more).model_copy(update={"judgement": judgement})
    head = render_markdown(report_blocks(made, manifest_digest="1" * 64)).split("\n## ")[0]
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head)


def text(made: Record) -> str:
    return render(made, manifest_digest="1" * 64).decode()


def page(made: Record) -> str:
    return render_page(
        Basis(record=made, manifest_digest="1" * 64, read=lambda _: b"<svg/>")
    ).decode()


@pytest.mark.parametrize(
    ("control", "said"),
    [
        (
            [broken()] * 5,
            "The control failed as required in 5 of 5 trials: AssertionError at `assert tokenizer` on rank 1.",
        ),
        (
            [broken(source="assert vocabulary")] * 5,
            (
                "The control failed as required in 0 of 5 trials. Instead, in 5 trials: rank 1 did not fail at"
                " 'assert tokenizer'"
            ),
        ),
        (
            [broken("KeyError")] * 5,
            "of 5 trials. Instead, in 5 trials: rank 1 did not raise AssertionError",
        ),
        (
            [broken()] * 3 + [broken(ranks=(0, 1))] * 2,
            (
                "trials: AssertionError at `assert tokenizer` on rank 1. Instead, in 2 trials: check `ready`"
                " failed on ranks 0, 1"
            ),
        ),
        (
            [healthy()] * 5,
            "The control failed as required in 0 of 5 trials. Instead, in 5 trials: check `ready` passed on every rank.",
        ),
    ],
)
def test_how_the_control_failed_is_said_in_words(control: Sequence[list[Event]], said: str) -> None:
    """Type, line and ranks of the control's failure, in how many trials.

    Where it failed elsewhere, that it did.
    """
    first = shown(judged(clean(59), control))
    assert said in re.sub(r" \(control-\d+/events\.jsonl\)", "", first)


def test_ends_that_are_no_errors_are_said_too() -> None:
    """An exit code, and a check that only fails, each as the scenario states it."""
    told = {}
    for name, stated in {
        "code": "{check: ended, ranks: nonzero, code: 1}",
        "check": "{check: ready, ranks: nonzero}",
    }.items():
        asked = f"""
schema: 1
id: it
title: It
question: Does it?
subject:
  entry: subject:run
  candidate: {{with: {{a: 1}}}}
  control: {{with: {{a: 2}}, must_fail: {stated}}}
matrix: {{ranks: [2], backend: [gloo]}}
trials: {{candidate: 1, control: 1, accept: {{failure_rate_below: 99%}}}}
checks:
  - {{id: ready, kind: event, ranks: every, event: tokenizer.ready}}
  - {{id: ended, kind: exit, ranks: every, code: 0}}
"""
        scenario = parse_scenario(asked.encode(), name="it")
        one = cells(scenario)[0]
        ended = [
            (
                event._replace(values={"code": 1, "signal": None})
                if (event.rank, event.name) == (1, "rank.exited")
                else event
            )
            for event in healthy()
            if (event.rank, event.name) not in ((1, "subject.end"), (1, "tokenizer.ready"))
        ]
        silent = [
            event for event in healthy() if (event.rank, event.name) != (1, "tokenizer.ready")
        ]
        events = {"candidate": healthy(), "control": ended if name == "code" else silent}
        files = {
            f"{trial_folder(one.slug, arm, 0)}/{EVENTS}": (
                "".join(event.line() + "\n" for event in listed).encode()
            )
            for arm, listed in events.items()
        }
        arms = {arm: ArmCode(files={}, arguments={"a": arm}) for arm in events}
        facts = CellFacts(id=one.id, skipped=None, candidate=1, control=1)
        told[name] = shown(
            judge(scenario, [(one, facts)], arms=arms, read=files.__getitem__, names=files)
        )
    assert "The control failed as required in 1 of 1 trial: code 1 on rank 1." in told["code"]
    assert "in 1 of 1 trial: check `ready` failed (`" in told["check"]


def test_a_scenario_without_a_control_says_so() -> None:
    """No control, and a control that was not run: the run does not show that the checks can fail."""
    without = record(scenario={"must_fail": None})
    limit = "so this run does not show that its checks can fail."
    assert f"**Control.** There is no control, {limit}" in text(without)
    skipped = cell(verdict="SKIPPED")
    skipped.update(candidate=None, control=None)
    assert f"**Control.** The control was not run, {limit}" in text(record(skipped))


def test_who_signs_is_on_the_first_screen() -> None:
    """The key that the record names, with the name it is listed under.

    And that nobody signed where nobody did.
    """
    unsigned = "**Signed by.** **no one**, so anyone with access to this file may have changed it."
    assert unsigned in text(record())
    signed = text(record(run={"signer": {"key": KEY, "name": "release@example.org"}})).split(
        "\n## "
    )[0]
    assert f"`{KEY}`, listed for release@example.org in the tested repository" in signed
    assert f"--signer {KEY}" in text(record(run={"signer": {"key": KEY, "name": None}}))


def test_the_worst_cell_comes_first() -> None:
    """FAIL, then INCONCLUSIVE, what was skipped, PASS.

    Of two failures the one with the larger share.
    """
    skipped = cell("e=5", verdict="SKIPPED")
    skipped.update(candidate=None, control=None)
    made = record(
        cell("a=1"),
        skipped,
        cell("b=2", verdict="INCONCLUSIVE"),
        cell("c=3", candidate=["fail", *["pass"] * 9]),
        cell("d=4", candidate=["fail"] * 5),
    )
    rows = re.findall(r"^\| ([a-e]=\d) \|", text(made), re.MULTILINE)
    assert rows[:5] == ["d=4", "c=3", "b=2", "e=5", "a=1"]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("its exit was not observed (found pid {})", "4 of 4 failed trials (equal except for pids"),
        ("it did not exit within {}.5 s", "4 of 4 failed trials (equal except for pids and times)"),
        ("it took {} ms longer", "4 of 4 failed trials (equal except for pids and times)"),
        ("found {}", "1 of 4 failed trials: check `met` failed: found 1;"),
        ("rank {}: AssertionError", "1 of 4 failed trials: check `met` failed: rank 1"),
        ("pid 7", "4 of 4 failed trials: check `met` failed: pid 7."),
    ],
)
def test_equal_failures_are_one_way(reason: str, said: str) -> None:
    """What the harness counts or measures anew in each trial makes no failure another one; a value
    of the subject does.
    """
    one = cell(candidate=["fail"] * 4)
    for number, trial in enumerate(one["candidate"]["trials"], 1):
        trial["failures"][0]["reasons"] = [reason.format(number)]
    first = re.sub(r" ?\(\[[^]]*\]\([^)]*\)\)", "", text(record(one)).split("\n## ")[0])
    assert said in first


def test_numbers_of_the_subject_are_not_left_out() -> None:
    """What a rank raised is compared as it stands."""
    one = cell(candidate=["fail"] * 2)
    for number, trial in enumerate(one["candidate"]["trials"]):
        trial["first"] = {"ms": 1.0, "rank": 1, "line": 1, "what": f"OSError: pid {number}"}
    assert "1 of 2 failed trials: [OSError: pid 0, first on rank 1]" in text(record(one))


def test_the_first_screen_names_engine_and_model() -> None:
    """A ready subject, over how many ranks, and each input with its digest; a run of the
    repository's own code without inputs has no such row.
    """
    given = InputFacts(
        name="model", given="./mine", digest="ab" * 32, pinned=True, revision=None, files={}
    )
    made = record(cell("a"), {**cell("b"), "ranks": 4}, scenario={"use": "hf-tensor"})
    made = made.model_copy(update={"run": made.run.model_copy(update={"inputs": [given]})})
    said = f"`hf-tensor` over 2 and 4 ranks; input `model`: `./mine`, sha256 `{'ab' * 32}`"
    assert f"**Tested.** {said} ([evidence/run.json](evidence/run.json)).\n" in text(made)
    assert "**Tested.**" not in text(record())


def test_a_terminal_names_the_file_of_a_line() -> None:
    """Without its folders: the trial is named beside it."""
    claim = Claim("odd", (Evidence("evidence/cell/candidate-00000/events.jsonl", 400),))
    assert render_terminal([Paragraph(claim)]).plain == "odd (events.jsonl:400)"


def test_names_of_checks_may_be_on_lines_of_their_own() -> None:
    """The checks of every world share a row: each name is code by itself, so that a line can break
    between two of them and a window of 1100 pixels holds the table.
    """
    drawn = page(record().model_copy(update={"judgement": judged(clean(2), [broken()] * 2)}))
    named = re.findall("<code>([^<]*)</code>", drawn)
    assert {"world:ranks-are-processes", "group-is-whole", "kept-to-the-end"} <= set(named)
    assert not [name for name in named if ", " in name]


def test_what_a_check_found_is_shown_whole() -> None:
    """A value of 290 characters is not cut, on no screen of the report."""
    long = f"EQUIVALENT: {'within the noise, ' * 15}end"
    found = judged(clean(2), [broken()] * 2)
    sample = found.cells[0].samples["candidate"]
    row = next(row for row in sample.rows if row.cells)
    row.cells[0] = row.cells[0].model_copy(update={"shown": long})
    made = record().model_copy(update={"judgement": found})
    assert "more characters)" not in text(made)
    assert long in text(made)


def test_a_finding_does_not_look_like_a_fix() -> None:
    """`role: upstream`: neither a green verdict nor green cells, and it is said that nothing is
    fixed.
    """
    made = record(cell(verdict="PASS"), scenario={"role": "upstream"})
    drawn = page(made)
    assert '<header class="finding">' in drawn
    assert '<body class="finding">' in drawn
    assert "Finding<small>SHOWN</small>" in drawn
    assert (
        "it does not count towards a release decision. Both arms run the same code, so this run does not test a"
        " fix." in text(made)
    )
    changed = made.model_copy(update={"changed": ["-a", "+b"]})
    assert "does not test a fix" not in text(changed)
    assert '<header class="pass">' in page(record(cell(verdict="PASS")))


def test_each_commit_is_there_in_full_once() -> None:
    """Of arms from revisions both commits are named, each in full once, and no commit is called
    unknown.
    """
    made = record(
        source={"commit": None, "tree": None, "dirty": None, "why_unknown": "no repository"}
    )
    commits = {"candidate": "a1" * 20, "control": "b2" * 20}
    arms = {
        name: arm.model_copy(
            update={"revision": RevisionFacts.model_validate({**REVISION, "commit": commits[name]})}
        )
        for name, arm in made.arms.items()
    }
    report = text(made.model_copy(update={"arms": arms}))
    assert [report.count(commit) for commit in commits.values()] == [1, 1]
    assert "commit unknown" not in report
    assert "commit unknown: no repository" in text(made)
    assert text(record()).count("ab" * 20) == 1


def test_packages_that_no_arm_saw_are_one_line() -> None:
    """Of programs, and of arms in environments of their own, the report names no package of the
    harness; the appendix lists them all, and says that ranks did not use them.
    """
    assert "| packages | [torch 2.13.0](evidence/run.json) |" in text(record())
    programs = record(scenario={"program": ["sh", "rank.sh"]})
    assert "torch" not in text(programs)
    appendix = render_appendix(programs).decode()
    assert "### 1 package in the harness's environment (not used by the ranks)\n" in appendix
    assert "\ntorch==2.13.0\n" in appendix


def test_blanks_at_the_end_of_a_line_are_readable_in_a_diff() -> None:
    r"""A changed blank is shown as a sign, an unchanged one not at all; no `\x20` anywhere."""
    made = record().model_copy(update={"changed": [" ", " same ", "-old ", "+new"]})
    report = text(made)
    assert "\\x20" not in report
    assert "\n\n same\n-old␠\n+new\n" in report


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([], "no rank"),
        ([3], "rank 3"),
        ([0, 1], "ranks 0, 1"),
        (range(1, 64), "ranks 1-63"),
        ([0, 2, 3, 4, 9], "ranks 0, 2-4, 9"),
    ],
)
def test_ranks_in_words(ranks: Sequence[int], words: str) -> None:
    """Three ranks or more in a row are a span."""
    assert ranks_in_words(ranks) == words


def test_a_world_of_64_ranks_is_told_in_groups() -> None:
    """Ranks that did the same share a line, a lane and an answer: rank 7, which failed, is alone and
    first.
    """
    badly = {"code": 3, "signal": None}
    events = [
        event._replace(values=badly) if (event.rank, event.name) == (7, "rank.exited") else event
        for event in healthy(64)
    ]
    history = History(events, size=64)
    assert [(ranks_in_words(line.ranks), line.ended) for line in lifelines(history)] == [
        ("ranks 0-6, 8-63", "code 0"),
        ("rank 7", "code 3"),
        ("no rank", ""),
    ]
    lanes = rank_lanes(history, title="it").decode()
    assert lanes.count('fill-opacity="0.2"') == 2
    assert "ranks 0-6, 8-63" in lanes
    assert "rank 63</title>" in lanes, "whose tick it is"
    answers = [
        {"rank": rank, "passed": rank != 7, "shown": "code 3" if rank == 7 else "code 0", "line": 1}
        for rank in range(64)
    ]
    pids = [{"rank": rank, "passed": True, "shown": f"pid {rank}", "line": 1} for rank in range(64)]
    rows = [
        {"check": "ended", "kind": "exit", "passed": False, "cells": answers},
        {"check": "own", "kind": "event", "passed": True, "cells": pids},
    ]
    sample = {
        "index": 0,
        "evidence": "evidence/x/events.jsonl",
        "outcome": "fail",
        "rows": rows,
        "printed": [],
    }
    wide = {**cell("ranks=64", candidate=["fail"] * 5), "ranks": 64}
    made = record(
        {
            **wide,
            "samples": {
                "candidate": {**sample, "life": [one.model_dump() for one in lifelines(history)]}
            },
        }
    )
    report = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text(made))
    table = re.findall(r"^\| `(?:ended|own)` \| (.*?) \| .*? \|", report, re.MULTILINE)
    assert table == [
        "rank 7: **FAILS**: code 3; ranks 0-6, 8-63: code 0",
        "rank 0: pid 0; ranks 1-63: holds, with 63 other values",
    ]
    appendix = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", render_appendix(made).decode())
    table = re.findall(r"^\| `(?:ended|own)` \| (.*?) \| (.*?) \|", appendix, re.MULTILINE)
    assert table == [
        ("rank 7", "**FAILS**: code 3"),
        ("ranks 0-6, 8-63", "code 0"),
        ("rank 0", "pid 0"),
        ("ranks 1-63", "holds, with 63 other values"),
    ]
    assert "- ranks 0-6, 8-63: rank.started (server)" in appendix
    assert "- the world: world.begin (harness) 0.0" in appendix
    blocks = [*report_blocks(made, manifest_digest="1" * 64), *appendix_blocks(made)]
    assert max(map(len, render_terminal(blocks, 100).plain.split("\n"))) <= 100


def test_the_longest_title_is_the_first_line_of_a_report() -> None:
    """A terminal of 80 columns shows a title of 80 characters on one line."""
    title = "A title that has 80 characters:".ljust(80, "e")
    made = record(cell("ranks=2"), scenario={"title": title})
    shown = render_terminal(report_blocks(made, manifest_digest="1" * 64), 80).plain
    assert shown.splitlines()[:2] == [title, ""]


def test_a_control_that_no_rank_failed_is_worded() -> None:
    """A trial that failed by a check alone says by which.

    One in which all held says that.
    """
    fine = shown_control([loosened()] * 5)
    assert (
        ", no rank raised an error, and every rank exited on its own. The trial failed the check"
        " `world:" in fine
    )
    assert ", every rank exited on its own, and every check passed." in shown_control(
        [healthy()] * 5
    )


def test_every_cell_says_how_its_control_ended() -> None:
    """Not the first one alone, whose trial is shown."""
    made = text(record(cell("a"), cell("b", control=["fail", "pass"]), cell("c")))
    section = made.split("## Negative control")[1].split("\n## ")[0]
    assert "- b: the control failed as required in 1 of 2 trials.\n" in section
    for name in "ac":
        assert f"- {name}: the control failed as required in 5 of 5 trials.\n" in section


def shown_control(control: Sequence[list[Event]]) -> str:
    made = record().model_copy(update={"judgement": judged(clean(59), control)})
    return text(made).split("## Negative control")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    ("run", "said", "unsaid"),
    [
        (
            {},
            "Void trials are not counted; up to max_voids of them are replaced.",
            "it is replaced and",
        ),
        ({}, "nvidia-smi found no GPU.", "No GPU was used"),
        ({}, "a server that may already have imported libraries", "had imported torch"),
        (
            {"room": {"home": "room", "kept": ["CARGO_HOME"], "compiled": ["TRITON_CACHE_DIR"]}},
            (
                "in a compiler cache (TRITON_CACHE_DIR) or in one of the user's tool folders (CARGO_HOME)."
            ),
            "independent trials, but the trials",
        ),
        (
            {"room": {"home": "shared", "kept": [], "compiled": []}},
            "the trials of all arms shared the user's home folder",
            "The same applies to",
        ),
    ],
)
def test_what_was_not_looked_at_is_not_said(run: dict[str, Any], said: str, unsaid: str) -> None:
    """Nobody recorded what a server had imported.

    What a trial leaves behind, trials of the other arm can read.
    """
    made = record(run=run)
    page = re.sub(r"\\", "", text(made) + render_appendix(made).decode())
    assert said in page
    assert unsaid not in page


@pytest.mark.parametrize(
    ("sizes", "ranks", "words"),
    [
        ((2, 4), ((0, 1), (0, 1, 2, 3)), "every rank"),
        ((2, 4), ((1,), (1, 2, 3)), "every rank but 0"),
        ((2, 4), ((1,), (3,)), "the last rank"),
        ((2, 4), ((0,), (0, 1, 2)), "every rank but the last"),
        ((3, 4), ((2,), (2,)), "rank 2"),
        ((3, 4), ((0, 2), (1,)), "ranks that depend on the cell (ranks 0, 2; rank 1)"),
        ((3,), ((0, 1, 2),), "ranks 0-2"),
    ],
)
def test_ranks_of_several_cells_are_one_rule_where_there_is_one(
    sizes: Sequence[int], ranks: Sequence[Sequence[int]], words: str
) -> None:
    """All of them are named, in every cell, and no other."""
    made = record(*({**cell(f"ranks={size}"), "ranks": size} for size in sizes))
    of_cells = {one.id: one for one in made.judgement.cells}
    by_cell = dict(zip(of_cells, map(set, ranks), strict=True))
    assert over_cells(of_cells, by_cell) == words


def test_a_fix_that_fails_where_the_bug_does_not_stands_out() -> None:
    """A control that is stated to hold in a cell holds there, and the candidate fails: the first
    screen says it.
    """
    worse = cell("ranks=4", candidate=["pass", "fail"], control=["pass", "pass"])
    said = "ranks=4: the candidate failed in 1 trial, but the control in none."
    for held in (True, False):
        made = record({**worse, "control_holds": held})
        text = render_markdown(summary(made))
        assert (said in text) is held


def test_ways_that_differ_in_numbers_are_one_only_in_messages() -> None:
    """Two lines of source that differ in a number are two lines; two messages that do are one."""
    for where, many in (("at", 2), ("saying", 1)):
        ways = [
            {
                "what": "ValueError",
                "where": where,
                "place": f"code {number}",
                "ranks": [number],
                "first": 0,
                "count": 2,
            }
            for number in (1, 2)
        ]
        one = cell("ranks=3", control=["fail", "fail"])
        one["control"] = {**one["control"], "how": ways, "as_stated": 2}
        text = render_markdown(summary(record({**one, "ranks": 3})))
        assert text.count("ValueError") == many


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.0, "0% of the limit"),
        (0.015, "1.5% of the limit"),
        (0.9999, "over 99.9% of the limit"),
        (1.0, "100% of the limit"),
        (1.00001, "1.00001 times the limit"),
        (3e5, "300000 times the limit"),
    ],
)
def test_a_share_is_not_rounded_over_its_limit(share: float, words: str) -> None:
    """What is below the limit does not read as the limit, nor what is beyond it."""
    assert share_in_words(share) == words


@pytest.mark.parametrize("cells", [1, 6])
def test_the_first_screen_fits_a_terminal(cells: int) -> None:
    """Of six cells it is at most 36 lines of 80 columns, which leaves room for who signed it."""
    made = record(*[cell(f"ranks={number},backend=mlx-ring") for number in range(cells)])
    lines = render_terminal(first_screen(made), 80, record=made).plain.splitlines()
    assert len(lines) <= 36
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("PASS  ")
