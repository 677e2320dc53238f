"""How a rank ended, in words and as one of the ends that a scenario may state."""

from __future__ import annotations

from typing import Any

import pytest

from harness.events import Event
from harness.faults.proof import STRUCK
from harness.history import History
from harness.reason import DeviationCode
from harness.scenario import End
from harness.stats.ends import RankEnd, classes, ends, how_it_ended, short, source_of
from tests.kit.histories import healthy
from tests.stats.test_causes import MILLISECOND, fallen


def an_end(
    error: dict[str, Any] | None = None, *, code: int | None = 1, signal: str | None = None
) -> RankEnd:
    """The end of a rank that raises this, and ends with this code or signal."""
    events = [
        (
            event._replace(values={"code": code, "signal": signal})
            if event.name == "rank.exited"
            else event
        )
        for event in healthy(1)
        if event.name != "subject.end"
    ]
    if error is not None:
        events.append(
            Event(ns=events[-1].ns, by="rank", rank=0, pid=200, name="rank.error", values=error)
        )
    return ends(History(events, size=1), faults={})[0]


NAME = {"type": "NameError", "message": "name 'x' is not defined", "source": "x"}
VALUE = {"type": "ValueError", "message": "x is not there", "source": "x"}
DIFFERS: dict[str, tuple[RankEnd, dict[str, Any], DeviationCode | None]] = {
    "the line alone": (an_end(VALUE), {"source": "x"}, None),
    "the text alone": (an_end(VALUE), {"message": "is not"}, None),
    "a slip at the line alone": (an_end(NAME), {"source": "x"}, DeviationCode.SLIP),
    "a slip with the text alone": (an_end(NAME), {"message": "is not"}, DeviationCode.SLIP),
    "a slip that is stated": (an_end(NAME), {"error": "NameError", "source": "x"}, None),
    "another text": (an_end(VALUE), {"message": "was not"}, DeviationCode.OTHER_MESSAGE),
    "another line": (an_end(VALUE), {"source": "y"}, DeviationCode.OTHER_SOURCE),
    "another type": (
        an_end(VALUE),
        {"error": "KeyError", "source": "x"},
        DeviationCode.OTHER_ERROR,
    ),
    "nothing raised": (an_end(), {"source": "x"}, DeviationCode.OTHER_ERROR),
    "its own context": (an_end({**VALUE, "ours": True}), {"source": "x"}, DeviationCode.SLIP),
    "the code": (an_end(code=3), {"code": 3}, None),
    "another code": (an_end(code=3), {"code": 4}, DeviationCode.OTHER_EXIT_CODE),
    "the signal": (an_end(code=None, signal="SIGSEGV"), {"signal": "SIGSEGV"}, None),
    "another signal": (
        an_end(code=None, signal="SIGSEGV"),
        {"signal": "SIGKILL"},
        DeviationCode.OTHER_SIGNAL,
    ),
    "a code for a signal": (an_end(code=1), {"signal": "SIGKILL"}, DeviationCode.OTHER_SIGNAL),
}


@pytest.mark.parametrize("name", DIFFERS)
def test_an_end_is_the_stated_one(name: str) -> None:
    """Of the type, the line, the text, the code and the signal each that is stated is asked, and a
    slip by its type.
    """
    end, stated, code = DIFFERS[name]
    found = end.differs(End.model_validate(stated))
    assert (found[0] if found is not None else None) == code


def test_who_ended_by_no_signal_has_none() -> None:
    """The name of a signal is empty where there was none."""
    assert (an_end().signal, an_end(code=None, signal="SIGSEGV").signal) == ("", "SIGSEGV")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("machine.lost", "its machine two was lost: it fell silent"),
        ("machine.ended", "its machine two ended its ranks by itself: it fell silent"),
        ("machine.joined", "its exit was not observed"),
    ],
)
def test_how_a_rank_ended_whose_end_nobody_saw(name: str, words: str) -> None:
    """What became of its machine is what is known of it."""
    placed = {"machines": {"of": [0, 1], "called": ["one", "two"]}}
    history = History(
        [
            Event(ns=1, by="harness", name="world.begin", values=placed),
            Event(
                ns=2, by="harness", name=name, values={"machine": "two", "why": "it fell silent"}
            ),
        ],
        size=2,
    )
    assert how_it_ended(history, 1) == words
    assert how_it_ended(history, 0) == "its exit was not observed"


