"""The stages of a pipeline: a ring in which hidden states go up and tokens come back."""

import os
import signal

import numpy as np
from carriers import HEAD
from decoder import PRIME, WORDS, Layers, choose, embed, share


class WrongToken(Exception):
    """Raised on rank 0 for a token that its check refuses; `result` is what the check found."""

    def __init__(self, result):
        super().__init__(result.words)
        self.result = result


class Stage:
    """One stage of a ring: hidden states go up the ranks, the last one's token comes back to rank
    0.

    Each message says under which attempt it was made, at which position, and of which token, so
    that every rank knows all tokens, and what is left of an earlier attempt is passed over.

    Args:
        rank, size: which stage this is, of how many.
        lines: what carries its messages.
        tokens: how many to generate.
        told: called with each position.
        check: on rank 0, called with each token and its position; gives a ValidationResult.
        chosen: on the last rank, called with the hidden state and its position; gives the token.
        strict: pass over what does not fit the cache: it was for a stage that has ended.
    """

    # Eight arguments: a stage's place (2), what it does (2), and what scenarios put in.
    def __init__(self, *, rank, size, lines, tokens, told, check=None, chosen=None, strict=False):
        self.rank, self.size, self.lines, self.tokens, self.told = rank, size, lines, tokens, told
        self.check = check
        self.strict = strict
        self.chosen = chosen or (lambda state, _position: choose(state))
        self.attempt, self.known = 0, [1]
        self.begin(0)

    def begin(self, attempt):
        """Forget the cache: what follows comes from position 0 on."""
        self.attempt, self.at = attempt, 0
        self.layers = Layers(*share(self.rank, self.size))

    def lead(self, until=None):
        """Rank 0: feed what is known, and then what comes back; up to a position, or to the end."""
        while self.at < (self.tokens if until is None else until):
            self._step()
        if until is None:
            # So that all know the last one.
            self._send(self.known[self.at], self.layers(embed(self.known[self.at])))

    def again(self, attempt):
        """Rank 0: have the token at this position made again, by stages that keep their caches."""
        self.attempt = attempt
        self.layers.back()
        self._step()

    def _step(self):
        token = self.known[self.at]
        self.told(self.at)
        self._send(token, self.layers(embed(token)))
        _, position, token, _ = self._receive()
        if position == self.at:
            self._took(token)

    def follow(self):
        """Any other rank: take, compute, hand on."""
        while True:
            attempt, position, token, data = self._receive()
            if position == 0:
                self.begin(attempt)
            elif attempt > self.attempt and position == self.at - 1:
                self.layers.back()
            elif self.strict and position != self.at:
                continue
            self.attempt = attempt
            self.told(position)
            self.known[position:] = [token]
            self.at = position + 1
            state = self.layers(np.frombuffer(data, np.int64) % PRIME)
            if self.rank < self.size - 1:
                self._send(token, state, position)
            elif position < self.tokens:
                self._send(self.chosen(state, position), None, position)
            if position == self.tokens:
                return

    def _took(self, token):
        if self.check is not None:
            result = self.check(token, self.at)
            if not result.is_valid:
                raise WrongToken(result)
        self.at += 1
        if self.at == len(self.known):
            self.known.append(token)
        elif self.known[self.at] != token:
            raise RuntimeError(
                f"token {self.at} was {self.known[self.at]} and is {token} when it is made again"
            )

    def _send(self, token, state, position=None):
        head = HEAD.pack(self.attempt, self.at if position is None else position, token)
        self.lines.send(
            head + (b"" if state is None else state.tobytes()), to=(self.rank + 1) % self.size
        )

    def _receive(self):
        while True:
            data = self.lines.receive(source=(self.rank - 1) % self.size)
            attempt, position, token = HEAD.unpack_from(data)
            if attempt >= self.attempt:
                return attempt, position, token, data[HEAD.size :]


class Steps:
    """Tells each position once, however often it is made again."""

    def __init__(self, context, every):
        self._emit, self._every, self._next = context.emit, every, 0

    def __call__(self, position):
        if position == self._next:
            self._next += self._every
            self._emit(f"step.{position}")


class Struck:
    """Ends this process at a position."""

    def __init__(self, at):
        self._at = at

    def __call__(self, position):
        if position == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


class Slips:
    """Gives a token that is not in the vocabulary, at one position and so many times."""

    def __init__(self, at, times):
        self._at, self._left = at, times

    def __call__(self, state, position):
        token = choose(state)
        if position == self._at and self._left > 0:
            self._left -= 1
            return token + WORDS
        return token
