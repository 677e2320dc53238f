"""Arguments that several commands take, their values, and the scenarios that they name.

The scenarios are loaded by what is imported when a command asks for them: help needs none of it.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from harness.forms.problem import ScenarioError
    from harness.scenario import LoadedScenario
    from harness.trust.signers import SignerPolicy

# Where trials are made: on this machine, or on the nodes of a cluster.
LOCAL = "local"
RAY = re.compile(r"ray(://[A-Za-z0-9.:\[\]-]+:[0-9]{1,5})?")


def scenarios(parser: argparse.ArgumentParser) -> None:
    """Which scenarios; all of `scenarios/` where none is named."""
    parser.add_argument(
        "scenarios",
        type=Path,
        nargs="*",
        metavar="SCENARIO",
        help="scenario files or folders (default: scenarios)",
    )


def overrides(parser: argparse.ArgumentParser) -> None:
    """Keys of the scenario that are overridden."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="override a scenario key, such as trials.candidate=5 (repeatable)",
    )


def signers(parser: argparse.ArgumentParser) -> None:
    """Whose signature is accepted, and when."""
    parser.add_argument(
        "--signer",
        action="append",
        default=[],
        metavar="SHA256:...",
        help="accept reports signed by the key with this fingerprint",
    )
    parser.add_argument(
        "--allowed-signers",
        type=Path,
        metavar="FILE",
        help="accept the keys listed in this file (OpenSSH allowed_signers format)",
    )
    parser.add_argument(
        "--revoked", type=Path, metavar="FILE", help="reject the keys listed in this file"
    )
    parser.add_argument(
        "--at",
        default="now",
        metavar="TIME",
        help="time at which the key must be valid: now (default), report (when the report was"
        " made), or a time such as 2026-01-31T12:00:00Z",
    )


def policy_of(options: argparse.Namespace, *, own: tuple[str, ...] = ()) -> SignerPolicy:
    """Whose signature the command line, or else the repository, accepts.

    Args:
        options: of the command.
        own: fingerprints of the reader's own keys, where they are accepted too.

    Raises:
        OSError, SignersMalformed: a list cannot be read.
        ValueError: an option that cannot be read.
    """
    from harness.trust.signers import SignerPolicy, read_signers

    allowed = options.allowed_signers
    if allowed is None and not options.signer:
        allowed = own_signers()
    return SignerPolicy(
        allowed=read_signers(allowed) if allowed else None,
        allowed_from=str(allowed or "allowed_signers"),
        fingerprints=tuple(_fingerprint(given) for given in options.signer),
        revoked=read_signers(options.revoked) if options.revoked else None,
        own=own,
        at=_at(options.at),
    )


def _fingerprint(given: str) -> str:
    if not re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}", given):
        raise ValueError(
            f"--signer {given}: not a fingerprint; use SHA256: followed by 43 characters, as"
            " printed by `ssh-keygen -l`"
        )
    return given


def _at(given: str) -> datetime | Literal["now", "report"]:
    from harness.trust.signers import parse_at

    try:
        return parse_at(given)
    except ValueError:
        raise ValueError(
            f"--at {given}: not a time; use `now`, `report`, or a time such as 2026-01-31T12:00:00Z"
        ) from None


def own_signers() -> Path | None:
    """Find the verifier's own list, at the top of the repository it stands in.

    Never the one beside the report.
    """
    from harness.forms.git import git, refusal
    from harness.trust.signers import ALLOWED_SIGNERS

    done = git("rev-parse", "--show-toplevel")
    # Without git, or outside of a repository, the list may still lie here.
    top = Path() if done.returncode else Path(os.fsdecode(done.stdout.removesuffix(b"\n")))
    why = refusal(done.stderr)
    file = top / ALLOWED_SIGNERS
    if file.is_file():
        return file
    if why:
        print(
            f"cannot look for {ALLOWED_SIGNERS} at the top of the repository: {why}",
            file=sys.stderr,
        )
    return None


