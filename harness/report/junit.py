"""`junit.xml`: the cells as test cases, for whatever shows test results. A view of the record.

One test case per cell; its trials are properties, because readers take a second test case of one
name for a retry. FAIL is a failure; INCONCLUSIVE is an error, since it decided nothing; SKIPPED is
skipped. A self-test that ends as it expects passes, and a finding about somebody else's code
(`role: upstream`) is skipped: neither speaks against a build.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.forms.text import bounded, visible
from harness.record.model import Record
from harness.report.view import Basis, View
from harness.report.words import percent
from harness.stats.outcome import Trial
from harness.stats.tally import Tally
from harness.stats.verdict import CellVerdict

TEXT_LIMIT = 2_000
_XML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def render_junit(basis: Basis) -> bytes:
    """Render the whole file."""
    record = basis.record
    cells = record.judgement.cells
    kinds = [_kind(record, cell) for cell in cells]
    counts = (
        f'tests="{len(cells)}" failures="{kinds.count("failure")}" errors="{kinds.count("error")}"'
    )
    seconds = f'time="{sum(_seconds(cell) for cell in cells):.3f}"'
    skipped = f'skipped="{kinds.count("skipped")}"'
    # Common readers want a time of day without a zone; it is UTC.
    when = f'timestamp="{record.run.made.removesuffix("Z")}"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="rankproof" {counts} {skipped} {seconds}>',
        f'<testsuite name="{_text(record.scenario.id)}" {counts} {skipped} {seconds} {when}>',
        *_properties(_of_run(record, basis.record_digest)),
    ]
    for cell, kind in zip(cells, kinds, strict=True):
        lines += _case(record, cell, kind)
    return ("\n".join((*lines, "</testsuite>", "</testsuites>")) + "\n").encode()


def _kind(record: Record, cell: CellVerdict) -> str:
    """Element that a cell becomes; empty for a test that passes."""
    if cell.verdict == "SKIPPED":
        return "skipped"
    if record.scenario.role == "upstream":
        return "" if cell.verdict == "PASS" else "skipped"
    if record.scenario.expects is not None:
        # A test of the tool on itself: what fails it is another verdict than the stated one, which
        # may be PASS.
        if record.judgement.as_expected:
            return ""
        return "error" if cell.verdict == "INCONCLUSIVE" else "failure"
    if cell.verdict == "PASS":
        return ""
    return "failure" if cell.verdict == "FAIL" else "error"


def _case(record: Record, cell: CellVerdict, kind: str) -> Iterator[str]:
    names = f'classname="{_text(record.scenario.id)}" name="{_text(cell.id)}"'
    yield f'<testcase {names} time="{_seconds(cell):.3f}">'
    yield from _properties(_of_cell(cell))
    if kind:
        reasons = [str(reason) for reason in cell.reasons] or ["no reason was recorded"]
        code = cell.reasons[0].code if cell.reasons else cell.verdict
        what = f'message="{_text(f"{cell.verdict}: {reasons[0]}")}"'
        # `skipped` has neither a type nor, in common schemas, a text of its own: its code is a
        # property.
        if kind == "skipped":
            yield f"<skipped {what}/>"
        else:
            text = "\n".join(_text(line) for line in (*reasons, *_failed(cell)))
            yield f'<{kind} {what} type="{code}">{text}</{kind}>'
    yield "</testcase>"


def _of_run(record: Record, digest: str) -> Iterator[tuple[str, str]]:
    run = record.run
    yield "verdict", record.word
    yield "role", record.scenario.role
    if record.scenario.expects:
        yield "expects", record.scenario.expects
    yield "seed", record.scenario.seed
    yield (
        f"{record.scenario.arm('control')} must fail",
        record.scenario.must_fail or "none: the scenario has no control",
    )
    yield "run", run.id
    yield "rankproof", run.rankproof
    yield "commit", run.source.commit or f"unknown: {run.source.why_unknown}"
    yield "commit changed since", {True: "yes", False: "no", None: "unknown"}[run.source.dirty]
    yield "scenario.sha256", record.scenario.sha256
    yield "results.json.sha256", digest
    yield "view", "not signed: rankproof verify checks report.md and writes this file again"


def _of_cell(cell: CellVerdict) -> Iterator[tuple[str, str]]:
    yield "verdict", cell.verdict
    if cell.reasons:
        yield "codes", " ".join(reason.code for reason in cell.reasons)
    for arm, tally in cell.arms.items():
        yield arm, _tally(arm, tally, holds=cell.control_holds)
        for trial in tally.trials:
            yield (
                f"{arm} {trial.index}",
                f"{_outcome(arm, trial)}, seed {trial.seed}, {trial.ms / 1000:.3f} s",
            )


def _tally(arm: str, tally: Tally, *, holds: bool) -> str:
    void = f", {tally.voids} void" if tally.voids else ""
    if arm == "control":
        word = "held" if holds else "failed"
        return f"{word} as required in {tally.as_stated} of {tally.counted}{void}"
    return (
        f"{tally.failed} of {tally.counted} failed, failure rate below {percent(tally.upper)}{void}"
    )


def _outcome(arm: str, trial: Trial) -> str:
    if trial.outcome == "void":
        return f"void: {trial.void}"
    if arm == "control":
        return (
            f"{trial.outcome}ed as required"
            if trial.as_stated
            else f"not as required: {trial.otherwise or trial.outcome}"
        )
    return trial.outcome


def _failed(cell: CellVerdict) -> Iterator[str]:
    for trial in cell.candidate.trials if cell.candidate else ():
        for failure in trial.failures if trial.outcome == "fail" else ():
            where = f"ranks {', '.join(map(str, failure.ranks))}" if failure.ranks else "the world"
            yield (
                f"candidate {trial.index}: {failure.check} on {where}: {'; '.join(failure.reasons)}"
            )


def _seconds(cell: CellVerdict) -> float:
    return sum(trial.ms for tally in cell.arms.values() for trial in tally.trials) / 1000


def _properties(pairs: Iterator[tuple[str, str]]) -> Iterator[str]:
    yield "<properties>"
    for name, value in pairs:
        yield f'<property name="{_text(name)}" value="{_text(value)}"/>'
    yield "</properties>"


def _text(text: str) -> str:
    """One line of XML text. What XML cannot hold (most control characters, half surrogates) is
    shown as an escape.
    """
    return visible(bounded(text, TEXT_LIMIT)).translate(_XML)


VIEW = View(name="junit.xml", media_type="application/xml", checked=True, render=render_junit)
