"""On SIGTERM, mlx.launch exits and leaves its processes running."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import mlx.core  # noqa: F401
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

if "rank" in sys.argv:
    Path(sys.argv[2], str(os.getpid())).touch()
    time.sleep(300)
    sys.exit(0)

launch = "from mlx._distributed_utils.launch import main; main()"
with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, "-c", launch, "-n", "2", "--"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen([*command, sys.executable, __file__, "rank", folder], **quiet)
    while len(ranks := list(Path(folder).iterdir())) < 2:
        time.sleep(0.1)
    started.terminate()
    started.wait(120)
    time.sleep(10)
    left = [rank for rank in ranks if Path("/proc", rank.name).exists()]
for rank in left:
    os.kill(int(rank.name), signal.SIGKILL)
if left:
    print(f"DEFECT: mlx.launch exited but {len(left)} of 2 processes are still running, expected 0")
    sys.exit(1)
print("OK")
