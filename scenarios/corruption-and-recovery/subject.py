"""A decoder in integers, split into stages, that generates over sockets: with the integrity library, or without.

Every token depends on every byte of every hidden state before it, and integers are the same on every machine: a bit
that flips anywhere changes all that follows. A stage keeps a cache, as a transformer does, so that one that begins
again has to be given its past.
"""

import json
import os
import signal
import socket
import struct
import time
from multiprocessing import get_context

import numpy as np

from harness.integrity import (
    DeviceCommunicationManager,
    FailureClass,
    FailureMode,
    FallbackCoordinator,
    FolderStore,
    Limits,
    MessageLate,
    Pace,
    PeerRestarted,
    RecoveryAction,
    RecoveryManager,
    ReliableMessageTransport,
    TransferFailed,
)

WIDTH, WORDS, LAYERS = 1024, 32_000, 4
PRIME = 2_147_483_647
PORT = 21_100
HEAD = struct.Struct("!QQQ")
PATIENCE = 0.2
GONE = "a stage closed its connection"


class Layers:
    """Some layers: each mixes the hidden state with what it has seen of the stream so far.

    Args:
        first, last: the layers, the last one exclusive.
    """

    def __init__(self, first, last):
        self._numbers = range(first, last)
        self._seen = {number: np.zeros(WIDTH, np.int64) for number in self._numbers}

    def __call__(self, state):
        for number in self._numbers:
            self._seen[number] = (self._seen[number] * 31 + state) % PRIME
            state = (np.roll(state, 1) * (2 * number + 3) + self._seen[number] + number) % PRIME
        return state


def embed(token):
    """The hidden state of a token, `[WIDTH]` int64 below PRIME."""
    return (np.arange(1, WIDTH + 1, dtype=np.int64) * (token * 2 + 1) * 40_503) % PRIME


def choose(state):
    """The next token: a digest of the whole hidden state."""
    return int(np.dot(state % 65_521, np.arange(1, WIDTH + 1)) % PRIME % WORDS)


def whole(context, *, tokens, **_):
    """What one device generates: the baseline."""
    layers, found = Layers(0, LAYERS), [1]
    while len(found) <= tokens:
        found.append(choose(layers(embed(found[-1]))))
    context.emit("generated", ids=found[1:])


def share(rank, size):
    """First and last layer of a stage."""
    return LAYERS * rank // size, LAYERS * (rank + 1) // size


