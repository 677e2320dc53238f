"""The fixtures of the runs."""

from tests.run.conftest import rankproof, scenario

__all__ = ["rankproof", "scenario"]
