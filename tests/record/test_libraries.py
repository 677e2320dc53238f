"""Releases of a library compared: which texts are kept, which lines are shown, and that no module that
differs is lost.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.events import Event
from harness.forms.distribution import wheel_lines
from harness.history import History
from harness.record.changed import COMMENTS_ALONE
from harness.record.facts import ArmEnvironmentFacts, Installed
from harness.record.libraries import (
    BUDGET,
    RECORD,
    RUN_LINES,
    TEXT_LIMIT,
    Libraries,
    LoadedLibraries,
    chosen,
    paths_of,
    shares,
    stated_records,
)
from harness.record.model import LibraryChange, RecordError
from harness.stats.provenance import path_of

OLD, NEW = "a" * 64, "b" * 64
ARMS = ("control", "candidate")


def listing(files: dict[str, str], *, name: str = "engine", **more: Any) -> bytes:
    """A list that tells files of a distribution."""
    one = {"package": name, "distribution": name, "version": "1", "record": "as", "files": files}
    return json.dumps({"installed": {}, "others": [], "in_full": [one], **more}).encode()


def loaded(
    control: dict[str, str], candidate: dict[str, str], *, name: str = "engine"
) -> LoadedLibraries:
    """What one rank of each arm told."""
    found = LoadedLibraries(ARMS)
    for arm, files in (("control", control), ("candidate", candidate)):
        found.add(arm, listing(files, name=name), of=["engine"], ranks=[0])
    return found


NO_PAIR: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "the same content": ({"engine/a.py": OLD}, {"engine/a.py": OLD}),
    "in one arm only": ({"engine/a.py": OLD}, {}),
    "compiled": ({"engine/a.so": OLD}, {"engine/a.so": NEW}),
    "unreadable": ({"engine/a.py": OLD}, {"engine/a.py": "unreadable: no file"}),
    "out of the folder": ({"../../.ssh/a.py": OLD}, {"../../.ssh/a.py": NEW}),
    "from the root": ({"/etc/a.py": OLD}, {"/etc/a.py": NEW}),
}


@pytest.mark.parametrize("name", NO_PAIR)
def test_what_has_no_two_texts_to_compare(name: str) -> None:
    """One content, one arm, no Python text, or a path that leads out of the package: nothing is
    read for it.
    """
    assert list(loaded(*NO_PAIR[name]).pairs()) == []


def test_only_the_packages_in_question_count() -> None:
    """A distribution that nobody named has no text in the evidence, and a list that cannot be read
    tells nothing.
    """
    assert list(loaded({"a.py": OLD}, {"a.py": NEW}).pairs()) == [(("engine", "a.py"), (OLD, NEW))]
    assert list(loaded({"a.py": OLD}, {"a.py": NEW}, name="numpy").pairs()) == []
    found = LoadedLibraries(ARMS)
    for bad in (
        b"",
        b"[]",
        b'{"others": [{"distribution": "engine", "files": 7}]}',
        b'{"others": 3, "left_out": -1}',
    ):
        found.add("control", bad, of=["engine"])
    assert (found.digests, found.untold) == ({}, 0)


def test_a_module_that_some_ranks_loaded_or_that_is_not_one() -> None:
    """Ranks that loaded a file where others did not are named, and two contents in one arm are no
    text to compare.
    """
    found = LoadedLibraries(ARMS)
    found.add("control", listing({"a.py": OLD}), of=["engine"], ranks=[0, 1])
    found.add("candidate", listing({"a.py": NEW, "b.py": NEW}), of=["engine"], ranks=[1])
    found.add("candidate", listing({"a.py": NEW}, left_out=3), of=["engine"], ranks=[0])
    assert found.only("engine", "a.py") == {}
    assert found.only("engine", "b.py") == {"candidate": [1]}
    assert len(list(found.pairs())) == 1
    assert found.untold == 3
    found.add("candidate", listing({"a.py": OLD}), of=["engine"], ranks=[0])
    assert list(found.pairs()) == []


def test_small_pairs_are_kept_before_large_ones() -> None:
    """Both texts of a pair or none, within the limit of a file and of a run.

    A text in two pairs counts once.
    """
    half = BUDGET // 2
    assert chosen([], {}) == set()
    assert chosen([("a", "b")], {"a": TEXT_LIMIT, "b": TEXT_LIMIT}) == {"a", "b"}
    assert chosen([("a", "b")], {"a": TEXT_LIMIT + 1, "b": 1}) == set()
    assert chosen([("a", "b")], {"a": 1, "b": None}) == set()
    many = [(f"{index}a", f"{index}b") for index in range(half // TEXT_LIMIT + 1)]
    sizes: dict[str, int | None] = dict.fromkeys(
        (text for pair in many for text in pair), TEXT_LIMIT
    )
    kept = chosen([("s", "t"), *many], {**sizes, "s": 1, "t": 2})
    assert {"s", "t"} <= kept
    assert sum(sizes.get(text, 0) or 0 for text in kept) == BUDGET - 2 * TEXT_LIMIT
    assert chosen([("a", "b"), ("a", "c")], {"a": 1, "b": 1, "c": 1}) == {"a", "b", "c"}


@given(st.lists(st.integers(0, 2 * RUN_LINES), max_size=40))
def test_lines_are_shared(lengths: list[int]) -> None:
    """The first diff gets half of the lines at least, every other one its share of the rest, and no
    line is left over that somebody needs.
    """
    shown = shares(lengths)
    assert sum(shown) == min(RUN_LINES, sum(lengths))
    least = RUN_LINES // 2 // max(1, len(lengths))
    assert all(
        min(length, least) <= lines <= length for length, lines in zip(lengths, shown, strict=True)
    )
    assert shown[:1] == [] or shown[0] >= min(lengths[0], RUN_LINES // 2)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Releases:
    """Two releases of a distribution, by arm and file, and which files ranks loaded."""

    files: Mapping[str, Mapping[str, bytes]]
    loaded: Collection[str]
    left: dict[str, int | None] = field(default_factory=dict)
    evidence: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        listings = {}
        environments = {}
        texts: dict[str, bytes] = {}
        for arm, files in self.files.items():
            mine = {file: sha256(text) for file, text in files.items() if file in self.loaded}
            listings[arm] = listing(mine)
            rows = [f"{file},sha256={sha256(text)},9" for file, text in files.items()]
            record = wheel_lines("\n".join([*rows, "engine-1.dist-info/RECORD,,"]))
            texts |= {sha256(text): text for text in (record, *files.values())}
            package = Installed(name="engine", version=arm, wheel=arm, record=sha256(record))
            environments[arm] = ArmEnvironmentFacts(
                python="3.11.7", implementation="cpython", packages=[package]
            )
        told = LoadedLibraries(ARMS)
        for arm, text in listings.items():
            told.add(arm, text, of=["engine"])
        here: Any = SimpleNamespace(packages=[])
        pairs = {
            **dict(told.pairs()),
            **stated_records(["engine"], environments, here, arms=ARMS),
        }
        asked = {digest for pair in pairs.values() for digest in pair}
        kept = chosen(pairs.values(), {digest: len(texts[digest]) for digest in asked})
        self.evidence |= {paths_of(pairs)[digest]: texts[digest] for digest in kept}
        self.evidence |= {path_of(sha256(text)): text for text in listings.values()}
        self.left |= {digest: len(texts[digest]) for digest in asked - kept}
        self.run: Any = SimpleNamespace(
            texts_left=self.left, environments=environments, environment=here
        )
        self.histories = [
            History(
                [
                    Event(ns=1, by="harness", name="world.begin", values={"arm": arm}),
                    Event(
                        ns=2,
                        by="rank",
                        rank=0,
                        pid=1,
                        name="subject.loaded",
                        values={"packages": sha256(text)},
                    ),
                ],
                size=1,
            )
            for arm, text in listings.items()
        ]

    def change(self) -> LibraryChange:
        """What a verifier works out."""
        libraries = Libraries(self.run, ["engine"], self.evidence.__getitem__, arms=ARMS)
        for history in self.histories:
            libraries.hear("", history)
        (change,) = libraries.changes(self.evidence.keys())
        return change


def two_releases(*, loaded: Collection[str]) -> Releases:
    """The most changed module comes last by its name, and is longer than all that is shown."""
    small = {f"engine/{letter}.py": b"%s = 1\n" for letter in "abcdefghijklmnopqrstuvw"}
    files: dict[str, dict[str, bytes]] = {}
    for number, arm in enumerate(ARMS):
        year = b"2023-2024" if number else b"2023"
        files[arm] = {
            **{
                file: b"".join(b"X_%d = %d\n" % (line, number) for line in range(25))
                for file in small
            },
            "engine/zz_generate.py": b"".join(
                b"LINE_%d = %d\n" % (line, number) for line in range(RUN_LINES)
            ),
            "engine/same.py": b"SAME = True\n",
            "engine/years.py": b"# Copyright \xc2\xa9 %s Apple Inc.\n\na = 1\n" % year,
            "engine/unused.py": b"VERSION = %d\n" % number,
            "engine/new.py" if number else "engine/gone.py": b"HERE = True\n",
            "engine/data.json": b"%d" % number,
        }
    return Releases(files, loaded)


LOADED = {
    "engine/same.py",
    "engine/years.py",
    "engine/zz_generate.py",
    *(f"engine/{letter}.py" for letter in "abcdefghijklmnopqrstuvw"),
}


def test_the_most_changed_module_is_shown_first() -> None:
    """With half of the lines at least, whatever its name and however long it is; all others begin
    too.
    """
    change = two_releases(loaded=LOADED).change()
    first, *others = change.modules
    assert first.file == "engine/zz_generate.py"
    assert (first.removed, first.added) == (RUN_LINES, RUN_LINES)
    assert RUN_LINES // 2 <= len(first.lines) < len(first.lines) + first.more == 2 * RUN_LINES + 1
    assert [module.file for module in others] == sorted(module.file for module in others)
    assert all(module.lines for module in others if module.file != "engine/years.py")
    assert sum(len(module.lines) for module in change.modules) == RUN_LINES


def test_a_module_with_another_copyright_line_is_told_apart() -> None:
    """It has no diff, takes no line from others, and its reason says why."""
    change = two_releases(loaded=LOADED).change()
    (years,) = [module for module in change.modules if module.file == "engine/years.py"]
    assert (years.lines, years.more, years.why) == ([], 0, COMMENTS_ALONE)
    assert change.alike == 1


def test_modules_that_differ_and_that_no_rank_loaded_are_named() -> None:
    """By the RECORDs of both releases: what changed, what is new and what is gone, no data."""
    assert two_releases(loaded=LOADED).change().unloaded == [
        "engine/gone.py",
        "engine/new.py",
        "engine/unused.py",
    ]


def test_without_a_record_it_is_unknown_what_no_rank_loaded() -> None:
    """A RECORD beyond the limit is left out, and the run says how large it is."""
    many = {f"engine/m{number}.py": b"" for number in range(TEXT_LIMIT // 80)}
    files = {arm: {**many, "engine/a.py": arm.encode()} for arm in ARMS}
    releases = Releases(files, ["engine/a.py"])
    change = releases.change()
    assert (change.unloaded, len(releases.left)) == (None, 2)
    assert change.modules[0].lines


def record_of(releases: Releases) -> str:
    return next(path for path in releases.evidence if path.endswith(RECORD))


def another_record(releases: Releases) -> None:
    releases.evidence[record_of(releases)] += b"engine/x.py,sha256=0,1\n"


def a_record_less(releases: Releases) -> None:
    del releases.evidence[record_of(releases)]


def a_record_left_out(releases: Releases) -> None:
    path = record_of(releases)
    releases.left[path.rpartition("/")[2].partition(".")[0]] = len(releases.evidence.pop(path))


@pytest.mark.parametrize(
    ("forgery", "words"),
    [
        (another_record, "does not match the digest in its name"),
        (a_record_less, "RECORD is missing"),
        (a_record_left_out, "must contain every text that fits within its size limit"),
    ],
)
def test_a_record_that_the_facts_do_not_state_is_refused(forgery: Any, words: str) -> None:
    """Whoever takes a name out of it would hide a module that differs."""
    releases = two_releases(loaded=LOADED)
    forgery(releases)
    with pytest.raises(RecordError, match=words):
        releases.change()


TEXTS = st.sampled_from(
    [None, b"", b"a = 1\n", b"a = 2\n", b"# c\na = 1\n", b"\xff\n", b"\\xff\n", b"x\n" * RUN_LINES]
)
NAMES = [f"engine/{name}" for name in ("a.py", "b.py", "c.so", "d/e.py", "f, g.py", "h.py")]


@given(st.lists(st.tuples(TEXTS, TEXTS, st.booleans()), min_size=6, max_size=6))
def test_no_module_that_differs_is_lost(
    drawn: list[tuple[bytes | None, bytes | None, bool]],
) -> None:
    """Each is shown, or named with why it is not, or named as one that no rank loaded; and nothing
    else is.
    """
    files: dict[str, dict[str, bytes]] = {arm: {} for arm in ARMS}
    for file, pair in zip(NAMES, drawn, strict=True):
        for arm, text in zip(ARMS, pair[:2], strict=True):
            if text is not None:
                files[arm][file] = text
    differ = {file for file, pair in zip(NAMES, drawn, strict=True) if pair[0] != pair[1]}
    loaded = {file for file, pair in zip(NAMES, drawn, strict=True) if pair[2]}
    change = Releases(files, loaded).change()
    assert {module.file for module in change.modules} == differ & loaded
    assert change.unloaded == sorted(differ - loaded)
    assert all(bool(module.lines or module.more) != bool(module.why) for module in change.modules)
    changed = [module.removed + module.added for module in change.modules]
    assert all(before >= after for before, after in itertools.pairwise(changed))
