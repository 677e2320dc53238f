"""What a signer can do to a run's folder.

Importing the modules here registers their operators, in this order.
"""

from tests.run.mutations import events, sources, times, counts, records, consistent  # isort: skip
from tests.run.mutations.operators import (
    DIFFERENT,
    OLD,
    OPERATORS,
    SCENARIO,
    SUBJECT,
    Copy,
    Operator,
    read,
    write,
)

__all__ = [
    "DIFFERENT",
    "OLD",
    "OPERATORS",
    "SCENARIO",
    "SUBJECT",
    "Copy",
    "Operator",
    "consistent",
    "counts",
    "events",
    "read",
    "records",
    "sources",
    "times",
    "write",
]
