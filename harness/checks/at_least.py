"""`at-least`: on every rank asked, a number is at least as large as a limit."""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.checks.bound import BoundCheck
from harness.checks.check import OF_A_VALUE


class AtLeastCheck(BoundCheck):
    """Every rank reports a number, and it is at least the limit."""

    properties: ClassVar = OF_A_VALUE
    side: ClassVar = "at least"
    example: ClassVar = (
        "{id: enough-tokens, kind: at-least, ranks: every, value: decode.count, to: 4}"
    )

    kind: Literal["at-least"]
