"""Names of distributions. Standard library only: ranks use it too."""

from __future__ import annotations

import re


def normal(name: str) -> str:
    """The one name of a distribution, whichever way it is written (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
