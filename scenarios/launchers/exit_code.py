"""mlx.launch exits with code 0 although one of its processes exited with code 3."""

import os
import subprocess
import sys

try:
    import mlx.core  # noqa: F401
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

if "rank" in sys.argv:
    sys.exit(3 if os.environ["MLX_RANK"] == "1" else 0)

launch = "from mlx._distributed_utils.launch import main; main()"
command = [sys.executable, "-c", launch, "-n", "2", "--", sys.executable, __file__, "rank"]
done = subprocess.run(command, check=False, capture_output=True, timeout=240)
if done.returncode == 0:
    print("DEFECT: mlx.launch exited with 0, expected nonzero because process 1 exited with 3")
    sys.exit(1)
print("OK")
