"""The fixtures of the runs."""

from tests.kit.commands import rankproof, scenario

__all__ = ["rankproof", "scenario"]
