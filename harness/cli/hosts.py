"""`rankproof hosts check`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import FAIL, PASS, USAGE, give_up
from harness.cli.arguments import folder

if TYPE_CHECKING:
    from harness.run.machines import Seen


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    check = what.add_parser(
        "check", help="say of each machine of a hostfile whether ranks could run there, and why not"
    )
    check.add_argument("hostfile", type=folder, metavar="FILE", help="mlx.launch's JSON, or lines of `host slots=n`")
    check.add_argument("--python", metavar="PATH", help="interpreter of the environment there (default: as here)")
    check.add_argument("--ssh-config", type=folder, metavar="FILE", help="configuration for ssh (default: your own)")
    check.add_argument("--json", action="store_true", help="print JSON")


def main(options: argparse.Namespace) -> int:
    """Look at each machine; exit 1 where no rank could run on one of them."""
    from harness.forms.problem import ScenarioError
    from harness.run.machines import check
    from harness.starters.hostfile import read

    try:
        machines = read(Path(options.hostfile))
    except ScenarioError as error:
        return give_up("hosts", error, USAGE)
    configuration = Path(options.ssh_config) if options.ssh_config else None
    found = check(machines, interpreter=options.python or sys.executable, configuration=configuration)
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        for one in found:
            _show(one)
        lacking = [one.machine.name for one in found if one.problems]
        print(f"\n{'ranks can run on every machine' if not lacking else 'not yet: ' + ', '.join(lacking)}")
    return FAIL if any(one.problems for one in found) else PASS


def _show(seen: Seen) -> None:
    from harness.forms.text import plural, printable

    machine = seen.machine
    print(f"\n{machine.name}, {plural(machine.slots, 'slot')}: {'no' if seen.problems else 'yes'}")
    if seen.facts:
        facts = seen.facts
        system = f"{printable(facts['system'])} {printable(facts['release'])} on {printable(facts['architecture'])}"
        size = f"{facts['memory'] / 2**30:.0f} GiB of memory, {facts['free'] / 2**30:.0f} GiB free"
        print(f"  machine  {system}, {plural(facts['cores'], 'core')}, {size}")
        print(f"  Python   {printable(facts['python'])}, {plural(len(facts['packages']), 'package')}")
    if seen.clock is not None:
        trips = [1e3 * seconds for seconds in seen.clock.round_trips]
        took = f"round trip {trips[len(trips) // 2]:.2f} ms (slowest {trips[-1]:.2f} ms)"
        print(f"  channel  ready in {seen.ready:.2f} s, {took}, {_rate(seen.up)} up, {_rate(seen.down)} down")
        within = f"within {1e3 * seen.clock.uncertainty:.2f} ms"
        print(f"  clock    {1e3 * seen.clock.offset:+.2f} ms against the one here, {within}")
    for what, remedy in seen.problems:
        print(f"  no       {what}\n           -> {remedy}")
    for note in seen.notes:
        print(f"  note     {note}")


def _rate(bytes_a_second: float) -> str:
    return f"{bytes_a_second / 1e6:.0f} MB/s"
