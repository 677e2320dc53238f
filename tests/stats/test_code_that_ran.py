"""What a rank tells of the code that ran, trial by trial, and what of it the repository has to
hold.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from harness.events import Event
from harness.history import History
from harness.stats.arm_code import ArmCode, JudgedEnvironment, environment_unproven
from harness.stats.counterparts import (
    Source,
)
from harness.stats.provenance import Ran, path_of, releases, told

OURS, OTHER, THIRD = "a" * 64, "b" * 64, "c" * 64
STRANGER = {
    "package": "extra",
    "distribution": None,
    "version": None,
    "record": "absent",
    "files": {"extra.py": OTHER},
}
NONE = Source(declared=(), files={})


def listing(*others: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"installed": {}, "others": others, **more}).encode()


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def trial(*said: str | None, ends_at: int | None = None, children: Any = ()) -> History:
    """One rank that names these lists, ends its subject before the one of that number, and exits
    with 0.
    """
    events = [Event(ns=1, by="harness", name="world.start")]
    for number, digest in enumerate(said):
        if number == ends_at:
            events.append(Event(ns=2 + number, by="rank", rank=0, pid=7, name="subject.end"))
        values = {"packages": digest, "children": list(children)}
        name = "subject.loaded"
        events.append(Event(ns=3 + number, by="rank", rank=0, pid=7, name=name, values=values))
    if ends_at is not None and ends_at >= len(said):
        events.append(Event(ns=90, by="rank", rank=0, pid=7, name="subject.end"))
    code = {"code": 0, "signal": None}
    events.append(Event(ns=99, by="server", rank=0, pid=7, name="rank.exited", values=code))
    return History(events, size=1)


def heard(history: History, *lists: bytes, source: Source = NONE) -> tuple[set[str], Ran]:
    """What is not proved after one trial, of a folder that holds these lists."""
    files = {path_of(digest_of(content)): content for content in lists}
    ran = Ran(read=files.__getitem__, names=files)
    return ran.hear("candidate", source, history), ran


def test_what_a_list_lacks_makes_its_trial_unproved() -> None:
    """The reasons of a list are reasons of the trial, under the name of its arm."""
    content = listing(STRANGER)
    unproved, _ = heard(trial(digest_of(content), ends_at=0), content)
    assert len(unproved) == 1
    assert next(iter(unproved)).startswith("candidate: extra.py came from outside")


def test_a_list_that_is_not_in_the_folder_proves_nothing() -> None:
    """A rank may name any digest; without the file nobody knows what it had loaded."""
    unproved, _ = heard(trial(OURS, ends_at=0))
    assert unproved == {"candidate: the list of what a rank had loaded cannot be read"}


@pytest.mark.parametrize(("ends_at", "is_told"), [(0, True), (1, False)])
def test_a_rank_tells_after_its_subject_ended(ends_at: int, *, is_told: bool) -> None:
    """A list from before the end leaves out what was loaded later."""
    content = listing()
    unproved, _ = heard(trial(digest_of(content), ends_at=ends_at), content)
    assert unproved == (
        set() if is_told else {"candidate: a rank did not report at its end what it had loaded"}
    )


@pytest.mark.parametrize(("code", "ends_at"), [(1, 1), (0, None)])
def test_a_rank_that_broke_off_need_not_tell_at_its_end(code: int, ends_at: int | None) -> None:
    """Only a rank that came to its end, and ended well, is asked for a list from after it."""
    content = listing()
    said = trial(digest_of(content), ends_at=ends_at)
    events = [seen.event for seen in said.seen if seen.event.name != "rank.exited"]
    events.append(
        Event(
            ns=99,
            by="server",
            rank=0,
            pid=7,
            name="rank.exited",
            values={"code": code, "signal": None},
        )
    )
    assert heard(History(events, size=1), content)[0] == set()


@pytest.mark.parametrize("named", ["A" * 64, "a" * 63, "../" + "a" * 61, None])
def test_what_is_no_digest_names_no_list(named: str | None) -> None:
    """A path into somebody else's folder is not read."""
    unproved, _ = heard(trial(named, ends_at=0))
    assert unproved == {"candidate: a rank did not report what it had loaded"}


def test_what_is_accepted_and_what_was_started_is_kept_for_the_record() -> None:
    """Files that nothing proves are named in the report, and so are the programs that ranks
    started.
    """
    content = listing({**STRANGER, "record": "start"})
    digest = digest_of(content)
    unproved, ran = heard(trial(digest, ends_at=0, children=["fork", "gcc"]), content)
    assert unproved == set()
    assert len(ran.beside) == 1
    assert ran.summary().children == ["fork", "gcc"]
    assert ran.summary().lists == {"candidate": [digest]}


