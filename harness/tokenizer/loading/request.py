"""One request of a load, as the account of a load and the errors hold it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it went.

    Attributes:
        method: the HTTP method; a load only uses GET.
        path: path and query on the hub, or the whole address after a redirect to another host.
        attempt: 1 for the first time this was asked.
        status: the answer's status; None where no answer came.
        received: bytes of the body.
        seconds: from connecting to the last byte.
        problem: what went wrong, in words; None if nothing did.
    """

    method: str
    path: str
    attempt: int
    status: int | None
    received: int
    seconds: float
    problem: str | None
