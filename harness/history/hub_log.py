"""The log of a scenario's hub, as a trial's events hold it: who asked it for what, and whether it is whole."""

from __future__ import annotations

from collections.abc import Sequence

from harness.history import History, Seen

BEGIN, REQUEST, END = "hub.begin", "hub.request", "hub.end"


def of_rank(history: History, rank: int) -> Sequence[Seen]:
    """The requests that a rank's own process made."""
    return history.noted(REQUEST, rank)


def of_everybody(history: History) -> list[Seen]:
    """All requests of a trial, those of ranks' children and of strangers too."""
    return [seen for seen in history.seen if (seen.event.by, seen.event.name) == ("harness", REQUEST)]


def incomplete(history: History) -> str:
    """Why the hub's log of a trial is not whole; empty where it is."""
    end = history.noted(END)
    if not history.noted(BEGIN) or not end:
        return "the hub's log has no end" if history.noted(BEGIN) else "there was no hub"
    found, counted = len(of_everybody(history)), end[0].event.values.get("requests")
    return "" if found == counted else f"the hub counted {counted} requests, and its log has {found}"