def test_the_release_of_a_list_is_named_normally() -> None:
    """Names of distributions are compared in one spelling, however a list writes them."""
    content = json.dumps({"installed": {"yaml": "Py_YAML 6.0"}, "others": []}).encode()
    assert list(releases(content)) == [("py-yaml", "6.0")]


def test_what_a_list_tells_of_distributions() -> None:
    """Releases are those whose files are as recorded, and Rankproof.

    Files of no distribution are nobody's.
    """
    made = {"package": "a", "version": "1", "files": {"a.py": OURS}}
    records = {"one": "as", "two": "tool", "three": "differs", "four": "absent"}
    others = [{**made, "distribution": name, "record": record} for name, record in records.items()]
    content = listing(*others, {**made, "distribution": None, "record": "as"})
    assert list(releases(content)) == [("one", "1"), ("two", "1")]
    assert told(content) == ([(name, "a.py", OURS) for name in records], 0)


MADE = JudgedEnvironment(
    digest=OURS, python="3.11.2", implementation="cpython", named={"motor": ("1.0", OURS)}
)
REPORTED: dict[str, Any] = {
    "apart": True,
    "python": "3.11.2",
    "implementation": "cpython",
    "packages": {"motor": {"version": "1.0", "record": OURS}},
}
ENVIRONMENTS: dict[str, tuple[JudgedEnvironment | None, Any, str]] = {
    "its own": (MADE, REPORTED, ""),
    "none": (None, None, ""),
    "one where there is none": (
        None,
        REPORTED,
        "in its own environment, but the arm has none",
    ),
    "nothing told": (MADE, None, "did not run in the arm's environment"),
    "Rankproof's": (MADE, {**REPORTED, "apart": False}, "did not run in the arm's environment"),
    "another Python": (
        MADE,
        {**REPORTED, "python": "3.12.1"},
        "ran in cpython 3.12.1, not in Python 3.11.2",
    ),
    "another interpreter": (MADE, {**REPORTED, "implementation": "pypy"}, "ran in pypy 3.11.2"),
    "another release": (
        MADE,
        {**REPORTED, "packages": {"motor": {"version": "2.0", "record": OURS}}},
        "motor 1.0 was installed, but a rank found 2.0",
    ),
    "other files": (
        MADE,
        {**REPORTED, "packages": {"motor": {"version": "1.0", "record": OTHER}}},
        "motor 1.0 was installed, but a rank found 1.0 or different files of it",
    ),
    "no such package": (MADE, {**REPORTED, "packages": {}}, "a rank found no such package"),
    "packages of another form": (
        MADE,
        {**REPORTED, "packages": ["motor"]},
        "a rank found no such package",
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_rank_runs_in_its_arms_environment(name: str) -> None:
    """Its interpreter and each package that the scenario names, by version and by files."""
    made, reported, words = ENVIRONMENTS[name]
    found = list(environment_unproven("candidate", made, reported))
    assert [words in one for one in found] == ([True] if words else [])


@pytest.mark.parametrize("what", ["files", "arguments", "environment"])
def test_arms_differ_by_each_of_three(what: str) -> None:
    """Other files, other arguments or another environment make two arms.

    The same three make one.
    """
    made = JudgedEnvironment(digest=OURS, python="3.11.2", implementation="cpython", named={})
    given: dict[str, Any] = {"files": {"a.py": OURS}, "arguments": {"x": 1}, "environment": made}
    changed = {
        "files": {"a.py": OTHER},
        "arguments": {"x": 2},
        "environment": JudgedEnvironment(
            digest=OTHER, python="3.11.2", implementation="cpython", named={}
        ),
    }
    one = ArmCode(**given)
    assert one.same_as(ArmCode(**given))
    assert not one.same_as(ArmCode(**{**given, what: changed[what]}))


def test_the_text_of_a_line_is_that_line_of_the_arms_file() -> None:
    """The first and the last line are there, the one before and the one after are not."""
    code = ArmCode(files={"a.py": OURS}, arguments={}, source="evidence/arms/x")
    line_of = code.lines({"evidence/arms/x/a.py": b"  one\n  two\n"}.__getitem__)
    assert [line_of("a.py", line) for line in (0, 1, 2, 3)] == [None, "one", "two", None]
    assert line_of("b.py", 1) is None
