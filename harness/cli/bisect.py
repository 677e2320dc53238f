"""`rankproof lab bisect`: the version of a package between which and the next the answer of a
scenario changes.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import INCONCLUSIVE, PASS, USAGE, give_up
from harness.cli.arguments import jobs_of, new_runs, overrides, positive, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.series.bisect.bisection import FinishedBisect

LIMIT = 330
MIB = 2**20
NAME = "lab bisect"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="scenario file or folder")
    parser.add_argument(
        "--package",
        required=True,
        metavar="NAME",
        help="package to bisect; the candidate's environment must list it",
    )
    parser.add_argument(
        "--between",
        required=True,
        nargs=2,
        metavar=("A", "B"),
        help="one good and one bad version of the package, in either order",
    )
    parser.add_argument(
        "--trials",
        type=positive,
        metavar="N",
        help="candidate trials per cell at each step (default: as in the scenario)",
    )
    parser.add_argument(
        "--every",
        action="store_true",
        help="test every version, even if both ends give the same result",
    )
    parser.add_argument(
        "--limit",
        type=positive,
        default=LIMIT,
        metavar="MIB",
        help=f"maximum size of an environment on disk, in MiB (default: {LIMIT})",
    )
    overrides(parser)
    new_runs(parser)


def main(options: argparse.Namespace) -> int:
    """Find where the answer changes; 0 where two neighbouring versions are named."""
    # Imported here: `--help` needs none of it.
    from harness.cli.progress import progress_for
    from harness.cli.running import demand_signed, sign_with
    from harness.run.arms.code import RevisionError
    from harness.run.arms.staging import ArmError
    from harness.run.environments.pip import EnvironmentProblem
    from harness.run.plan import RunSettings
    from harness.run.run import Interrupted
    from harness.scenario import ScenarioError
    from harness.series.bisect.bisection import BisectError, BisectQuestion, bisect
    from harness.trust.key import KeyProblem
    from harness.trust.sshsig import SshsigError

    given = list(options.overrides)
    if options.trials is not None:
        given.append(f"trials.candidate={options.trials}")
    first, last = options.between
    question = BisectQuestion(
        path=options.scenario,
        package=options.package,
        between=(first, last),
        overrides=tuple(given),
        every=options.every,
        limit=options.limit * MIB,
    )
    try:
        signer = sign_with(options)
        finished = bisect(
            question,
            RunSettings(results=options.results, signer=signer, jobs=jobs_of(options)),
            says=lambda text: print(text, flush=True),
            progress=lambda: progress_for(sys.stderr),
        )
    except ScenarioError as error:
        tell(error)
        return USAGE
    except (BisectError, ArmError, RevisionError, KeyProblem, SshsigError) as error:
        return give_up(NAME, error, USAGE)
    except EnvironmentProblem as error:
        return give_up(NAME, error, INCONCLUSIVE)
    except Interrupted as error:
        return give_up(
            NAME,
            f"{error}; run the same command again to continue after the finished steps",
            INCONCLUSIVE,
        )
    for line in _table(finished):
        print(line)
    return demand_signed(
        PASS if finished.exact else INCONCLUSIVE, signer, unsigned=options.unsigned
    )


def _table(finished: FinishedBisect) -> Iterator[str]:
    """Yield a line for each version in the range, then the answer."""
    from harness.run.environments.releases import order

    record = finished.record
    steps = {step.version: step for step in record.steps}
    rows = [*record.versions, *record.left_out]
    width = max(map(len, rows))
    yield ""
    for version in sorted(rows, key=order):
        step = steps.get(version)
        if step is None:
            why = record.left_out.get(version, "")
            yield f"  {version:<{width}}  {'NOT TRIED':<11}  {why}".rstrip()
            continue
        trials = f"{step.failed} of {step.counted} failed" if step.counted else "no trial"
        why = f"; {step.why}" if step.why else ""
        yield f"  {version:<{width}}  {step.word:<11}  {trials}{why}"
        for name, (before, now) in step.moved.items():
            other = f"with {name} {now or '(none)'}, not {before or '(none)'}"
            yield f"  {'':<{width}}  {'':<11}  {other}"
        if step.run:
            yield f"  {'':<{width}}  {'':<11}  {os.path.relpath(finished.folder / step.run)}"
    yield f"\n{record.answer}."
    yield f"  kept in: {os.path.relpath(finished.folder / 'bisect.json')}"
