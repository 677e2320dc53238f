"""`rankproof reproduce`."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from harness.cli import FAIL, INCONCLUSIVE, PASS, REFUSED, USAGE, give_up
from harness.cli.arguments import inputs, jobs_of, new_runs, policy_of, positive, signers
from harness.cli.progress import progress_for
from harness.cli.reports import paths, print_steps
from harness.cli.running import demand_signed, sign_with, verify_line
from harness.forms.text import plural, visible
from harness.record import environment
from harness.record.reproduced import GROUPS, Here, differences, same_environment
from harness.reproduce.passes import (
    WALKED,
    ChangeOutcome,
    Passes,
    Walk,
    answer,
    between,
    joint,
    seeds_word,
    why_not_varied,
)
from harness.reproduce.report_copy import NotTrusted, ReportCopy, open_report
from harness.reproduce.rerun import InputMissing, Prepared, Wish, new_root, prepare
from harness.reproduce.source import SHOWN, SourceDiffers, SourceError
from harness.run.environments.cache import planned
from harness.run.environments.pip import EnvironmentProblem
from harness.run.run import Finished, Interrupted, RunError
from harness.stats.reproduction import Answer
from harness.trust.folder import UnreadableFile
from harness.trust.key import KeyProblem
from harness.trust.signers import SignersMalformed
from harness.trust.sshsig import SshsigError

CODES = {
    "REPRODUCED": PASS,
    "SAME VERDICT, DIFFERENT FAILURE": FAIL,
    "NOT REPRODUCED": FAIL,
    "CANNOT TELL": INCONCLUSIVE,
}
LIMIT = 160


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("report", type=Path, help="report.md, its folder, or a bundle")
    signers(parser)
    parser.add_argument(
        "--i-trust-this-file",
        action="store_true",
        help=(
            "repeat the run even if its report fails verification; its programs run with your"
            " permissions"
        ),
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would run, but run nothing"
    )
    parser.add_argument(
        "--repo",
        type=Path,
        metavar="PATH",
        help="check out the report's commit from this repository",
    )
    parser.add_argument(
        "--from-evidence", action="store_true", help="run the code stored in the report's evidence"
    )
    parser.add_argument(
        "--source", type=Path, metavar="FOLDER", help="use the code in this folder as the candidate"
    )
    parser.add_argument("--candidate", metavar="REV", help="use this revision as the candidate")
    parser.add_argument(
        "--trials",
        type=positive,
        metavar="N",
        help="number of candidate trials (default: as in the report)",
    )
    parser.add_argument(
        "--fresh-seeds",
        action="store_true",
        help="run a second pass with new seeds after the pass with the report's seeds",
    )
    parser.add_argument(
        "--only-fresh-seeds", action="store_true", help="run only the pass with new seeds"
    )
    parser.add_argument(
        "--vary",
        action="store_true",
        help=(
            "if the result differs, rerun with one change at a time and show which change explains"
            " the difference"
        ),
    )
    inputs(parser)
    new_runs(parser)


def main(options: argparse.Namespace) -> int:
    """Verify a report, rebuild its source, run it again, and say whether it is reproduced."""
    if wrong := _contradiction(options):
        return give_up("reproduce", wrong, USAGE)
    with tempfile.TemporaryDirectory(prefix="rankproof-reproduce-") as folder:
        # Other users of the machine read nothing there: mkdtemp makes it so.
        scratch = Path(folder).resolve()
        try:
            wish = Wish(
                repo=options.repo,
                evidence=options.from_evidence,
                source=options.source,
                candidate=options.candidate,
                trials=options.trials,
                fresh_seeds=options.only_fresh_seeds,
                inputs=paths(options.input, what="--input"),
                results=options.results,
            )
            copy = open_report(
                options.report,
                policy=policy_of(options),
                trust=options.i_trust_this_file,
                scratch=scratch,
            )
            _print_trust(copy)
            prepared = prepare(copy, wish, here=Path.cwd(), scratch=scratch)
            _print_what_will_run(copy, prepared)
            jobs = jobs_of(options)
            _print_machine(prepared, jobs=jobs)
            passes = Passes(
                prepared=prepared,
                results=options.results,
                signer=None,
                jobs=jobs,
                progress=lambda: progress_for(sys.stderr),
            )
            _print_plan(options, passes)
            if options.dry_run:
                complete = _print_environments(prepared)
                print("nothing was run: --dry-run")
                return PASS if complete else INCONCLUSIVE
            signer = sign_with(options)
            answer_of_all = _make(options, replace(passes, signer=signer))
            return (
                INCONCLUSIVE
                if answer_of_all is None
                else demand_signed(CODES[answer_of_all], signer, unsigned=options.unsigned)
            )
        except NotTrusted as problem:
            if problem.verification is not None:
                print_steps(problem.verification)
            print(f"{options.report}: REFUSED: {problem}", file=sys.stderr)
            print(
                "Nothing was run. --i-trust-this-file runs it anyway, if it can be read",
                file=sys.stderr,
            )
            return REFUSED
        except SourceDiffers as differs:
            _print_differences(options, differs)
            return INCONCLUSIVE
        except InputMissing as problem:
            print(f"CANNOT TELL: {visible(str(problem), 500)}")
            return INCONCLUSIVE
        except SourceError as error:
            return give_up("reproduce", visible(str(error), 1000), USAGE)
        except OSError as error:
            if isinstance(error, BrokenPipeError) or error.errno == errno.ENOSPC:
                raise
            what = error.strerror or "does not exist"
            return give_up("reproduce", f"{error.filename or error}: {what}", USAGE)
        except SshsigError as error:
            return give_up("reproduce", error, REFUSED)
        except (UnreadableFile, SignersMalformed, KeyProblem, ValueError) as error:
            return give_up("reproduce", error, USAGE)


def _contradiction(options: argparse.Namespace) -> str:
    wishes = [
        name
        for name, given in (
            ("--from-evidence", options.from_evidence),
            ("--source", options.source is not None),
            ("--candidate", options.candidate is not None),
            ("--repo", options.repo is not None and options.candidate is None),
        )
        if given
    ]
    if len(wishes) > 1:
        return f"{' and '.join(wishes)} cannot be combined; keep one"
    if options.only_fresh_seeds and (options.fresh_seeds or options.vary):
        other = "--fresh-seeds" if options.fresh_seeds else "--vary"
        return (
            f"--only-fresh-seeds skips the pass with the report's seeds, which {other} needs; keep"
            " one"
        )
    if options.vary and (options.source is not None or options.candidate is not None):
        return (
            "--vary cannot be combined with another candidate, because it changes one thing at a"
            " time; keep one"
        )
    return ""


def _print_trust(copy: ReportCopy) -> None:
    if not copy.verification.ok:
        print_steps(copy.verification)
    run = copy.record.run
    print(f"report {visible(run.id)}, made {visible(run.made)}: {copy.record.word}")
    print(f"  {visible(copy.signed)}")


def _print_what_will_run(copy: ReportCopy, prepared: Prepared) -> None:
    scenario = prepared.loaded.scenario
    rebuilt = prepared.rebuilt
    subject = scenario.subject
    what = (
        f"program {' '.join(subject.program)}" if subject.program else f"entry {subject.function}"
    )
    if subject.use is not None:
        what = f"ready-made subject {subject.use}, {what}"
    print(f"will run: {visible(what, LIMIT)}, as this user and with this user's permissions")
    print(f"  source: {visible(rebuilt.where, LIMIT)}")
    if rebuilt.candidate:
        print(
            f"  candidate: {visible(rebuilt.candidate, LIMIT)}: DIFFERENT SOURCE from the report's"
        )
    for name, code in rebuilt.arms.items():
        arguments = visible(copy.record.arms[name].arguments, LIMIT)
        print(f"  {subject.called(name)}: {plural(len(code.files), 'file')}, with {arguments}")
        for path in list(code.files)[:SHOWN]:
            print(f"    {visible(path, LIMIT)}")
        if len(code.files) > SHOWN:
            print(f"    ... and {len(code.files) - SHOWN} more")
    for name, arm_environment in copy.record.run.environments.items():
        for package, facts in arm_environment.checkouts.items():
            built = (
                f"built from {facts.repo} at commit {facts.commit[:12]}, installed from the"
                " evidence"
            )
            print(f"  {name}: package {visible(f'{package}, {built}', LIMIT)}")
    for key, value in scenario.world.env.items():
        print(f"  environment: {visible(f'{key}={value}', LIMIT)}")
    for given in prepared.material.inputs.values():
        print(f"  input {visible(f'{given.facts.name}: sha256 {given.facts.digest}', LIMIT)}")
    control = scenario.trials.control if subject.control else 0
    cells = plural(len(copy.record.judgement.cells), "cell")
    print(
        f"  {cells}, {scenario.trials.candidate} + {control} trials each, seed {scenario.seed!r}",
        flush=True,
    )


def _print_environments(prepared: Prepared) -> bool:
    """Return what would be installed for the arms; False where an environment cannot be had
    here.
    """
    complete = True
    for arm, wanted in prepared.loaded.scenario.subject.environments.items():
        try:
            plan = planned(wanted, prepared.material.supplies[arm], says=print)
        except EnvironmentProblem as error:
            print(f"environment of the {arm}: cannot be created here: {visible(str(error), 500)}")
            complete = False
            continue
        if plan is None or isinstance(plan, str):
            print(f"environment of the {arm}: {visible(plan or 'only an interpreter', LIMIT)}")
            continue
        print(f"environment of the {arm}: would install {visible(str(plan), LIMIT)}")
        for package in plan.packages():
            print(f"  {visible(package, LIMIT)}")
    return complete


def _print_machine(prepared: Prepared, *, jobs: int) -> None:
    """Print what differs from where the first run was made.

    How ranks started is known only afterwards.
    """
    reproduced = prepared.reproduced
    here = environment.capture()
    same = same_environment(reproduced.environment, here)
    print(
        "environment:"
        f" {visible(f'the same by construction: {same}' if same else 'compared', LIMIT)}"
    )
    scenario = prepared.loaded.scenario
    differing = differences(
        scenario.needs, reproduced, Here(environment=here, start=reproduced.start, jobs=jobs)
    )
    for group in GROUPS[:2]:
        for difference in differing:
            if difference.group == group:
                words = f"{difference.what}: {difference.then} then, {difference.now} here"
                print(f"  {group}: {visible(words, LIMIT)}")
    rare = sum(difference.group == GROUPS[2] for difference in differing)
    print(
        f"  {plural(len(differing), 'difference')}, {rare} of a kind that rarely matters",
        flush=True,
    )


def _print_differences(options: argparse.Namespace, differs: SourceDiffers) -> None:
    print(f"SOURCE DIFFERS: {visible(str(differs), LIMIT)}")
    for line in differs.files[:SHOWN]:
        print(f"  {visible(line, 500)}")
    if len(differs.files) > SHOWN:
        print(f"  ... and {len(differs.files) - SHOWN} more")
    print(
        "Nothing was run. To run the report's own code: --from-evidence"
        + (", or --repo . (its commit, in a fresh folder)" if options.repo is None else "")
    )
    print("To run the report's scenario on this source: --source FOLDER, or --candidate REV")


def _print_plan(options: argparse.Namespace, passes: Passes) -> None:
    """How many runs there will be, before the first one."""
    names = ["with fresh seeds" if options.only_fresh_seeds else "with the report's seeds"]
    names += ["with fresh seeds"] if options.fresh_seeds else []
    if len(names) > 1 or options.vary:
        print(f"passes: {len(names)}, {' and then '.join(names)}")
    if options.vary:
        expected = passes.walk()
        more = plural(len(expected.changes), "run")
        print(
            f"vary: if the answer is {' or '.join(WALKED)}, at most {more} more, with one change"
            " each:"
        )
        for change in expected.changes:
            print(f"  {visible(change.description, LIMIT)}")
        _print_left(expected)


def _make(options: argparse.Namespace, passes: Passes) -> Answer | None:
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
    if why := why_not_varied(answer(first)):
        print(f"vary: skipped: {answer(first)}, so {why}", flush=True)
        return
    walk = passes.walk(first)
    total = len(walk.changes)
    print(
        f"vary: {plural(total, 'run')}, each with one change against"
        f" {os.path.relpath(first.report)}",
        flush=True,
    )
    outcomes: list[ChangeOutcome] = []
    runs = passes.vary(first, walk.changes)
    try:
        for number, change in enumerate(walk.changes, start=1):
            print(f"  {number} of {total}: {visible(change.description, LIMIT)}", flush=True)
            outcomes.append(next(runs))
    except Interrupted:
        _print_outcomes(outcomes, walk)
        raise
    _print_outcomes(outcomes, walk)


def _print_outcomes(outcomes: list[ChangeOutcome], walk: Walk) -> None:
    total = len(walk.changes)
    left = [
        ChangeOutcome(change=change, word="not run") for change in walk.changes[len(outcomes) :]
    ]
    print("change: word, answer, report")
    for outcome in [*outcomes, *left]:
        report = os.path.relpath(outcome.report) if outcome.report is not None else ""
        words = ", ".join(filter(None, (outcome.word, outcome.answer, report, outcome.why)))
        print(f"  {visible(f'{outcome.change.description}: {words}', 500)}")
    _print_left(walk)
    counts = Counter(outcome.word for outcome in outcomes)
    if counts["flips it"]:
        print(f"{plural(counts['flips it'], 'single change')} of {total} made it REPRODUCED:")
        for outcome in outcomes:
            if outcome.word == "flips it":
                print(f"  {visible(outcome.change.description, LIMIT)}")
    else:
        print(
            f"{plural(total, 'single change')} tried; this does not show that any of them makes it"
            " REPRODUCED"
        )
    if counts["may flip it"]:
        print(
            "may flip it: REPRODUCED, but the counts do not differ enough from the pass without"
            " the change; use more --trials"
        )
    sys.stdout.flush()


def _print_left(walk: Walk) -> None:
    for difference in walk.left:
        words = f"{difference.what}: {difference.then} then, {difference.now} here"
        print(f"  not varied: {visible(f'{words}: {difference.reason}', 300)}")
    if walk.rare:
        print(
            f"  not varied: {plural(walk.rare, 'difference')} of a kind that rarely matters",
            flush=True,
        )


def _print_answer(finished: Finished) -> Answer:
    record = finished.record
    assert record.comparison is not None
    for cell in record.comparison.result.cells:
        print(f"  {cell.id}: {cell.answer}")
        print(
            f"      same verdict: {'yes' if cell.same_verdict else 'no'} ({cell.then} then,"
            f" {cell.now} here); same failure: {cell.same_failure}; same numbers:"
            f" {cell.same_numbers}"
        )
        for reason in cell.reasons:
            print(f"      {visible(reason, 500)}")
        if more := cell.more_trials:
            total = record.scenario.candidate_trials + more
            print(f"      {more} more trials like these would settle it: --trials {total}")
    print(answer(finished))
    print(f"  report: {os.path.relpath(finished.report)}")
    if finished.signer is None:
        print("  UNSIGNED: verification will refuse this report", flush=True)
    else:
        print(f"  verify: {verify_line(finished.report, finished.signer)}", flush=True)
    return answer(finished)
