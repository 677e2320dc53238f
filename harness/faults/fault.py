"""Base classes of every kind of fault: its options as the scenario gives them, its properties, what
it does, and its proof.

A fault has five parts. In the harness: `prepare` changes the launch, `strike` acts on the world
through its control object, `undo` takes it back. In the rank: `inside`, the order that the function
of the same name carries out, in the file that `inside_file` names. For whoever judges: `proof`, a
pure function of the trial's events. So this package knows no process. A kind is a subclass
with the field `kind: Literal["NAME"]`, in a file of this package or named by an entry point.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

from pydantic import Field

from harness.faults.proof import Landing, Proof, landing
from harness.faults.world_control import L, WorldControl
from harness.forms.model import Event, Id, Model, Name, Ranks
from harness.forms.problem import Draft, Problem
from harness.forms.strict_json import JSON
from harness.history import History

Effect = Literal["masked", "silent", "breaking", "stopping"]
# What each effect means, for a reader.
EFFECTS: Mapping[Effect, str] = {
    "masked": "the system compensates: the result must be correct, but may be late",
    "silent": "nothing below the application can detect it",
    "breaking": "the affected code raises, aborts, hangs, or does not notice",
    "stopping": "no step that needs the affected part completes",
}
FOR = "How long, with a unit: 200ms, 60s."


@dataclass(frozen=True, kw_only=True)
class FaultProperties:
    """What a kind of fault is: rules ask for the property, never for the kind.

    None has a default, so that whoever declares them decides each.

    Attributes:
        needs_a_gate: strikes where the rank emits `at`, which blocks it; else the fault strikes as
            the rank starts.
        inside: our runtime carries it out inside a rank of Python.
        ends_rank: may end the rank, whose end is meant then: it fails nobody else.
        needs_a_hub: is done by the scenario's hub.
    """

    needs_a_gate: bool
    inside: bool
    ends_rank: bool
    needs_a_hub: bool


# A fault that strikes at an event, by what the harness or the rank itself does, and leaves the rank
# alive.
FROM_OUTSIDE = FaultProperties(needs_a_gate=True, inside=False, ends_rank=False, needs_a_hub=False)
FROM_INSIDE = replace(FROM_OUTSIDE, inside=True)


class Place(NamedTuple):
    """Where a fault strikes its ranks: two faults at one place of a rank would hide each other.

    Attributes:
        key: the key of the fault that says it.
        names: the places; none where faults of the kind never meet.
        meeting: what a second fault there does, in words.
    """

    key: str
    names: tuple[str, ...]
    meeting: str


class Fault(Model):
    """One fault of one scenario.

    Attributes:
        does: what faults of this kind do, one line.
        needs: what a scenario must have for it.
        properties: what it is: its own, or those of its family.
        effect: what it does to a subject that works; None is a kind that does not say.
            `harness.faults.fault.EFFECTS`.
        example: a fault of this kind as a scenario writes it, in YAML.
        over_machines: whether ranks on several machines can be struck by it. Each kind says it in
            its own class: what a kind inherits does not count, and one that says nothing is refused
            there. `is_over_machines` asks.
        test_machines: why it can be done to test machines alone (`--hosts test:3`), with what to
            do; empty where it is not. A cell with such a fault is skipped everywhere else.
        inside_file: the file whose function `inside` carries out the order in a rank; it imports
            the standard library and `harness.rank` alone.
    """

    does: ClassVar[str]
    needs: ClassVar[str]
    properties: ClassVar[FaultProperties]
    effect: ClassVar[Effect | None] = None
    example: ClassVar[str]
    over_machines: ClassVar[bool] = False
    test_machines: ClassVar[str] = ""
    inside_file: ClassVar[Path | None] = None

    id: Id = Field(description="Name of the fault, unique among the faults.")
    ranks: Ranks = Field(description="The affected ranks: every, nonzero, or a list.")
    arm: Literal["candidate", "control"] | None = Field(
        None,
        description=(
            "The only affected arm, for upstream findings and self-tests; in a claim, both arms"
            " have the same faults."
        ),
    )
    service: Name | None = Field(
        None,
        description=(
            "A service whose processes are affected instead of ranks; ranks are then the numbers of"
            " its processes, and the event in at may come from any rank."
        ),
    )
    if TYPE_CHECKING:
        kind: str

    @property
    def event(self) -> str | None:
        """Event of the rank at which it strikes; None where it strikes as the rank starts."""
        return None

    @property
    def duration(self) -> float | None:
        """For how long it is in force, in seconds: its option `for`; None where nothing limits
        it.
        """
        seconds: float | None = getattr(self, "for_", None)
        return seconds

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables that it sets in its ranks."""
        return {}

    @property
    def place(self) -> Place:
        """Where it strikes."""
        return Place("id", (), "")

    @staticmethod
    def refusal() -> str:
        """Say why it cannot run on this machine; empty where it can."""
        return ""

    @classmethod
    def is_over_machines(cls) -> bool:
        """Tell whether this very kind says that it strikes ranks on several machines."""
        return vars(cls).get("over_machines") is True

    @classmethod
    def lint(cls, faults: Mapping[int, Self], draft: Draft) -> Iterator[Problem]:
        """Yield the problems of a scenario's faults of this kind, by their place in the list."""
        del faults, draft
        yield from ()

    def description(self) -> str:
        """Describe what is done to a rank."""
        raise NotImplementedError

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Return the launch as this fault needs it."""
        del ranks
        return launch

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """Act on a rank, from the world's own thread; `done` is to be called when it is to be taken
        back.
        """
        del world, rank
        done()

    def inside(self) -> Mapping[str, JSON] | None:
        """Return the order for the rank itself, which it gets when its gate opens, or None.

        With it go the fault's id and kind, the rank, and the seed of the trial, as text.
        """
        return None

    def undo(self, world: WorldControl, *, rank: int) -> None:
        """Take it back. Called once for every strike, at the end of the world if not before."""

    def proof(self, history: History, *, rank: int) -> Proof:
        """Work out from the events whether it took effect.

        Never raises, whatever the events are.
        """
        raise NotImplementedError


class FaultAtEvent(Fault):
    """A fault that strikes where the rank emits an event, which blocks it until the fault has
    struck.
    """

    at: Event = Field(
        description=(
            "The event at which the fault strikes; emitting it blocks the rank until the fault has"
            " struck."
        )
    )

    @property
    def event(self) -> str | None:
        return self.at

    @property
    def place(self) -> Place:
        return Place("at", (self.at,), "strikes at the same event")

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """Make the event a gate."""
        del ranks
        return launch.gated(at=self.at)

    def proof(self, history: History, *, rank: int) -> Proof:
        landed = landing(history, fault=self.id, at=self.at, rank=rank)
        return landed if isinstance(landed, Proof) else self.proof_after(landed, history, rank=rank)

    def proof_after(self, landed: Landing, history: History, *, rank: int) -> Proof:
        """Work out from the events what came of it where it struck."""
        raise NotImplementedError
