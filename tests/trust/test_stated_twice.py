"""Every value that two files of a results folder hold: an edit of one of them does not keep the
verdict.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.record.facts import PATH as RUN
from harness.record.model import PATH as RECORD
from tests.kit import forge
from tests.trust.test_contradictions import SAMPLE, refusal

pytestmark = [pytest.mark.slow, pytest.mark.whole]

SHORTEST = 4
SMALLEST = 1_000
Steps = tuple[str | int, ...]
# What one file alone decides, or what both files say without stating one fact. Each with the
# reason.
FREE = {
    (
        RUN,
        "",
        "environment.packages.*.name",
    ): "a release that ranks loaded may be listed nowhere (ADR 0136)",
    (
        RUN,
        "",
        "environment.packages.*.version",
    ): "the metadata of an editable install may be older than its code",
    (RUN, "", "provenance.candidate.declared.*"): "a gate asks the commit what it declares",
    (RUN, "", "provenance.control.declared.*"): "a gate asks the commit what it declares",
    (
        RUN,
        "",
        "provenance.candidate.installed.*.name",
    ): "an editable install has no files of its own: those that ranks loaded are held, whatever is listed (tests/stats/test_counterparts.py)",
    (
        RUN,
        "",
        "provenance.candidate.installed.*.version",
    ): "an editable install has no files of its own: those that ranks loaded are held, whatever is listed (tests/stats/test_counterparts.py)",
    (
        RUN,
        "",
        "provenance.control.installed.*.name",
    ): "an editable install has no files of its own: those that ranks loaded are held, whatever is listed (tests/stats/test_counterparts.py)",
    (
        RUN,
        "",
        "provenance.control.installed.*.version",
    ): "an editable install has no files of its own: those that ranks loaded are held, whatever is listed (tests/stats/test_counterparts.py)",
    ("events", "rank.exited", "max_rss_kib"): "two ranks may have held as much memory",
    ("events", "world.begin", "recipe"): "is worked out again by the forger",
    ("events", "rank.error", "module"): "the module of an error's class is no text of the arm",
    (
        "events",
        "rank.error",
        "message",
    ): "two trials may end with one message; each is its own rank's word",
    (
        "events",
        "rank.error",
        "frames.*.line",
    ): "of a library, whose text the evidence does not hold",
    (
        "events",
        "rank.stack",
        "threads.*.frames.*.line",
    ): "of a library, whose text the evidence does not hold",
    ("events", "rank.stack", "threads.*.frames.*.file"): "code may name any file of its own making",
    (
        "events",
        "rank.exited",
        "signal",
    ): "of a rank that was stopped after another had failed; a proof and must_fail compare it where they need it",
    (
        "events",
        "world.stopped",
        "why",
    ): "words a reason; the verdict rests on who was stopped, when, and who had failed",
    ("events", "gate.opened", "gate"): "decides nothing: a fault is proved by what was struck",
    ("events", "world.signalled", "signal"): "a proof compares it where it needs it",
    ("events", "rank.error", "file"): "code may name any file of its own making",
    ("events", "rank.error", "frames.*.file"): "code may name any file of its own making",
    ("events", "rank.error", "mro.*"): "the classes of an error are no text of the arm",
    (
        "events",
        "rank.error",
        "frames.*.function",
    ): "code objects may be renamed; file, line and text are held",
    ("events", "subject.loaded", "entry"): "the judgement changes, and the verdict does not",
    (
        "events",
        "subject.loaded",
        "modules.*.module",
    ): "a file may be imported by any name; its digest is held",
}


class Stated(NamedTuple):
    """A value in a file: where it is there, and what it is."""

    file: str
    steps: Steps
    value: str | int | float

    def place(self, trees: dict[str, Any]) -> tuple[str, str, str]:
        """Its kind of file, the event that holds it, and its path there: all values of a place are
        one kind of fact.
        """
        steps = [str(step) if isinstance(step, str) else "*" for step in self.steps]
        if not self.file.endswith(".jsonl"):
            if "files" in steps:
                steps = [*steps[: steps.index("files") + 1], "*"]
            return self.file if self.file == RUN else "evidence/loaded", "", ".".join(steps)
        return "events", trees[self.file][self.steps[0]]["name"], ".".join(steps[2:])


def leaves(tree: Any, steps: Steps = ()) -> Iterator[tuple[Steps, str | int | float]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*steps, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from leaves(value, (*steps, index))
    elif isinstance(tree, str):
        yield from [(steps, tree)] if len(tree) >= SHORTEST else []
    elif isinstance(tree, int | float) and abs(tree) >= SMALLEST:
        yield steps, tree


def parsed(path: Path) -> Any:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_bytes().splitlines()]
    return json.loads(path.read_bytes())


def written(path: Path, tree: Any) -> None:
    if path.suffix == ".jsonl":
        lines = [json.dumps(event, separators=(",", ":")) for event in tree]
        path.write_text("".join(f"{line}\n" for line in lines))
    else:
        path.write_text(json.dumps(tree))


def stated_twice() -> dict[tuple[str, str, str], Stated]:
    """One value of every place whose value another file of the sample holds too."""
    paths = [path for path in sorted(SAMPLE.rglob("*")) if path.suffix in (".json", ".jsonl")]
    names = {path.relative_to(SAMPLE).as_posix(): path for path in paths}
    trees = {
        name: parsed(path) for name, path in names.items() if name not in {*forge.BESIDE, RECORD}
    }
    texts = [path.read_text() for path in SAMPLE.rglob("*") if path.suffix in (".yaml", ".py")]
    holders: dict[str, list[Stated]] = defaultdict(list)
    for name, tree in trees.items():
        for steps, value in leaves(tree):
            holders[str(value)].append(Stated(name, steps, value))
    found: dict[tuple[str, str, str], Stated] = {}
    for text, all_of in holders.items():
        if len({one.file for one in all_of}) > 1 or any(text in content for content in texts):
            for one in all_of:
                found.setdefault(one.place(trees), one)
    return found


def edited(folder: Path, one: Stated) -> None:
    tree = parsed(folder / one.file)
    place = tree
    for step in one.steps[:-1]:
        place = place[step]
    other = f"9{one.value}" if isinstance(one.value, str) else one.value + 10**6
    place[one.steps[-1]] = other
    written(folder / one.file, tree)
    with contextlib.suppress(KeyError, ValueError):  # what is no run any more is refused as it is
        forge.rebind(folder)
    with contextlib.suppress(ValueError):
        forge.work_out(folder)


def test_every_value_that_two_files_hold(tmp_path: Path) -> None:
    """Whoever edits one of them and lets all else follow is refused, or has another verdict."""
    judged = json.loads((SAMPLE / RECORD).read_text())["judgement"]["verdict"]
    found = stated_twice()
    kept = set()
    for index, (place, one) in enumerate(found.items()):
        folder = tmp_path / str(index)
        shutil.copytree(SAMPLE, folder)
        edited(folder, one)
        if (
            not refusal(folder)
            and json.loads((folder / RECORD).read_text())["judgement"]["verdict"] == judged
        ):
            kept.add(place)
        shutil.rmtree(folder)
    assert sorted(kept - FREE.keys()) == []
    assert sorted(FREE.keys() - kept) == [], "these are held now: take them off the list"
    assert len(found) > 60
