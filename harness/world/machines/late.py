"""Late evidence: what a machine wrote down of its share of a world, read when the run is long over,
for the events that nobody heard then.

It goes through the same hands as what comes in time: the roll of its ranks, their channels, the
files that ranks may leave. The trial's own events bound it: it belongs to that world, on that
machine, lies within its time, and says again all that was heard. It only adds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.events import Event
from harness.forms.digest import mark
from harness.forms.strict_json import JSON
from harness.history import MACHINE_ENDED, MACHINES_JOINED
from harness.world.control.capture import Recorder
from harness.world.control.names import Elsewhere
from harness.world.control.ranks import RankChannel, RankStates
from harness.world.control.world import TOLD
from harness.world.machines.heartbeat import told_here
from harness.world.machines.roll import HandedOver, Hostile, Placed, Roll

BEGIN = "world.begin"
END = "world.end"
# Asked for by control while it was there, or said to it alone: they change nothing any more.
PASSED_OVER = frozenset({"state", "measured", "stood", "left", "over", "failed"})
LAST = frozenset({"left", "over"})


@dataclass(frozen=True, kw_only=True)
class Late:
    """Evidence that came late.

    Attributes:
        events: those that the trial's evidence does not have, in order of time.
        loaded: what ranks had loaded, by the sha256 that these events give in its place.
        why: why the machine ended its ranks by itself; empty where it did not.
        messages: how many it wrote down.
        whole: whether the last of them is the last that it writes.
    """

    events: tuple[Event, ...]
    loaded: dict[str, bytes]
    why: str
    messages: int
    whole: bool


class LateShare:
    """Share of one machine in one world, as the trial's events tell it."""

    def __init__(self, events: Sequence[Event], *, machine: int) -> None:
        """Read them.

        Args:
            events: of the trial, in order.
            machine: its place in the hostfile.

        Raises:
            Hostile: they are not of a world that had ranks on this machine.
        """
        try:
            begin = events[0]
            end = events[-1]
            about: Any = begin.values["machines"]
            joined: Any = next(
                event.values["machines"] for event in events if event.name == MACHINES_JOINED
            )
            self.placed = Placed(of=tuple(about["of"]), called=tuple(about["called"]), reached=())
            self.called = self.placed.called[machine]
            ahead, within = next(
                (clock["clock_ahead"], clock["within"])
                for clock in joined
                if clock["machine"] == self.called
            )
            size = begin.values["size"]
        except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
            raise Hostile(
                f"the trial's events are not from a world on several machines: {error}"
            ) from None
        ends = (begin.name, begin.by, end.name, end.by)
        if (
            ends != (BEGIN, "harness", END, "harness")
            or type(ahead) is not int
            or type(within) is not int
        ):
            raise Hostile("the trial's events lack a begin event, an end event or a clock")
        if size != len(self.placed.of):
            raise Hostile(
                "the trial's world size does not match the number of ranks placed on machines"
            )
        self.machine = machine
        self.events = events
        self.mark = mark(begin.line().encode("ascii"))
        self.begun = begin.ns
        self.ended = end.ns
        self.ahead = ahead
        self.within = within

    def heard(self) -> Counter[tuple[JSON, ...]]:
        """Return what its ranks, and who forked them, said while somebody heard it."""
        ranks = self.placed.ranks(self.machine)
        return Counter(
            _key(event)
            for event in self.events
            if event.rank in ranks and event.by in ("rank", "server")
        )


def replay(
    share: LateShare, messages: Iterable[tuple[dict[str, Any], bytes]], *, scratch: Path
) -> Late:
    """Read what a machine wrote down of its share, from the first message on.

    Args:
        share: of which it is.
        messages: each with the bytes that go with it, in order.
        scratch: an empty folder, for files that ranks left.

    Raises:
        Hostile: it is not what this machine can have written down of this world.
        OSError: no space.
    """
    player = _Replay(share, scratch)
    try:
        for number, (message, content) in enumerate(messages, start=1):
            if message.get("n") != number or message.get("world") != share.mark:
                raise Hostile("its messages are out of sequence, or belong to another world")
            player.hear(message, content)
        return player.late()
    except (KeyError, TypeError, ValueError) as error:
        raise (
            error
            if isinstance(error, Hostile)
            else Hostile(f"its journal contains invalid data: {error}")
        ) from None


