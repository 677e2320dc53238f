"""What carries messages between stages: sockets as engines write them, or the integrity library."""

import json
import os
import socket
import struct
import time

from harness._integrity import DeviceCommunicationManager, FolderStore

HEAD = struct.Struct("!QQQ")
LONGEST = 1 << 20
SILENCE = 10.0
ENDED, GONE = "the pipeline ended: ", "a stage closed its connection"


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


class Bare:
    """Bytes by TCP and nothing else: what is lost or late is an error, what is changed is taken.

    Raises (from `send` and `receive`):
        ConnectionResetError, TimeoutError, ValueError: that the pipeline ended, and why; each
            begins with `ENDED`.
    """

    def __init__(self, context):
        self._rank, self._size = context.rank, context.size
        store = FolderStore(context.shared)
        listener = socket.create_server((address(), 0))
        store.set(f"bare/{self._rank}", json.dumps(listener.getsockname()).encode())
        self._to = self._dial(store, (self._rank + 1) % self._size)
        self._from, _ = listener.accept()
        self._from.settimeout(SILENCE)
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
            raise ConnectionResetError(ENDED + GONE) from error

    def receive(self, *, source):
        del source
        (size,) = struct.unpack("!I", self._exactly(4))
        if not HEAD.size <= size <= LONGEST:
            raise ValueError(f"{ENDED}a message of {size} bytes was announced")
        return self._exactly(size)

    def _exactly(self, size):
        found = bytearray()
        while len(found) < size:
            try:
                part = self._from.recv(size - len(found))
            except ConnectionError:
                part = b""
            except TimeoutError as error:
                raise TimeoutError(f"{ENDED}nothing was received for {SILENCE:g} s") from error
            if not part:
                raise ConnectionResetError(ENDED + GONE)
            found += part
        return bytes(found)

    def close(self):
        self._to.close(), self._from.close()


class Lines:
    """The same by the library."""

    def __init__(self, context, *, limits):
        store = FolderStore(context.shared)
        self._lines = DeviceCommunicationManager(
            store=store,
            rank=context.rank,
            world_size=context.size,
            address=(address(), 0),
            key=store.claim("key", os.urandom(32)),
            limits=limits,
        )
        self.transport = self._lines.transport

    def send(self, data, *, to):
        self.transport.send(data, to=f"rank {to}")

    def receive(self, *, source):
        return bytes(self.transport.receive(source=f"rank {source}").data)

    def close(self):
        self.transport.close()
