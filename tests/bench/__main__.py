"""`nox -s bench`: how long real worlds take beside the libraries' own launchers, and how long
verify and gate take.

Also what a rank costs beside a bare fork, what verify, lint and list cost beside an import, what
the page over a thousand runs costs, what the identity of a large tokenizer costs, a look into a
GGUF file, test hosts, the ledger of a rank's calls, and the transport and the validators of
`harness._integrity`, one beside a bare socket, the others beside a decode step, a model over ranks,
and, by name only, what a pipeline spends in both, and what a thousand recorded machines cost
control.

Absolute times of a shared machine lie; the ratio of two medians measured in turn does not, or less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.backends import KINDS
from harness.forms.distribution import missing
from harness.forms.model import MOST_RANKS
from harness.world.control.pool import ServerPool, prepare
from harness.world.hosts.host import refusal
from tests.bench import (
    commands,
    gguf_files,
    hosts,
    inference,
    integrity,
    integrity_pipeline,
    ledger,
    ranks,
    runs_page,
    scale,
    transport,
    verifying,
)
from tests.bench.launchers import mlx_launch, torchrun
from tests.bench.tokenizers import TOKENS, identity_seconds
from tests.bench.worlds import warm_world


@dataclass(kw_only=True)
class Contest:
    """A backend at a world size, started by us and by its own launcher, in turn.

    Attributes:
        worlds: of ours per round.
        launches: of the launcher per round; mlx.launch is quick or a second late by chance, so one
            says little.
    """

    backend: str
    ranks: int
    launcher: Callable[..., float]
    worlds: int = 5
    launches: int = 1
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def round(self, pool: ServerPool, folder: Path) -> None:
        """Measure both sides once more."""
        self.theirs += [self.launcher(folder, ranks=self.ranks) for _ in range(self.launches)]
        self.ours += [
            warm_world(pool, folder, backend=self.backend, ranks=self.ranks)
            for _ in range(self.worlds)
        ]

    def figures(self) -> dict[str, Any]:
        """Seconds as minimum, median and maximum, and how many times faster we are."""
        sides = {"warm_world_seconds": self.ours, f"{self.launcher.__name__}_seconds": self.theirs}
        found: dict[str, Any] = {
            name: [min(side), statistics.median(side), max(side)] for name, side in sides.items()
        }
        return found | {"ratio": statistics.median(self.theirs) / statistics.median(self.ours)}

    def print(self) -> None:
        """Print the same for people."""
        print(f"{self.backend}, {self.ranks} ranks, until the first collective is done")
        for label, times in (("a warm world", self.ours), (self.launcher.__name__, self.theirs)):
            low, middle, high = min(times), statistics.median(times), max(times)
            print(f"  {label:<14} {middle:.3f} s (median of {len(times)}; {low:.3f} to {high:.3f})")
        print(f"  {'ratio':<14} {self.figures()['ratio']:.1f} times")


def main() -> None:
    """Measure and print; with --json, for machines."""
    given = argparse.ArgumentParser(prog="bench", description=__doc__)
    given.add_argument(
        "--rounds", type=int, default=3, help="rounds of launcher and warm worlds in turn"
    )
    given.add_argument("--json", action="store_true")
    parts = (
        "worlds",
        "ranks",
        "hosts",
        "verify",
        "commands",
        "view",
        "tokenizers",
        "gguf",
        "ledger",
        "transport",
        "validators",
    )
    given.add_argument(
        "--only", choices=(*parts, "inference", "pipeline", "scale"), help="measure one of these"
    )
    options = given.parse_args()
    found: dict[str, Any] = gguf(options) if options.only in (None, "gguf") else {}
    found |= reports(options)
    if options.only in (None, "worlds"):
        found |= worlds(options)
    if options.only in (None, "hosts") and refusal() is None:
        with tempfile.TemporaryDirectory() as name, ServerPool() as pool:
            found["hosts"] = hosts.measure(pool, Path(name), rounds=options.rounds)
        if not options.json:
            hosts.show(found["hosts"])
    if options.only in (None, "ranks") and KINDS["gloo"].refusal(size=ranks.RANKS) is None:
        with tempfile.TemporaryDirectory() as name, ServerPool() as pool:
            found["ranks"] = ranks.measure(pool, Path(name), rounds=options.rounds)
        if not options.json:
            ranks.show(found["ranks"])
    if options.only in (None, "tokenizers"):
        found["tokenizers"] = identity_seconds()
        if not options.json:
            print(f"a tokenizer of {TOKENS} tokens and merges, CPU time")
            for name, (low, middle, high) in found["tokenizers"].items():
                print(f"  {name:<18} {middle:.3f} s ({low:.3f} to {high:.3f})")
    found |= over_ranks(options)
    if options.only == "scale":
        found["scale"] = scale.measure()
        if not options.json:
            scale.show(found["scale"])
    if options.json:
        print(json.dumps(found))


def reports(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the commands that read reports and scenarios."""
    found: dict[str, Any] = {}
    parts = (("verify", verifying), ("commands", commands), ("view", runs_page))
    for part, measured in parts:
        if options.only not in (None, part):
            continue
        with tempfile.TemporaryDirectory() as name:
            found[part] = measured.measure(Path(name), rounds=max(5, options.rounds))
        if not options.json:
            measured.show(found[part])
    return found


