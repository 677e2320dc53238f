"""What a run says of its nodes, held against its trials: whoever forges one is refused."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from harness.events import Event
from harness.forms.strict_json import JSON
from harness.history import History
from harness.reason import Void, VoidCode
from harness.record.facts import FarmFacts, MachineFacts, MachinesFacts, NodeFacts, RunFacts
from harness.record.farmed import (
    Places,
    clock_of,
    demand_kind,
    demand_over_machines,
    lanes_of,
    most_at_once,
    replaced,
)
from harness.record.model import Contradiction, RecordError
from harness.record.witness import Witness
from harness.scenario import Needs, parse_scenario
from harness.stats.outcome import Trial, void_reason
from harness.stats.verdict import Judgement
from tests.kit.commands import SCENARIO


def node(number: int, **more: Any) -> NodeFacts:
    """A node with two lanes."""
    return NodeFacts.model_construct(
        **{
            "number": number,
            "host": f"h{number}",
            "harness_pid": 10 + number,
            "lanes": 2,
            "lost": None,
            **more,
        }
    )


def run(*nodes: NodeFacts) -> RunFacts:
    """What a run says, as far as it matters here."""
    environment = type("Here", (), {"host": "here", "python": "3.11"})()
    farm = FarmFacts.model_construct(nodes=list(nodes)) if nodes else None
    return RunFacts.model_construct(farm=farm, environment=environment, harness_pid=1, jobs=4)


RUN = run(node(0), node(1, lost="NodeLost: gone"), node(2, lost="ActorGone: gone"))


def test_a_trial_is_of_the_place_it_names() -> None:
    """Host and process of a trial are those of its node, and those of control where it went with
    its node.
    """
    assert Places(RUN).of({"node": 0}, "e") == {
        "host": "h0",
        "harness_pid": 10,
        "node": 0,
        "lost": None,
    }
    assert Places(RUN).of({"node": 1, "lost": True}, "e") == {
        "host": "here",
        "harness_pid": 1,
        "node": 1,
        "lost": True,
    }
    assert Places(run()).of({"node": 1}, "e") == {
        "host": "here",
        "harness_pid": 1,
        "node": None,
        "lost": None,
    }


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({}, "node None, which is not among the run's nodes"),
        ({"node": 3}, "node 3, which is not among the run's nodes"),
        ({"node": True}, "node True, which is not among the run's nodes"),
        ({"node": 0, "lost": True}, "which was not lost"),
    ],
)
def test_a_place_that_cannot_be(about: dict[str, JSON], why: str) -> None:
    """A trial of no node, or one that went with a node that stayed, is refused."""
    with pytest.raises(Contradiction, match=why):
        Places(RUN).of(about, "evidence")


def test_a_node_takes_along_what_it_had() -> None:
    """With a lost node go no more trials than it made at a time, whoever writes more of them."""
    places = Places(RUN)
    for _ in range(2):
        places.of({"node": 1, "lost": True}, "evidence")
    with pytest.raises(Contradiction, match="which ran at most 2 trials at a time"):
        places.of({"node": 1, "lost": True}, "evidence")


def test_the_end_of_a_node_is_told_alike() -> None:
    """Trials are void where the run says that the node was lost, and not where only our process
    there ended.
    """
    demand_kind(RUN, 1, "NodeLost")
    demand_kind(RUN, 2, "ActorGone")
    for number, kind in ((2, "NodeLost"), (1, "ActorGone"), (0, "NodeLost")):
        with pytest.raises(Contradiction, match=f"node {number} ended by {kind}"):
            demand_kind(RUN, number, kind)


def test_clocks_and_lanes() -> None:
    """Times of a node are held against those of the same node.

    Its lanes bound what went on at once.
    """
    assert [clock_of(about) for about in ({"node": 1}, {"node": 1, "lost": True}, {})] == [
        1,
        None,
        None,
    ]
    assert [lanes_of(RUN, 0), lanes_of(RUN, None), lanes_of(run(), None)] == [2, 4, 4]
    assert [most_at_once(RUN), most_at_once(run(node(0))), most_at_once(run())] == [2, 1, 1]


def trial(code: VoidCode | None = None, on: int | None = None) -> Trial:
    """A trial that is void for a reason, on a node."""
    void = Void(code, "why") if code is not None else None
    return Trial(
        index=0,
        seed="1",
        evidence="e",
        ms=1.0,
        outcome="void" if code else "pass",
        void=void,
        node=on,
    )


def test_one_lost_node_uses_one_void() -> None:
    """Its trials are made again together.

    Any other void trial uses one of `max_voids` for itself.
    """
    lost, other = VoidCode.NODE_LOST, VoidCode.HARNESS_ERROR
    three = [trial(), trial(lost, 1), trial(lost, 1), trial(lost, 1)]
    assert replaced(three, max_voids=1) == (3, 3)
    assert replaced(three, max_voids=0) == (0, 0)
    assert replaced([*three, trial(other, 0), trial(lost, 2)], max_voids=2) == (2, 4)
    assert replaced([trial(other), trial(other), trial(other)], max_voids=2) == (2, 2)


@pytest.mark.parametrize(("kind", "code"), [("NodeLost", VoidCode.NODE_LOST), ("ActorGone", None)])
def test_only_a_lost_node_voids_what_nobody_saw(kind: str, code: VoidCode | None) -> None:
    """A trial whose node was lost is void.

    Where our process ended on a node that stayed, it counts, and fails.
    """
    events = [
        Event(ns=1, by="harness", name="world.begin", values={"node": 1, "lost": True}),
        Event(ns=2, by="harness", name="harness.error", values={"type": kind, "message": "gone"}),
        Event(ns=3, by="harness", name="world.end"),
    ]
    void = void_reason(History(events, size=2))
    assert (void.code if void else None) == code


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"machines": None, "jobs": 3}, ""),
        ({"jobs": 2}, "contains data that such a run never has"),
        ({"environments": {"candidate": None}}, "contains data that such a run never has"),
        (
            {"farm": FarmFacts.model_construct(nodes=[])},
            ("contains data that such a run never has"),
        ),
        ({"machines": ["a", "a"]}, "lists a machine twice"),
        ({"needs": Needs(cores=2)}, ""),
        ({"needs": Needs(cores=3)}, "needs 3 cores"),
        ({"needs": Needs(memory="2GiB")}, "needs 2.0 GiB of memory"),
    ],
)
def test_what_a_run_over_machines_cannot_say(change: dict[str, Any], why: str) -> None:
    """Worlds side by side, nodes beside machines, one machine twice: refused."""
    names = change.get("machines", ["a", "b"])
    over = None
    if names is not None:
        over = MachinesFacts.model_construct(
            machines=[
                MachineFacts.model_construct(called=one, cores=2, memory=2**30) for one in names
            ]
        )
    facts = {"farm": None, "environments": {}, "jobs": 1, **change, "machines": over}
    scenario = parse_scenario(SCENARIO.encode(), name="scenario.yaml", overrides=[])
    scenario = scenario.model_copy(update={"needs": facts.pop("needs", Needs())})
    with pytest.raises(RecordError, match=why) if why else nullcontext():
        demand_over_machines(scenario, RunFacts.model_construct(**facts))


@pytest.mark.parametrize(("later", "refused"), [(0, False), (4, False), (6, True)])
def test_what_goes_with_a_node_goes_at_once(later: int, refused: bool) -> None:
    """A node is lost once: a trial that began seconds after another went with it did not go with it
    too.
    """

    def gone(begin: int) -> bytes:
        about = {"node": 1, "lost": True}
        said = {"type": "NodeLost", "message": "gone"}
        named = [("world.begin", about), ("harness.error", said), ("world.end", {})]
        moments = (begin, begin + 10**9, begin + 10**9 + begin // 10**9 + 1)
        made = [
            Event(ns=ns, by="harness", name=name, values=values)  # type: ignore[arg-type]
            for ns, (name, values) in zip(moments, named, strict=True)
        ]
        return "".join(f"{one.line()}\n" for one in made).encode()

    files = {"one": gone(10**9), "other": gone(2 * 10**9 + later * 10**9)}
    known = RUN.model_copy(update={"environments": {}, "arguments": {}, "seconds": 60.0})
    witness = Witness(known, files.__getitem__)
    for name, text in files.items():
        witness.hear(name, History.read(text, size=2))
    with (
        pytest.raises(Contradiction, match="which was lost only once") if refused else nullcontext()
    ):
        witness.demand(Judgement(verdict="PASS", as_expected=True, reasons=[], cells=[]), ())
