"""`rankproof gate`: what was decided, for people (lines, markdown) and for GitHub (its workflow
commands).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path

from harness.cli import PASS, REFUSED, USAGE, give_up
from harness.cli.arguments import challenge, tell
from harness.forms.text import visible
from harness.gate.basis import GateError, lint
from harness.gate.decision import Decision, Requirement, decide
from harness.gate.objects import NoCommit, NoTrustedRef
from harness.report.blocks import (
    Block,
    BulletList,
    Foreign,
    Heading,
    Paragraph,
    Part,
    Strong,
    Table,
    Text,
    Verbatim,
)
from harness.report.markdown import render_markdown
from harness.scenario import ScenarioError
from harness.trust.sshsig import SshsigError

SUMMARY_REASON = 500


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "results",
        type=Path,
        nargs="*",
        metavar="RESULTS",
        help="results folders or runs (default: results)",
    )
    parser.add_argument(
        "--commit", default="HEAD", metavar="COMMIT", help="commit to check (default: HEAD)"
    )
    parser.add_argument(
        "--policy",
        default=".rankproof/policy.yaml",
        metavar="FILE",
        help=(
            "path of the policy in the repository, read from the trusted ref (default:"
            " .rankproof/policy.yaml)"
        ),
    )
    parser.add_argument(
        "--trusted-ref",
        default="origin/main",
        metavar="REF",
        help=(
            "git ref to read the policy, keys and scenarios from, instead of the commit being"
            " checked (default: origin/main)"
        ),
    )
    parser.add_argument(
        "--challenge",
        type=challenge,
        metavar="TEXT",
        help="text that every report must contain (added with `run --challenge TEXT`)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the decision as JSON (docs/gate.md)"
    )
    parser.add_argument(
        "--init", action="store_true", help="write a starter policy and print the next steps"
    )
    parser.add_argument(
        "--lint",
        action="store_true",
        help="check the policy file in the current folder and exit",
    )


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
            print(
                f"rankproof gate: cannot write the step summary: {error.strerror}",
                file=sys.stderr,
            )
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
        return Decision(
            answer="USAGE",
            exit=USAGE,
            problems=[visible(str(problem)) for problem in error.problems],
        )
    except (GateError, NoCommit) as error:
        return Decision(answer="USAGE", exit=USAGE, problems=[visible(str(error))])


def _print(decision: Decision) -> None:
    """Print for people; on GitHub also as annotations, and so that no line of ours is taken for a
    command.
    """
    if os.environ.get("GITHUB_ACTIONS") != "true":
        print("\n".join(lines(decision)), flush=True)
        return
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}")
    print("\n".join(lines(decision)))
    print(f"::{token}::")
    for annotation in workflow_commands(decision):
        print(annotation)
    sys.stdout.flush()


def lines(decision: Decision) -> Iterable[str]:
    """Decision as plain lines."""
    scenario: str | None = ""
    wide = max((len(requirement.name) for requirement in decision.requirements), default=0)
    for requirement in decision.requirements:
        if requirement.scenario != scenario:
            scenario = requirement.scenario
            if scenario is not None:
                yield scenario
        yield f"  {requirement.name:<{wide}}  {requirement.word:<12}  {requirement.reason}"
    for note in decision.notes:
        yield f"note: {visible(note)}"
    yield from decision.problems
    if decision.commit and decision.trusted and decision.policy:
        yield (
            f"gate {decision.answer}: commit {decision.commit[:12]}, by"
            f" {visible(decision.policy.path)} of {visible(decision.trusted.ref)}"
            f" ({decision.trusted.commit[:12]})"
        )
    else:
        yield f"gate {decision.answer}"


def summary(decision: Decision) -> str:
    """Decision as markdown, for a step summary."""
    blocks: list[Block] = [Heading(2, f"Release gate: {decision.answer}")]
    if decision.commit and decision.trusted and decision.policy:
        by = Verbatim(decision.policy.path)
        ref = Verbatim(decision.trusted.ref)
        commit = Verbatim(decision.commit)
        trusted = Verbatim(decision.trusted.commit[:12])
        blocks.append(Paragraph("Commit ", commit, ", by ", by, " of ", ref, " (", trusted, ")."))
    if decision.requirements:
        rows: tuple[tuple[Part, ...], ...] = tuple(
            (
                requirement.scenario or "all",
                requirement.name,
                _word(requirement),
                Foreign(requirement.reason, SUMMARY_REASON),
            )
            for requirement in decision.requirements
        )
        blocks.append(Table(("scenario", "requirement", "word", "reason"), rows))
    if texts := (*decision.problems, *decision.notes):
        blocks.append(BulletList(tuple(Foreign(text, SUMMARY_REASON) for text in texts)))
    return render_markdown(blocks)


def workflow_commands(decision: Decision) -> Iterable[str]:
    """GitHub's workflow commands: one error for each requirement that is not met."""
    for requirement in decision.requirements:
        if requirement.word != "MET":
            title = (
                f"rankproof gate: {requirement.scenario or 'reports'}: {requirement.name}:"
                f" {requirement.word}"
            )
            yield f"::error title={_property(title)}::{_data(requirement.reason)}"
    for problem in decision.problems:
        yield f"::error title=rankproof gate::{_data(problem)}"


def _word(requirement: Requirement) -> Part:
    return requirement.word if requirement.word == "MET" else Text(Strong(requirement.word))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _lint(path: Path) -> int:
    try:
        lint(path)
    except ScenarioError as error:
        tell(error)
        return USAGE
    print(f"{path}: ok. It takes effect once it is on the trusted branch")
    return PASS


def _init(path: Path) -> int:
    from harness.gate.policy import TemplateError, write_policy

    try:
        for written in write_policy(path):
            print(f"wrote {written}")
    except TemplateError as error:
        return give_up("gate", error, USAGE)
    print("Add the keys that may sign to it, then run: rankproof gate --lint")
    print(
        "It takes effect once it is on the trusted branch (origin/main, unless --trusted-ref says"
        " otherwise)."
    )
    return PASS
