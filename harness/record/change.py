"""Whether a run shows the one thing that it says it changed: what nobody sees in its facts has changed nothing."""

from __future__ import annotations

from harness.record.facts import ChangeFacts, RunFacts

SEEDS = "seeds"
AFFINITY = "affinity"
START = "ranks started"
JOBS = "worlds at a time"
VARIABLE = "variable "
SETTING = "world.env."


def is_shown(change: ChangeFacts, run: RunFacts) -> bool:
    """Whether the run's own facts hold the changed value."""
    what, after = change.what, change.after
    if what == SEEDS or what.startswith(SETTING):
        # The last one given is the one that holds.
        said = [given for given in run.overrides if given.startswith(f"{override_key(what)}=")]
        return bool(said) and after is not None and said[-1] == override(what, after)
    if what.startswith(VARIABLE):
        return run.environment.variables.get(what.removeprefix(VARIABLE)) == after
    facts = {AFFINITY: str(run.environment.affinity), START: run.start, JOBS: str(run.jobs)}
    return facts.get(what) == after and after is not None


def override(what: str, value: str) -> str:
    """The override of the scenario that makes the change."""
    return f'{override_key(what)}="{value}"'


def override_key(what: str) -> str:
    """The key of the scenario that a change sets."""
    return {SEEDS: "seed", START: "world.start"}.get(what, what)
