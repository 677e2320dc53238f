"""Print what the cells of a report came to, and each that is silently another tokenizer.

    python scenarios/silent-wrong-tokenizer/table.py results/silent-wrong-tokenizer/latest

A cell that several trials of an arm walked is one line; where they differ, each outcome is a line,
with its trials.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Cell = tuple[str, str, str, str, str]
"""Layout, target, kind, when, outcome."""


def cells(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every cell of a report: (trial, values of its event)."""
    for path in sorted((folder / "evidence").glob("*/*/events.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            event = json.loads(line)
            if (event["by"], event["name"]) == ("rank", "cell"):
                yield path.parent.name, event["values"]


def cell_of(values: dict[str, Any]) -> Cell:
    """What is compared between trials."""
    sticks = values["outcome"] not in {"different", "not-struck"} and values["after"] == "different"
    return (
        values["layout"],
        values["target"],
        values["kind"],
        values["when"],
        "different later" if sticks else values["outcome"],
    )


def main(folder: Path) -> int:
    """Print the tables as markdown."""
    counted: dict[str, dict[Cell, int]] = defaultdict(Counter)
    trials: dict[str, set[str]] = defaultdict(set)
    words: dict[tuple[str, Cell], tuple[str, str]] = {}
    for trial, values in cells(folder):
        arm, key = trial.rpartition("-")[0], cell_of(values)
        trials[arm].add(trial)
        counted[arm][key] += 1
        words[arm, key] = values["words"], values["after"]
    outcomes = [
        "same",
        "error",
        "different",
        "different later",
        "endless",
        "unproved",
        "not-struck",
    ]
    print("| arm | trials | cells that count |", " | ".join(outcomes), "|")
    print("| --- " * (len(outcomes) + 3) + "|")
    for arm, found in counted.items():
        sums = Counter(key[-1] for key in found)
        print(f"| {arm} | {len(trials[arm])} | {sums.total() - sums['not-struck']} |", end="")
        print("".join(f" {sums[outcome]} |" for outcome in outcomes))
    for arm, found in counted.items():
        silent = sorted(key for key in found if key[-1].startswith("different"))
        if silent:
            print(f"\n{arm}: {len(silent)} cells\n")
            print("| layout | request | fault | what differs | healthy hub, same cache | trials |")
            print("| --- " * 6 + "|")
        for key in silent:
            layout, target, kind, when, _ = key
            differs, after = words[arm, key]
            differs = differs.replace("|", "\\|")[:160]
            fault = kind if when == "always" else f"{kind}, {when}"
            print(f"| {layout} | `{target}` | {fault} | {differs} | {after} | {found[key]} |")
        unsteady = {key[:-1] for key in found if found[key] != len(trials[arm])}
        print(f"\n{arm}: {len(unsteady)} cells whose outcome is not the same in every trial")
        for one in sorted(unsteady):
            print("*", *one, {key[-1]: number for key, number in found.items() if key[:-1] == one})
    return 0 if counted else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
