"""`rankproof run`. Its help needs none of what a run needs."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.arguments import LOCAL, RAY, challenge, folder, new_runs, overrides, scenarios


def farm(text: str) -> str:
    """Where trials are made."""
    if text != LOCAL and not RAY.fullmatch(text):
        raise argparse.ArgumentTypeError("must be local, ray, or ray://HEAD:PORT")
    return text


def machines(text: str) -> str:
    """Hostfile, or a cluster."""
    return text if RAY.fullmatch(text) else str(folder(text))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    scenarios(parser)
    overrides(parser)
    parser.add_argument(
        "--repo",
        type=Path,
        metavar="PATH",
        help="take the code of both arms from this git repository (default revision: the"
        " scenario's, or HEAD)",
    )
    parser.add_argument(
        "--candidate", metavar="REV", help="run this revision of the repository as the candidate"
    )
    parser.add_argument(
        "--control", metavar="REV", help="run this revision of the repository as the control"
    )
    parser.add_argument(
        "--challenge",
        type=challenge,
        metavar="TEXT",
        help="include this text in the signed report, for a gate that requires it",
    )
    new_runs(parser)
    parser.add_argument(
        "--on",
        type=farm,
        default=LOCAL,
        metavar="WHERE",
        help=(
            "where to run trials: local (this machine, the default), or ray or ray://HEAD:PORT (the"
            " nodes of a Ray cluster)"
        ),
    )
    parser.add_argument(
        "--name-hosts",
        action="store_true",
        help="with --on or --hosts: record machine names instead of their digests",
    )
    parser.add_argument(
        "--try",
        action="store_true",
        dest="trying",
        help=(
            "run one trial of each arm and print the result and the estimated time for a full"
            " run; nothing is saved"
        ),
    )
    parser.add_argument(
        "--all", action="store_true", help="with --try: print every event, check, log and array"
    )
    over = parser.add_argument_group("running on several machines (docs/machines.md)")
    over.add_argument(
        "--hosts",
        type=machines,
        metavar="FILE",
        help=(
            "hostfile of the machines to run ranks on, over ssh; or test:3 for three test machines"
            " on this host (requires root); or ray (or ray://HEAD:PORT) for the nodes of a Ray"
            " cluster"
        ),
    )
    over.add_argument(
        "--placement",
        metavar="RULE",
        help=("where to place ranks: spread (default), pack, or rank by rank: 0=node-1,1=node-2"),
    )
    over.add_argument(
        "--hosts-python",
        metavar="PATH",
        help="Python interpreter on the machines (default: the same path as on this machine)",
    )
    over.add_argument(
        "--ssh-config",
        type=folder,
        metavar="FILE",
        help="ssh configuration file (default: your own)",
    )
    parser.add_argument(
        "--cell",
        metavar="ID",
        help="with --try: the cell to try (default: the first cell in which the control must fail)",
    )


def main(options: argparse.Namespace) -> int:
    """Run scenarios."""
    from harness.cli import running

    code = running.main(options)
    if not options.trying:
        from harness.cli.view import refresh

        refresh(options.results)
    return code
