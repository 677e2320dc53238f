"""Base of the faults of a wire: which links between test hosts it strikes, from when on, and how
that is proved.

It strikes the links of the host of a rank, from an event of that rank on. Proof: the wire's own
word that it was in force on exactly these links, and its own count of the packets it was done to.
At least one of them has to carry payload of a rank that the link had not carried before, or begin a
connection. What only acknowledges, closes, or is sent again is no work of the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field

from harness.faults import proof
from harness.faults.fault import FROM_OUTSIDE, FaultAtEvent, Place
from harness.faults.proof import Landing, Proof, not_proved
from harness.faults.world_control import WorldControl
from harness.forms.model import Distinct
from harness.forms.problem import Draft, Path, Problem, complaint
from harness.forms.strict_json import JSON
from harness.forms.text import plural
from harness.forms.units import Duration
from harness.history import History, Seen

STRUCK = "wire.struck"
UNDONE = "wire.undone"
COUNTED = "wire.counted"


def _some(seconds: float) -> float:
    if not seconds:
        raise complaint("must be more than 0")
    return seconds


Delay = Annotated[Duration, AfterValidator(_some)]


class LinkFault(FaultAtEvent):
    """A fault of the wire, on the links of a rank's host."""

    needs: ClassVar = "test hosts (`world.hosts`), and an event of the subject to strike at"
    properties: ClassVar = FROM_OUTSIDE
    # The word that the wire knows it by.
    what: ClassVar[str]

    to: Distinct[Annotated[int, Field(ge=0)]] | None = Field(
        None, description="The hosts at the other end of the links (default: every other host)."
    )
    way: Literal["both", "out", "in"] = Field(
        "both",
        description=(
            "Which packets: those that the rank's host sends (out), those that it receives (in),"
            " or both."
        ),
    )
    for_: Duration | None = Field(
        None,
        alias="for",
        description="How long, with a unit: 200ms, 60s (default: to the end of the world).",
    )

    @property
    def place(self) -> Place:
        # Several may be in force on one link: each is done to what the one before it leaves.
        return Place("id", (), "")

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield a problem where there is no wire, or a fault has no link on it."""
        for index, fault in faults.items():
            where: Path = ("world",)
            if fault.service is not None:
                where = ("services", fault.service)
            count = draft.at(*where, "hosts")
            if not isinstance(count, int) or count < 2:
                place = ".".join(map(str, where))
                message = f"needs test hosts with a wire between them; add {place}: {{hosts: 2}}"
                yield draft.problem(("faults", index, "kind"), message)
                continue
            for position, host in enumerate(fault.to or ()):
                if host >= count:
                    yield draft.problem(
                        ("faults", index, "to", position),
                        f"is not a host; the hosts are 0 to {count - 1}",
                    )

    def options(self) -> dict[str, JSON]:
        """Return what else the wire has to know."""
        return {}

    def done(self) -> str:
        """Describe what is done to packets."""
        raise NotImplementedError

    def description(self) -> str:
        ways = {"both": "to and from", "out": "from", "in": "to"}[self.way]
        others = "" if self.to is None else f" and hosts {list(self.to)}"
        lasting = "" if self.for_ is None else f", for {self.for_:g} s"
        return f"{self.done()}, {ways} its host{others}, from {self.at} on{lasting} ({self.effect})"

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """Put it in force; the rank waits until it is, and its time runs from then."""
        if (seconds := self.for_) is not None:
            world.once(f"{STRUCK} {self.id}", rank=rank, do=lambda: world.after(seconds, done))
        hosts: JSON = None if self.to is None else list(self.to)
        world.wire(
            {"do": "strike", **self._name(rank), "to": hosts, "way": self.way, **self.options()}
        )

    def undo(self, world: WorldControl, *, rank: int) -> None:
        world.wire({"do": "undo", **self._name(rank)})

    def _name(self, rank: int) -> dict[str, JSON]:
        return {"fault": self.id, "rank": rank, "what": self.what}

    def links(self, history: History, rank: int) -> list[list[int]]:
        """List the links that it strikes for a rank, as the trial's hosts are: source and
        target.
        """
        placed = history.about().get("hosts")
        made = history.served(None, "hosts.made")
        listed = made[0].event.values.get("hosts") if made else None
        if not isinstance(placed, list) or not isinstance(listed, list) or rank >= len(placed):
            return []
        host = placed[rank]
        is_one = type(host) is int and 0 <= host < len(listed)
        return links_of(host, count=len(listed), to=self.to, way=self.way) if is_one else []

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Event, in force on its links, and packets that it was done to."""
        struck = proof.first_after(self._said(history, rank, STRUCK), landed.struck)
        if struck is None:
            return not_proved("the wire did not report that it was active", landed.lines)
        lines: tuple[int, ...] = (*landed.lines, struck.line)
        links = self.links(history, rank)
        if not links or struck.event.values.get("links") != links:
            return not_proved(
                f"the wire struck {struck.event.values.get('links')}, not {links}", lines
            )
        undone = proof.first_after(self._said(history, rank, UNDONE), struck)
        counted = undone or proof.first_after(self._said(history, rank, COUNTED), struck)
        if counted is None:
            return proof.cut_short(
                history, rank=rank, description="the affected packets were not counted", lines=lines
            )
        lines = (*lines, counted.line)
        if self.for_ is not None and (
            undone is None or not proof.lasted(struck, undone, seconds=self.for_)
        ):
            return proof.cut_short(
                history,
                rank=rank,
                description=f"it was not active for {self.for_:g} s",
                lines=lines,
            )
        passed = counted.event.values.get("matched")
        packets = counted.event.values.get("struck")
        if type(passed) is not int or type(packets) is not int or not 1 <= packets <= passed:
            return proof.missed(
                history,
                rank=rank,
                what=f"it affected {packets} of {passed} packets",
            )
        payload = counted.event.values.get("payload")
        if type(payload) is not int or not 1 <= payload <= packets:
            shown = (
                f"it affected {plural(packets, 'packet')}, but none carried new payload from a rank"
                " or opened a connection"
            )
            return proof.missed(history, rank=rank, what=shown)
        wrong, more = self.counted(counted.event.values)
        if wrong := wrong or _elsewhere(counted.event.values, history, links):
            return not_proved(wrong, lines)
        time = proof.milliseconds(struck, counted)
        return Proof(
            proved=True,
            description=f"affected {packets} of {passed} packets in {time}{more}",
            lines=lines,
        )

    def counted(self, values: Mapping[str, JSON]) -> tuple[str, str]:
        """Return why its count proves nothing, if so, and what to add to the number of packets."""
        del values
        return "", ""

    def _said(self, history: History, rank: int, name: str) -> list[Seen]:
        return [
            seen for seen in history.served(rank, name) if seen.event.values.get("fault") == self.id
        ]


