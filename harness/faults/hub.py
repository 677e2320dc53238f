"""`hub`: the scenario's hub answers some of the rank's requests otherwise than it should.

Proof: the hub's own log. A rule for each client is proved by the rank's own requests that it struck. A rule that counts
all clients together, or strikes by chance, may strike a rank's peers alone: then their requests prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import ClassVar

from harness.checks.history import History, Seen
from harness.checks.requests import incomplete, of_everybody, of_rank
from harness.faults import proof
from harness.faults.proof import Proof
from harness.faults.stage import L, Stage
from harness.scenario import HubFault


class Hub:
    """The hub holds the rule from its start; nothing is done to the rank itself."""

    does: ClassVar[str] = "answers some of the rank's requests to the scenario's hub with a fault"
    needs: ClassVar[str] = "a hub in the scenario; one for certain ranks only makes every rank of the world start fresh"
    properties: ClassVar = HubFault.properties

    def __init__(self, options: HubFault) -> None:
        self._options = options

    @staticmethod
    def refusal() -> str:
        """It can run wherever ranks can."""
        return ""

    def told(self) -> str:
        """What is done, in words."""
        options = self._options
        asked = " or ".join(options.role) if "any" not in options.role else "whatever they ask for"
        which = " ".join(part for part in (options.repository, options.path) if part)
        limits = ", ".join(
            f"{name} {value[0]} to {value[1]}" if isinstance(value, tuple) else f"{name} {value}"
            for name, value in options.when.model_dump(exclude_none=True).items()
        )
        answer = options.answer.model_dump(exclude_none=True, exclude_defaults=True, by_alias=True)
        details = ", ".join(f"{name} {value}" for name, value in answer.items() if name != "kind")
        return (
            f"{asked}{' of ' + which if which else ''}: {'/'.join(options.method)} answered by {options.answer.kind}"
            f"{' (' + details + ')' if details else ''}{', ' + limits if limits else ''}"
        )

    def prepare(self, launch: L, *, ranks: Collection[int]) -> L:
        """The launch stays as it is: whoever starts the hub gives it the rule."""
        del ranks
        return launch

    def strike(self, stage: Stage, *, rank: int, done: Callable[[], None]) -> None:
        """It is in force as long as the rank lives."""

    def inside(self, *, fault: str) -> None:
        """Nothing is ordered from the rank."""

    def undo(self, stage: Stage, *, rank: int) -> None:
        """The hub ends with the world."""

    def proof(self, history: History, *, fault: str, rank: int) -> Proof:
        """Requests in the hub's log that the rule struck."""
        struck = proof.noted(history, proof.STRUCK, fault=fault, rank=rank)
        if struck is None:
            return proof.missed(history, rank=rank, what="the harness did not see it start")
        if why := incomplete(history):
            return Proof(proved=False, told=why, lines=(struck.line,))
        own = of_rank(history, rank)
        if hit := _hit(own, fault):
            told = f"{len(hit)} of its {len(own)} requests, the first: {_shown(hit[0])}"
            return Proof(proved=True, told=told, lines=(struck.line, hit[0].line))
        when = self._options.when
        if (when.shared or when.probability is not None) and (peers := _hit(of_everybody(history), fault)):
            told = f"none of its {len(own)} requests, {len(peers)} of its peers', the first: {_shown(peers[0])}"
            return Proof(proved=True, told=told, lines=(struck.line, peers[0].line))
        return proof.missed(history, rank=rank, what=f"none of its {len(own)} requests to the hub was struck")


def _hit(requests: Sequence[Seen], fault: str) -> list[Seen]:
    found = []
    for seen in requests:
        rules = seen.event.values.get("rules")
        if isinstance(rules, list | tuple) and fault in rules:
            found.append(seen)
    return found


def _shown(seen: Seen) -> str:
    values = seen.event.values
    status = values.get("status")
    return f"{values.get('method')} {values.get('path')} got {status if status is not None else values.get('end')}"
