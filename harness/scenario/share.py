"""Shares of trials, as a scenario writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from harness.forms.problem import closest, complaint
from harness.forms.units import NUMBER, written

SHARE_PATTERN = rf"^(every|>={NUMBER}%)$"


@dataclass(frozen=True, slots=True)
class Share:
    """In how many of its trials the control must fail: all of them, or at least a share (for a race)."""

    every: bool
    at_least: float
    """0 < at_least <= 1; 1.0 where ``every``."""

    def __str__(self) -> str:
        return "every" if self.every else f">={self.at_least * 100:.10g}%"


EVERY_TRIAL = Share(every=True, at_least=1.0)


def share(value: Any) -> Share:
    """Read "every" or ">=20%"."""
    if value == "every":
        return EVERY_TRIAL
    if isinstance(value, str) and (match := re.fullmatch(rf">=({NUMBER})%", value)):
        number = Decimal(match[1])
        if 0 < number <= 100:
            return Share(every=False, at_least=float(number / 100))
    bare = re.fullmatch(rf"[>= ]*({NUMBER}) ?%", value) if isinstance(value, str) else None
    hint = f">={bare[1]}%" if bare else closest(value, ["every"])
    raise complaint('must be every, or a share of more than 0% and at most 100% like ">=20%"', suggestion=hint)


ShareField = Annotated[Share, *written(share, {"type": "string", "pattern": SHARE_PATTERN})]
