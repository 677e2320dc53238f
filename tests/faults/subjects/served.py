"""Programs without a group: rank 0 serves what the others ask of it, over plain sockets."""

import hashlib
import json
import os
import socket
import sys

RANK, SIZE = int(os.environ["RANKPROOF_RANK"]), int(os.environ["RANKPROOF_SIZE"])
PLACE = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
LENGTH = 64 * 1024
GATED = ("ready", "request")


def emit(name, **values):
    """Say something; where a fault may strike, wait until it has."""
    os.write(3, json.dumps({"event": name, "values": values}).encode() + b"\n")
    if name in GATED:
        os.read(4, 65536)


def answer(asked):
    """What is served: bytes that the client can work out."""
    return hashlib.sha256(asked).digest() * (LENGTH // 32)


def receive(channel, size):
    """So many bytes.

    Raises:
        ConnectionError: there are fewer.
    """
    data = b""
    while len(data) < size:
        part = channel.recv(size - len(data))
        if not part:
            raise ConnectionError("the peer closed the connection")
        data += part
    return data


def serve(listener):
    for _ in range(SIZE - 1):
        with listener.accept()[0] as channel:
            channel.sendall(answer(receive(channel, 5)))


def ask():
    with socket.create_connection(PLACE) as channel:
        emit("request")
        asked = b"ask %d" % RANK
        channel.sendall(asked)
        found = receive(channel, LENGTH)
    emit(
        "answer",
        right=found == answer(asked),
        wrong=sum(a != b for a, b in zip(found, answer(asked), strict=True)),
    )


def main():
    if RANK == 0:
        with socket.create_server(PLACE) as listener:
            emit("ready")
            serve(listener)
    else:
        emit("ready")
        ask()


try:
    main()
except OSError as error:
    emit("rank.error", type=type(error).__name__, message=str(error))
    sys.exit(1)