def over_ranks(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the ledger of calls, and a model that is split."""
    found: dict[str, Any] = {}
    if options.only in (None, "ledger") and KINDS["gloo"].refusal(size=2) is None:
        with tempfile.TemporaryDirectory() as name, ServerPool() as pool:
            found["ledger"] = ledger.measure(pool, Path(name))
        if not options.json:
            ledger.show(found["ledger"])
    if (
        options.only in (None, "inference")
        and missing("transformers") is None
        and missing("torch") is None
    ):
        found["inference"] = inference.measure(rounds=options.rounds)
        if not options.json:
            inference.show(found["inference"])
    return found | messages(options) | validators(options) | pipeline(options)


def messages(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the transport beside a bare socket."""
    if options.only not in (None, "transport"):
        return {}
    found = transport.measure(rounds=options.rounds)
    if not options.json:
        transport.show(found)
    return {"transport": found}


def validators(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the validators of a stream of tokens."""
    if options.only not in (None, "validators") or KINDS["gloo"].refusal(size=2) is not None:
        return {}
    with tempfile.TemporaryDirectory() as name, ServerPool() as pool:
        found = integrity.measure(pool, Path(name))
    if not options.json:
        integrity.show(found)
    return {"validators": found}


def pipeline(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what a pipeline spends in the library.

    It writes a model of half a gigabyte, so by name only.
    """
    if options.only != "pipeline":
        return {}
    with tempfile.TemporaryDirectory() as name, ServerPool() as pool:
        found = integrity_pipeline.measure(pool, Path(name))
    if not options.json:
        integrity_pipeline.show(found)
    return {"pipeline": found}


def gguf(options: argparse.Namespace) -> dict[str, Any]:
    """Measure a look into a GGUF file."""
    with tempfile.TemporaryDirectory() as name:
        found = gguf_files.measure(Path(name))
    if not options.json:
        gguf_files.show(found)
    return {"gguf": found}


def worlds(options: argparse.Namespace) -> dict[str, Any]:
    """Measure worlds and launchers in turn."""
    torch = KINDS["gloo"].refusal(size=MOST_RANKS) is None
    contests = [
        Contest(backend="gloo", ranks=4, launcher=torchrun),
        Contest(backend="mlx-ring", ranks=2, launcher=mlx_launch, launches=5),
    ]
    for contest in list(contests):
        if reason := KINDS[contest.backend].refusal(size=contest.ranks):
            contests.remove(contest)
            if not options.json:
                print(f"{contest.backend}: skipped, {reason}")
    with tempfile.TemporaryDirectory() as name, ServerPool() as pool:
        folder = Path(name)
        begin = time.monotonic()
        prepare(pool, 1, warm=True, env={})
        server = time.monotonic() - begin
        for contest in contests:
            warm_world(pool, folder, backend=contest.backend, ranks=contest.ranks)
            for _ in range(options.rounds):
                contest.round(pool, folder)
        # Without a launcher beside it: torchrun takes minutes for so many on a small machine.
        many = (
            sorted(warm_world(pool, folder, backend="gloo", ranks=MOST_RANKS) for _ in range(20))
            if torch
            else []
        )
    if not options.json:
        for contest in contests:
            contest.print()
        if many:
            print(f"gloo, {MOST_RANKS} ranks, until the first collective is done")
            print(
                f"  {'a warm world':<14} {statistics.median(many):.3f} s (of 20; {many[0]:.3f} to"
                f" {many[-1]:.3f})"
            )
        print(f"server start: {server:.2f} s, once per run")
    by_name = {f"{contest.backend}-{contest.ranks}": contest.figures() for contest in contests}
    if many:
        by_name[f"gloo-{MOST_RANKS}"] = {
            "warm_world_seconds": [many[0], statistics.median(many), many[-1]]
        }
    return by_name | {"server_start_seconds": server}


if __name__ == "__main__":
    main()
