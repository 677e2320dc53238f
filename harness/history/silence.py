"""How long a world is silent while all is well: what the stillness of a hang has to be longer than."""

from __future__ import annotations

from harness.history import History

LEAST = 2.0
TIMES = 10
"""A window is at least 2 s, and ten times the longest silence of the cell's candidate trials."""
# What ends a silence that the harness itself kept a rank in: a gate that it held, a rank that it had stopped.
KEPT = frozenset({"gate.opened", "rank.continued"})


def longest_silence(history: History) -> float:
    """The longest time, in seconds, in which no rank emitted anything or ended, from the start line to the last end."""
    if not (started := history.noted("world.start")):
        return 0.0
    last, longest = started[0].event.ns, 0
    for seen in history.seen:
        event = seen.event
        if event.ns < last or (event.by != "rank" and event.name not in KEPT and event.name != "rank.exited"):
            continue
        if event.name not in KEPT:
            longest = max(longest, event.ns - last)
        last = event.ns
    return longest / 1e9


def window(silence: float) -> float:
    """For how long a world must stand still, in seconds, where its candidate was silent for `silence` seconds."""
    return max(LEAST, TIMES * silence)