def ended_by(
    values: dict[str, Any], *, returned: bool = False, stopped: bool = False, lost: bool = False
) -> str:
    """How a rank ended, in words, of one that its process tells this of."""
    placed = {"machines": {"of": [0], "called": ["one"]}} if lost else {}
    events = [Event(ns=1, by="harness", name="world.begin", values=placed)]
    if returned:
        events.append(Event(ns=2, by="rank", rank=0, pid=7, name="subject.end"))
    if stopped:
        events.append(Event(ns=3, by="harness", name="world.stopped", values={"ranks": [0]}))
    if lost:
        events.append(
            Event(
                ns=4,
                by="harness",
                name="machine.lost",
                values={"machine": "one", "why": "it is cut off"},
            )
        )
    events.append(Event(ns=5, by="server", rank=0, pid=7, name="rank.exited", values=values))
    return how_it_ended(History(events, size=1), 0)


KILLED = {"code": None, "signal": "SIGKILL"}
FOREIGN = (
    "SIGKILL from outside the harness (the kernel, out of memory, or another process) before the"
    " subject returned"
)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"values": {"code": 0, "signal": None}, "returned": True}, "code 0"),
        ({"values": {"code": 1, "signal": None}}, "code 1 before the subject returned"),
        ({"values": {"code": None, "signal": "SIGSEGV"}}, "SIGSEGV before the subject returned"),
        ({"values": KILLED}, FOREIGN),
        ({"values": KILLED, "stopped": True}, "SIGKILL before the subject returned"),
        (
            {"values": KILLED, "lost": True},
            "its machine one was lost: it is cut off; the rank ended with SIGKILL",
        ),
    ],
)
def test_how_a_rank_ended_in_words(given: dict[str, Any], words: str) -> None:
    """A kill is nobody's only where the harness stopped nobody.

    The machine that was lost comes first.
    """
    assert ended_by(**given) == words


def test_what_a_rank_raised_in_words() -> None:
    """The type, and of text and line what is there."""

    def said(**values: Any) -> str:
        return how_it_ended(
            History(
                [Event(ns=1, by="rank", rank=0, pid=7, name="rank.error", values=values)], size=1
            ),
            0,
        )

    assert said(type="E", message="m", source="x()") == "E: m at 'x()'"
    assert said(type="E", message="", source="") == "E"


def test_a_program_says_nothing_of_a_return() -> None:
    """It has no subject that could return."""
    started = Event(ns=1, by="harness", name="world.begin", values={"program": True})
    ended = Event(
        ns=2, by="server", rank=0, pid=7, name="rank.exited", values={"code": 1, "signal": None}
    )
    assert how_it_ended(History([started, ended], size=1), 0) == "code 1"


@pytest.mark.parametrize(
    ("models", "in_home", "words"),
    [
        (
            ["a", "b"],
            True,
            (
                "E (a, b: only in the user's own cache; list it in inputs, or set world.home:"
                " shared)"
            ),
        ),
        (["a"], False, "E (a: only in the user's own cache; list it in inputs)"),
        ("a", False, "E (: only in the user's own cache; list it in inputs)"),
    ],
)
def test_a_model_that_a_rank_did_not_find_is_named(models: Any, in_home: bool, words: str) -> None:
    """With what to do about it."""
    events = [
        Event(ns=1, by="rank", rank=0, pid=7, name="rank.error", values={"type": "E"}),
        Event(
            ns=2,
            by="harness",
            rank=0,
            name="cache.missed",
            values={"models": models, "in_home": in_home},
        ),
    ]
    assert how_it_ended(History(events, size=1), 0) == words


