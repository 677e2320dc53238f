"""`no-survivors`: when the ranks had ended, no process of theirs was left."""

from __future__ import annotations

from harness.checks.finding import Finding
from harness.checks.history import History
from harness.scenario import NoSurvivorsCheck


def judge(check: NoSurvivorsCheck, history: History) -> Finding:
    """Judge one trial. Nobody having looked is not the same as nobody being there."""
    found = history.served(None, "world.survivors")
    if not found:
        return Finding(check=check.id, kind=check.kind, reason="nobody looked for survivors")
    count = found[0].event.values.get("count")
    reason = "" if count == 0 else f"{count} processes were left when the ranks had ended"
    return Finding(check=check.id, kind=check.kind, reason=reason, line=found[0].line)
