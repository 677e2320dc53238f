"""`rankproof gate`."""

from __future__ import annotations

import argparse
import gc
import json
import os
import secrets
import sys
from pathlib import Path

from harness.cli import PASS, REFUSED, USAGE
from harness.cli.arguments import challenge
from harness.cli.decision import Decision, commands, decision, lines, summary, unable
from harness.run.gate import GateError, NotTrusted, decide, lint
from harness.run.trusted import NoCommit
from harness.scenario import ScenarioError
from harness.trust.sshsig import SshsigError


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "results", type=Path, nargs="*", metavar="RESULTS", help="results folders, or runs (default: results)"
    )
    parser.add_argument("--commit", default="HEAD", metavar="COMMIT", help="the commit to gate (default: HEAD)")
    parser.add_argument(
        "--policy",
        default=".rankproof/policy.yaml",
        metavar="FILE",
        help="path of the policy in the repository; it is read from the trusted ref (default: .rankproof/policy.yaml)",
    )
    parser.add_argument(
        "--trusted-ref",
        default="origin/main",
        metavar="REF",
        help="where policy, keys and scenarios are taken from, never from the commit itself (default: origin/main)",
    )
    parser.add_argument(
        "--challenge",
        type=challenge,
        metavar="TEXT",
        help="what every report must bear (`run --challenge TEXT`)",
    )
    parser.add_argument("--json", action="store_true", help="print the decision as JSON (docs/gate.md)")
    parser.add_argument("--init", action="store_true", help="write a policy to begin with, and say what to do next")
    parser.add_argument("--lint", action="store_true", help="check the policy file as it lies here, and decide nothing")


def main(options: argparse.Namespace) -> int:
    """Decide, or write or check a policy."""
    if options.init:
        from harness.cli.policy import start

        return start(Path(options.policy))
    if options.lint:
        return _lint(Path(options.policy))
    # A report's objects live until it is decided: looking for cycles among them only takes time.
    gc.disable()
    found = _decide(options)
    if options.json:
        print(json.dumps(found.model_dump(mode="json"), indent=1))
    else:
        _print(found)
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(summary(found))
        except OSError as error:
            print(f"rankproof gate: the step summary cannot be written: {error.strerror}", file=sys.stderr)
    return found.exit


def _decide(options: argparse.Namespace) -> Decision:
    try:
        return decision(
            decide(
                options.results or [Path("results")],
                commit=options.commit,
                policy=options.policy,
                trusted_ref=options.trusted_ref,
                challenge=options.challenge,
            )
        )
    except (NotTrusted, SshsigError) as error:
        return unable("NOT VERIFIED", REFUSED, [str(error)])
    except ScenarioError as error:
        return unable("USAGE", USAGE, [str(problem) for problem in error.problems])
    except (GateError, NoCommit) as error:
        return unable("USAGE", USAGE, [str(error)])


def _print(found: Decision) -> None:
    """Print for people; on GitHub also as annotations, and so that no line of ours is taken for a command."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        print("\n".join(lines(found)), flush=True)
        return
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}")
    print("\n".join(lines(found)))
    print(f"::{token}::")
    for annotation in commands(found):
        print(annotation)
    sys.stdout.flush()


def _lint(path: Path) -> int:
    try:
        lint(path)
    except ScenarioError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return USAGE
    print(f"{path}: ok. It decides once it is on the trusted branch")
    return PASS
