"""Seeded strikes of every kind: proved every time, landed where they were meant to, taken back
every time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from harness.faults import KINDS, prove
from harness.history import History
from harness.world.hosts import host as hosts
from harness.world.hosts.host import Hosts
from tests.kit.faulted_worlds import CALLS, LINKS, Struck

Live = Callable[..., Struck]
Make = Callable[..., Any]


def paused(struck: Struck, rank: int, options: Any) -> None:
    """Stopped between its event and the next, for at least as long as asked."""
    door, after = struck.one("rank", rank, "door").ns, struck.one("rank", rank, "after").ns
    stopped, undone = (
        struck.one("server", rank, "rank.stopped").ns,
        struck.one("harness", rank, "fault.undone").ns,
    )
    assert door < stopped < undone < after
    assert undone - stopped >= options.for_ * 1e9
    assert struck.one("server", rank, "rank.continued").ns > undone


def delayed(struck: Struck, rank: int, options: Any) -> None:
    """Held between its event and the next, and never stopped."""
    door, after = struck.one("rank", rank, "door").ns, struck.one("rank", rank, "after").ns
    assert door < struck.one("harness", rank, "fault.struck").ns < after
    assert after - door >= options.for_ * 1e9
    assert struck.count("server", rank, "rank.stopped") == 0


def killed(struck: Struck, rank: int, options: Any) -> None:
    """Ended by the signal after its event, before the next."""
    end = struck.one("server", rank, "rank.exited")
    assert struck.one("rank", rank, "door").ns < end.ns
    assert (end.values["code"], end.values["signal"]) == (None, f"SIG{options.signal}")
    assert struck.count("rank", rank, "after") == 0


def raised(struck: Struck, rank: int, options: Any) -> None:
    """Raised after its event, before the next, and told as the rank's end."""
    error = struck.one("rank", rank, "rank.error")
    assert (
        struck.one("rank", rank, "door").ns < struck.one("rank", rank, "fault.raised").ns < error.ns
    )
    assert (error.values["type"], error.values["message"]) == (options.error, options.message)
    assert error.values["source"] == 'context.emit("door")'
    assert struck.count("rank", rank, "after") == 0


def exited(struck: Struck, rank: int, options: Any) -> None:
    """Exited after its event, before the next."""
    end = struck.one("server", rank, "rank.exited")
    assert struck.one("rank", rank, "door").ns < end.ns
    assert end.values["code"] == options.code
    assert struck.count("rank", rank, "after") + struck.count("rank", rank, "rank.error") == 0


def with_a_variable(struck: Struck, rank: int, options: Any) -> None:
    """It, and nobody else, sees the value between its start and its subject's."""
    told = struck.one("rank", rank, "fault.env")
    assert (
        struck.one("server", rank, "rank.started").ns
        < told.ns
        < struck.one("rank", rank, "subject.begin").ns
    )
    assert told.values["values"] == options.set
    seen = [struck.one("rank", other, "after").values["seen"] for other in (rank, 1 - rank)]
    assert seen == [options.set["STRUCK"], None]


def started_late(struck: Struck, rank: int, options: Any) -> None:
    """Forked so much later than the other, which waits for it at the start line."""
    started = struck.one("server", rank, "rank.started").ns
    assert started - struck.one("server", 1 - rank, "rank.started").ns >= options.for_ * 1e9
    assert started < struck.one("rank", 1 - rank, "subject.begin").ns


def answered_wrongly(struck: Struck, rank: int, options: Any) -> None:
    """It, and nobody else, got the answer of the rule to what it asked between two events."""
    (request,) = (
        seen.event
        for seen in struck.history.seen
        if seen.event.name == "hub.request" and seen.event.rank == rank
    )
    assert struck.one("rank", rank, "door").ns < request.ns < struck.one("rank", rank, "after").ns
    expected = {"missing": 404, "rate-limit": 429, "error": 503}.get(options.answer.kind, 200)
    told = struck.one("rank", rank, "after").values["told"]
    assert (
        told == expected
        if options.answer.kind != "reset"
        else told in ("ConnectionResetError", "URLError")
    )
    assert struck.one("rank", 1 - rank, "after").values["told"] == 200