def address():
    """Of this rank's host, as the others reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ.get("MASTER_ADDR", "127.0.0.1"), 9))
        return probe.getsockname()[0]


def meet(context):
    """Wait until every rank is here; files tell, for links may be bad already."""
    store = FolderStore(context.shared)
    store.set(f"here/{context.rank}", b"1")
    while any(store.get(f"here/{rank}") is None for rank in range(context.size)):
        time.sleep(0.005)


# Over sockets of its own, as engines write them.


class Bare:
    """Bytes by TCP and nothing else: what is lost is an error, what is changed is taken."""

    def __init__(self, context):
        self._rank, self._size = context.rank, context.size
        store = FolderStore(context.shared)
        listener = socket.create_server((address(), 0))
        store.set(f"bare/{self._rank}", json.dumps(listener.getsockname()).encode())
        self._to = self._dial(store, (self._rank + 1) % self._size)
        self._from, _ = listener.accept()
        listener.close()

    @staticmethod
    def _dial(store, rank):
        while (where := store.get(f"bare/{rank}")) is None:
            time.sleep(0.005)
        found = socket.create_connection(tuple(json.loads(where)))
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    def send(self, data, *, to):
        del to
        try:
            self._to.sendall(struct.pack("!I", len(data)) + data)
        except ConnectionError as error:
            raise ConnectionResetError(GONE) from error

    def receive(self, *, source):
        del source
        return self._exactly(*struct.unpack("!I", self._exactly(4)))

    def _exactly(self, size):
        found = bytearray()
        while len(found) < size:
            try:
                part = self._from.recv(size - len(found))
            except ConnectionError:
                part = b""
            if not part:
                raise ConnectionResetError(GONE)
            found += part
        return bytes(found)

    def close(self):
        self._to.close(), self._from.close()


class BareDatagrams:
    """Datagrams as they come: nobody numbers them. A hidden state takes two, each below the head of its message."""

    def __init__(self, context):
        self._hosts = [socket.gethostbyname(f"host-{rank}") for rank in range(context.size)]
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((self._hosts[context.rank], PORT))

    def send(self, data, *, to):
        head, half = data[: HEAD.size], (HEAD.size + len(data)) // 2
        for part in (data[:half], head + data[half:]) if len(data) > HEAD.size else (data,):
            self._socket.sendto(part, (self._hosts[to], PORT))

    def receive(self, *, source):
        del source
        self._socket.settimeout(PATIENCE)
        data = self._socket.recv(65_507)
        return data if len(data) == HEAD.size else data + self._socket.recv(65_507)[HEAD.size :]

    def close(self):
        self._socket.close()


class Lines:
    """The same by the library."""

    def __init__(self, context, *, limits, datagrams=False):
        self._rank, self._size = context.rank, context.size
        if not datagrams:
            store = FolderStore(context.shared)
            self._lines = DeviceCommunicationManager(
                store=store, rank=context.rank, world_size=context.size, address=(address(), 0), limits=limits
            )
            self.transport = self._lines.transport
            return
        self.transport = ReliableMessageTransport(node=f"rank {context.rank}", limits=limits)
        for other in range(context.size):
            if other != context.rank:
                bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                bound.bind((socket.gethostbyname(f"host-{context.rank}"), PORT + other))
                where = (socket.gethostbyname(f"host-{other}"), PORT + context.rank)
                self.transport.datagrams(f"rank {other}", bound, where)

    def send(self, data, *, to):
        self.transport.send(data, to=f"rank {to}")

    def receive(self, *, source):
        return bytes(self.transport.receive(source=f"rank {source}").data)

    def close(self):
        self.transport.close()


# The stages.


class Stage:
    """One stage of a ring: hidden states go up the ranks, the last one's token comes back to rank 0.

    Each message says under which attempt it was made, at which position, and of which token, so that every rank knows
    all tokens, and what is left of an earlier attempt is passed over.
    """

    def __init__(self, *, rank, size, lines, tokens, told):
        self.rank, self.size, self.lines, self.tokens, self.told = rank, size, lines, tokens, told
        self.attempt, self.known = 0, [1]
        self.begin(0)

    def begin(self, attempt):
        """Forget the cache: what follows comes from position 0 on."""
        self.attempt, self.at = attempt, 0
        self.layers = Layers(*share(self.rank, self.size))

    def lead(self, until=None):
        """Rank 0: feed what is known, and then what comes back; up to a position, or to the end."""
        while self.at < (self.tokens if until is None else until):
            token = self.known[self.at]
            self.told(self.at)
            self._send(token, self.layers(embed(token)))
            _, position, token, _ = self._receive()
            if position == self.at:
                self._took(token)
        if until is None:
            # So that all know the last one.
            self._send(self.known[self.at], self.layers(embed(self.known[self.at])))

    def follow(self):
        """Any other rank: take, compute, hand on."""
        while True:
            attempt, position, token, data = self._receive()
            if attempt > self.attempt or position == 0:
                self.begin(attempt)
            self.told(position)
            self.known[position:] = [token]
            self.at = position + 1
            state = self.layers(np.frombuffer(data, np.int64) % PRIME)
            if self.rank < self.size - 1:
                self._send(token, state, position)
            elif position < self.tokens:
                self._send(choose(state), None, position)
            if position == self.tokens:
                return

    def _took(self, token):
        self.at += 1
        if self.at == len(self.known):
            self.known.append(token)
        elif self.known[self.at] != token:
            raise RuntimeError(f"token {self.at} was {self.known[self.at]} and is {token} when it is made again")

    def _send(self, token, state, position=None):
        head = HEAD.pack(self.attempt, self.at if position is None else position, token)
        self.lines.send(head + (b"" if state is None else state.tobytes()), to=(self.rank + 1) % self.size)

    def _receive(self):
        while True:
            data = self.lines.receive(source=(self.rank - 1) % self.size)
            attempt, position, token = HEAD.unpack_from(data)
            if attempt >= self.attempt:
                return attempt, position, token, data[HEAD.size :]


def stream(context, *, tokens, carried, deadline=30.0, every=1):
    """Generate over one pipeline, and tell what came of it.

    Args:
        context: of the rank.
        tokens: how many.
        carried: `library`, `library-datagrams`, `bare` or `bare-datagrams`.
        deadline: of the library, in seconds.
        every: positions between two events `step.N`, where faults strike.
    """
    limits = Limits(deadline=deadline, silence=1.0)
    lines = {
        "bare": lambda: Bare(context),
        "bare-datagrams": lambda: BareDatagrams(context),
        "library": lambda: Lines(context, limits=limits),
        "library-datagrams": lambda: Lines(context, limits=limits, datagrams=True),
    }[carried]()
    meet(context)

    def told(position):
        if position % every == 0:
            context.emit(f"step.{position}")

    stage = Stage(rank=context.rank, size=context.size, lines=lines, tokens=tokens, told=told)
    stage.lead() if context.rank == 0 else stage.follow()
    context.emit("generated", ids=stage.known[1:])
    lines.close()


# A stage that ends, and one that comes back.


def ended(context, *, tokens, carried, restarts=True, wait=3.0, ends_at=(), every=10):
    """Generate while a stage is ended: rank 0 recovers by the plan of the library's RecoveryManager.

    Args:
        context: of the rank.
        tokens: how many.
        carried: `library` or `bare`.
        restarts: whether a rank above 0 runs its stage in a process of its own, and begins it again when it ends.
        wait: seconds in which a stage has to come back, before its work is done on one device.
        ends_at: positions at which the first, the second, … of these processes is ended by SIGKILL.
        every: positions between two events `step.N`, where faults strike.
    """
    steps = Steps(context, every)
    if context.rank == 0:
        found = recovered(context, tokens=tokens, carried=carried, wait=wait, told=steps)
        context.emit("generated", ids=found)
        return
    if not restarts:
        work(context, tokens=tokens, carried=carried, wait=wait, told=steps)
        return
    fork, starts = get_context("fork"), 0
    while True:
        # A process that is not the rank says nothing in its name.
        told = Struck(ends_at[starts] if starts < len(ends_at) else None)
        given = {"tokens": tokens, "carried": carried, "wait": wait, "told": told}
        worker = fork.Process(target=work, args=(context,), kwargs=given)
        worker.start()
        worker.join()
        starts += 1
        if worker.exitcode == 0:
            context.emit("stage.ended", starts=starts)
            return
        context.emit("stage.died", pid=worker.pid, code=worker.exitcode)
        if worker.exitcode != -signal.SIGKILL or carried == "bare":
            return


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


def work(context, *, tokens, carried, wait, told):
    """A stage above rank 0, until the stream is over."""
    lines = Bare(context) if carried == "bare" else Lines(context, limits=Limits(deadline=4 * wait, silence=0.5))
    stage = Stage(rank=context.rank, size=context.size, lines=lines, tokens=tokens, told=told)
    while True:
        try:
            stage.follow()
            break
        except PeerRestarted as gone:
            lines.transport.renew(gone.peer)
    lines.close()


def recovered(context, *, tokens, carried, wait, told):
    """Rank 0's stream: what it knows is fed again to a stage that came back, or all is computed alone."""
    lines = Bare(context) if carried == "bare" else Lines(context, limits=Limits(deadline=wait, silence=0.5))
    stage = Stage(rank=0, size=context.size, lines=lines, tokens=tokens, told=told)

    def restart(mode, number):
        for rank in mode.ranks:
            lines.transport.renew(f"rank {rank}")
        stage.begin(number)
        stage.lead(until=len(stage.known) - 1)

    def alone(mode, number):
        coordinator = FallbackCoordinator(FolderStore(context.shared), rank=0, size=context.size)
        coordinator.propose(mode.words, position=len(stage.known) - 1)
        decision = coordinator.agree(position=len(stage.known) - 1, timeout=0.5)
        context.emit("fell.back", participants=list(decision.participants), missing=list(decision.missing))
        layers = Layers(0, LAYERS)
        for position in range(tokens):
            token = choose(layers(embed(stage.known[position])))
            if position + 1 == len(stage.known):
                stage.known.append(token)
            elif stage.known[position + 1] != token:
                raise RuntimeError(f"attempt {number}: token {position + 1} is another one on one device")

    def attempted(attempt):
        context.emit("attempt", action=str(attempt.action), outcome=str(attempt.outcome), words=attempt.words)

    actions = {RecoveryAction.RESTART_STAGE: restart, RecoveryAction.FALL_BACK: alone}
    manager = RecoveryManager(actions=actions, budget=256, recorded=attempted)
    while True:
        try:
            stage.lead()
            lines.close()
            break
        except TransferFailed as failed:
            if len(stage.known) > tokens:
                break  # who is gone takes no more
            peers = tuple(range(1, context.size))
            mode = FailureMode(
                failure=FailureClass.PERSISTENT, position=len(stage.known) - 1, ranks=peers, words=str(failed)
            )
            result = manager.recover_from_corruption(mode)
            if not result.recovered:
                raise RuntimeError(result.words) from failed
            if manager.attempts[-1].action is RecoveryAction.FALL_BACK:
                break
    return stage.known[1:]


