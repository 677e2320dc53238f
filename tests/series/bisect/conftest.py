"""What the tests of a bisect have in common: an index of `wobbly`, and a bisect of it."""

from tests.series.bisect.wobbly import bisect, offer, rankproof, scenario

__all__ = ["bisect", "offer", "rankproof", "scenario"]