def test_a_line_of_a_library_is_told_with_its_file() -> None:
    """And one of the subject is told alone."""
    told = [an_end(VALUE).differs(End(source="y", file=file)) for file in (None, "t/a.py")]
    assert [one[1] if one is not None else None for one in told] == [
        "did not fail at 'y'",
        "did not fail at 'y' in t/a.py",
    ]


def test_who_raised_nothing_has_no_error() -> None:
    """What a rank raised is what it told, and it is nobody's peer that is gone where it told
    nothing.
    """
    assert (an_end().error, an_end().peer_gone) == (None, False)
    assert an_end(VALUE).error == VALUE


def test_long_texts_are_cut_and_say_by_how_much() -> None:
    """300 characters are kept as they are, and so is what is shorter than the words about it."""
    assert short("x" * 300) == "x" * 300
    assert short("x" * 324) == "x" * 324
    assert short("x" * 325) == "x" * 300 + "... (25 more characters)"


@pytest.mark.parametrize("what", ["nothing", "stopped", "code", "error", "silent"])
def test_a_clean_end_is_one_in_which_nothing_went_wrong(what: str) -> None:
    """It returned, with code 0, raised nothing, and nobody stopped it: each of the four is
    asked.
    """
    events = []
    for event in healthy(1):
        if what == "silent" and event.name == "subject.end":
            continue
        if what == "code" and event.name == "rank.exited":
            event = event._replace(values={"code": 3, "signal": None})  # noqa: PLW2901
        events.append(event)
    last = events[-1].ns
    if what == "stopped":
        events.append(Event(ns=last, by="harness", name="world.stopped", values={"ranks": [0]}))
    if what == "error":
        events.append(
            Event(ns=last, by="rank", rank=0, pid=200, name="rank.error", values={"type": "E"})
        )
    found = ends(History(events, size=1), faults={})[0]
    assert found.is_clean is (what == "nothing")


def test_a_rank_that_raised_ended_when_it_raised() -> None:
    """Its process ends later, and that is no moment of its own."""
    assert ends(fallen({1: 0.5}), faults={})[1].ns == MILLISECOND // 2


def test_a_rank_that_a_fault_ended_ended_when_it_was_struck() -> None:
    """What the kernel and the rank tell of it comes later."""
    values = {"fault": "kill", "kind": "kill"}
    struck = Event(ns=7, by="harness", rank=1, name=STRUCK, values=values)
    history = fallen({1: 0.5})
    events = sorted([*(seen.event for seen in history.seen), struck], key=lambda event: event.ns)
    assert ends(History(events, size=4), faults={1: "kill"})[1].ns == 7
    assert ends(History(events, size=4), faults={})[1].ns == MILLISECOND // 2


def test_the_classes_of_an_error_begin_with_its_own() -> None:
    """An error without ancestors, from a rank in another language, still has a class."""
    assert classes({"type": "NameError"}) == ("NameError",)
    assert classes({"type": "Mine", "mro": ["NameError"]}) == ("Mine", "NameError")


def test_the_last_frame_in_a_librarys_file_counts() -> None:
    """A file of a library is called again from itself.

    And the subject's file of that name is another one.
    """
    frames = [
        {"file": "t.py", "source": "first()", "subject": False},
        {"file": "t.py", "source": "last()", "subject": False},
        {"file": "t.py", "source": "ours()", "subject": True},
        {"file": "u.py", "source": "other()", "subject": False},
    ]
    error: Any = {"source": "its own", "frames": frames}
    assert source_of(error, "t.py") == "last()"
    assert source_of(error, None) == "its own"
    assert source_of(error, "v.py") is None


@pytest.mark.parametrize(
    ("code", "is_slip"), [(125, False), (126, True), (127, True), (128, False)]
)
def test_a_program_that_is_not_there_is_a_slip(code: int, *, is_slip: bool) -> None:
    """A shell ends with 126 or 127 where it cannot start what it was given."""
    events = [
        (
            event._replace(values={"code": code, "signal": None})
            if event.name == "rank.exited"
            else event
        )
        for event in healthy(1)
    ]
    assert ends(History(events, size=1), faults={})[0].is_slip is is_slip
