"""`requests`: how many requests each rank's process made to the scenario's hub, as the hub logged
them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from harness.checks.check import NO_VALUE, RankCheck
from harness.checks.finding import Finding, RankFinding
from harness.forms.problem import complaint
from harness.history import HUB_END, History, hub_log_flaw, hub_requests
from harness.hub.request import Roles


class RequestsCheck(RankCheck):
    """Every rank's process made the required number of requests to the scenario's hub, according to
    the hub's own log.
    """

    properties: ClassVar = replace(NO_VALUE, needs_a_hub=True)
    example: ClassVar = (
        "{id: one-download, kind: requests, ranks: nonzero, role: [tokenizer.json], at_most: 0}"
    )

    kind: Literal["requests"]
    role: Roles = Field(
        ("any",), description="Which requests count: model_info, tree, tokenizer.json, … or any."
    )
    at_least: Annotated[int, Field(ge=0)] = Field(0, description="The minimum number of them.")
    at_most: Annotated[int, Field(ge=0)] | None = Field(
        None, description="The maximum number of them."
    )

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.at_most is None and self.at_least == 0:
            raise complaint(
                "passes for any number of requests; give at_most, or an at_least of 1 or more"
            )
        if self.at_most is not None and self.at_most < self.at_least:
            raise complaint("is below at_least, so no number can pass", at="at_most")
        return self

    def judge(self, history: History) -> Finding:
        """Judge the ranks by the hub's log, if it is whole."""
        if why := hub_log_flaw(history):
            return Finding(check=self.id, kind=self.kind, reason=why)
        return super().judge(history)

    def judge_rank(self, history: History, rank: int) -> RankFinding:
        every = "any" in self.role
        counted = [
            seen
            for seen in hub_requests(history, rank)
            if every or seen.event.values.get("role") in self.role
        ]
        count = len(counted)
        most = self.at_most
        end = history.noted(HUB_END)[0].line
        missing = count < self.at_least
        if most is not None and count > most:
            reason = f"{count} requests, but at most {most} are allowed"
            line = counted[most].line
        elif missing:
            reason = f"{count} requests, but at least {self.at_least} are required"
            line = end
        else:
            reason = ""
            line = counted[0].line if counted else end
        return RankFinding(
            rank=rank, passed=not reason, observed=count, reason=reason, line=line, missing=missing
        )