def limited(struck: Struck, rank: int, options: Any) -> None:
    """It, and nobody else, could not do the one thing.

    What was limited for some time was given back.
    """
    door, after = struck.one("rank", rank, "door").ns, struck.one("rank", rank, "after").ns
    seen = [found.event for found in struck.history.served(rank, "rank.limited")]
    assert door < seen[0].ns < after
    told = [struck.one("rank", other, "after").values["told"] for other in (rank, 1 - rank)]
    hurt, word = {
        "open-files": (("open", "write"), "EMFILE"),
        "file-size": (("write",), "EFBIG"),
        "address-space": (("map",), "ENOMEM"),
        "memory": ((), ""),  # what it maps and does not touch is not taken
    }[options.kind]
    assert told[0] == {name: word if name in hurt else "done" for name in ("open", "write", "map")}
    assert set(told[1].values()) == {"done"}
    assert struck.count("server", 1 - rank, "rank.limited") == 0
    if options.for_ is not None and len(seen) == 1:
        # On a busy machine the rank has ended by the time that the limit is given back.
        assert struck.history.exit(rank).event.ns <= struck.one("harness", rank, "fault.undone").ns
    elif options.for_ is not None:
        assert seen[1].values["now"] == seen[0].values["before"]


def starved(struck: Struck, rank: int, options: Any) -> None:
    """It had company on one core, which was taken away: nobody is left, and it has its cores
    back.
    """
    began, ended = (found.event for found in struck.history.served(rank, "rank.crowded"))
    assert struck.one("rank", rank, "door").ns < began.ns < ended.ns
    assert ended.ns - began.ns >= options.for_ * 1e9
    assert struck.one("server", None, "world.survivors").values["count"] == 0


def covered(struck: Struck, rank: int, options: Any) -> None:
    """It could write nothing in the one folder, and read what was there.

    Its peer noticed nothing.
    """
    first, word = options.folder.split("/")[0], "EROFS" if options.kind == "read-only" else "ENOSPC"
    hurt = "own" if first == "home" else first
    told = struck.one("rank", rank, "after").values["told"]
    fine = {"own": "done", "shared": "done", "own-kept": [1000, 1000], "shared-kept": [1000, 1000]}
    assert told == {**fine, hurt: word}
    assert struck.one("rank", 1 - rank, "after").values["told"] == fine
    later = struck.one("rank", rank, "later").values["told"]
    assert later == (fine if options.for_ is not None else {**fine, hurt: word})


def denied(struck: Struck, rank: int, options: Any) -> None:
    """Nobody could enter the folder while it was denied, and everybody could again."""
    assert struck.one("rank", rank, "after").values["told"]["shared"] == "EACCES"
    assert struck.one("rank", rank, "later").values["told"]["shared"] == "done"


def spoiled(struck: Struck, rank: int, options: Any) -> None:
    """The file that it reads is another one, for all; the others are not."""
    told = struck.one("rank", rank, "after").values["told"]
    assert told["shared-kept"] == (
        [options.keep, options.keep] if options.kind == "truncated" else [1000, 999]
    )
    assert told["own-kept"] == [1000, 1000]
    assert struck.one("rank", 1 - rank, "after").values["told"]["shared-kept"] == [1000, 1000]


def skewed(struck: Struck, rank: int, options: Any) -> None:
    """All of Python's clocks are off alike, the kernel's is not, and its peer's are right."""
    off = options.by * (1 if options.way == "ahead" else -1)
    for one, expected in ((rank, off), (1 - rank, 0.0)):
        told = struck.one("rank", one, "after").values
        assert told["ns"] == pytest.approx(0, abs=1)
        assert told["local"] == pytest.approx(0, abs=2)
        assert told["utc"] == pytest.approx(0, abs=1)
        assert told["kernel"] == pytest.approx(-expected, abs=1)


def ahead(struck: Struck, rank: int, options: Any) -> None:
    """Its monotonic clock is so much later than its peer's, in Python and beneath it, and its
    events stand in order.
    """
    mine, theirs = (struck.one("rank", one, "after").values for one in (rank, 1 - rank))
    assert mine["monotonic"] - theirs["monotonic"] == pytest.approx(options.by, abs=20)
    assert mine["ns"] == pytest.approx(0, abs=1)
    begun, ended = (struck.one("harness", None, name).ns for name in ("world.begin", "world.end"))
    assert (
        begun < struck.one("rank", rank, "door").ns < struck.one("rank", rank, "after").ns < ended
    )
    assert struck.count("harness", 1 - rank, "rank.clock") == 0


