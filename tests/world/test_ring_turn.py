"""The moment in which a ring's rank stands still: only as long as the last rank needs it, however
that one ends.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.backends.backend import LOOPBACK
from harness.rank.process import inspect
from harness.world.control.pool import PortLease

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the turn is for Linux"
)
ROOT = Path(__file__).parents[2]
# A rank before the last: it stays in its turn until it is told to leave, as MLX stays in its call.
RANK = """
import sys
from types import SimpleNamespace
from harness.backends.mlx_ring_inside import Turn
places, turn = [["127.0.0.1", 0], ["127.0.0.1", int(sys.argv[1])]], int(sys.argv[2])
rendezvous = {"places": places, "turn": turn, "tables": None}
with Turn(SimpleNamespace(rank=0, size=2, rendezvous=rendezvous)).taken():
    print("joining", flush=True)
    sys.stdin.read()
print("joined")
"""


@dataclass
class Standing:
    """A rank that has been stopped, seen from the last rank.

    Attributes:
        process: the rank.
        line: the last rank's end of the line between the two.
        port: where the last rank will listen.
    """

    process: subprocess.Popen[str]
    line: socket.socket
    port: int

    def goes_on(self) -> bool:
        """Whether it runs again, and leaves its turn when it is told to."""
        out, _ = self.process.communicate(timeout=10)
        return self.process.returncode == 0 and "joined" in out


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    """Ask as the last rank does, and see the other stopped when the answer comes."""
    ours, theirs = socket.socketpair()
    with PortLease(folder=tmp_path) as ports, ours:
        (port,) = ports.take(1)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", RANK, str(port), str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "joining\n"
            ours.sendall(b"?")
            assert ours.recv(1) == b"!"
            found = inspect(process.pid)
            assert found is not None
            assert found.state == "T"
            yield Standing(process, ours, port)
        finally:
            process.kill()
            process.communicate()


def test_it_goes_on_when_the_last_rank_listens(standing: Standing) -> None:
    """Listening alone releases it: the last rank is inside MLX and can say nothing."""
    with socket.create_server((LOOPBACK, standing.port)):
        assert standing.goes_on()


def test_it_goes_on_when_the_last_rank_is_gone(standing: Standing) -> None:
    """A last rank that dies in its turn leaves nobody stopped."""
    standing.line.close()
    assert standing.goes_on()


def test_nothing_of_it_is_left_when_it_is_killed(standing: Standing) -> None:
    """The child that holds a rank ends with it: the last rank sees the line closed."""
    standing.process.kill()
    standing.line.settimeout(10)
    assert standing.line.recv(1) == b""
