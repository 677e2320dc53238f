"""The command line: every command with its arguments. Nothing heavy is imported for it."""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Callable
from pathlib import Path

from harness import __version__
from harness.cli import USAGE

EPILOG = (
    "exit codes: 0 PASS, 1 FAIL, 2 INCONCLUSIVE (also: could not run, no key could sign), 3 verification refused, "
    "64 usage or scenario error, 70 our own bug"
)
COMPARED = (
    "exit codes: 0 every result is the same, 1 a result changed, 2 cannot tell, 3 a run is not verified, 64 usage. "
    "Times, scenario and environment are told and do not count."
)


GATE_CODES = (
    "exit codes: 0 OPEN, 1 CLOSED (a requirement refuses, or a report is missing), 2 CANNOT TELL (INCONCLUSIVE or "
    "SKIPPED), 3 NOT VERIFIED (a report was refused by verification, or there is no trusted policy), 64 usage, or a "
    "mistake in the policy"
)
REPRODUCED = (
    "exit codes: 0 REPRODUCED, 1 SAME VERDICT, DIFFERENT FAILURE or NOT REPRODUCED, 2 CANNOT TELL or SOURCE DIFFERS, "
    "3 the report was refused and nothing was run, 64 usage; with --fresh-seeds that of both passes together: 1 before "
    "2 before 0"
)