def with_other_settings(struck: Struck, rank: int, options: Any) -> None:
    """torch computes so in it, and as ever in its peer."""
    told, usual = (struck.one("rank", one, "after").values for one in (rank, 1 - rank))
    assert (usual["threads"], usual["dtype"]) == (1, "torch.float32")
    assert told["threads"] == (options.threads or 1)
    assert told["dtype"] == f"torch.{options.dtype or 'float32'}"


def in_order(struck: Struck, rank: int, options: Any) -> None:
    """The last rank was started first, and the first so much later."""
    started = [struck.one("server", one, "rank.started").ns for one in (0, 1)]
    assert started[0] - started[1] >= options.gap * 1e9


def changed(struck: Struck, rank: int, options: Any) -> None:
    """One element of its first report is another.

    The other rank's, and what comes later, is not.
    """
    key = options.value.removeprefix("door.")
    (first, second), (theirs, again) = (
        [seen.event.values[key] for seen in struck.history.said(one, "door")]
        for one in (rank, 1 - rank)
    )
    assert second == theirs == again != first
    assert struck.count("rank", 1 - rank, "fault.perturbed") == 0


LANDED: dict[str, Callable[[Struck, int, Any], None]] = {
    "pause": paused,
    "delay": delayed,
    "kill": killed,
    "raise": raised,
    "exit": exited,
    "env": with_a_variable,
    "start-late": started_late,
    "perturb": changed,
    "hub": answered_wrongly,
    "open-files": limited,
    "file-size": limited,
    "address-space": limited,
    "memory": limited,
    "starve": starved,
    "start-order": in_order,
    "read-only": covered,
    "no-space": covered,
    "permission-denied": denied,
    "truncated": spoiled,
    "replaced": spoiled,
    "clock-skew": skewed,
    "monotonic-skew": ahead,
    "torch-settings": with_other_settings,
}
HERE = [
    kind for kind in KINDS if not KINDS[kind].refusal() and kind not in CALLS and kind != "cut-off"
]
"""Nothing is denied to root; faults of calls are tried in test_calls, and the cut of a machine in
tests/world/machines.
"""


ANSWERS: list[dict[str, Any]] = [
    {"kind": "missing"},
    {"kind": "rate-limit", "headers": "none"},
    {"kind": "error", "status": 503},
    {"kind": "reset"},
    {"kind": "latency", "for": "5ms"},
]
# What a kind of fault needs beside its options: ranks that are started anew join no group here,
# which takes seconds.
WORLDS: dict[str, dict[str, Any]] = {
    "hub": {"entry": "struck:ask", "backend": "none"},
    **{
        kind: {"entry": "struck:probe"}
        for kind in ("open-files", "file-size", "address-space", "memory", "starve")
    },
    **{
        kind: {"entry": "struck:store"}
        for kind in ("read-only", "no-space", "permission-denied", "truncated", "replaced")
    },
    **{
        kind: {"entry": "struck:clocks"}
        for kind in ("clock-skew", "monotonic-skew", "torch-settings")
    },
    "perturb": {"entry": "struck:report", "backend": "none"},
}
CHANGES: list[dict[str, Any]] = [
    {"value": "door.loss", "absolute": 0.25},
    {"value": "door.loss", "relative": 1e-6},
    {"value": "door.loss", "ulp": 1},
    {"value": "door.ids", "one": "token"},
    {"value": "door.text", "one": "character"},
]
# What strikes a wire is tried in test_links, on every backend; here it stands for the proof alone.
ON_HOSTS = {
    "entry": "links:exchange",
    "arguments": {"steps": 1},
    "hosts": Hosts(count=2, of=(0, 1)),
    "deadline": 2.0,
}
WORLDS |= dict.fromkeys(LINKS, ON_HOSTS)


