"""What ranks reported to the checks, kept so that two runs can be held against each other at the level declared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from harness.checks import Check
from harness.checks.check import ValueCheck
from harness.checks.finding import canonical
from harness.forms.digest import sha256
from harness.forms.strict_json import JSON
from harness.history import History
from harness.scenario import Scenario

SHORT = 200
# A numeric value has to be kept as it is; one that is longer can only be compared exactly.
LONGEST = 16 * 1024
DIGEST = "sha256:"


def numbers_of(scenario: Scenario, history: History) -> dict[str, str]:
    """What a trial's ranks reported, by check: canonical JSON of rank to values, or its digest where that is long."""
    numbers = {}
    for check in scenario.checks:
        if isinstance(check, ValueCheck) and check.is_compared_again:
            values = {
                str(rank): [value for value, _ in history.values(rank, check.event, check.key)]
                for rank in check.ranks.of(history.size)
            }
            text = canonical(list(_tokens(values)) if check.level == "token-exact" else values)
            limit = LONGEST if check.level == "numeric" else SHORT
            numbers[check.id] = text if len(text) <= limit else DIGEST + sha256(text.encode())
    return numbers


def same_numbers(check: Check, one: str, other: str) -> bool:
    """Whether two trials reported the same, at the level that the check declares."""
    if one == other:
        return True
    if not isinstance(check, ValueCheck) or check.level != "numeric":
        return False
    if one.startswith(DIGEST) or other.startswith(DIGEST):
        return False
    return _close(json.loads(one), json.loads(other), rtol=check.rtol, atol=check.atol)


def _tokens(value: JSON) -> Iterator[int | str]:
    """The whole numbers of a value, in order, with the structure they stand in."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield f"{key}:"
            yield from _tokens(value[key])
    elif isinstance(value, list):
        yield "["
        for item in value:
            yield from _tokens(item)
        yield "]"
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def _close(one: JSON, other: JSON, *, rtol: float, atol: float) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key], rtol=rtol, atol=atol) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_close(left, right, rtol=rtol, atol=atol) for left, right in pairs)
    if _is_number(one) and _is_number(other):
        # As numpy.allclose: relative to the second value.
        return one == other or (math.isfinite(one - other) and abs(one - other) <= atol + rtol * abs(other))
    return canonical(one) == canonical(other)


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
