"""`rankproof lab matrix`, `search`, `operators` and `served`: series that are signed as one."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli import FAIL, INCONCLUSIVE, PASS, USAGE, VERDICT_CODES, give_up
from harness.cli.arguments import jobs_of, new_runs, positive

if TYPE_CHECKING:
    from harness.conformance.sweep.record import ServedFacts, ServedRecord
    from harness.series.matrix.facts import MatrixFacts
    from harness.series.matrix.record import MatrixRecord
    from harness.series.operators.record import OperatorsFacts, OperatorsRecord
    from harness.series.search.record import SearchFacts, SearchRecord
    from harness.series.series import PlannedPart, Series, SeriesOrigin, SeriesProgress

SEEDS = 20


class MatrixCommand:
    """What `rankproof lab matrix` takes and prints."""

    choices = ("seeds", "only", "backend", "sample")

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--seeds",
            type=positive,
            metavar="N",
            help=f"trials per cell (default: {SEEDS}, or 1 with --sample)",
        )
        parser.add_argument(
            "--only",
            action="append",
            default=[],
            metavar="KIND[/VARIANT]",
            help=("run only this kind of fault, or one variant, such as perturb/text (repeatable)"),
        )
        parser.add_argument(
            "--backend",
            action="append",
            default=[],
            metavar="NAME",
            help="run only on this backend: gloo or mlx-ring (repeatable)",
        )
        parser.add_argument(
            "--sample", action="store_true", help="run only eight sentinel cells (takes minutes)"
        )

    def series(self) -> Series[Any, Any]:
        from harness.series.matrix import MatrixSeries

        return MatrixSeries()

    def facts_of(self, options: argparse.Namespace) -> Callable[[SeriesOrigin], MatrixFacts]:
        """Return what is asked for. Raises harness.series.series.Nothing."""
        from harness.series.matrix import facts_of

        seeds = options.seeds or (1 if options.sample else SEEDS)
        return facts_of(
            seeds=seeds, only=options.only, backends=options.backend, sample=options.sample
        )

    def plan(self, facts: MatrixFacts, there: str) -> Iterator[str]:
        """Yield what is going to be made, in lines; `there` says how much of it is there already,
        and where.
        """
        yield (
            f"{len(facts.parts)} parts of {len(facts.cells())} cells, {facts.seeds} seeds"
            f" each{there}"
        )
        for lacking, why in facts.without.items():
            yield f"  without {lacking}: {why}"

    def outcome(self, record: MatrixRecord) -> Iterator[str]:
        """Yield what came out, in lines."""
        for cell in record.cells:
            if cell.verdict == "SKIPPED":
                yield f"  {cell.case} on {cell.backend}: SKIPPED: {cell.skipped}"
            elif cell.verdict != "PASS":
                what = "tolerated" if cell.masked else "correctly identified"
                yield (
                    f"  {cell.case} on {cell.backend}: {cell.verdict}: {cell.right} of"
                    f" {cell.injected} {what}"
                )
                yield from (f"      {reason}" for reason in cell.lacking)
        right = sum(cell.verdict == "PASS" for cell in record.cells)
        yield (
            f"{record.verdict}: {right} of {len(record.cells)} cells as expected in all of their"
            " trials"
        )

    def code(self, record: MatrixRecord) -> int:
        """1 where a cell fell short, 2 where too little was proved."""
        return VERDICT_CODES[record.verdict]


class SearchCommand:
    """What `rankproof lab search` takes and prints."""

    choices = ("model", "without_arrays")

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--model",
            action="append",
            default=[],
            metavar="NAME",
            help="run only this model (repeatable; default: four models)",
        )
        parser.add_argument(
            "--without-arrays",
            action="store_true",
            help=(
                "keep only digests and results, not logits and weights (0.4 MB per part instead of"
                " 7 MB)"
            ),
        )

    def series(self) -> Series[Any, Any]:
        from harness.series.search import Search

        return Search()

    def facts_of(self, options: argparse.Namespace) -> Callable[[SeriesOrigin], SearchFacts]:
        """Return what is asked for. Raises harness.series.series.Nothing."""
        from harness.series.search import facts_of

        return facts_of(models=options.model, arrays=not options.without_arrays)

    def plan(self, facts: SearchFacts, there: str) -> Iterator[str]:
        """Yield what is going to be made, in lines; `there` says how much of it is there already,
        and where.
        """
        yield f"{len(facts.parts)} parts{there}"
        yield (
            "  releases:"
            f" {', '.join(f'{name} {number}' for name, number in facts.versions.items())}"
        )
        yield f"  models: {', '.join(facts.models)}"
        yield f"  prompts: {len(facts.prompts)}, {facts.chunk} tokens at a time"

    def outcome(self, record: SearchRecord) -> Iterator[str]:
        """Yield what came out, in lines."""
        from harness.series.search.report import answer

        for cell in record.cells:
            said = cell.why or cell.found
            yield (
                f"  {cell.model} {cell.engine} over {cell.ranks}:"
                f" {cell.word}{f': {said}' if said else ''}"
            )
        yield answer(record)

    def code(self, record: SearchRecord) -> int:
        """1 where something diverges, 2 where a cell gave no answer."""
        if record.counts.get("DIVERGENT"):
            return FAIL
        lacking = record.counts.get("INCONCLUSIVE", 0) + record.counts.get("SKIPPED", 0)
        return INCONCLUSIVE if lacking else PASS


class OperatorsCommand:
    """What `rankproof lab operators` takes and prints."""

    choices = ("library", "operators", "ranks", "depth", "within", "seed")

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--library",
            action="append",
            default=[],
            metavar="NAME",
            help="test only collectives, dtensors, mlx or files (repeatable; default: all)",
        )
        parser.add_argument(
            "--operators",
            action="append",
            default=[],
            metavar="TEXT",
            help="test only operators whose names contain this text (repeatable)",
        )
        parser.add_argument(
            "--ranks",
            action="append",
            default=[],
            type=positive,
            metavar="N",
            help="test only this world size (repeatable; default: 1 to 4, by library)",
        )
        parser.add_argument(
            "--depth",
            type=positive,
            metavar="N",
            help="cells per operator; more if needed to cover every value of every axis",
        )
        parser.add_argument(
            "--within",
            type=positive,
            metavar="SECONDS",
            help="time after which no further part is started",
        )
        parser.add_argument(
            "--seed", metavar="TEXT", help="seed for choosing the cells (default: 1)"
        )

    def series(self) -> Series[Any, Any]:
        from harness.series.operators.sweep import OperatorsSeries

        return OperatorsSeries()

    def facts_of(self, options: argparse.Namespace) -> Callable[[SeriesOrigin], OperatorsFacts]:
        """Return what is asked for. Raises harness.series.series.Nothing."""
        from harness.series.operators.sweep import facts_of

        return facts_of(
            libraries=options.library,
            names=options.operators,
            ranks=options.ranks,
            depth=options.depth,
            within=options.within,
            seed=options.seed or "1",
        )

    def plan(self, facts: OperatorsFacts, there: str) -> Iterator[str]:
        """Yield what is going to be made, in lines; `there` says how much of it is there already,
        and where.
        """
        yield f"{len(facts.parts)} parts{there}"
        for library in dict.fromkeys(part.library for part in facts.parts):
            names = {
                one.name
                for part in facts.parts
                for one in part.operators
                if part.library == library
            }
            yield f"  {library}: {len(names)} operators"

    def outcome(self, record: OperatorsRecord) -> Iterator[str]:
        """Yield what came out, in lines."""
        from harness.series.operators.report import answer

        for group in record.accused:
            cause = group.smallest
            yield f"  {group.library}: {group.word} ({group.kind}): {', '.join(group.operators)}"
            yield f"      {cause.cell.key}: {cause.outcome.fact}"
        yield answer(record)

    def code(self, record: OperatorsRecord) -> int:
        """1 where a result is wrong, 2 where a part was not asked or a needle not seen."""
        if record.accused:
            return FAIL
        needles, seen = record.needles
        is_whole = all(part.findings is not None for part in record.parts) and needles == seen
        return PASS if is_whole else INCONCLUSIVE


class ServedCommand:
    """What `rankproof lab served` takes and prints."""

    choices = (
        "servers",
        "mode",
        "rows",
        "all",
        "may_break_it",
        "within",
        "timeout",
        "model",
        "seed",
    )

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "servers",
            nargs="*",
            metavar="ENGINE[==VERSION]|URL",
            help=(
                "servers to test, as for `rankproof conformance` (default: every engine installed"
                " here)"
            ),
        )
        parser.add_argument(
            "--mode",
            action="append",
            default=[],
            metavar="NAME",
            help="mode to test on each engine that has it, or `all` (repeatable; default: plain)",
        )
        parser.add_argument(
            "--rows",
            default="",
            metavar="A,B",
            help="test only these rows, plus the plain completion",
        )
        parser.add_argument("--all", action="store_true", help="also test the slow rows")
        parser.add_argument(
            "--may-break-it",
            action="store_true",
            help="also test rows that could crash the server (skipped by default for a URL)",
        )
        parser.add_argument(
            "--model", metavar="NAME", help="model name to send in requests to servers given by URL"
        )
        parser.add_argument(
            "--within",
            type=positive,
            metavar="SECONDS",
            help="time limit for all rows of each server (default: 300)",
        )
        parser.add_argument(
            "--timeout",
            type=positive,
            metavar="SECONDS",
            help="timeout for each request (default: 30)",
        )
        parser.add_argument(
            "--seed", type=int, metavar="N", help="random seed for the words in the prompts"
        )

    def series(self) -> Series[Any, Any]:
        """Return what makes it. Raises harness.series.series.Nothing without a client."""
        from harness.forms.distribution import missing
        from harness.series.series import Nothing

        if lacks := missing("httpx2"):
            raise Nothing(lacks)
        from harness.conformance.sweep.making import MakingSweep

        return MakingSweep(
            account=lambda line: print(f"    {line}", flush=True),
            api_key=os.environ.get("OPENAI_API_KEY") or None,
        )

    def facts_of(self, options: argparse.Namespace) -> Callable[[SeriesOrigin], ServedFacts]:
        """Return what is asked for. Raises harness.series.series.Nothing."""
        from harness.conformance.sweep.making import facts_of

        return facts_of(
            targets=options.servers,
            modes=options.mode,
            rows=[name.strip() for name in options.rows.split(",") if name.strip()],
            every=options.all,
            may_break=options.may_break_it,
            within=options.within or 300,
            timeout=options.timeout or 30,
            model=options.model,
            seed=options.seed,
        )

    def plan(self, facts: ServedFacts, there: str) -> Iterator[str]:
        """Yield what is going to be made, in lines; `there` says how much of it is there already,
        and where.
        """
        yield f"{len(facts.parts)} servers{there}"
        for part in facts.parts:
            yield f"  {part.target} ({part.mode})"

    def outcome(self, record: ServedRecord) -> Iterator[str]:
        """Yield what came out, in lines."""
        from harness.conformance.sweep.report import answer

        names = {server.name: server.server for server in record.servers}
        for server in record.servers:
            yield f"  {server.server}: {server.unasked or server.verdict}"
        for group in record.groups:
            yield f"  {group.row}: {', '.join(names[name] for name in group.violates)}"
            yield f"      {group.fact}"
        yield answer(record)

    def code(self, record: ServedRecord) -> int:
        """1 with a violation, 2 where a server could not be tested or a row not be decided."""
        if record.groups:
            return FAIL
        is_whole = all(server.verdict == "PASS" for server in record.servers)
        return PASS if is_whole else INCONCLUSIVE


COMMANDS: dict[str, MatrixCommand | SearchCommand | OperatorsCommand | ServedCommand] = {
    "served": ServedCommand(),
    "matrix": MatrixCommand(),
    "search": SearchCommand(),
    "operators": OperatorsCommand(),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command; its name is the last word of the parser's."""
    name = parser.prog.rpartition(" ")[2]
    COMMANDS[name].arguments(parser)
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FOLDER",
        help="continue the unfinished series in this folder",
    )
    new_runs(parser)


