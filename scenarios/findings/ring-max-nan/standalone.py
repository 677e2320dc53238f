# all_max over the MLX ring drops a NaN, but mx.max returns NaN
import json
import os
import socket
import subprocess
import sys
import tempfile

try:
    import mlx.core as mx
except (ImportError, AttributeError) as missing:
    print(f"CANNOT TELL: {missing}")
    sys.exit(2)

if "rank" in sys.argv:
    mx.set_default_device(mx.cpu)
    group = mx.distributed.init(strict=True, backend="ring")
    print(mx.distributed.all_max(mx.array(float("nan") if group.rank() == 0 else 1.0)).item())
    sys.exit(0)

ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
hosts = json.dumps([[f"127.0.0.1:{port.getsockname()[1]}"] for port in ports])
for port in ports:
    port.close()
with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    file.write(hosts)
    file.flush()
    ranks = []
    for rank in range(2):
        given = {**os.environ, "MLX_HOSTFILE": file.name, "MLX_RANK": str(rank)}
        command = [sys.executable, __file__, "rank"]
        ranks.append(subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True))
    got = [rank.communicate(timeout=240)[0].strip() for rank in ranks]
if got != ["nan", "nan"]:
    print(f"DEFECT: all_max of NaN and 1.0 returned {got}, expected ['nan', 'nan']")
    sys.exit(1)
print("OK")
