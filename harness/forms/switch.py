"""Variables of the environment that are on or off: one reading for all of them.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

ON = frozenset({"1", "on", "true", "yes"})
OFF = frozenset({"", "0", "off", "false", "no"})


def switch(name: str, environment: Mapping[str, str] | None = None) -> bool:
    """Whether a variable is on: 1, on, true or yes, in any case.

    Off is 0, off, false, no, nothing, or not set.

    Raises:
        ValueError: it is something else; a word that nobody understands must not become either of
            the two.
    """
    value = (os.environ if environment is None else environment).get(name, "").strip()
    if value.lower() in ON:
        return True
    if value.lower() in OFF:
        return False
    raise ValueError(
        f"{name} is {value[:40]!r}: write 1, on, true or yes, or else 0, off, false, no or nothing"
    )
