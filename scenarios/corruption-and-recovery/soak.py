"""Writes a scenario of random faults in one long stream: `python soak.py FOLDER --seed 1 --faults
200`.

Every fault is drawn from the seed: its kind among those of links, its moment, its length; and the
moments at which the second stage's process is ended by SIGKILL. The scenario is one like the others
beside it, and is run like them. Its control is the same stream without the library, which ends at
the first fault that it cannot bear: what strikes after that never meets it, and each kind alone
beside that control is what the scenarios beside this file are for.
"""

import argparse
import random
import shutil
from pathlib import Path

HERE = Path(__file__).parent
EVERY = 5
KINDS = {
    "flip": "way: out, byte: {byte}, mask: {mask}",
    "flip-frame": "byte: {header}, mask: {mask}",
    "loss": "share: {share}%, for: {time}ms",
    "duplicate": "share: {share}%, for: {time}ms",
    "reorder": "share: {share}%, by: 5ms, for: {time}ms",
    "latency": "by: 2ms, jitter: 2ms, for: {time}ms",
    "partition": "for: {time}ms",
    "half-open": "way: {way}, for: {time}ms",
    "reset": "for: {time}ms",
}
TEXT = """\
schema: 1
id: corruption-and-recovery-soak-{seed}
title: {faults} random faults in a stream of {tokens} tokens change none of them
question: With {links} faults of links and {kills} deaths of a stage, does rank 0 end with the baseline's tokens?
role: claim
subject:
  entry: subject:ended
  candidate:
    with: {{tokens: {tokens}, carried: library, every: {every}, wait: 20.0, stays: 1.0, ends_at: {ends_at}}}
  control:                              # the same over TCP alone
    with: {{tokens: {tokens}, carried: bare, every: {every}, stays: 1.0, ends_at: {ends_at}}}
    must_fail: {{check: same-tokens, ranks: [0], message: "the pipeline ended: "}}
  reference: {{entry: "subject:whole", with: {{tokens: {tokens}}}}}
matrix: {{ranks: [2], backend: [none]}}
world: {{hosts: 2, deadline: 500s, after_failure: 5s}}
seed: "{seed}"
trials: {{candidate: 1, control: 20, accept: {{failure_rate_below: 96%}}}}
faults:
{lines}
checks:
  - {{id: same-tokens,  kind: equal, ranks: [0], value: generated.ids, against: reference}}
  - {{id: never-alone,  kind: equal, ranks: [0], value: recovered.alone, to: 0}}
  - {{id: began-again,  kind: at-least, ranks: [0], value: recovered.restarts, to: {kills}}}
  - {{id: was-mended,   kind: at-least, ranks: [0], value: carried.sent_again, to: {mended}}}
  - {{id: each-kill,    kind: equal, ranks: [1], value: stage.ended.starts, to: {starts}}}
  - {{id: all-finished, kind: exit,  ranks: every, code: 0}}
  - {{id: nobody-left,  kind: no-survivors}}
"""


def main():
    """Write the scenario, and its subject beside it."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("folder", type=Path)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--faults", type=int, default=200)
    given.add_argument("--kills", type=int, default=10, help="of the faults")
    given.add_argument("--tokens", type=int, default=2000)
    options = given.parse_args()
    dice = random.Random(options.seed)
    places = range(EVERY, options.tokens - EVERY, EVERY)
    links = options.faults - options.kills
    lines = []
    # Each kind at least once, as far as there are as many faults.
    kinds = [*KINDS, *(dice.choice(sorted(KINDS)) for _ in range(links))][:links]
    dice.shuffle(kinds)
    for number, (kind, place) in enumerate(
        zip(kinds, sorted(dice.sample(places, links)), strict=True)
    ):
        drawn = {
            "byte": dice.randrange(4096),
            "header": dice.randrange(64),
            "mask": 1 << dice.randrange(8),
            "share": dice.randrange(10, 40),
            "time": dice.randrange(300, 600),
            "way": dice.choice(["in", "out"]),
        }
        lines.append(
            f"  - {{id: f{number}, kind: {kind}, ranks: [0], at: step.{place},"
            f" {KINDS[kind].format(**drawn)}}}"
        )
    ends_at = sorted(dice.sample(range(10, options.tokens - 10), options.kills))
    options.folder.mkdir(parents=True, exist_ok=True)
    for path in HERE.glob("*.py"):
        if path != Path(__file__):
            shutil.copy(path, options.folder)
    text = TEXT.format(
        seed=options.seed,
        faults=options.faults,
        kills=options.kills,
        links=links,
        mended=links // 10,
        starts=options.kills + 1,
        tokens=options.tokens,
        every=EVERY,
        ends_at=ends_at,
        lines="\n".join(lines),
    )
    (options.folder / "scenario.yaml").write_text(text)


if __name__ == "__main__":
    main()
