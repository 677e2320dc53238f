"""Fork servers end what they left behind, and no other process of whoever started them."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from harness.forms.process import start_apart
from harness.world.control.pool import ServerPool
from harness.world.machines.agent_channel import BOOT, AgentChannel

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="orphans are adopted on Linux"
)
PR_GET_CHILD_SUBREAPER = 37
# Leaves an orphan in a session of its own, as a killed warden does.
ORPHAN = "setsid sh -c 'echo $$; exec sleep 1000 >/dev/null' &"


def adopts() -> bool:
    """Whether this process is the parent of what its descendants leave behind."""
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(found), 0, 0, 0)
    return bool(found.value)


def test_a_pool_leaves_alone_what_others_started() -> None:
    """A channel to a machine and a guard outlive a pool that is closed, and what the pool adopted
    does not.
    """
    guard = start_apart(["sleep", "1000"])
    try:
        with AgentChannel([sys.executable, "-I", "-c", BOOT], within=30) as channel:
            with ServerPool():
                done = subprocess.run(
                    ["sh", "-c", ORPHAN], stdout=subprocess.PIPE, check=True, text=True
                )
                orphan = Path("/proc", done.stdout.strip())
                assert orphan.exists()
            assert channel.ask("facts")["executable"] == sys.executable
            assert guard.poll() is None
            assert not orphan.exists()
    finally:
        guard.kill()
        guard.wait()


def test_orphans_are_adopted_while_a_pool_is_open() -> None:
    """The last pool that is closed ends it: nobody would reap what comes later."""
    assert not adopts()
    with ServerPool():
        with ServerPool():
            assert adopts()
        assert adopts()
    assert not adopts()
