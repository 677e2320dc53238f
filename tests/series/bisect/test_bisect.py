"""`rankproof lab bisect` over an index of tiny wheels."""

from __future__ import annotations

import pytest
from tests.series.bisect.conftest import WITH_CONTROL, Bisect, Offer


@pytest.mark.whole
def test_try(bisect: Bisect, offer: Offer) -> None:
    """x."""
    ran = bisect("1.0", "1.4", env=offer())
    print(ran.out, ran.err)
    ran = bisect("1.4", "1.9", env=offer.__self__ if False else {"x": "y"}) if False else ran
    assert ran.code == 0
