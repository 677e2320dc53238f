"""`rankproof matrix`."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import INCONCLUSIVE, USAGE, VERDICT_CODES, give_up
from harness.cli.arguments import new_runs, positive

if TYPE_CHECKING:
    from harness.series.matrix.facts import MatrixFacts
    from harness.series.matrix.record import MatrixRecord
    from harness.series.series import Part

SEEDS = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "--seeds", type=positive, metavar="N", help=f"trials of each cell (default: {SEEDS}; sample: 1)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KIND[/VARIANT]",
        help="only this kind of fault, or of it only this case, such as perturb/text; again for more",
    )
    parser.add_argument(
        "--backend", action="append", default=[], metavar="NAME", help="only this backend: gloo or mlx-ring"
    )
    parser.add_argument("--sample", action="store_true", help="eight sentinel cells, in minutes")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with this unfinished matrix")
    new_runs(parser)


def main(options: argparse.Namespace) -> int:
    """Make a matrix, or go on with one; exit code 1 where a cell fell short, 2 where too little was proved."""
    if options.resume is not None and (options.seeds or options.only or options.backend or options.sample):
        return give_up("matrix", "--resume goes on with what was asked for: give no other choice beside it", USAGE)
    # Imported here: `--help` needs none of it.
    from harness.cli.running import demand_signed, sign_with
    from harness.run.run import Interrupted
    from harness.series.make import Account, SeriesError
    from harness.series.matrix import make
    from harness.series.matrix.plan import Nothing
    from harness.trust.key import KeyProblem
    from harness.trust.sshsig import SshsigError

    class Printed(Account["MatrixFacts"]):
        """A line for each part, as it begins and as it is kept."""

        parts = 0

        def planned(self, facts: MatrixFacts, *, there: int, folder: Path) -> None:
            self.parts = len(facts.parts)
            had = f", {there} of them there already" if there else ""
            what = f"{self.parts} parts of {len(facts.cells())} cells, {facts.seeds} seeds each{had}"
            print(f"{what}: {os.path.relpath(folder)}")
            for lacking, why in facts.without.items():
                print(f"  without {lacking}: {why}", flush=True)

        def began(self, part: Part, number: int) -> None:
            print(f"  {number}/{self.parts} {part.name} ...", flush=True)

        def kept(self, part: Part, number: int, seconds: float) -> None:
            print(f"  {number}/{self.parts} {part.name} kept, {seconds} s", flush=True)

    try:
        if options.resume is not None:
            make.demand_unfinished(options.resume)  # before a key is made for what cannot be gone on with
        signer = sign_with(options, make=options.resume is None)
        account, jobs = Printed(), options.jobs or max(1, (os.cpu_count() or 1) // 2)
        if options.resume is not None:
            finished = make.resume(options.resume, signer=signer, jobs=jobs, account=account)
        else:
            finished = make.begin(
                results=options.results,
                signer=signer,
                seeds=options.seeds or (1 if options.sample else SEEDS),
                only=options.only,
                backends=options.backend,
                sample=options.sample,
                jobs=jobs,
                account=account,
            )
    except (KeyProblem, SshsigError, Nothing) as error:
        return give_up("matrix", error, USAGE)
    except (SeriesError, Interrupted) as error:
        return give_up("matrix", error, INCONCLUSIVE)
    _print(finished.record)
    report = finished.folder / "report.md"
    print(f"  report: {os.path.relpath(report)}")
    if signer is not None:
        from harness.cli.running import program

        line = [*program(), "verify", os.path.relpath(report), "--signer", signer.identity()]
        print(f"  verify: {shlex.join(line)}", flush=True)
    return demand_signed(VERDICT_CODES[finished.record.verdict], signer, unsigned=options.unsigned)


def _print(record: MatrixRecord) -> None:
    for cell in record.cells:
        if cell.verdict == "SKIPPED":
            print(f"  {cell.case} on {cell.backend}: SKIPPED: {cell.skipped}")
        elif cell.verdict != "PASS":
            what = "tolerated" if cell.masked else "rightly named"
            print(f"  {cell.case} on {cell.backend}: {cell.verdict}: {cell.right} of {cell.injected} {what}")
            for reason in cell.lacking:
                print(f"      {reason}")
    right = sum(cell.verdict == "PASS" for cell in record.cells)
    print(f"{record.verdict}: {right} of {len(record.cells)} cells right in all of their trials")