def main(options: argparse.Namespace) -> int:
    """Make a series, or go on with one."""
    name = options.command
    command: Any = COMMANDS[name]
    if options.resume is not None and any(getattr(options, choice) for choice in command.choices):
        return give_up(
            f"lab {name}",
            "--resume continues with the original options; give no others with it",
            USAGE,
        )
    # Imported here: `--help` needs none of it.
    from harness.cli.running import demand_signed, sign_with, verify_line
    from harness.engines.models import ModelError
    from harness.run.run import Interrupted
    from harness.series.series import Nothing, SeriesError, begin, resume, unfinished
    from harness.trust.key import KeyProblem
    from harness.trust.sshsig import SshsigError

    try:
        series = command.series()
        if options.resume is not None:
            # Before a key is made for what cannot be gone on with.
            unfinished(series, options.resume)
        signer = sign_with(options, make=options.resume is None)
        how: dict[str, Any] = {"signer": signer, "account": _account(command)}
        how["jobs"] = jobs_of(options)
        if options.resume is not None:
            finished = resume(series, options.resume, **how)
        else:
            finished = begin(series, command.facts_of(options), results=options.results, **how)
    except (KeyProblem, SshsigError, Nothing, ModelError) as error:
        return give_up(f"lab {name}", error, USAGE)
    except (SeriesError, Interrupted) as error:
        return give_up(f"lab {name}", error, INCONCLUSIVE)
    for line in command.outcome(finished.record):
        print(line)
    report = finished.folder / "report.md"
    print(f"  report: {os.path.relpath(report)}")
    if signer is not None:
        print(f"  verify: {verify_line(report, signer)}", flush=True)
    return demand_signed(command.code(finished.record), signer, unsigned=options.unsigned)


def _account(command: Any) -> SeriesProgress[Any]:
    from harness.series.series import SeriesProgress

    class PrintedProgress(SeriesProgress[Any]):
        """Plan, and a line for each part as it begins and as it is kept."""

        parts = 0

        def planned(self, facts: Any, *, there: int, folder: Path) -> None:
            self.parts = len(facts.parts)
            had = f", {there} of them already done" if there else ""
            for line in command.plan(facts, f"{had}: {os.path.relpath(folder)}"):
                print(line, flush=True)

        def began(self, part: PlannedPart, number: int) -> None:
            print(f"  {number}/{self.parts} {part.name} ...", flush=True)

        def kept(self, part: PlannedPart, number: int, seconds: float) -> None:
            print(f"  {number}/{self.parts} {part.name} kept, {seconds} s", flush=True)

    return PrintedProgress()
