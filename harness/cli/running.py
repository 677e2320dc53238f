"""Scenarios run one after the other, and what is printed of them."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, PASS, USAGE, VERDICT_CODES, give_up
from harness.cli.arguments import LOCAL, RAY, jobs_of, load_all, tell, wanted
from harness.cli.progress import progress_for
from harness.cli.streams import print_word
from harness.forms.distribution import EXTRAS, missing
from harness.forms.text import plural, visible
from harness.report.issue import VIEW as STEP_SUMMARY
from harness.report.summary import NOTICES_SHOWN
from harness.report.view import Basis, checked
from harness.run.plan import RayNodes, RunSettings
from harness.run.run import Finished, Interrupted, RunError, Slip, run
from harness.scenario import LoadedScenario, Problem, ScenarioError
from harness.stats.outcome import Trial
from harness.stats.tally import Word
from harness.stats.verdict import Judgement, merge
from harness.trust.key import KeyProblem, Signer, find_signer
from harness.trust.sshsig import SshsigError
from harness.trust.statement import NAME as STATEMENT
from harness.world.starters.ray import NoCluster

if TYPE_CHECKING:
    from harness.run.machines.over_machines import Hostfile

SUMMARY = "GITHUB_STEP_SUMMARY"
TEXT_LIMIT = 500


def main(options: argparse.Namespace) -> int:
    """Run scenarios; the exit code merges the verdicts of the claims, and self-tests that do not
    end as expected.

    Nothing that ended UNSIGNED for want of a key is a PASS.
    A scenario whose code cannot be called as it says is a mistake like one in its file: 64,
    whatever the others say.
    """
    with ExitStack() as stack:
        return _run(options, stack)


def _run(options: argparse.Namespace, stack: ExitStack) -> int:
    """As `main`; what was made for the runs is taken away by `stack`."""
    loaded, problems = load_all(options.scenarios, [*options.overrides, *revisions(options)])
    if problems:
        print(
            f"{problems} {'problem' if problems == 1 else 'problems'}: nothing was run",
            file=sys.stderr,
        )
        return USAGE
    chosen = wanted(loaded, options.scenarios)
    if left_out := len(loaded) - len(chosen):
        what = "scenario runs" if left_out == 1 else "scenarios run"
        print(
            f"{left_out} {what} only on demand: name the folder (or the file, for a sweep)",
            file=sys.stderr,
        )
    jobs = jobs_of(options)
    try:
        where = elsewhere(options, stack)
    except NoCluster as error:
        return give_up("run", error, INCONCLUSIVE)
    except (ScenarioError, OSError, ValueError) as error:
        return give_up("run", error, USAGE)
    if options.trying:
        from harness.cli import tried

        return tried.main(chosen, cell=options.cell, jobs=jobs, whole=options.all)
    if options.all:
        return give_up("run", "--all needs --try; a run keeps everything as evidence", USAGE)
    if options.cell is not None:
        return give_up(
            "run", "--cell needs --try; to choose the cells of a run, use --set matrix...", USAGE
        )
    try:
        signer = sign_with(options)
    except (KeyProblem, SshsigError) as error:
        return give_up("run", error, USAGE)
    settings = RunSettings(
        results=options.results, signer=signer, jobs=jobs, where=where, challenge=options.challenge
    )
    return _run_each(chosen, settings, unsigned=options.unsigned)


def _run_each(scenarios: Sequence[LoadedScenario], settings: RunSettings, *, unsigned: bool) -> int:
    """Run scenarios one after the other; returns the exit code."""
    finished: list[Finished] = []
    not_run = 0
    slipped = False
    for scenario in scenarios:
        print(f"{scenario.scenario.id}: {scenario.scenario.title}", flush=True)
        try:
            finished.append(run(scenario, settings, progress=progress_for(sys.stderr)))
        except Interrupted as error:
            return give_up("run", error, INCONCLUSIVE)
        except Slip as error:
            tell(ScenarioError(error.problems))
            print(f"{scenario.scenario.id}: not run, and nothing was signed", file=sys.stderr)
            slipped = True
            continue
        except RunError as error:
            print(f"rankproof run: {scenario.scenario.id}: {error}", file=sys.stderr)
            not_run += 1
            continue
        _print(finished[-1], notes=scenario.notes)
    code = _merged(finished, not_run=not_run) if finished or not_run else INCONCLUSIVE
    return USAGE if slipped else demand_signed(code, settings.signer, unsigned=unsigned)


def revisions(options: argparse.Namespace) -> list[str]:
    """`--repo`, `--candidate` and `--control` as the overrides they stand for, so that the record
    holds them.
    """
    overrides = []
    for arm, rev in (("candidate", options.candidate), ("control", options.control)):
        if options.repo is not None:
            overrides.append(f"subject.{arm}.repo={options.repo}")
        if rev is not None:
            overrides.append(f"subject.{arm}.rev={rev}")
    return overrides


def elsewhere(options: argparse.Namespace, stack: ExitStack) -> RayNodes | Hostfile | None:
    """Cluster or the machines that the command line names; None is this machine.

    Args:
        options: of the command line.
        stack: takes test machines away again.

    Raises:
        OSError: the hostfile cannot be read.
        ScenarioError: it is not one, or the placement names what is not in it.
        NoCluster: the cluster that is named does not answer.
        ValueError: two options contradict each other.
    """
    asked = [
        name
        for name, given in (("--hosts", options.hosts is not None), ("--on", options.on != LOCAL))
        if given
    ]
    if len(asked) > 1:
        raise ValueError(
            "--hosts and --on cannot be combined: --hosts spreads each world over several machines,"
            " --on runs each world on one"
        )
    if asked and options.trying:
        raise ValueError(f"--try runs on this machine only: leave out {asked[0]}")
    if not asked and options.name_hosts:
        raise ValueError("--name-hosts requires --hosts or --on")
    alone = {
        "--placement": options.placement,
        "--hosts-python": options.hosts_python,
        "--ssh-config": options.ssh_config,
    }
    if options.hosts is None and (
        given := [name for name, value in alone.items() if value is not None]
    ):
        raise ValueError(
            f"{', '.join(given)} requires --hosts; pass --hosts HOSTFILE or remove"
            f" {', '.join(given)}"
        )
    if options.hosts is not None and (options.jobs or 1) > 1:
        raise ValueError("--jobs: with --hosts, worlds run one after another; remove this option")
    if options.on != LOCAL:
        return RayNodes(address=options.on, jobs=options.jobs, named=options.name_hosts)
    if options.hosts is None:
        return None
    from harness.run.machines.over_machines import Hostfile, of_cluster
    from harness.world.starters import test_machines
    from harness.world.starters.hostfile import placement, read

    interpreter = options.hosts_python or sys.executable
    if RAY.fullmatch(options.hosts):
        if options.ssh_config:
            raise ValueError(
                "--ssh-config: Ray does not use ssh to reach its nodes; remove this option"
            )
        rule = options.placement or "spread"
        return of_cluster(
            options.hosts, placement=rule, interpreter=interpreter, named=options.name_hosts
        )
    test_machines_made = None
    file = Path(options.hosts)
    configuration = options.ssh_config
    if options.hosts.startswith(test_machines.PREFIX):
        if configuration is not None:
            raise ValueError(
                "--ssh-config: test machines use their own ssh configuration; remove this option"
            )
        count = test_machines.count_of(options.hosts)
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="rankproof-test-machines-"))
        )
        test_machines_made = stack.enter_context(test_machines.made(folder, count))
        file = test_machines_made.hostfile
        configuration = test_machines_made.config
    machines = read(file)
    return Hostfile(
        machines=machines,
        placement=placement(options.placement or "spread", machines=machines),
        interpreter=interpreter,
        configuration=Path(configuration) if configuration else None,
        made_here=test_machines_made,
        named=options.name_hosts,
    )


def sign_with(options: argparse.Namespace, *, make: bool = True) -> Signer | None:
    """Find the key once, before anything runs; say which it is.

    With `make` false none is made: what was begun with a key goes on with that one, which a new one
    cannot be.
    """
    if options.unsigned:
        return None
    try:
        signer = find_signer(explicit=options.key, make=make)
    except KeyProblem as problem:
        if problem.named:
            raise
        print(f"no usable signing key, so reports will be UNSIGNED: {problem}", file=sys.stderr)
        return None
    for reason in signer.passed_over:
        print(f"key not used: {reason}", file=sys.stderr)
    if signer.made_now:
        print(
            "A signing key was created for this machine. To trust it, add this line to"
            " allowed_signers:"
        )
        print(
            '  you@example.org namespaces="report@rankproof,attestation@rankproof"'
            f" {signer.public_key}"
        )
    print(f"signing with {signer.origin}: {signer.fingerprint}", flush=True)
    return signer


def demand_signed(code: int, signer: Signer | None, *, unsigned: bool) -> int:
    """Exit code 0 stands for a report that convinces somebody: without a key it is 2, unless that
    was asked for.
    """
    if code != PASS or unsigned or signer is not None:
        return code
    print(
        "rankproof: UNSIGNED (exit code 2), because there was no key to sign with. Name one with"
        " --key, or accept this with --unsigned",
        file=sys.stderr,
    )
    return INCONCLUSIVE


def _print(finished: Finished, *, notes: Sequence[Problem]) -> None:
    record = finished.record
    for cell in record.judgement.cells:
        print_word(f"  {cell.id}: ", cell.verdict)
        for reason in cell.reasons:
            print(f"      {reason}")
        trials = cell.candidate.trials if cell.candidate else ()
        failed = next((trial for trial in trials if trial.outcome == "fail"), None)
        if failed is not None:
            print(f"      {record.scenario.arm('candidate')} {failed.index}: {_what(failed)}")
            if lacks := _lacking(_what(failed)):
                print(f"      {lacks}")
        for hung in cell.hung.values() if cell.verdict != "PASS" else ():
            for rank in hung.ranks:
                who = f"{record.scenario.arm(hung.arm)} {hung.index}, rank {rank.rank}"
                print(f"      {who} was at {_place(rank.calls)}")
    expected = ""
    if record.scenario.expects:
        expected = (
            " (as expected)"
            if record.judgement.as_expected
            else f" (expected {record.scenario.expects})"
        )
    print_word("  ", record.word, f"{expected} in {record.run.seconds} s")
    for doubt in record.finding.doubts if record.finding is not None else ():
        print(f"      {doubt}")
    _print_unshown(record.judgement, notes)
    print(f"  report: {os.path.relpath(finished.report)}")
    # What the signature covers is the report; these are made of it or of its record.
    views = [STATEMENT, *checked()] if finished.signer is not None else list(checked())
    print(f"  next to it: {', '.join(views)}")
    _summarise(finished)
    if finished.signer is not None:
        print(f"  verify: {verify_line(finished.report, finished.signer)}", flush=True)
    else:
        print("  UNSIGNED: verification will refuse this report", flush=True)


def _print_unshown(judgement: Judgement, notes: Sequence[Problem]) -> None:
    """Print what stands out, what this run does not show, and the advice of lint: what one says the
    other need not say again.
    """
    said = "\n".join(judgement.unshown).lower()
    for note in notes:
        if note.message.lower() not in said:
            print(f"  {note}")
    for notice in judgement.notices[:NOTICES_SHOWN]:
        times = f" ({plural(notice.trials, 'trial')})" if notice.trials > 1 else ""
        print(f"  stands out: {visible(notice.text, TEXT_LIMIT)}{times}")
    for sentence in judgement.unshown:
        print(f"  not shown: {visible(sentence, TEXT_LIMIT)}")
    for excerpt in judgement.printed:
        print(
            f"      {visible(excerpt.cell)}, candidate {excerpt.index}, rank {excerpt.rank}"
            " printed:"
        )
        for line in excerpt.text.splitlines():
            print(f"        {visible(line, TEXT_LIMIT)}")


def _summarise(finished: Finished) -> None:
    """Append to the summary of the CI job, where there is one.

    It is a convenience: what goes wrong is only printed.
    """
    path = os.environ.get(SUMMARY)
    if not path:
        return
    basis = Basis(
        record=finished.record,
        manifest_digest="",
        read=lambda name: (finished.folder / name).read_bytes(),
        report=os.path.relpath(finished.report),
    )
    try:
        with Path(path).open("ab") as file:
            file.write(STEP_SUMMARY.render(basis))
    except OSError as error:
        print(
            f"rankproof run: cannot write {SUMMARY} ({path}): {error.strerror}",
            file=sys.stderr,
        )


def program() -> list[str]:
    """Return what to type to call this program again: nox runs it from an environment that is not
    on the user's PATH.

    Nix's shell and `nix run` say what it is, because there the environment does not hold this
    program.
    """
    if given := os.environ.get("RANKPROOF_COMMAND"):
        return [given]
    called = Path(sys.argv[0])
    if called.name == "rankproof":
        return [sys.argv[0]]
    executable = Path(sys.executable).with_name("rankproof")
    return (
        [os.path.relpath(executable)]
        if executable.exists()
        else [os.path.relpath(sys.executable), "-m", "harness.cli"]
    )


def verify_line(report: Path, signer: Signer) -> str:
    """Give the command that verifies a report by the key that signed it, ready to be pasted."""
    words = [*program(), "verify", os.path.relpath(report), "--signer", signer.identity()]
    return shlex.join(words)


def _what(trial: Trial) -> str:
    """How a trial failed: the first failure in time, or the first check that does not hold."""
    if trial.first is not None:
        who = "the world" if trial.first.rank is None else f"rank {trial.first.rank}"
        return f"{who}: {trial.first.what}"
    failure = trial.failures[0]
    return f"{failure.check}: {'; '.join(failure.reasons)}"


def _lacking(failure: str) -> str | None:
    """Extra that would have helped, where an import of the subject found nothing: its FAIL
    stands all the same.
    """
    name = re.search(r"No module named '(\w+)", failure)
    return missing(name[1]) if name and name[1] in EXTRAS else None


def _place(calls: list[str]) -> str:
    """Innermost call whose line is known: one of the subject.

    Otherwise the innermost of all.
    """
    return next((call for call in calls if ": " in call.partition(" in ")[2]), calls[0])


def _merged(finished: Sequence[Finished], *, not_run: int) -> int:
    """FAIL for a self-test that is not as expected; claims merge.

    What could not run is INCONCLUSIVE.

    A self-test of which this machine can run no cell says nothing of the tool, and merges with
    nothing, like any cell that is skipped; but nothing else may have been asked for, or it is
    INCONCLUSIVE.
    """
    ran = [
        run
        for run in finished
        if any(cell.verdict != "SKIPPED" for cell in run.record.judgement.cells)
    ]
    words: list[Word] = [
        run.record.judgement.verdict for run in finished if run.record.scenario.role == "claim"
    ]
    if any(
        run.record.scenario.role == "self-test" and not run.record.judgement.as_expected
        for run in ran
    ):
        words.append("FAIL")
    if not_run:
        words.append("INCONCLUSIVE")
    if not words and ran:
        # Only self-tests that ended as they must, and findings about others, which have words of
        # their own.
        found = {run.record.word for run in ran if run.record.scenario.role == "upstream"}
        if "NOT SHOWN" in found:
            return FAIL
        return INCONCLUSIVE if "INCONCLUSIVE" in found else PASS
    verdict = merge(words)
    if len(finished) + not_run > 1:
        skipped = sum(
            cell.verdict == "SKIPPED" for run in finished for cell in run.record.judgement.cells
        )
        tests = [run for run in ran if run.record.scenario.role == "self-test"]
        parts = [plural(len(finished), "scenario")]
        if not_run:
            parts.append(f"{not_run} not run")
        if tests:
            as_expected = sum(run.record.judgement.as_expected for run in tests)
            parts.append(f"{as_expected} of {len(tests)} self-tests as expected")
        if skipped:
            parts.append(f"{skipped} cells skipped")
        print_word(f"{', '.join(parts)}: ", verdict)
    return VERDICT_CODES.get(verdict, FAIL)
