"""Strict JSON: text with one meaning, the same to every reader. Standard library only.

`json.loads` takes more than JSON: the last of two equal keys, NaN and infinities, other encodings,
any depth.
"""

from __future__ import annotations

import json
import math
from typing import Any, TypeAlias

JSON: TypeAlias = Any
# Deep enough for any fact; shallow enough that whoever reads a stranger's values never runs out of
# stack.
DEPTH_LIMIT = 64
TOO_DEEP = f"not strict JSON: nested deeper than {DEPTH_LIMIT}"


class NotStrict(ValueError):
    """Refusal of a text that is not strict JSON; the message says why."""


def strict_json(text: str | bytes, *, constants: bool = False) -> JSON:
    """Parse strict JSON.

    Args:
        text: the document; bytes are UTF-8.
        constants: allow NaN and infinities, which Python writes and published model configurations
            hold.

    Raises:
        NotStrict: a key that stands twice in one object, NaN or an infinity, a number too large for
            a double, invalid UTF-8, nesting deeper than 64, or not JSON at all.
    """
    try:
        # json.loads would guess the encoding of bytes, and let half a surrogate pass.
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        value = _WITH_CONSTANTS.decode(text) if constants else _decoded(text)
    except NotStrict:
        raise
    except ValueError as error:
        raise NotStrict(f"not JSON: {str(error)[:200]}") from None
    except RecursionError:
        raise NotStrict(TOO_DEEP) from None
    if text.count("[") + text.count("{") > DEPTH_LIMIT:
        _limit_depth(value)
    return value


def _object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotStrict(
                    f"not strict JSON: the key {key[:80]!a} appears twice in one object"
                )
            seen.add(key)
    return members


def _constant(word: str) -> JSON:
    raise NotStrict(f"not strict JSON: {word} is not a JSON number")


def _number(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise NotStrict(f"not strict JSON: {word[:40]} is too large for a double")
    return number


# Made once: a verifier reads tens of thousands of lines.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_number
)
_WITH_CONSTANTS = json.JSONDecoder(object_pairs_hook=_object)
_scan = _DECODER.scan_once  # type: ignore[attr-defined]  # missing from the stubs


def _decoded(text: str) -> JSON:
    """Return what `_DECODER.decode` gives, without its three steps in Python where the value fills
    the whole text.
    """
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return _DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


def _limit_depth(value: JSON) -> None:
    # Layer by layer, not by calling itself: a hostile text must not run the stack out.
    layer = [value]
    for _ in range(DEPTH_LIMIT + 1):
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not layer:
            return
    raise NotStrict(TOO_DEEP)