def _elsewhere(values: Mapping[str, JSON], history: History, links: list[list[int]]) -> str:
    """Name a connection of the wire's log that these links do not carry; empty where there is
    none.
    """
    made: Any = history.served(None, "hosts.made")[0].event.values["hosts"]
    known = [str(host.get("address")) if isinstance(host, dict) else "" for host in made]
    flows = values.get("flows")
    flips = values.get("flips")
    named = list(flows) if isinstance(flows, list) else []
    if isinstance(flips, list):
        named += [flip.get("flow") for flip in flips if isinstance(flip, dict)]
    carried = {(known[source], known[target]) for source, target in links}
    for flow in named:
        ends = str(flow).partition(">")
        if (ends[0].partition(":")[0], ends[2].partition(":")[0]) not in carried:
            return f"the wire's log has {flow}, which these links do not carry"
    return ""


def links_of(host: Any, *, count: int, to: tuple[int, ...] | None, way: str) -> list[list[int]]:
    """List the links of a host: source and target, out before in.

    Args:
        host: the rank's.
        count: how many there are.
        to: those at the other end; None for every other one.
        way: out, in or both.
    """
    others = [
        other for other in (range(count) if to is None else to) if other != host and other < count
    ]
    out = [[host, other] for other in others] if way in ("both", "out") else []
    return out + ([[other, host] for other in others] if way in ("both", "in") else [])
