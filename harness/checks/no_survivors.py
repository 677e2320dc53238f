"""`no-survivors`: when the ranks had ended, no process of theirs was left."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from harness.checks.check import NO_VALUE, Check, FailsAt
from harness.checks.finding import Finding
from harness.history import MACHINE_LOST, History


class NoSurvivorsCheck(Check):
    """No process of the world is left after it ended."""

    properties: ClassVar = replace(NO_VALUE, wrong=FailsAt.WORLD_END, missing=FailsAt.WORLD_END)
    example: ClassVar = "{id: nobody-left, kind: no-survivors}"

    kind: Literal["no-survivors"]

    def judge(self, history: History) -> Finding:
        """Nobody having looked is not the same as nobody being there."""
        looked = history.served(None, "world.survivors")
        if not looked:
            lost = history.noted(MACHINE_LOST)
            if not lost:
                return Finding(check=self.id, kind=self.kind, reason="nobody looked for survivors")
            values = lost[0].event.values
            reason = (
                f"machine {values.get('machine')} was lost ({values.get('why')}), so survivors"
                " could not be counted"
            )
            return Finding(check=self.id, kind=self.kind, reason=reason, line=lost[0].line)
        count = looked[0].event.values.get("count")
        reason = "" if count == 0 else f"{count} processes were left when the ranks had ended"
        return Finding(check=self.id, kind=self.kind, reason=reason, line=looked[0].line)
