"""Subjects on test hosts."""

import os
import socket
import time
from pathlib import Path


def around(context, *, mark):
    """Say where the rank is: host, clock, temporary folders, network, and what of the others it can
    see there.
    """
    # What a host has at this path is asked.
    of_host, temporary = Path("/tmp"), Path(os.environ["TMPDIR"])  # noqa: S108
    for folder in (of_host, temporary):
        (folder / f"{mark}-{context.rank}").touch()
    (Path(context.shared) / f"{mark}-{context.rank}").touch()
    context.group.barrier()
    seen = {
        name: sorted(path.name for path in folder.glob(f"{mark}-*"))
        for name, folder in (
            ("tmp", of_host),
            ("TMPDIR", temporary),
            ("shared", Path(context.shared)),
        )
    }
    interfaces = sorted(name for _, name in socket.if_nameindex())
    context.emit(
        "around",
        host=socket.gethostname(),
        address=socket.gethostbyname(socket.gethostname()),
        seconds=time.monotonic(),
        interfaces=interfaces,
        effective=[
            line.split()[1]
            for line in Path("/proc/self/status").read_text().splitlines()
            if "CapEff" in line
        ],
        user=os.getuid(),
        launcher={
            name: os.environ[name] for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
        },
        **seen,
    )
    context.group.barrier()


def serve(context):
    """Rank 0 listens where torchrun's variables say, on any other network the ranks could not meet
    there.
    """
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if context.rank == 0:
        with socket.create_server(place) as server:
            context.group.barrier()
            for _ in range(context.size - 1):
                with server.accept()[0] as channel:
                    channel.sendall(channel.recv(100).upper())
    else:
        context.group.barrier()
        with socket.create_connection(place) as channel:
            channel.sendall(b"hello")
            context.emit("heard", text=channel.recv(100).decode())
    context.group.barrier()


def misdate(context):
    """Stamp an event with the clock of another host, a day or more away."""
    if context.rank == 1:
        os.write(
            context._emitter._events_fd,
            b'{"event": "misdated", "ns": %d}\n' % (time.monotonic_ns() - 10**14),
        )


def wait(context):
    """Wait for the end at a gate."""
    context.emit("waiting")
    context.group.barrier()


def fail(context):
    """Raise on one rank."""
    if context.rank == 1:
        raise LookupError("on its host")
