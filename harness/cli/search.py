"""`rankproof search`."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, PASS, USAGE, give_up
from harness.cli.arguments import new_runs

if TYPE_CHECKING:
    from harness.search.facts import SearchFacts
    from harness.series.series import Part


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME", help="only this model; again for more (default: four)"
    )
    parser.add_argument(
        "--without-arrays",
        action="store_true",
        help="of logits and weights keep digests and what was worked out of them: 0.4 MB a part in place of 7",
    )
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with this unfinished search")
    new_runs(parser)


def main(options: argparse.Namespace) -> int:
    """Make a search, or go on with one; exit code 1 where something diverges, 2 where a cell gave no answer."""
    if options.resume is not None and (options.model or options.without_arrays):
        return give_up("search", "--resume goes on with what was asked for: give no other choice beside it", USAGE)
    # Imported here: `--help` needs none of it.
    from harness.cli.running import demand_signed, program, sign_with
    from harness.engines.models import ModelError
    from harness.run.run import Interrupted
    from harness.search import make
    from harness.search.plan import Nothing
    from harness.search.report import answer
    from harness.series.make import Account, SeriesError
    from harness.trust.key import KeyProblem
    from harness.trust.sshsig import SshsigError

    class Printed(Account["SearchFacts"]):
        """The space, and a line for each part as it begins and as it is kept."""

        parts = 0

        def planned(self, facts: SearchFacts, *, there: int, folder: Path) -> None:
            self.parts = len(facts.parts)
            had = f", {there} of them there already" if there else ""
            print(f"{self.parts} parts{had}: {os.path.relpath(folder)}")
            print(f"  releases: {', '.join(f'{name} {number}' for name, number in facts.versions.items())}")
            print(f"  models: {', '.join(facts.models)}")
            print(f"  prompts: {len(facts.prompts)}, {facts.chunk} tokens at a time", flush=True)

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
                models=options.model,
                arrays=not options.without_arrays,
                jobs=jobs,
                account=account,
            )
    except (KeyProblem, SshsigError, Nothing, ModelError) as error:
        return give_up("search", error, USAGE)
    except (SeriesError, Interrupted) as error:
        return give_up("search", error, INCONCLUSIVE)
    for cell in finished.record.cells:
        said = cell.why or cell.found
        print(f"  {cell.model} {cell.engine} over {cell.ranks}: {cell.word}{f': {said}' if said else ''}")
    print(answer(finished.record))
    report = finished.folder / "report.md"
    print(f"  report: {os.path.relpath(report)}")
    if signer is not None:
        line = [*program(), "verify", os.path.relpath(report), "--signer", signer.identity()]
        print(f"  verify: {shlex.join(line)}", flush=True)
    counts = finished.record.counts
    lacking = counts.get("INCONCLUSIVE", 0) + counts.get("SKIPPED", 0)
    code = FAIL if counts.get("DIVERGENT") else INCONCLUSIVE if lacking else PASS
    return demand_signed(code, signer, unsigned=options.unsigned)
