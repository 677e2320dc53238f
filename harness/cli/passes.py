"""What the passes of `rankproof reproduce` print."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections import Counter

from harness.cli.running import program
from harness.forms.text import plural, visible
from harness.reproduce.passes import Outcome, Passes, answer, between, joint, seeds_word, why_not_varied
from harness.reproduce.rerun import new_root
from harness.reproduce.vary import WALKED, Walk
from harness.run.run import Finished, Interrupted, RunError
from harness.stats.reproduction import Answer

LIMIT = 160


def print_plan(options: argparse.Namespace, passes: Passes) -> None:
    """How many runs there will be, before the first one."""
    names = ["with fresh seeds" if options.only_fresh_seeds else "with the report's seeds"]
    names += ["with fresh seeds"] if options.fresh_seeds else []
    if len(names) > 1 or options.vary:
        print(f"passes: {len(names)}, {' and then '.join(names)}")
    if options.vary:
        expected = passes.walk()
        more = plural(len(expected.changes), "run")
        print(f"vary: if the answer is {' or '.join(WALKED)}, at most {more} more, with one change each:")
        for change in expected.changes:
            print(f"  {visible(change.description, LIMIT)}")
        _print_left(expected)


def make(options: argparse.Namespace, passes: Passes) -> Answer | None:
    """Make all passes that are asked for, and print their answers.

    Returns:
        Their answer together; None where a pass could not be made.
    """
    try:
        first = passes.usual()
        answers = [_print_answer(first)]
        if options.fresh_seeds:
            answers.append(_fresh(passes, first))
        if options.vary:
            _vary(passes, first)
    except RunError as error:
        print(f"rankproof reproduce: {error}", file=sys.stderr)
        return None
    if len(answers) > 1:
        print(f"{joint(answers)}: both passes together", flush=True)
    return joint(answers)


def _fresh(passes: Passes, first: Finished) -> Answer:
    root = new_root()
    print(f"second pass: fresh seeds, from the root {root!r}", flush=True)
    second = passes.fresh(first, root=root)
    here = _print_answer(second)
    word = seeds_word(between(passes.prepared.loaded.scenario, first, second))
    print(f"{answer(first)} with the report's seeds, {here} with fresh ones: {word}", flush=True)
    return here


def _vary(passes: Passes, first: Finished) -> None:
    """Walk the changes.

    Raises:
        Interrupted: somebody broke in; what was found until then is printed.
    """
    if why := why_not_varied(answer(first)):
        print(f"vary: nothing is varied: {answer(first)}, so {why}", flush=True)
        return
    walk = passes.walk(first)
    total = len(walk.changes)
    print(f"vary: {plural(total, 'run')}, each with one change against {os.path.relpath(first.report)}", flush=True)
    outcomes: list[Outcome] = []
    made = passes.vary(first, walk.changes)
    try:
        for number, change in enumerate(walk.changes, start=1):
            print(f"  {number} of {total}: {visible(change.description, LIMIT)}", flush=True)
            outcomes.append(next(made))
    except Interrupted:
        _print_outcomes(outcomes, walk)
        raise
    _print_outcomes(outcomes, walk)


def _print_outcomes(outcomes: list[Outcome], walk: Walk) -> None:
    total = len(walk.changes)
    left = [Outcome(change=change, word="not run") for change in walk.changes[len(outcomes) :]]
    print("change: word, answer, report")
    for one in [*outcomes, *left]:
        report = os.path.relpath(one.report) if one.report is not None else ""
        words = ", ".join(filter(None, (one.word, one.answer, report, one.why)))
        print(f"  {visible(f'{one.change.description}: {words}', 500)}")
    _print_left(walk)
    counts = Counter(one.word for one in outcomes)
    if counts["flips it"]:
        print(f"{plural(counts['flips it'], 'single change')} of {total} made it REPRODUCED:")
        for one in outcomes:
            if one.word == "flips it":
                print(f"  {visible(one.change.description, LIMIT)}")
    else:
        print(f"none of {plural(total, 'single change')} is shown to make it REPRODUCED")
    if counts["may flip it"]:
        print("may flip it: REPRODUCED, and the counts do not tell it from the pass without the change: more --trials")
    sys.stdout.flush()


def _print_left(walk: Walk) -> None:
    for one in walk.left:
        print(f"  not varied: {visible(f'{one.what}: {one.then} then, {one.now} here: {one.reason}', 300)}")
    if walk.rare:
        print(f"  not varied: {plural(walk.rare, 'difference')} of a kind that rarely matters", flush=True)


def _print_answer(finished: Finished) -> Answer:
    record = finished.record
    assert record.comparison is not None
    for cell in record.comparison.result.cells:
        print(f"  {cell.id}: {cell.answer}")
        print(
            f"      same verdict: {'yes' if cell.same_verdict else 'no'} ({cell.then} then, {cell.now} here); "
            f"same failure: {cell.same_failure}; same numbers: {cell.same_numbers}"
        )
        for reason in cell.reasons:
            print(f"      {visible(reason, 500)}")
        if more := cell.more_trials:
            total = record.scenario.candidate_trials + more
            print(f"      {more} more trials would settle it, if they go on as here: --trials {total}")
    print(answer(finished))
    print(f"  report: {os.path.relpath(finished.report)}")
    if finished.signer is None:
        print("  UNSIGNED: this report convinces nobody; verification refuses it", flush=True)
    else:
        line = [*program(), "verify", os.path.relpath(finished.report), "--signer", finished.signer.identity()]
        print(f"  verify: {shlex.join(line)}", flush=True)
    return answer(finished)
