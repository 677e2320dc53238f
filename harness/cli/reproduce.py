"""`rankproof reproduce`."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from harness.cli import FAIL, INCONCLUSIVE, PASS, REFUSED, USAGE
from harness.cli.arguments import inputs, new_runs, positive, signers
from harness.cli.bundle import paths
from harness.cli.passes import make, print_plan
from harness.cli.progress import progress_for
from harness.cli.running import demand_signed, sign_with
from harness.cli.verify import policy_of, print_steps
from harness.forms.text import plural, visible
from harness.record import environment
from harness.record.reproduced import GROUPS, Here, differences, same_environment
from harness.reproduce.inputs import InputMissing
from harness.reproduce.passes import Passes
from harness.reproduce.report_copy import NotTrusted, ReportCopy, open_report
from harness.reproduce.rerun import Prepared, Wish, prepare
from harness.reproduce.source import SHOWN, SourceDiffers, SourceError
from harness.trust.folder import Unreadable
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
    """What the command takes."""
    parser.add_argument("report", type=Path, help="report.md, the folder it lies in, or a bundle")
    signers(parser)
    parser.add_argument(
        "--i-trust-this-file", action="store_true", help="run a report that is refused: it starts programs as you"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and run nothing")
    parser.add_argument("--repo", type=Path, metavar="PATH", help="lay the report's commit out from this repository")
    parser.add_argument("--from-evidence", action="store_true", help="run the code that the report's evidence holds")
    parser.add_argument("--source", type=Path, metavar="FOLDER", help="take the candidate from this folder instead")
    parser.add_argument("--candidate", metavar="REV", help="take the candidate from this revision instead")
    parser.add_argument("--trials", type=positive, metavar="N", help="trials of the candidate (default: the report's)")
    parser.add_argument(
        "--fresh-seeds", action="store_true", help="after the pass with the report's seeds, make one with other seeds"
    )
    parser.add_argument("--only-fresh-seeds", action="store_true", help="make that pass alone")
    parser.add_argument(
        "--vary",
        action="store_true",
        help="where the answer differs, run again with one thing changed at a time, and say which change explains it",
    )
    inputs(parser)
    new_runs(parser)


def main(options: argparse.Namespace) -> int:
    """Verify a report, rebuild its source, run it again, and say whether it is reproduced."""
    if wrong := _contradiction(options):
        print(f"rankproof reproduce: {wrong}", file=sys.stderr)
        return USAGE
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
                options.report, policy=policy_of(options), trust=options.i_trust_this_file, scratch=scratch
            )
            _print_trust(copy)
            prepared = prepare(copy, wish, here=Path.cwd(), scratch=scratch)
            _print_what_will_run(copy, prepared)
            jobs = options.jobs or max(1, (os.cpu_count() or 1) // 2)
            _print_machine(prepared, jobs=jobs)
            passes = Passes(
                prepared=prepared,
                results=options.results,
                signer=lambda: None,
                jobs=jobs,
                progress=lambda: progress_for(sys.stderr),
            )
            print_plan(options, passes)
            if options.dry_run:
                print("nothing was run: --dry-run")
                return PASS
            signer = sign_with(options)
            answer = make(options, replace(passes, signer=signer))
            return INCONCLUSIVE if answer is None else demand_signed(CODES[answer], signer, unsigned=options.unsigned)
        except NotTrusted as problem:
            if problem.verification is not None:
                print_steps(problem.verification)
            print(f"{options.report}: REFUSED: {problem}", file=sys.stderr)
            print(
                "Nothing of it was run. --i-trust-this-file runs a report that can be read all the same",
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
            print(f"rankproof reproduce: {visible(str(error), 1000)}", file=sys.stderr)
            return USAGE
        except OSError as error:
            if isinstance(error, BrokenPipeError) or error.errno == errno.ENOSPC:
                raise
            what = error.strerror or "is not there"
            print(f"rankproof reproduce: {error.filename or error}: {what}", file=sys.stderr)
            return USAGE
        except SshsigError as error:
            print(f"rankproof reproduce: {error}", file=sys.stderr)
            return REFUSED
        except (Unreadable, SignersMalformed, KeyProblem, ValueError) as error:
            print(f"rankproof reproduce: {error}", file=sys.stderr)
            return USAGE


def _contradiction(options: argparse.Namespace) -> str:
    """Two wishes that exclude each other."""
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
        return f"{' and '.join(wishes)} exclude each other: keep one"
    if options.only_fresh_seeds and (options.fresh_seeds or options.vary):
        other = "--fresh-seeds" if options.fresh_seeds else "--vary"
        return f"--only-fresh-seeds leaves the pass with the report's seeds out, and {other} needs it: keep one"
    if options.vary and (options.source is not None or options.candidate is not None):
        return "--vary changes one thing at a time, and another candidate is one already: keep one"
    return ""


def _print_trust(copy: ReportCopy) -> None:
    if not copy.verification.ok:
        print_steps(copy.verification)
    run = copy.record.run
    print(f"report {visible(run.id)}, made {visible(run.made)}: {copy.record.judgement.verdict}")
    print(f"  {visible(copy.signed)}")


def _print_what_will_run(copy: ReportCopy, prepared: Prepared) -> None:
    scenario, rebuilt = prepared.loaded.scenario, prepared.rebuilt
    subject = scenario.subject
    what = f"program {' '.join(subject.program)}" if subject.program else f"entry {subject.function}"
    if subject.use is not None:
        what = f"ready subject {subject.use}, {what}"
    print(f"what will run: {visible(what, LIMIT)}, as this user, with the rights of this user")
    print(f"  source: {visible(rebuilt.where, LIMIT)}")
    if rebuilt.candidate:
        print(f"  candidate: {visible(rebuilt.candidate, LIMIT)}: ANOTHER SOURCE than the report's")
    for name, code in rebuilt.arms.items():
        arguments = visible(copy.record.arms[name].arguments, LIMIT)
        print(f"  {name}: {plural(len(code.files), 'file')}, with {arguments}")
        for path in list(code.files)[:SHOWN]:
            print(f"    {visible(path, LIMIT)}")
        if len(code.files) > SHOWN:
            print(f"    ... and {len(code.files) - SHOWN} more")
    for key, value in scenario.world.env.items():
        print(f"  environment: {visible(f'{key}={value}', LIMIT)}")
    for one in prepared.material.inputs.values():
        print(f"  input {visible(f'{one.facts.name}: sha256 {one.facts.digest}', LIMIT)}")
    control = scenario.trials.control if subject.control else 0
    cells = plural(len(copy.record.judgement.cells), "cell")
    print(f"  {cells}, {scenario.trials.candidate} + {control} trials each, seed {scenario.seed!r}", flush=True)


def _print_machine(prepared: Prepared, *, jobs: int) -> None:
    """What differs from where the first run was made; how ranks started is known only afterwards."""
    reproduced, here = prepared.reproduced, environment.capture()
    same = same_environment(reproduced.environment, here)
    print(f"environment: {visible(f'the same by construction: {same}' if same else 'compared', LIMIT)}")
    scenario = prepared.loaded.scenario
    found = differences(scenario.needs, reproduced, Here(environment=here, start=reproduced.start, jobs=jobs))
    for group in GROUPS[:2]:
        for one in (one for one in found if one.group == group):
            print(f"  {group}: {visible(f'{one.what}: {one.then} then, {one.now} here', LIMIT)}")
    rare = sum(one.group == GROUPS[2] for one in found)
    print(f"  {plural(len(found), 'difference')}, {rare} of a kind that rarely matters", flush=True)


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
    print("To ask the report's question of this source: --source FOLDER, or --candidate REV")
