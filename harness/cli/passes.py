"""The passes of `rankproof reproduce`: with the report's seeds, with fresh ones, with one thing varied at a time."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable

from harness import __version__
from harness.cli.progress import progress_for
from harness.cli.run import program
from harness.forms.text import plural, visible
from harness.record import environment
from harness.record.facts import Varied
from harness.record.model import Record
from harness.record.varied import SEEDS, is_shown, override
from harness.reproduce.passes import between, digest, joint, seeds_word
from harness.reproduce.rerun import Prepared, another, new_root
from harness.reproduce.source import SourceError
from harness.reproduce.vary import WALKED, Change, Walk, walk, word
from harness.run.run import Finished, Interrupted, RunError, run
from harness.stats.reproduction import Answer
from harness.trust.key import Signer

LIMIT = 160
Signing = Callable[[], Signer | None]


def jobs_of(options: argparse.Namespace) -> int:
    """Worlds at the same time."""
    return int(options.jobs or max(1, (os.cpu_count() or 1) // 2))


def print_plan(options: argparse.Namespace, prepared: Prepared) -> None:
    """How many runs there will be, before the first one."""
    passes = ["with fresh seeds" if options.only_fresh_seeds else "with the report's seeds"]
    passes += ["with fresh seeds"] if options.fresh_seeds else []
    if len(passes) > 1 or options.vary:
        print(f"passes: {len(passes)}, {' and then '.join(passes)}")
    if options.vary:
        scenario = prepared.loaded.scenario
        alone = bool(scenario.measure or scenario.hub)
        found = _walk(prepared, start=prepared.start, jobs=1 if alone else jobs_of(options))
        more = plural(len(found.changes), "run")
        print(f"vary: if the answer is {' or '.join(WALKED)}, at most {more} more, with one change each:")
        _print_walk(found)


def make(options: argparse.Namespace, prepared: Prepared, signer: Signing) -> Answer | None:
    """Make all passes that are asked for, and print their answers.

    Returns:
        Their answer together; None where a pass could not be made.
    """
    try:
        first = _pass(options, prepared, signer)
    except (Interrupted, RunError) as error:
        _complain(error)
        return None
    answers = [_print_answer(first)]
    if options.fresh_seeds:
        try:
            answers.append(_fresh(options, prepared, signer, first))
        except (Interrupted, RunError) as error:
            _complain(error)
            return None
    if options.vary and not _vary(options, prepared, signer, first):
        return None
    if len(answers) > 1:
        print(f"{joint(answers)}: both passes together", flush=True)
    return joint(answers)


def _fresh(options: argparse.Namespace, prepared: Prepared, signer: Signing, first: Finished) -> Answer:
    root = new_root()
    print(f"second pass: fresh seeds, from the root {root!r}", flush=True)
    varied = Varied(what=SEEDS, before=prepared.loaded.scenario.seed, after=root, beside=digest(first))
    second = _pass(options, another(prepared, varied, [override(SEEDS, root)]), signer)
    answer = _print_answer(second)
    found = between(prepared.loaded.scenario, first, second)
    print(f"{_answer(first)} with the report's seeds, {answer} with fresh ones: {seeds_word(found)}", flush=True)
    return answer


def _vary(options: argparse.Namespace, prepared: Prepared, signer: Signing, first: Finished) -> bool:
    """Walk the changes; False where the user broke in."""
    answer = _answer(first)
    if answer not in WALKED:
        why = "nothing is to be explained" if answer == "REPRODUCED" else "nothing is excluded yet"
        print(f"vary: nothing is varied: {answer}, so {why}", flush=True)
        return True
    found = _walk(prepared, start=first.record.run.start, jobs=first.record.run.jobs)
    total = len(found.changes)
    print(f"vary: {plural(total, 'run')}, each with one change against {os.path.relpath(first.report)}", flush=True)
    rows: list[tuple[str, str, str, str]] = []
    whole = True
    for number, change in enumerate(found.changes, start=1):
        print(f"  {number} of {total}: {visible(change.told, LIMIT)}", flush=True)
        try:
            rows.append(_changed(options, prepared, signer, first, change, tests=total))
        except Interrupted as error:
            _complain(error)
            whole = False
            break
        except (RunError, SourceError) as error:
            rows.append((change.told, "could not run", "", str(error)))
    rows += [(change.told, "not run", "", "") for change in found.changes[len(rows) :]]
    print("change: word, answer, report")
    for told, what, here, where in rows:
        print(f"  {visible(': '.join([told, ', '.join(filter(None, (what, here, where)))]), 500)}")
    _print_left(found)
    counts = Counter(what for _, what, _, _ in rows)
    flips = [told for told, what, _, _ in rows if what == "flips it"]
    if flips:
        print(f"{plural(len(flips), 'single change')} of {total} made it REPRODUCED:")
        for told in flips:
            print(f"  {visible(told, LIMIT)}")
    else:
        print(f"none of {plural(total, 'single change')} is shown to make it REPRODUCED")
    if counts["may flip it"]:
        print("may flip it: REPRODUCED, and the counts do not tell it from the pass without the change: more --trials")
    sys.stdout.flush()
    return whole


def _changed(
    options: argparse.Namespace, prepared: Prepared, signer: Signing, first: Finished, change: Change, *, tests: int
) -> tuple[str, str, str, str]:
    varied = Varied(what=change.what, before=change.before, after=change.after, beside=digest(first))
    scenario = prepared.loaded.scenario
    with change.in_force():
        jobs = change.jobs or first.record.run.jobs
        finished = _pass(options, another(prepared, varied, change.overrides), signer, jobs=jobs)
    answer = _answer(finished)
    against = between(scenario, first, finished, tests=tests)
    what = word(shown=is_shown(varied, finished.record.run), answer=answer, against=against)
    return change.told, what, answer, os.path.relpath(finished.report)


def _walk(prepared: Prepared, *, start: str, jobs: int) -> Walk:
    return walk(
        prepared.loaded.scenario,
        prepared.original,
        environment.capture(),
        start=start,
        jobs=jobs,
        rankproof=__version__,
    )


def _print_walk(found: Walk) -> None:
    for change in found.changes:
        print(f"  {visible(change.told, LIMIT)}")
    _print_left(found)


def _print_left(found: Walk) -> None:
    for one in found.left:
        print(f"  not varied: {visible(f'{one.what}: {one.then} then, {one.now} here: {one.reason}', 300)}")
    if found.rare:
        print(f"  not varied: {plural(found.rare, 'difference')} of a kind that rarely matters", flush=True)


def _pass(options: argparse.Namespace, prepared: Prepared, signer: Signing, *, jobs: int | None = None) -> Finished:
    progress = progress_for(sys.stderr)
    try:
        return run(
            prepared.loaded,
            results=options.results,
            signer=signer,
            jobs=jobs or jobs_of(options),
            material=prepared.material,
            planned=progress.planned,
            began=progress.began,
            told=progress.told,
        )
    finally:
        progress.done()


def _complain(error: RunError) -> None:
    print(f"rankproof reproduce: {error}", file=sys.stderr)


def _answer(finished: Finished) -> Answer:
    assert finished.record.comparison is not None
    return finished.record.comparison.result.answer


def _print_answer(finished: Finished) -> Answer:
    record = finished.record
    comparison = record.comparison
    assert comparison is not None
    for cell in comparison.result.cells:
        print(f"  {cell.id}: {cell.answer}")
        print(
            f"      same verdict: {'yes' if cell.same_verdict else 'no'} ({cell.then} then, {cell.now} here); "
            f"same failure: {cell.same_failure}; same numbers: {cell.same_numbers}"
        )
        for reason in cell.reasons:
            print(f"      {visible(reason, 500)}")
        if cell.more_trials:
            print(f"      {settles(record, cell.more_trials)}")
    print(comparison.result.answer)
    print(f"  report: {os.path.relpath(finished.report)}")
    if finished.signer is None:
        print("  UNSIGNED: this report convinces nobody; verification refuses it", flush=True)
    else:
        line = [*program(), "verify", os.path.relpath(finished.report), "--signer", finished.signer.identity()]
        print(f"  verify: {shlex.join(line)}", flush=True)
    return comparison.result.answer


def settles(record: Record, more: int) -> str:
    """How many trials would settle it, and how to ask for them."""
    total = record.scenario.candidate_trials + more
    return f"{more} more trials would settle it, if they go on as here: --trials {total}"
