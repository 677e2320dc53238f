"""FallbackThreshold: from how many failures on a pipeline is given up, worked out from what is
accepted.
"""

from __future__ import annotations

import math
from collections import deque

from .problem import Misused
from .records import FailureClass


class FallbackThreshold:
    """When failures are too many for chance: the number that a good pipeline would reach in one of
    a million windows.

    The threshold follows from what is accepted: with a failure rate of `acceptable` a token, it is
    the smallest number of failures in `window` tokens whose probability is below `error`.

    Args:
        acceptable: failures for each token that are put up with; above 0, below 1.
        window: tokens that are looked back.
        error: how often a pipeline that is as good as accepted may fall back, for each window.

    Attributes:
        failures: the threshold.

    Raises:
        Misused: a number is out of its range, or no number of failures in so short a window is rare
            enough.
    """

    def __init__(
        self, *, acceptable: float = 1e-3, window: int = 1000, error: float = 1e-6
    ) -> None:
        if not (0 < acceptable < 1 and 0 < error < 1 and window > 0):
            raise Misused(
                f"a rate of {acceptable}, an error of {error} and a window of {window} give no"
                " threshold"
            )
        self._window, self._seen = window, deque[int]()
        enough = _least(window, acceptable, error)
        if enough > window:
            raise Misused(
                f"{window} failures in {window} tokens are to be expected at a rate of"
                f" {acceptable}: look further"
            )
        self.failures = enough

    def failed(self, *, token: int, failure: FailureClass = FailureClass.TRANSIENT) -> bool:
        """Count a failure; whether it is time to fall back. Of catastrophic ones one is enough.

        Args:
            token: how many tokens were made before it, of all streams: a number that never falls.
            failure: its class.
        """
        self._seen.append(token)
        while self._seen[0] <= token - self._window:
            self._seen.popleft()
        return failure is FailureClass.CATASTROPHIC or len(self._seen) >= self.failures


def _least(trials: int, rate: float, error: float) -> int:
    """Return the least number that so many or more of independent trials have with a probability
    below the error.
    """
    whole = math.lgamma(trials + 1)
    log = math.log(rate)
    other = math.log1p(-rate)
    tail = 0.0
    for k in range(trials, 0, -1):
        tail += math.exp(
            whole
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + k * log
            + (trials - k) * other
        )
        if tail >= error:
            return k + 1
    return 1