def drawn(kind: str, seed: int) -> dict[str, Any]:
    """Options of a fault that follow from a seed."""
    dice = random.Random(f"{kind} {seed}")
    time = f"{dice.randrange(1, 60)}ms"
    rank = dice.randrange(2)
    folder = dice.choice([f"home/own-{rank}", "shared/all"])
    options: dict[str, dict[str, Any]] = {
        "pause": {"at": "door", "for": time},
        "delay": {"at": "door", "for": time},
        "kill": {"at": "door", "signal": dice.choice(["KILL", "TERM", "ABRT", "SEGV"])},
        "raise": {
            "at": "door",
            "error": dice.choice(["OSError", "TimeoutError"]),
            "message": f"number {seed}: é 日",
        },
        "exit": {"at": "door", "code": dice.randrange(256)},
        "env": {"set": {"STRUCK": dice.choice(["", "é=1", "x" * 1000])}},
        "start-late": {"for": time},
        "perturb": dice.choice(CHANGES),
        "hub": {"role": "model_info", "answer": dice.choice(ANSWERS)},
        "open-files": {
            "at": "door",
            "to": dice.randrange(3),
            **dice.choice([{}, {"for": "100ms"}]),
        },
        "file-size": {"at": "door", "to": f"{dice.randrange(1, 200)}KiB"},
        "address-space": {"at": "door", "more": f"{dice.randrange(1, 200)}MiB"},
        "memory": {
            "at": "door",
            "more": f"{dice.randrange(64, 200)}MiB",
            **dice.choice([{}, {"for": "100ms"}]),
        },
        "starve": {
            "at": "door",
            "for": f"{dice.randrange(80, 120)}ms",
            "burners": dice.randrange(2, 5),
        },
        "start-order": {"ranks": "every", "gap": time},
        "read-only": {"at": "door", "folder": folder, **dice.choice([{}, {"for": "100ms"}])},
        "no-space": {"at": "door", "folder": folder, "left": f"{dice.randrange(4, 90)}KiB"},
        "permission-denied": {"at": "door", "folder": "shared/all", "for": "100ms"},
        "truncated": {
            "at": "door",
            "file": f"shared/all/kept-{rank}",
            "left": f"{dice.randrange(1000)}B",
        },
        "replaced": {
            "at": "door",
            "file": f"shared/all/kept-{rank}",
            "offset": f"{dice.randrange(1000)}B",
        },
        "clock-skew": {
            "at": "door",
            "by": f"{dice.randrange(5, 5000)}s",
            "way": dice.choice(["ahead", "back"]),
        },
        "monotonic-skew": {"by": f"{dice.randrange(100, 100_000)}s"},
        "torch-settings": {"at": "door", **dice.choice([{"threads": 3}, {"dtype": "float64"}])},
    }
    options |= {link: {"at": "step.begin", **given} for link, given in LINKS.items()}
    return {"kind": kind, "ranks": [rank], **options[kind]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in HERE if kind not in LINKS])
def test_many_strikes(live: Live, fault: Make, kind: str, often: Callable[..., range]) -> None:
    """The proof is there each time, the strike lies between two events each time, and is undone
    each time.
    """
    for seed in often(2, soak=50):
        options = fault(**drawn(kind, seed))
        struck = live(options, **WORLDS.get(kind, {}))
        rank = options.ranks.of(2)[0]
        found = struck.proved[0]
        assert all(one.proof.proved for one in struck.proved)
        assert found.struck, (seed, found)
        assert found.proof.proved, (seed, found)
        assert found.undone, (seed, found)
        assert (
            struck.one("harness", rank, "fault.undone").ns
            >= struck.one("harness", rank, "fault.struck").ns
        )
        assert struck.count("server", 1 - rank, "rank.stopped") == 0
        LANDED[kind](struck, rank, options)
        assert struck.passed, struck.findings
        assert struck.history.exit(1 - rank).event.values["code"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", HERE)
def test_every_line_of_a_proof_is_needed(live: Live, fault: Make, kind: str) -> None:
    """Take away any event of the harness or the server that a proof names, and nothing is
    proved.
    """
    if kind in LINKS and (why := hosts.refusal()) is not None:
        pytest.skip(str(why))
    struck = live(fault(**drawn(kind, 1)), **WORLDS.get(kind, {}))
    found = struck.proved[0]
    assert found.proof.proved, found
    assert list(found.proof.lines) == sorted(found.proof.lines)
    events = [seen.event for seen in struck.history.seen]
    for line in found.proof.lines:
        less = History([*events[: line - 1], *events[line:]], size=2)
        again = prove(struck.faults, less)[0]
        # What the rank did next, or how it told of its end, may be told by another event too.
        is_sequel = events[line - 1].name in ("rank.error", "after")
        assert again.proof.proved == is_sequel, (line, events[line - 1])
