"""What real ranks do about a fault, as the checks of progress, survivors and environments judge
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.checks import AnyCheck, Check, Finding
from harness.faults.proof import STRUCK, noted
from harness.history import FaultOnRank, History
from tests.kit.faulted_worlds import Struck

Live = Callable[..., Struck]
Make = Callable[..., Any]
CHECK: TypeAdapter[Check] = TypeAdapter(AnyCheck)


def judge(struck: Struck, **check: Any) -> Finding:
    """A finding of a world, with what is proved of its faults."""
    known = struck.history.with_faults(
        [
            FaultOnRank(
                fault=one.fault,
                rank=one.rank,
                struck=noted(struck.history, STRUCK, fault=one.fault, rank=one.rank),
                proved=one.proof.proved,
                ends=one.proof.proved and one.proof.ends,
            )
            for one in struck.proved
        ]
    )
    assert isinstance(known, History)
    return CHECK.validate_python({"id": "it", "ranks": "every", **check}).judge(known)


@pytest.mark.slow
def test_survivors_of_a_kill_fail_at_once(live: Live, fault: Make) -> None:
    """With gloo every survivor raises and ends well within two seconds of the strike."""
    struck = live(
        fault(kind="kill", ranks=[1], at="door"),
        entry="struck:meet",
        arguments={"how": "reduce"},
        size=3,
    )
    for kind in ("detected-within", "survivors-end"):
        found = judge(struck, kind=kind, fault="kill", limit="2s")
        assert found.passed, found
        assert found.ranks[1].observed == "ended by fault kill"


@pytest.mark.slow
def test_a_survivor_that_swallows_the_error_is_named_with_its_line(live: Live, fault: Make) -> None:
    """It fails alone, with the line at which it stood when it was stopped; `progress` names that
    line too.
    """
    struck = live(
        fault(kind="kill", ranks=[1], at="door"), entry="struck:reduce_and_swallow", size=3
    )
    for kind in ("detected-within", "survivors-end"):
        found = judge(struck, kind=kind, fault="kill", limit="2s")
        assert found.failed_ranks == (2,)
        assert (
            "until the harness stopped it, in reduce_and_swallow (struck.py:"
            in found.ranks[2].reason
        )
    found = judge(
        struck, kind="progress", event="round", counter="number", limit="200ms", ranks=[0, 2]
    )
    assert found.failed_ranks == (2,)
    assert "since round.number 0" in found.ranks[1].reason
    assert "reduce_and_swallow" in found.ranks[1].reason


@pytest.mark.whole
def test_the_backends_own_bound_ends_a_wait(live: Live, fault: Make) -> None:
    """A rank that is paused for longer than `collective_timeout` makes the others raise, after that
    time.
    """
    pause = fault(kind="pause", ranks=[1], at="door", **{"for": "3s"})
    struck = live(
        pause,
        entry="struck:meet",
        arguments={"how": "reduce"},
        size=3,
        collective_timeout=1.0,
        after_failure=5.0,
    )
    found = judge(
        struck,
        kind="detected-within",
        fault="pause",
        limit="2900ms",
        ranks=[0, 2],
        message="imed out",
    )
    assert found.passed, found
    # The bound counts from where each rank began to wait, which may be before rank 1 was struck.
    for rank in (0, 2):
        raised = struck.history.error(rank)
        assert raised is not None
        door = struck.history.said(rank, "door")[0]
        assert raised.event.ns - door.event.ns >= 1e9
    assert not judge(
        struck, kind="detected-within", fault="pause", limit="900ms", ranks=[0, 2]
    ).passed


@pytest.mark.slow
def test_a_pause_is_seen_by_all_and_who_is_behind_is_named(live: Live, fault: Make) -> None:
    """Ranks that wait for a paused one say since when; none of them is behind the other."""
    pause = fault(kind="pause", ranks=[1], at="door", **{"for": "1200ms"})
    struck = live(pause, entry="struck:count", arguments={"rounds": 6}, size=3)
    assert struck.passed
    found = judge(struck, kind="progress", event="round", counter="number", limit="1s", at_least=6)
    assert found.failed_ranks == (0, 1, 2)
    assert all("since round.number 1" in part.reason for part in found.ranks)
    assert judge(
        struck, kind="progress", event="round", counter="number", limit="10s", at_least=6
    ).passed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "torch-settings", "threads": 3}, "threads.torch is 3, but 1 on most ranks"),
        ({"kind": "torch-settings", "dtype": "float64"}, "numerics.torch.dtype"),
        ({"kind": "clock-skew", "by": "30s"}, "clock.offset is +30.000 s"),
    ],
    ids=["threads", "dtype", "clock"],
)
def test_a_rank_in_another_environment_is_named_with_the_key(
    live: Live, fault: Make, options: Any, words: str
) -> None:
    """What a fault changes of one rank is found there, as the subject begins and ends.

    Without it all agree.
    """
    struck = live(fault(ranks=[2], at="backend.ready", **options), size=3, tells_environment=True)
    found = judge(struck, kind="environment-agrees")
    assert found.failed_ranks == (2,)
    assert words in found.ranks[2].reason
    part = words.partition(".")[0]
    others = [
        one
        for one in ("versions", "libraries", "variables", "threads", "numerics", "clock")
        if one != part
    ]
    assert judge(struck, kind="environment-agrees", parts=others).passed
