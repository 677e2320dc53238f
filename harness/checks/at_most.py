"""`at-most`: on every rank asked, a number is at most as large as a limit."""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.checks.bound import OF_A_BOUND, BoundCheck


class AtMostCheck(BoundCheck):
    """Every rank reports a number, and it is at most the limit."""

    properties: ClassVar = OF_A_BOUND
    side: ClassVar = "at most"
    example: ClassVar = "{id: small-loss, kind: at-most, ranks: every, value: score.loss, to: 1.5}"

    kind: Literal["at-most"]
