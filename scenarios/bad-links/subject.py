"""Ranks that give each other bytes, round by round, over links that are good at first and bad from
the middle on.
"""

import hashlib
import socket
import time

SIZE = 8 * 1024
PORT, PART = 21_000, 512
PATIENCE = 0.1


def held(rank, number):
    """What a rank gives in a round: bytes that every rank can work out, and no part of which is
    like another.
    """
    return hashlib.shake_128(b"%d %d" % (rank, number)).digest(SIZE)


def exchange(context, *, rounds, datagrams=False, swallows=None):
    """Exchange bytes `rounds` times over good links and as often over bad ones, and tell which
    rounds were right.

    Args:
        context: of the rank; any backend with a group, and a host for each rank.
        rounds: how many, of each half.
        datagrams: send datagrams and take them as they come, in place of the group's collective.
        swallows: a rank that takes the error of a lost link for the end of its work; None for no
            such rank.
    """
    gather = Datagrams(context).all_gather if datagrams else context.group.all_gather
    try:
        go_round(context, "clean", gather, rounds)
        context.emit("half-way")
        go_round(context, "struck", gather, rounds)
    except RuntimeError:
        if context.rank == swallows:
            return
        raise


def go_round(context, half, gather, rounds):
    """One half. Nobody begins before all are there: the links are bad by then."""
    context.group.barrier()
    context.emit(f"{half}.begin")
    right = 0
    for number in range(rounds):
        found = gather(held(context.rank, number))
        right += found == [held(rank, number) for rank in range(context.size)]
        context.emit("round", number=number + (rounds if half == "struck" else 0))
    context.emit(f"{half}.end", right=right)
    # Of datagrams that are late, a rank that is late itself finds all in time.
    context.emit(f"{half}.agreed", right=min(map(int, context.group.all_gather(b"%d" % right))))


class Datagrams:
    """What is sent without TCP: nobody numbers it, waits for it, or sends it again."""

    def __init__(self, context):
        self._rank = context.rank
        self._hosts = [socket.gethostbyname(f"host-{rank}") for rank in range(context.size)]
        self._come = {rank: b"" for rank in range(context.size) if rank != context.rank}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((self._hosts[self._rank], PORT))

    def all_gather(self, data):
        """Everybody's bytes, of what has come within PATIENCE.

        What is beyond them is taken for the next round's.
        """
        for begin in range(0, len(data), PART):
            for rank in self._come:
                self._socket.sendto(data[begin : begin + PART], (self._hosts[rank], PORT))
        end = time.monotonic() + PATIENCE
        while any(len(come) < len(data) for come in self._come.values()):
            self._socket.settimeout(max(0.001, end - time.monotonic()))
            try:
                part, (host, _) = self._socket.recvfrom(PART)
            except TimeoutError:
                break
            self._come[self._hosts.index(host)] += part
        found = {self._rank: data} | {rank: come[: len(data)] for rank, come in self._come.items()}
        self._come = {rank: come[len(data) :] for rank, come in self._come.items()}
        return [found[rank] for rank in sorted(found)]