class Parser(argparse.ArgumentParser):
    """argparse with our exit code for bad usage."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}", file=sys.stderr)
        raise SystemExit(USAGE)


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The command line, in the order of the help: whole, or with one of its commands alone, which is made sooner."""
    top = Parser(
        prog="rankproof",
        description=(
            "A validation harness for distributed LLM inference. "
            "A validation that could not have failed proves nothing."
        ),
        epilog=EPILOG,
    )
    top.add_argument("--version", action="version", version=f"rankproof {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (add, help_, epilog) in COMMANDS.items():
        if only in (None, name):
            add(commands.add_parser(name, help=help_, epilog=epilog))
    return top


def _run(run: argparse.ArgumentParser) -> None:
    _scenarios(run)
    _overrides(run)
    run.add_argument(
        "--results", type=_folder, default="results", metavar="FOLDER", help="where runs are kept (default: results)"
    )
    run.add_argument(
        "--repo", type=Path, metavar="PATH", help="take both arms from this git repository (default rev: HEAD)"
    )
    run.add_argument("--candidate", metavar="REV", help="run this revision of the repository as the candidate")
    run.add_argument("--control", metavar="REV", help="run this revision of the repository as the control")
    run.add_argument("--jobs", type=_positive, metavar="N", help="worlds at the same time (default: half the cores)")
    run.add_argument(
        "--key", metavar="KEY", help="SSH key that signs (default: RANKPROOF_SIGNING_KEY, git's, this machine's)"
    )
    run.add_argument(
        "--challenge",
        type=_challenge,
        metavar="TEXT",
        help="sign this text into the report, for a gate",
    )
    run.add_argument("--unsigned", action="store_true", help="do not sign; such a report convinces nobody")
    run.add_argument(
        "--try",
        action="store_true",
        dest="trying",
        help="make one trial of each arm, print what ranks say and what a run will take, and keep nothing",
    )
    run.add_argument("--cell", metavar="ID", help="with --try: the cell to try (default: the first that can run)")


def _list(command: argparse.ArgumentParser) -> None:
    _scenarios(command)
    command.add_argument(
        "--subjects", action="store_true", help="list the ready subjects instead: what each does, takes and emits"
    )


def _lint(lint: argparse.ArgumentParser) -> None:
    _scenarios(lint)
    _overrides(lint)


def _doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("--results", type=_folder, default="results", metavar="FOLDER", help="where runs would be kept")


def _init(init: argparse.ArgumentParser) -> None:
    init.add_argument("folder", type=Path, help="a new folder, such as scenarios/my-fix")
    init.add_argument("--id", help="name of the scenario (default: the folder's)")
    init.add_argument("--title", help="one line that says what a PASS means")
    init.add_argument("--question", help="what the verdict answers")
    init.add_argument("--ranks", type=_positive, nargs="+", metavar="N", help="world sizes (default: 2 4)")
    init.add_argument("--error", metavar="TYPE", help="exception the bug ends with (default: AssertionError)")
    init.add_argument("--source", metavar="LINE", help="source line it ends at")
    init.add_argument("--failing", metavar="RANKS", help="ranks it shows on: every, nonzero, or a list such as [1]")
    init.add_argument("--hang", action="store_true", help="the bug is a hang: write a control that has to stand still")
    init.add_argument("--yes", action="store_true", help="ask nothing: take defaults for what no flag says")


def _environments(made: argparse.ArgumentParser) -> None:
    made.add_argument("what", nargs="?", choices=("list", "remove"), default="list")
    made.add_argument("keys", nargs="*", metavar="KEY", help="with remove: how its name in the list begins")
    made.add_argument("--all", action="store_true", help="with remove: all of them")


def _schema(schema: argparse.ArgumentParser) -> None:
    schema.add_argument(
        "what",
        nargs="?",
        choices=("scenario", "policy", "gate"),
        default="scenario",
        help="scenario (default) and policy: the files; gate: what `gate --json` prints",
    )


def _show(show: argparse.ArgumentParser) -> None:
    show.add_argument(
        "run",
        type=Path,
        nargs="?",
        default=Path("results/latest"),
        help="a run's folder, or a bundle (default: results/latest)",
    )


def _verify(verify: argparse.ArgumentParser) -> None:
    verify.add_argument("report", type=Path, help="report.md, the folder it lies in, or a bundle")
    _signers(verify)


def _tokenizer(group: argparse.ArgumentParser) -> None:
    # Its commands bring their own arguments.
    from harness.cli import tokenizer

    tokenizer.add(group)


def _compare(compare: argparse.ArgumentParser) -> None:
    compare.add_argument("first", type=Path, metavar="A", help="a run's folder or report.md")
    compare.add_argument("second", type=Path, metavar="B", help="the run to compare it with")
    _signers(compare)
    compare.add_argument("--unverified", action="store_true", help="compare also what verification refuses")
    how = compare.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON")
    how.add_argument("--markdown", action="store_true", help="print markdown")


def _bundle(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", type=Path, help="a run's folder, such as results/latest")
    command.add_argument("--out", type=Path, metavar="FILE", help="(default: SCENARIO-RUN.rankproof.tar.xz)")
    _inputs(command)
    command.add_argument(
        "--inputs-limit", type=int, default=64, metavar="MIB", help="most bytes of inputs to carry (default: 64 MiB)"
    )
    command.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=["home", "host", "secret", "user"],
        help="let this leave although it names this machine or its user",
    )


def _reproduce(command: argparse.ArgumentParser) -> None:
    command.add_argument("report", type=Path, help="report.md, the folder it lies in, or a bundle")
    _signers(command)
    command.add_argument(
        "--i-trust-this-file", action="store_true", help="run a report that is refused: it starts programs as you"
    )
    command.add_argument("--dry-run", action="store_true", help="say what would run, and run nothing")
    command.add_argument("--repo", type=Path, metavar="PATH", help="lay the report's commit out from this repository")
    command.add_argument("--from-evidence", action="store_true", help="run the code that the report's evidence holds")
    command.add_argument("--source", type=Path, metavar="FOLDER", help="take the candidate from this folder instead")
    command.add_argument("--candidate", metavar="REV", help="take the candidate from this revision instead")
    command.add_argument(
        "--trials", type=_positive, metavar="N", help="trials of the candidate (default: the report's)"
    )
    command.add_argument(
        "--fresh-seeds", action="store_true", help="after the pass with the report's seeds, make one with other seeds"
    )
    command.add_argument("--only-fresh-seeds", action="store_true", help="make that pass alone")
    command.add_argument(
        "--vary",
        action="store_true",
        help="where the answer differs, run again with one thing changed at a time, and say which change explains it",
    )
    _inputs(command)
    command.add_argument(
        "--results", type=_folder, default="results", metavar="FOLDER", help="where runs are kept (default: results)"
    )
    command.add_argument(
        "--jobs", type=_positive, metavar="N", help="worlds at the same time (default: half the cores)"
    )
    command.add_argument("--key", metavar="KEY", help="SSH key that signs, as for run")
    command.add_argument("--unsigned", action="store_true", help="do not sign")


def _inputs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--input", action="append", default=[], metavar="NAME=PATH", help="where an input of the run lies here"
    )


def _scenarios(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "scenarios", type=Path, nargs="*", metavar="SCENARIO", help="scenario files or folders (default: scenarios)"
    )


def _signers(command: argparse.ArgumentParser) -> None:
    """Whose signature is accepted, and when."""
    command.add_argument(
        "--signer", action="append", default=[], metavar="SHA256:...", help="fingerprint of a key that may sign"
    )
    command.add_argument("--allowed-signers", type=Path, metavar="FILE", help="keys that may sign, in OpenSSH's format")
    command.add_argument("--revoked", type=Path, metavar="FILE", help="keys that may not sign any more")
    command.add_argument(
        "--at",
        default="now",
        metavar="TIME",
        help="when the key must have been allowed: now, report, or 2026-01-31T12:00:00Z",
    )


