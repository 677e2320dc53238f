"""`at-most`: on every rank asked, a number is at most as large as a limit."""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.checks.bound import BoundCheck
from harness.checks.check import OF_A_VALUE


class AtMostCheck(BoundCheck):
    """Every rank reports a number, and it is at most the limit."""

    properties: ClassVar = OF_A_VALUE
    side: ClassVar = "at most"
    example: ClassVar = "{id: small-loss, kind: at-most, ranks: every, value: score.loss, to: 1.5}"

    kind: Literal["at-most"]
