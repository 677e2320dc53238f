"""A launcher of other people as the subject: started by a rank, with two processes of which
something becomes.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

FAILS = """
import os, sys
sys.exit(3 if os.environ.get("RANK", os.environ.get("MLX_RANK")) == "1" else 0)
"""
# It says where it is, and stays for longer than anybody waits here.
STAYS = """
import os, time
with open(os.environ["WHERE"], "wb", buffering=0) as where:
    where.write(b"%d\\n" % os.getpid())
time.sleep(120)
"""
MLX = "from mlx._distributed_utils.launch import main; main()"
ENDS_WITHIN = 60.0
GONE_WITHIN = 10.0


def command(launcher: str, file: Path) -> list[str]:
    """How two processes are started with it on this machine."""
    if launcher == "torchrun":
        return [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            str(file),
        ]
    return [sys.executable, "-c", MLX, "-n", "2", "--", sys.executable, str(file)]


def told(context: Any, *, launcher: str) -> None:
    """Have process 1 end with code 3, and tell the launcher's own exit code."""
    file = Path(context.shared, "fails.py")
    file.write_text(FAILS)
    done = subprocess.run(
        command(launcher, file), check=False, capture_output=True, timeout=ENDS_WITHIN
    )
    context.emit("launched", code=done.returncode, fails=done.returncode != 0)


def terminated(context: Any, *, launcher: str) -> None:
    """Send the launcher SIGTERM once both processes are there, and tell how many are left after it
    has ended.
    """
    file, where = Path(context.shared, "stays.py"), Path(context.shared, "where")
    file.write_text(STAYS)
    os.mkfifo(where)
    started = subprocess.Popen(
        command(launcher, file),
        env={**os.environ, "WHERE": str(where)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # Open for writing too: the first of them to close it does not end what is read.
    with os.fdopen(os.open(where, os.O_RDWR), "rb", buffering=0) as told_by:
        lines = b""
        while lines.count(b"\n") < 2:
            lines += told_by.read(64)
    watched = [os.pidfd_open(int(line)) for line in lines.split()]
    started.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        started.wait(ENDS_WITHIN)
    left = sum(not ends(process) for process in watched)
    context.emit("terminated", left=left, ended=started.poll() is not None)
    for process in watched:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    started.kill()
    started.wait()


def ends(process: int) -> bool:
    """Whether a process ends in the time that it has; its descriptor can be read then."""
    return bool(select.select([process], [], [], GONE_WITHIN)[0])
