"""A rank joins its group without asking a name server, on a machine whose name server never
answers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ISOLATED = ("unshare", "--user", "--map-root-user", "--net", "--mount")
# Packets to anywhere come back to a machine where nobody listens: a question is never answered.
NOWHERE = (
    'ip link set lo up && ip route add default dev lo && mount --bind "$0" /etc/resolv.conf && exec'
    ' "$@"'
)
TIMED = """
import json, socket, sys, time
from harness.backends.torch_inside import without_name_server
from harness.rank.spec import RankSpec

def timed(do):
    begin = time.monotonic()
    try:
        found = do()
    except socket.gaierror as error:
        found = str(error)
    return found, time.monotonic() - begin

def name():
    return socket.getnameinfo(("::ffff:127.0.0.1", 80, 0, 0), 0)[0]

def joined():
    from harness.backends import torch_inside
    import os, socket, torch.distributed
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    listener = socket.create_server(("127.0.0.1", 0))
    rendezvous = {"address": "127.0.0.1", "port": listener.getsockname()[1], "listener": listener.detach()}
    nothing = dict(backend="gloo", entry="", folder="", arguments={}, inputs={}, seed=0, env={}, gates=())
    spec = RankSpec(rank=0, size=1, rendezvous=rendezvous, events_fd=0, gates_fd=0, scratch="", **nothing)
    return timed(lambda: torch_inside.join_default_group("gloo", spec))[1]
"""


def isolated(tmp_path: Path, code: str) -> object:
    """What code prints as JSON on a machine of its own."""
    if (
        shutil.which("ip") is None
        or subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no network namespace can be made here")
    settings = tmp_path / "resolv.conf"
    settings.write_text("nameserver 192.0.2.53\noptions timeout:1 attempts:1\n")
    argv = [*ISOLATED, "sh", "-c", NOWHERE, str(settings), sys.executable, "-c", TIMED + code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_names_are_asked_of_nobody_while_it_lasts(tmp_path: Path) -> None:
    """The address is told as a number, at once.

    Afterwards the name server is asked again, and makes us wait.
    """
    code = """
with without_name_server():
    inside = timed(name)
print(json.dumps([*inside, *timed(name)]))
"""
    answer, inside, _, after = isolated(tmp_path, code)
    assert answer == "::ffff:127.0.0.1"
    assert inside < 0.5
    assert after > 0.9


@pytest.mark.whole
def test_a_rank_of_gloo_joins_without_a_name_server(tmp_path: Path) -> None:
    """Neither the store's client nor its server waits for an answer that never comes."""
    assert isolated(tmp_path, "print(json.dumps(joined()))") < 0.9
