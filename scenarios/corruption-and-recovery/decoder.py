"""A decoder in integers: every token depends on every byte of every hidden state before it, on
every machine alike.

A bit that flips anywhere changes all that follows. A stage keeps a cache, as a transformer does, so
that one that begins again has to be given its past.
"""

import numpy as np

WIDTH, WORDS, LAYERS = 1024, 32_000, 4
PRIME = 2_147_483_647


class Layers:
    """Some layers: each mixes the hidden state with what it has seen of the stream so far.

    Args:
        first, last: the layers, the last one exclusive.
    """

    def __init__(self, first, last):
        self._numbers = range(first, last)
        self._seen = {number: np.zeros(WIDTH, np.int64) for number in self._numbers}
        self._before = self._seen

    def __call__(self, state):
        self._before = dict(self._seen)
        for number in self._numbers:
            self._seen[number] = (self._seen[number] * 31 + state) % PRIME
            state = (np.roll(state, 1) * (2 * number + 3) + self._seen[number] + number) % PRIME
        return state

    def back(self):
        """Forget the last hidden state, once."""
        self._seen = self._before


def embed(token):
    """The hidden state of a token, `[WIDTH]` int64 below PRIME.

    One that is not a word is taken for another one.
    """
    return (np.arange(1, WIDTH + 1, dtype=np.int64) * (token % WORDS * 2 + 1) * 40_503) % PRIME


def choose(state):
    """The next token: a digest of the whole hidden state."""
    return int(np.dot(state % 65_521, np.arange(1, WIDTH + 1)) % PRIME % WORDS)


def share(rank, size):
    """First and last layer of a stage."""
    return LAYERS * rank // size, LAYERS * (rank + 1) // size