def _overrides(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="override a key, as in trials.candidate=5",
    )


def _hub(hub: argparse.ArgumentParser) -> None:
    actions = hub.add_subparsers(dest="action", metavar="ACTION", required=True)
    serve = actions.add_parser("serve", help="serve FOLDER/ORG/NAME on this machine and print the line for HF_ENDPOINT")
    serve.add_argument("folder", type=Path, help="folder of repositories")
    serve.add_argument("--rules", type=Path, metavar="FILE", help="fault rules (default: none, a healthy hub)")
    serve.add_argument("--log", type=Path, metavar="FILE", help="append one JSON line for each request")
    serve.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)")
    serve.add_argument("--port", type=_port, default=0, metavar="N", help="default: a free one")

    layouts = actions.add_parser("layouts", help="write tokenizer repositories of this project's own making, to serve")
    layouts.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where to write rankproof/NAME")
    layouts.add_argument("layout", nargs="*", default=None, metavar="NAME", help="layouts (default: all)")


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() and len(text) < 6 else -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError("must be a port, 0 to 65535")
    return number


def _gate(gate: argparse.ArgumentParser) -> None:
    gate.add_argument(
        "results", type=Path, nargs="*", metavar="RESULTS", help="results folders, or runs (default: results)"
    )
    gate.add_argument("--commit", default="HEAD", metavar="COMMIT", help="the commit to gate (default: HEAD)")
    gate.add_argument(
        "--policy",
        default=".rankproof/policy.yaml",
        metavar="FILE",
        help="path of the policy in the repository; it is read from the trusted ref (default: .rankproof/policy.yaml)",
    )
    gate.add_argument(
        "--trusted-ref",
        default="origin/main",
        metavar="REF",
        help="where policy, keys and scenarios are taken from, never from the commit itself (default: origin/main)",
    )
    gate.add_argument(
        "--challenge",
        type=_challenge,
        metavar="TEXT",
        help="what every report must bear (`run --challenge TEXT`)",
    )
    gate.add_argument("--json", action="store_true", help="print the decision as JSON (docs/gate.md)")
    gate.add_argument("--init", action="store_true", help="write a policy to begin with, and say what to do next")
    gate.add_argument("--lint", action="store_true", help="check the policy file as it lies here, and decide nothing")


def _challenge(text: str) -> str:
    if not 0 < len(text) <= 200 or not text.isascii() or not text.isprintable() or text != text.strip():
        raise argparse.ArgumentTypeError("must be 1 to 200 printable ASCII characters without a blank at either end")
    return text


def _folder(text: str) -> Path:
    try:
        Path(text).stat()
    except OSError as error:
        # What is missing is made, and what may not be written is told by whoever writes: these can never be a folder.
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise argparse.ArgumentTypeError(f"{text}: {error.strerror}: name another folder") from None
    return Path(text)


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError("must be a whole number from 1")
    return number


def _nothing(command: argparse.ArgumentParser) -> None:
    """No arguments."""


Add = Callable[[argparse.ArgumentParser], None]
COMMANDS: dict[str, tuple[Add, str, str | None]] = {
    "run": (_run, "run scenarios on real ranks and write a signed report for each", EPILOG),
    "list": (_list, "list scenarios with their cells and trials", None),
    "lint": (_lint, "check scenario files and name every mistake with file, line and column", None),
    "init": (_init, "write a scenario folder for your own bug: it lints clean and runs", None),
    "doctor": (_doctor, "say what this machine can run, and what to do about each no", None),
    "environments": (_environments, "list or remove the environments that were made for arms", None),
    "faults": (_nothing, "list the kinds of faults, what each needs, and whether it can run here", None),
    "schema": (_schema, "print a JSON Schema, for editors and programs", None),
    "show": (_show, "show a run's report in the terminal", None),
    "verify": (_verify, "check a report: signature, evidence, verdict and text", EPILOG),
    "gate": (_gate, "apply a release policy to the signed reports of one commit", GATE_CODES),
    "compare": (_compare, "compare two runs of a scenario, cell by cell and check by check", COMPARED),
    "bundle": (_bundle, "pack a run into one file, to send it to somebody", None),
    "reproduce": (_reproduce, "run a report or a bundle again, and say whether it is reproduced", REPRODUCED),
    "tokenizer": (_tokenizer, "say what a tokenizer is, and what differs between two", None),
    "hub": (_hub, "serve tokenizer repositories in the hub's protocol, with faults on purpose", None),
}
