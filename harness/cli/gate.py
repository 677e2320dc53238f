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
from harness.cli.decision import commands, lines, summary
from harness.forms.text import visible
from harness.gate.basis import GateError, lint
from harness.gate.decision import Decision, decide
from harness.gate.objects import NoCommit, NoTrustedRef
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
        "--challenge", type=challenge, metavar="TEXT", help="what every report must bear (`run --challenge TEXT`)"
    )
    parser.add_argument("--json", action="store_true", help="print the decision as JSON (docs/gate.md)")
    parser.add_argument("--init", action="store_true", help="write a policy to begin with, and say what to do next")
    parser.add_argument("--lint", action="store_true", help="check the policy file as it lies here, and decide nothing")


def main(options: argparse.Namespace) -> int:
    """Decide, or write or check a policy."""
    if options.init:
        return _init(Path(options.policy))
    if options.lint:
        return _lint(Path(options.policy))
    # A report's objects live until it is decided: looking for cycles among them only takes time.
    gc.disable()
    decision = _decide(options)
    if options.json:
        print(json.dumps(decision.model_dump(mode="json"), indent=1))
    else:
        _print(decision)
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(summary(decision))
        except OSError as error:
            print(f"rankproof gate: the step summary cannot be written: {error.strerror}", file=sys.stderr)
    return decision.exit


def _decide(options: argparse.Namespace) -> Decision:
    try:
        return decide(
            options.results or [Path("results")],
            commit=options.commit,
            policy=options.policy,
            trusted_ref=options.trusted_ref,
            challenge=options.challenge,
        )
    except (NoTrustedRef, SshsigError) as error:
        return Decision(answer="NOT VERIFIED", exit=REFUSED, problems=[visible(str(error))])
    except ScenarioError as error:
        return Decision(answer="USAGE", exit=USAGE, problems=[visible(str(problem)) for problem in error.problems])
    except (GateError, NoCommit) as error:
        return Decision(answer="USAGE", exit=USAGE, problems=[visible(str(error))])


def _print(decision: Decision) -> None:
    """Print for people; on GitHub also as annotations, and so that no line of ours is taken for a command."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        print("\n".join(lines(decision)), flush=True)
        return
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}")
    print("\n".join(lines(decision)))
    print(f"::{token}::")
    for annotation in commands(decision):
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


def _init(path: Path) -> int:
    """Write a policy and a list of signers to begin with."""
    from harness.gate.template import TemplateError, write

    try:
        for written in write(path):
            print(f"wrote {written}")
    except TemplateError as error:
        print(f"rankproof gate: {error}", file=sys.stderr)
        return USAGE
    print("Put the keys that may sign into it, then: rankproof gate --lint")
    print("It decides once it is on the trusted branch (origin/main, unless --trusted-ref says otherwise).")
    return PASS