def inputs(parser: argparse.ArgumentParser) -> None:
    """Where the inputs of a run lie."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="path of the run's input NAME on this machine (repeatable)",
    )


def new_runs(parser: argparse.ArgumentParser) -> None:
    """Where runs are kept, how many worlds there are at a time, and which key signs."""
    kept_and_signed(parser)
    parser.add_argument(
        "--jobs",
        type=positive,
        metavar="N",
        help="number of worlds to run in parallel (default: half the cores)",
    )


def kept_and_signed(parser: argparse.ArgumentParser) -> None:
    """Where runs are kept, and which key signs."""
    parser.add_argument(
        "--results",
        type=folder,
        default="results",
        metavar="FOLDER",
        help="folder to write runs to (default: results)",
    )
    parser.add_argument(
        "--key",
        metavar="KEY",
        help="SSH key to sign with (default: RANKPROOF_SIGNING_KEY, then git's key, then this"
        " machine's key)",
    )
    parser.add_argument(
        "--unsigned",
        action="store_true",
        help="do not sign the report (unsigned reports fail verification)",
    )


def jobs_of(options: argparse.Namespace) -> int:
    """Give the number of worlds at the same time: as asked for, or half the cores."""
    return int(options.jobs or max(1, (os.cpu_count() or 1) // 2))


def folder(text: str) -> Path:
    """Folder, there or not, but not what can never be one."""
    try:
        Path(text).stat()
    except OSError as error:
        # What is missing is made, and whoever writes finds out what may not be: these can never be
        # a folder.
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise argparse.ArgumentTypeError(
                f"{text}: {error.strerror}; give another folder"
            ) from None
    return Path(text)


def positive(text: str) -> int:
    """Whole number from 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError("must be a whole number, 1 or greater")
    return number


def challenge(text: str) -> str:
    """Text that a gate demands in a report."""
    if (
        not 0 < len(text) <= 200
        or not text.isascii()
        or not text.isprintable()
        or text != text.strip()
    ):
        raise argparse.ArgumentTypeError(
            "must be 1 to 200 printable ASCII characters, without spaces at either end"
        )
    return text


def load_all(paths: Sequence[Path], overrides: Sequence[str]) -> tuple[list[LoadedScenario], int]:
    """Load every scenario file that the paths name.

    Returns:
        The scenarios that can be read, and how many problems the others have; those are printed to
        stderr.
    """
    from harness.scenario import ScenarioError, load_scenario, scenario_files

    loaded: list[LoadedScenario] = []
    problems = 0
    for path in paths or [Path("scenarios")]:
        try:
            files = scenario_files(path)
            if not files:
                print(f"{path}: no scenario file (*.yaml) found", file=sys.stderr)
                problems += 1
        except ScenarioError as error:
            problems += tell(error)
            continue
        for file in files:
            try:
                loaded.append(load_scenario(file, overrides=overrides))
            except ScenarioError as error:
                problems += tell(error)
    return loaded, problems


def wanted(loaded: Sequence[LoadedScenario], paths: Sequence[Path]) -> list[LoadedScenario]:
    """Leave out what runs on demand only: `on-demand` needs its file or folder named, `sweep` its
    file.

    A folder further up, or nothing named at all, asks for what a gate asks for.
    """
    named = {os.path.realpath(path) for path in paths}

    def is_wanted(scenario: LoadedScenario) -> bool:
        file = os.path.realpath(scenario.path)
        if file in named:
            return True
        tags = scenario.scenario.tags
        return "sweep" not in tags and ("on-demand" not in tags or str(Path(file).parent) in named)

    return [scenario for scenario in loaded if is_wanted(scenario)]


def tell(error: ScenarioError) -> int:
    """Print every problem of a file; returns how many."""
    for problem in error.problems:
        print(problem, file=sys.stderr)
    return len(error.problems)