# A device that becomes slow.


def slow(context, *, tokens, adaptive, shortest=0.25, longest=8.0):
    """Generate, and give up on a stage from which nothing comes in time.

    Args:
        context: of the rank.
        tokens: how many.
        adaptive: wait as long as the stage's pace and the steps missed so far say, up to `longest`; else `shortest`.
        shortest: seconds.
        longest: seconds.
    """
    lines = Lines(context, limits=Limits(deadline=longest, silence=5.0))
    pace = Pace(shortest=shortest, longest=longest)
    late = 0

    class Watched:
        def send(self, data, *, to):
            lines.send(data, to=to)

        def receive(self, *, source):
            nonlocal late
            begin, wait = time.monotonic(), pace.timeout() if adaptive and source else shortest
            while True:
                try:
                    found = lines.transport.receive(source=f"rank {source}", timeout=wait if source else longest)
                except MessageLate as error:
                    late += 1
                    if not adaptive or time.monotonic() - begin + 2 * wait > longest:
                        raise TimeoutError(f"nothing came from rank {source} within {wait:g} s") from error
                    wait *= 2
                    continue
                except TransferFailed as error:
                    raise TimeoutError(f"nothing came from rank {source} any more") from error
                pace.took(time.monotonic() - begin)
                return bytes(found.data)

    def told(position):
        context.emit(f"step.{position}")

    stage = Stage(rank=context.rank, size=context.size, lines=Watched(), tokens=tokens, told=told)
    meet(context)
    stage.lead() if context.rank == 0 else stage.follow()
    context.emit("generated", ids=stage.known[1:])
    context.emit("waited", late=late)
    lines.close()
