"""No memory where a message comes: it is kept, and the thread that attends to all lines lives on."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, threading
from rankproof_integrity import TransportLimits, ReliableMessageTransport

limits = TransportLimits(deadline=60, shortest=0.02)
a, b = (ReliableMessageTransport(node=name, limits=limits) for name in "ab")
a.expect("b")
b.connect("a", a.listen(("127.0.0.1", 0)))
b.send(b"first", to="a")
assert a.receive(source="b").data == b"first"
data = bytes(range(256)) * 2**19  # 128 MiB
b.flush(to="a")
size = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize"))
_, hard = resource.getrlimit(resource.RLIMIT_AS)
# Enough for its frames, one by one, and not for the message beside them.
resource.setrlimit(resource.RLIMIT_AS, (size + 192 * 2**20, hard))
b.send(data, to="a")
for _ in range(2):
    try:
        a.receive(source="b")
        raise AssertionError("there was memory")
    except MemoryError:
        pass
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, hard))
assert a.receive(source="b").data == data
b.send(b"last", to="a")
assert a.receive(source="b").data == b"last"
assert sum(one.name == "integrity-attendant" for one in threading.enumerate()) == 2
"""


@pytest.mark.slow
def test_a_message_for_which_there_is_no_memory_is_kept() -> None:
    """Whoever receives is told each time; once there is memory it comes, whole and once."""
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