class _Replay:
    def __init__(self, share: LateShare, scratch: Path) -> None:
        size = len(share.placed.of)
        self._share = share
        self._scratch = scratch
        self._roll = Roll(share.placed, mark=share.mark)
        self._left = HandedOver(scratch, size=size)
        self._states = RankStates(size=size)
        self._recorder = Recorder(size=size, code=scratch, python=None)
        self._channels = {
            rank: RankChannel(rank, not_before=share.begun)
            for rank in share.placed.ranks(share.machine)
        }
        for rank, channel in self._channels.items():
            (scratch / f"rank-{rank}" / "kept").mkdir(parents=True)
            channel.ahead = self._recorder.ahead[rank] = share.ahead
            channel.within = share.within + 1_000_000
            channel.not_after = share.ended
        self._closed: set[int] = set()
        self._count = 0
        self._why = ""
        self._last = ""

    def hear(self, message: dict[str, Any], content: bytes) -> None:
        self._count += 1
        self._last = str(message.get("is"))
        self._roll.weigh(self._share.machine, message)
        rank = message.get("rank")
        if rank is not None and not self._roll.has(self._share.machine, rank):
            raise Hostile("it sent a message about a rank that was not placed on it")
        match message.get("is"):
            case "events" if rank is not None and rank not in self._closed:
                self._take(self._channels[rank].feed(content))
            case "log" if rank is not None:
                self._recorder.logs[rank].feed(content)
            case "closed" if rank is not None:
                if message.get("what") == "events" and rank not in self._closed:
                    self._closed.add(rank)
                    self._take(self._channels[rank].close())
            case "file" if rank is not None:
                self._left.begin(rank, str(message.get("name")), odd=bool(message.get("odd")))
            case "part" if rank is not None:
                self._left.add(rank, str(message.get("name")), content)
            case "stack" if rank is not None:
                self._left.stand(rank, content)
            case "keeper":
                self._hear_keeper(self._roll.check(self._share.machine, message.get("told")))
            case "begun":
                names = Elsewhere.from_message(message["names"], code=str(message["code"]))
                self._recorder.elsewhere = dict.fromkeys(self._channels, names)
            case "ended":
                self._why = str(message.get("why"))[:2000]
                left = [*self._roll.left(self._share.machine)]
                values = {
                    "machine": self._share.called,
                    "why": self._why,
                    "ranks": list[JSON](left),
                }
                ns = self._here(message["ns"])
                self._recorder.add(Event(ns=ns, by="harness", name=MACHINE_ENDED, values=values))
            case kind if kind not in PASSED_OVER:
                raise Hostile("its journal contains invalid data")

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            self._recorder.add(event)

    def _hear_keeper(self, message: dict[str, Any]) -> None:
        kind = message.pop("is")
        rank = message.pop("rank", None)
        pid = message.pop("pid", None)
        ns = self._here(message.pop("ns"))
        if rank is None:
            return  # of its share alone: of the world, all of them would have to tell
        if kind in TOLD:
            self._states.told(kind, rank, pid)
        elif kind == "exited":
            self._states.exited[rank] = ns
        name = TOLD.get(kind, "rank.exited")
        self._recorder.add(Event(ns=ns, by="server", rank=rank, pid=pid, name=name, values=message))

    def _here(self, ns: Any) -> int:
        share = self._share
        if type(ns) is not int:
            raise Hostile("it reported no time")
        return told_here(
            ns, ahead=share.ahead, within=share.within, begun=share.begun, now=share.ended
        )

    def late(self) -> Late:
        """Return what of it was not heard in time; all that was heard has to be there again."""
        self._recorder.collect(
            self._scratch, states=self._states, begun=self._share.begun, stacks=False
        )
        captured = self._recorder.capture(self._states)
        heard = self._share.heard()
        late = list[Event]()
        for event in captured.events:
            key = _key(event)
            if heard[key] > 0:
                heard[key] -= 1
            else:
                late.append(
                    event._replace(ns=min(max(event.ns, self._share.begun), self._share.ended))
                )
        if +heard:
            raise Hostile(
                f"it no longer reports {sum((+heard).values())} of the events that it reported"
                " during the run"
            )
        return Late(
            events=tuple(late),
            loaded=dict(captured.loaded),
            why=self._why,
            messages=self._count,
            whole=self._last in LAST,
        )


def _key(event: Event) -> tuple[JSON, ...]:
    """Return an event without its time, which is set by the clock of who heard it."""
    return event.rank, event.by, event._replace(ns=0).line()
