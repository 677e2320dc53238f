"""`hub`: the scenario's hub answers some of the rank's requests otherwise than it should.

Proof: the hub's own log. A rule for each client is proved by the rank's own requests that it
struck. A rule that counts all clients together, or strikes by chance, may strike a rank's peers
alone: then their requests prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from harness.faults import proof
from harness.faults.fault import Fault, FaultProperties
from harness.faults.proof import Proof, not_proved
from harness.faults.world_control import WorldControl
from harness.forms.model import Line
from harness.history import History, Seen, all_hub_requests, hub_log_flaw, hub_requests
from harness.hub import request, rules


class HubFault(Fault):
    """The scenario's hub answers some requests of the rank otherwise than it should."""

    does: ClassVar = "answers some of the rank's requests to the scenario's hub with a fault"
    needs: ClassVar = (
        "a hub in the scenario; a hub fault for only certain ranks makes every rank of the world"
        " start fresh"
    )
    properties: ClassVar = FaultProperties(
        needs_a_gate=False, inside=False, ends_rank=False, needs_a_hub=True
    )
    effect: ClassVar = "breaking"
    example: ClassVar = (
        "{id: no-config, kind: hub, ranks: [1], role: [tokenizer_config.json], answer: {kind:"
        " missing}}"
    )

    kind: Literal["hub"]
    role: request.Roles = Field(
        ("any",), description="What is requested: model_info, tree, tokenizer.json, … or any."
    )
    method: rules.Methods = Field(("HEAD", "GET"), description="The affected methods.")
    repository: Line | None = Field(
        None, description="The affected repositories; * matches any text."
    )
    path: Line | None = Field(None, description="The affected files; * matches any text.")
    answer: rules.WrongAnswer = Field(
        description="What the hub answers instead, as in a file of rules of `rankproof lab hub`."
    )
    when: rules.When = Field(
        rules.When(),
        description="Which of the matching requests are affected (default: all).",
    )

    def rule(self, *, clients: tuple[str, ...] | None) -> rules.Rule:
        """Make the hub's rule, for these clients or for all."""
        return rules.Rule(
            id=self.id,
            role=self.role,
            method=self.method,
            repository=self.repository,
            path=self.path,
            clients=clients,
            answer=self.answer,
            when=self.when,
        )

    def description(self) -> str:
        requests = " or ".join(self.role) if "any" not in self.role else "whatever they ask for"
        which = " ".join(part for part in (self.repository, self.path) if part)
        limits = ", ".join(
            f"{name} {value[0]} to {value[1]}" if isinstance(value, tuple) else f"{name} {value}"
            for name, value in self.when.model_dump(exclude_none=True).items()
        )
        answer = self.answer.model_dump(exclude_none=True, exclude_defaults=True, by_alias=True)
        details = ", ".join(f"{name} {value}" for name, value in answer.items() if name != "kind")
        return (
            f"{requests}{' of ' + which if which else ''}: {'/'.join(self.method)} answered by"
            f" {self.answer.kind}"
            f"{' (' + details + ')' if details else ''}{', ' + limits if limits else ''}"
        )

    def strike(self, world: WorldControl, *, rank: int, done: Callable[[], None]) -> None:
        """It is in force as long as the rank lives: the hub holds the rule from its start."""

    def proof(self, history: History, *, rank: int) -> Proof:
        """Requests in the hub's log that the rule struck."""
        struck = proof.noted(history, proof.STRUCK, fault=self.id, rank=rank)
        if struck is None:
            return proof.missed(history, rank=rank, what="the harness did not see it start")
        if why := hub_log_flaw(history):
            return not_proved(why, (struck.line,))
        requests = hub_requests(history, rank)
        if hit := _hit(requests, self.id):
            shown = f"{len(hit)} of its {len(requests)} requests, the first: {_shown(hit[0])}"
            return Proof(proved=True, description=shown, lines=(struck.line, hit[0].line))
        when = self.when
        if (when.shared or when.probability is not None) and (
            peers := _hit(all_hub_requests(history), self.id)
        ):
            shown = (
                f"none of its {len(requests)} requests, {len(peers)} of its peers', the first:"
                f" {_shown(peers[0])}"
            )
            return Proof(proved=True, description=shown, lines=(struck.line, peers[0].line))
        return proof.missed(
            history, rank=rank, what=f"none of its {len(requests)} requests to the hub was affected"
        )


def _hit(requests: Sequence[Seen], fault: str) -> list[Seen]:
    named = ((seen, seen.event.values.get("rules")) for seen in requests)
    return [seen for seen, rules in named if isinstance(rules, list | tuple) and fault in rules]


def _shown(seen: Seen) -> str:
    values = seen.event.values
    status = values.get("status")
    return (
        f"{values.get('method')} {values.get('path')} got"
        f" {status if status is not None else values.get('end')}"
    )
