"""No memory where a message comes: it is sent again, and the thread that attends to all lines lives
on.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, threading
from rankproof_integrity import TransportLimits, MessageLate, MessageLost, ReliableMessageTransport

limits = TransportLimits(deadline=float(sys.argv[1]), shortest=0.02)
a, b = (ReliableMessageTransport(node=name, limits=limits) for name in "ab")
a.expect("b")
b.connect("a", a.listen(("127.0.0.1", 0)))
b.send(b"first", to="a")
assert a.receive(source="b").data == b"first"
data = bytes(96 * 2**20)  # more than what malloc has put by for a thread
size = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize"))
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + 24 * 2**20, hard))
b.send(data, to="a")
if sys.argv[2] == "freed":
    try:
        a.receive(source="b", timeout=1)
    except MessageLate as error:
        assert "there is not enough memory for a frame of 100663296 bytes" in str(error), error
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, hard))
    assert a.receive(source="b").data == data
    b.send(b"last", to="a")
    assert a.receive(source="b").data == b"last"
else:
    try:
        b.flush(to="a")
    except MessageLost as error:
        assert "message 1 to a is lost" in str(error), error
    try:
        a.receive(source="b")
    except MessageLost as error:
        assert "b gave up: message 1" in str(error), error
assert sum(one.name == "integrity-attendant" for one in threading.enumerate()) == 2
"""


@pytest.mark.slow
@pytest.mark.parametrize(("deadline", "memory"), [(20, "freed"), (2, "short")])
def test_a_message_for_which_there_is_no_memory_is_sent_again_or_named(
    deadline: float, memory: str
) -> None:
    """Once there is memory it comes, whole and once.

    Else both ends hear of one message that is lost.
    """
    command = [sys.executable, "-c", PROGRAM, str(deadline), memory]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
