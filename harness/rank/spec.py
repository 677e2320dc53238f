"""Order for one rank: everything that its process needs to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.forms.strict_json import JSON
from harness.ledger.inside.book import DigestLevel

# Name of the folder that ranks share, next to their own.
SHARED = "shared"


@dataclass(frozen=True, kw_only=True)
class RankSpec:
    """Everything one rank needs to live.

    Travels as JSON, because a fresh rank is another interpreter.

    Attributes:
        rank: 0 <= rank < size.
        size: world size.
        backend: name of the backend whose group the rank joins.
        rendezvous: what the backend prepared for this rank (ports, descriptors); only the backend
            reads it.
        entry: `module:function` of the subject.
        folder: absolute path of the arm's staged code; the entry must come from there.
        arguments: keyword arguments of the entry (the arm's `with` and the cell's further axes).
        inputs: name to absolute path.
        seed: 64-bit seed of this rank in this trial.
        env: variables set in the rank after it was forked (not those read at import).
        gates: names of events that block the rank until the harness has answered.
        events_fd: descriptor that takes event lines.
        gates_fd: descriptor that answers gates.
        scratch: absolute path of a private folder of this rank, removed after the trial.
        world: the mark of its world, which it tells as it begins.
        reported: names of variables whose values the rank reports as it begins, in the event
            `fault.env`.
        inside: kind of fault to the file in which it acts inside a rank.
        group: the file that joins the backend's group.
        looks: the entry is only looked at: nothing is joined, and it is not called.
        distributions: in an environment of the arm's own, the packages whose versions the rank
            tells with what it has loaded; None in the harness's own.
        declared: normal names of distributions whose files the rank tells one by one: the
            repository declares them.
        differing: normal names of those whose files it tells in full beside, because they differ
            between the arms.
        tells_environment: whether the rank tells what it runs in, as its subject begins and ends.
        collective_timeout: seconds after which the backend gives up joining and each collective;
            None is its own bound.
        begun: when the rank's server started, in nanoseconds since 1970: what is newer was made by
            the run itself.
        on_host: whether it is on a test host, whose name it tells as it begins.
        observe: whether the rank writes a ledger of its collective calls.
        digests: whether it digests what they send and receive: `given`, where nothing is evaluated
            for it, or `eager`.
        recorder: the quick way of its ledger, compiled for the harness's interpreter; empty where
            it could not be.
    """

    rank: int
    size: int
    backend: str
    rendezvous: Mapping[str, JSON]
    entry: str
    folder: str
    arguments: Mapping[str, JSON]
    inputs: Mapping[str, str]
    seed: int
    env: Mapping[str, str]
    gates: tuple[str, ...]
    events_fd: int
    gates_fd: int
    scratch: str
    world: str = ""
    reported: tuple[str, ...] = ()
    inside: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    distributions: tuple[str, ...] | None = None
    looks: bool = False
    declared: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    begun: int = 0
    on_host: bool = False
    tells_environment: bool = False
    collective_timeout: float | None = None
    observe: bool = False
    digests: DigestLevel = ""
    recorder: str = ""

    @property
    def shared(self) -> str:
        """Absolute path of the folder that all ranks of the world share, removed after the
        trial.
        """
        return str(Path(self.scratch).with_name(SHARED))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RankSpec:
        """Read back what `dataclasses.asdict` gave."""
        names = ("gates", "reported", "distributions", "declared", "differing")
        lists = {name: tuple(values[name]) for name in names if values.get(name) is not None}
        return cls(**{**values, **lists})
