"""`rankproof doctor` and `list environments`: what this machine can run, and what was made on it;
and `rankproof hosts`: the machines of a hostfile looked at, made ready, cleaned, and asked for what
they wrote down.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, INCONCLUSIVE, PASS, USAGE, give_up
from harness.cli.arguments import folder

if TYPE_CHECKING:
    from harness.run.doctor import DoctorAnswer
    from harness.run.machines.collected import LateOutcome
    from harness.run.machines.readiness import Done, SeenMachine


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command; its name is the last word of the parser's."""
    if parser.prog.endswith("hosts"):
        _hosts_arguments(parser)
    else:
        _this_arguments(parser)


def main(options: argparse.Namespace) -> int:
    """Examine this machine, list or remove its environments, or look after those of a hostfile."""
    return {"doctor": _examine, "environments": _environments, "hosts": _hosts}[options.command](
        options
    )


def _this_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `doctor` and `environments` take."""
    if parser.prog.endswith("doctor"):
        parser.add_argument(
            "--results",
            type=folder,
            default="results",
            metavar="FOLDER",
            help="results folder to check (default: results)",
        )
        parser.add_argument(
            "--quick",
            action="store_true",
            help="do not start ranks or measure the cost of starting one",
        )
        return
    parser.add_argument("what", nargs="?", choices=("list", "remove"), default="list")
    parser.add_argument(
        "keys",
        nargs="*",
        metavar="KEY",
        help="with remove: the first characters of an environment's key, as printed by list",
    )
    parser.add_argument("--all", action="store_true", help="with remove: remove every environment")


def _examine(options: argparse.Namespace) -> int:
    """Say what this machine can run; exit 2 where something is missing."""
    from harness.run.doctor import examine

    answers = examine(results=Path(options.results), measure=not options.quick)
    missing = [answer for answer in answers if answer.word == "no"]
    there = [answer for answer in answers if answer.word != "no"]
    width = max(len(answer.what) for answer in answers)
    if missing:
        print("missing")
        for answer in missing:
            _print_answer(answer, width)
    for topic, several in groupby(there, key=lambda answer: answer.topic):
        print(f"\n{topic}")
        shown = list(several)
        if topic == "fault":
            kinds = sum(answer.word == "yes" for answer in shown)
            print(f"  yes   {kinds} kinds can run here: `rankproof list faults` describes them")
            shown = [answer for answer in shown if answer.word != "yes"]
        for answer in shown:
            _print_answer(answer, width)
    names = ", ".join(answer.what for answer in missing)
    print(f"\n{len(missing)} missing: {names}" if missing else "\nnothing is missing")
    # Backends and faults are for the scenarios that ask for them; those are SKIPPED.
    return (
        INCONCLUSIVE
        if any(answer.topic not in ("backend", "fault") for answer in missing)
        else PASS
    )


def _print_answer(answer: DoctorAnswer, width: int) -> None:
    print(f"  {answer.word:<4}  {answer.what:<{width}}  {answer.detail}")
    if answer.remedy:
        print(f"        {'':<{width}}  -> {answer.remedy}")


def _environments(options: argparse.Namespace) -> int:
    """List the environments in the cache, or remove those that are named.

    No scenario needs them to be there.
    """
    from harness.run.environments.cache import cached, remove

    environments = cached()
    if options.what == "list":
        for environment in environments:
            size = f"{environment.bytes / 2**20:8.1f} MiB"
            print(f"{environment.key[:8]}  {size}  {environment.description or 'never finished'}")
        return PASS
    if not options.keys and not options.all:
        return give_up(
            "list environments remove",
            "give the first characters of environments, or --all",
            USAGE,
        )
    if unknown := [
        key for key in options.keys if not any(known.key.startswith(key) for known in environments)
    ]:
        return give_up("list environments remove", f"not in the cache: {', '.join(unknown)}", USAGE)
    chosen = [
        known for known in environments if options.all or known.key.startswith(tuple(options.keys))
    ]
    busy = [environment for environment in chosen if not remove(environment)]
    print(f"{len(chosen) - len(busy)} removed")
    for environment in busy:
        print(f"{environment.key[:8]} is being created by another process", file=sys.stderr)
    return INCONCLUSIVE if busy else PASS


def _hosts_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    check = what.add_parser(
        "check",
        help="check that ranks can run on every machine in a hostfile, and explain any failure",
    )
    check.add_argument(
        "hostfile",
        type=folder,
        metavar="FILE",
        help="hostfile: JSON for mlx.launch, or lines of the form `host slots=n`",
    )
    check.add_argument("--json", action="store_true", help="print JSON")
    collect = what.add_parser(
        "collect",
        help=(
            "fetch the events of machines that were lost during a run, and use them to judge the"
            " run again"
        ),
    )
    collect.add_argument("run", type=folder, metavar="RUN", help="folder of the run")
    collect.add_argument(
        "--hosts",
        type=folder,
        metavar="FILE",
        help="the run's hostfile (default: the one saved in this user's cache)",
    )
    prepare = what.add_parser(
        "prepare", help="install the environment from a lock file on every machine in a hostfile"
    )
    prepare.add_argument(
        "hostfile", type=folder, metavar="FILE", help="hostfile, as for `hosts check`"
    )
    prepare.add_argument(
        "--lock",
        type=folder,
        required=True,
        metavar="FILE",
        help="lock file with hashes, such as locks/cpu.txt",
    )
    prepare.add_argument(
        "--wheels",
        type=folder,
        metavar="FOLDER",
        help="copy wheels from this folder instead of downloading them",
    )
    clean = what.add_parser("clean", help="remove unused run files from the machines' caches")
    clean.add_argument(
        "hostfile", type=folder, metavar="FILE", help="hostfile, as for `hosts check`"
    )
    clean.add_argument(
        "--older",
        type=float,
        default=30.0,
        metavar="DAYS",
        help="remove files that have not been used for this many days (default: 30)",
    )
    clean.add_argument(
        "--most",
        type=float,
        default=20.0,
        metavar="GIB",
        help="maximum cache size after cleaning, in GiB (default: 20)",
    )
    for action in (check, collect, prepare, clean):
        action.add_argument(
            "--python",
            metavar="PATH",
            help="Python interpreter on the machines (default: the same path as on this machine)",
        )
        action.add_argument(
            "--ssh-config",
            type=folder,
            metavar="FILE",
            help="ssh configuration file (default: your own)",
        )


def _hosts(options: argparse.Namespace) -> int:
    """Look at the machines, or fetch what they wrote down; exit 1 where one falls short."""
    from harness.forms.problem import ScenarioError

    options.python = options.python or sys.executable
    options.ssh_config = Path(options.ssh_config) if options.ssh_config else None
    try:
        return {"check": _check, "collect": _collect, "prepare": _prepare, "clean": _clean}[
            options.what
        ](options)
    except ScenarioError as error:
        return give_up("hosts", error, USAGE)
    except OSError as error:
        # Of a machine's own files the machine tells: what raises here is a path of the command
        # line, or beside it.
        why = (
            f"{error.filename}: {error.strerror}"
            if error.filename and error.strerror
            else str(error)
        )
        return give_up(
            "hosts", f"{why}; check the paths given to `rankproof hosts {options.what}`", USAGE
        )


def _check(options: argparse.Namespace) -> int:
    from harness.run.machines.readiness import check
    from harness.world.starters.hostfile import read

    answers = check(
        read(Path(options.hostfile)),
        interpreter=options.python,
        configuration=options.ssh_config,
    )
    if options.json:
        print(json.dumps([asdict(seen) for seen in answers], indent=1))
    else:
        for seen in answers:
            _show(seen)
        lacking = [seen.machine.name for seen in answers if seen.problems]
        print(
            f"\nnot ready: {', '.join(lacking)}" if lacking else "\nranks can run on every machine"
        )
    return FAIL if any(seen.problems for seen in answers) else PASS


def _prepare(options: argparse.Namespace) -> int:
    from harness.run.machines.readiness import prepare
    from harness.world.starters.hostfile import read

    done = prepare(
        read(Path(options.hostfile)),
        lock=Path(options.lock),
        wheels=Path(options.wheels) if options.wheels else None,
        interpreter=options.python,
        configuration=options.ssh_config,
    )
    code = _say(done)
    if len(places := {outcome.interpreter for outcome in done if not outcome.why}) == 1:
        print(f"\npass it as --python (for rankproof run: --hosts-python): {places.pop()!r}")
    return code


def _clean(options: argparse.Namespace) -> int:
    from harness.run.machines.readiness import clean
    from harness.world.starters.hostfile import read

    return _say(
        clean(
            read(Path(options.hostfile)),
            most=round(options.most * 2**30),
            older=options.older * 86400,
            interpreter=options.python,
            configuration=options.ssh_config,
        )
    )


def _say(done: Sequence[Done]) -> int:
    for outcome in done:
        shown = (
            f"no: {outcome.why}"
            if outcome.why
            else ", ".join(filter(None, [outcome.said, outcome.interpreter]))
        )
        print(f"{outcome.machine.name}: {shown}")
    return FAIL if any(outcome.why for outcome in done) else PASS


def _collect(options: argparse.Namespace) -> int:
    from harness.run.machines.collected import NotCollected, collect, commands_of, over_ssh

    commands = None
    if options.hosts is not None:
        commands = commands_of(
            Path(options.hosts),
            interpreter=options.python,
            configuration=options.ssh_config,
        )
    try:
        outcome = collect(Path(options.run), fetch=over_ssh(commands))
    except NotCollected as error:
        return give_up("hosts", error, USAGE)
    _tell(outcome)
    return (
        FAIL
        if outcome.contradiction or any(machine.late is None for machine in outcome.found)
        else PASS
    )


def _tell(outcome: LateOutcome) -> None:
    from harness.forms.text import plural, printable

    if not outcome.found:
        print("nothing is missing: no machine was lost, or every lost machine came back in time")
        return
    for machine in outcome.found:
        where = f"{machine.missing.trial}: machine {printable(machine.missing.share.called)}"
        if machine.late is None:
            print(f"{where}: nothing fetched: {printable(machine.why)}")
            continue
        end = "" if machine.late.whole else "; the end is missing"
        print(
            f"{where}: {plural(len(machine.late.events), 'event')} fetched from"
            f" {machine.late.messages} messages{end}"
        )
        print(f"  ended its ranks: {printable(machine.late.why) or 'no'}")
    if outcome.contradiction:
        print(f"not merged: {printable(outcome.contradiction)}")
    for trial, (before, after, failures) in outcome.trials.items():
        print(f"{trial}: {before}; with the late events, {after}")
        for failure in failures:
            print(f"  {printable(failure)}")
    if any(machine.late for machine in outcome.found):
        print(f"verdict: {outcome.signed}; with the late events, {outcome.verdict}")
        print(f"written to {outcome.folder}; the signed folder is unchanged")


def _show(seen: SeenMachine) -> None:
    from harness.forms.text import plural, printable

    machine = seen.machine
    print(f"\n{machine.name}, {plural(machine.slots, 'slot')}: {'no' if seen.problems else 'yes'}")
    if seen.facts:
        facts = seen.facts
        system = (
            f"{printable(facts['system'])} {printable(facts['release'])} on"
            f" {printable(facts['architecture'])}"
        )
        size = f"{facts['memory'] / 2**30:.0f} GiB of memory, {facts['free'] / 2**30:.0f} GiB free"
        print(f"  machine  {system}, {plural(facts['cores'], 'core')}, {size}")
        print(
            f"  Python   {printable(facts['python'])}, {plural(len(facts['packages']), 'package')}"
        )
    if seen.clock is not None:
        trips = [1e3 * seconds for seconds in seen.clock.round_trips]
        took = f"round trip {trips[len(trips) // 2]:.2f} ms (slowest {trips[-1]:.2f} ms)"
        print(
            f"  channel  ready in {seen.ready:.2f} s, {took}, {_rate(seen.up)} up,"
            f" {_rate(seen.down)} down"
        )
        within = f"within {1e3 * seen.clock.uncertainty:.2f} ms"
        print(f"  clock    {1e3 * seen.clock.offset:+.2f} ms relative to this machine's, {within}")
    for what, remedy in seen.problems:
        print(f"  no       {what}\n           -> {remedy}")
    for note in seen.notes:
        print(f"  note     {note}")


def _rate(bytes_a_second: float) -> str:
    return f"{bytes_a_second / 1e6:.0f} MB/s"
