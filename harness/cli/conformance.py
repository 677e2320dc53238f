"""`rankproof conformance`: a signed report of what a served engine promises and keeps."""

from __future__ import annotations

import argparse
import os
import secrets
from dataclasses import replace
from pathlib import Path

from harness.cli import INCONCLUSIVE, USAGE, VERDICT_CODES, give_up
from harness.cli.arguments import kept_and_signed


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "target",
        metavar="ENGINE[==VERSION]|URL",
        help=(
            "engine to start: mlx_lm.server or transformers (add ==VERSION to choose a release,"
            " such as mlx_lm.server==0.31.1,mlx==0.31.0); or the URL of a running server, such as"
            " http://127.0.0.1:8000/v1"
        ),
    )
    parser.add_argument(
        "--mode",
        default="plain",
        metavar="NAME",
        help="mode to start the engine in, such as small-chunks (default: plain)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="model name to send in requests (default: the only model the server lists)",
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FOLDER",
        help="folder that contains the model's tokenizer.json, used to check token counts",
    )
    parser.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="VARIABLE",
        help="environment variable that contains the API key (default: OPENAI_API_KEY)",
    )
    parser.add_argument(
        "--rows", default="", metavar="A,B", help="test only these rows, plus the plain completion"
    )
    parser.add_argument("--all", action="store_true", help="also test the slow rows")
    parser.add_argument(
        "--may-break-it",
        action="store_true",
        help="also test rows that could crash the server (skipped by default for a URL)",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="timeout for each request (default: 30)",
    )
    parser.add_argument(
        "--within",
        type=_seconds,
        metavar="SECONDS",
        help=(
            "time limit for all rows; rows not finished by then are not tested (default: 150, or"
            " 900 with --all)"
        ),
    )
    parser.add_argument(
        "--against",
        metavar="OLD_URL",
        help="test the same rows on this older server first, and list the rows that changed",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="random seed for the words in the prompts"
    )
    kept_and_signed(parser)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError("must be a number of seconds, such as 30")
    return value


def main(options: argparse.Namespace) -> int:
    """Ask a server about every row; the exit code says what came out, as that of `run` does."""
    from harness.cli.running import demand_signed, sign_with, verify_line
    from harness.cli.streams import print_styled
    from harness.forms.distribution import missing
    from harness.trust.key import KeyProblem
    from harness.trust.sshsig import SshsigError

    if lacks := missing("httpx2"):
        return give_up("conformance", lacks, USAGE)
    from harness.conformance.engine import EngineError
    from harness.conformance.report import first_screen
    from harness.conformance.run import (
        WITHIN,
        WITHIN_ALL,
        ConformanceError,
        ConformanceSettings,
        conform,
        demand_known,
        older,
    )
    from harness.engines.models import ModelError
    from harness.record.results import ResultsError
    from harness.report.terminal import render_terminal

    def account(line: str) -> None:
        print(f"  {line}", flush=True)

    try:
        settings = ConformanceSettings(
            target=options.target,
            mode=options.mode,
            results=options.results,
            model=options.model,
            tokenizer=options.tokenizer,
            api_key=os.environ.get(options.api_key_env) or None,
            rows=tuple(name.strip() for name in options.rows.split(",") if name.strip()),
            every=options.all,
            may_break=options.may_break_it,
            timeout=options.timeout,
            within=options.within or (WITHIN_ALL if options.all else WITHIN),
            seed=options.seed,
        )
        before = None
        if options.against is not None:
            # Both are asked with the same words.
            seed = secrets.randbelow(2**31) if options.seed is None else options.seed
            settings = replace(settings, seed=seed)
            before = replace(settings, target=options.against, mode="plain")
            demand_known(before)
        # Before a key is made for what cannot be asked.
        demand_known(settings)
        signer = sign_with(options)
        if before is not None:
            print(f"  {before.target}, the older server:", flush=True)
            asked = conform(before, signer, account)
            print(f"  report: {os.path.relpath(asked.folder / 'report.md')}", flush=True)
            settings = replace(settings, against=older(asked.record))
        finished = conform(settings, signer, account)
    except (ConformanceError, KeyProblem, SshsigError, ModelError) as error:
        return give_up("conformance", error, USAGE)
    except (EngineError, ResultsError) as error:
        return give_up("conformance", error, INCONCLUSIVE)
    print_styled(render_terminal(first_screen(finished.record), 80))
    report = finished.folder / "report.md"
    print(f"\n  report: {os.path.relpath(report)}")
    if signer is not None:
        print(f"  verify: {verify_line(report, signer)}", flush=True)
    code = VERDICT_CODES[finished.record.verdict]
    return demand_signed(code, signer, unsigned=options.unsigned)
