"""What a rank raises when its peer is gone is what its backend's file says, and nothing else is."""

from __future__ import annotations

import http.client
import multiprocessing.connection
import os
import socket
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from harness.backends import KINDS

MEETINGS = [
    ("gloo", 1, "barrier"),
    ("gloo", 1, "all_gather"),
    ("gloo", 1, "reduce"),
    ("gloo", 1, "receive"),
    ("gloo", 0, "reduce"),
    ("gloo", 0, "store"),
    ("mlx-ring", 1, "barrier"),
    ("mlx-ring", 0, "all_gather"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "victim", "how"), MEETINGS)
def test_the_others_say_that_a_peer_is_gone(
    live: Callable[..., Any], fault: Callable[..., Any], backend: str, victim: int, how: str
) -> None:
    """A rank of three is killed before the others meet it: what each of them raises is listed for
    the backend.
    """
    killed = fault(kind="kill", ranks=[victim], at="door")
    struck = live(killed, entry="struck:meet", size=3, backend=backend, arguments={"how": how})
    for rank in {0, 1, 2} - {victim}:
        found = struck.history.error(rank)
        assert found is not None, struck.history.exit(rank)
        values = found.event.values
        told = KINDS[backend].properties.says_that_a_peer_is_gone(
            [values["type"]], values["message"]
        )
        assert told, (values["type"], values["message"])


@pytest.mark.slow
def test_an_error_of_the_rank_itself_says_nothing_of_a_peer(live: Callable[..., Any]) -> None:
    """A rank that raises of its own is not taken for one whose peer is gone, whatever the
    backend.
    """
    values = live(entry="struck:die_before").history.error(1).event.values
    for backend in KINDS.values():
        assert not backend.properties.says_that_a_peer_is_gone([values["type"]], values["message"])


@pytest.mark.parametrize(
    "how", ["reset", "closed-pipe", "refused", "pipe", "no-answer", "half-an-answer", "nobody"]
)
def test_ranks_without_a_group_say_it_in_pythons_words(how: str) -> None:
    """A process is killed at the other end of a socket, a pipe or a request: the error is listed
    for backend none.
    """
    here, there = multiprocessing.connection.Pipe()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "127.0.0.1", listener.getsockname()[1]
        if (pid := os.fork()) == 0:
            try:
                _be_killed(listener, how)
            finally:
                os._exit(1)
    there.close()
    with pytest.raises((OSError, EOFError, http.client.HTTPException)) as raised:
        _ask(how, pid=pid, address=address, pipe=here)
    os.waitpid(pid, 0)
    assert KINDS["none"].properties.says_that_a_peer_is_gone(
        [type(raised.value).__name__], str(raised.value)
    ), raised.value


def _ask(how: str, *, pid: int, address: tuple[str, int], pipe: Any) -> None:
    """Ask a process that is killed meanwhile, or was."""
    if how in ("reset", "closed-pipe"):
        with socket.create_connection(address) as peer:
            peer.sendall(b"12")
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            for _ in range(3):
                peer.sendall(b"3") if how == "closed-pipe" else peer.recv(1)
    elif how == "pipe":
        pipe.recv()
    else:
        if how in ("refused", "nobody"):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if how == "refused":
            socket.create_connection(address)
        url = "http://{}:{}/".format(*address)
        urllib.request.urlopen(url).read()  # noqa: S310 - the process above


def _be_killed(listener: socket.socket, how: str) -> None:
    """In the child: answer as far as it goes, and be killed."""
    if how not in ("refused", "pipe", "nobody"):
        peer, _ = listener.accept()
        peer.recv(1 if how == "reset" else 65536)
        if how == "half-an-answer":
            peer.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\nabc")
    os.kill(os.getpid(), 9)
