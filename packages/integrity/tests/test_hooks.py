"""Hooks in pipelines of two real processes: torch's send and recv, torch's pipelining, MLX in the
shape of exo's layers, and a model of mlx-lm's.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rankproof_integrity import Misused, watch

STAGED = Path(__file__).with_name("staged.py")
CHANGED = r"MessageCorrupt tensor 2 from rank {} to rank {} changed in transit: \d+ bytes arrived"
TAKES = {"modules": 1, "pipelining": 1, "exo": 1, "mlx-lm": 0}


def ranks(kind: str, fault: str, folder: Path) -> list[str]:
    """What both ranks said at the end."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        hosts = [[f"127.0.0.1:{end.getsockname()[1]}"] for end in (one, other)]
    (folder / "hosts.json").write_text(json.dumps(hosts))
    about = {
        "GLOO_SOCKET_IFNAME": "lo",
        "MEET": str(folder / fault),
        "MLX_HOSTFILE": str(folder / "hosts.json"),
    }
    started = [
        subprocess.Popen(
            [sys.executable, STAGED, str(rank), kind, fault],
            env=os.environ | about | {"MLX_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        return [process.communicate(timeout=120)[0].strip() for process in started]
    finally:
        for process in started:
            process.kill()


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("kind", TAKES)
def test_a_bit_that_flips_on_the_way_is_one_error(kind: str, tmp_path: Path) -> None:
    """The rank that takes a changed hidden state raises; without a fault nothing changes, and
    without the hook the fault goes through.

    The hook is that of the page: its lines are run as they stand there.
    """
    if kind in ("exo", "mlx-lm"):
        pytest.importorskip("mlx.core")
    takes = TAKES[kind]
    clean = ranks(kind, "none", tmp_path)
    assert all(said.startswith("computed ") for said in clean)
    if kind == "exo":
        assert ranks(kind, "bare", tmp_path) == clean
    unwatched = ranks(kind, "unwatched", tmp_path)[takes]
    assert unwatched.startswith("computed ")
    assert kind == "mlx-lm" or unwatched != clean[takes]
    said = ranks(kind, "received", tmp_path)[takes]
    assert re.match(CHANGED.format(1 - takes, takes), said), said


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("kind", ["exo", "mlx-lm"])
def test_a_bit_that_flips_where_all_gather_is_one_error(kind: str, tmp_path: Path) -> None:
    """The last stage's result, which goes to all by all_gather, is compared on every rank."""
    pytest.importorskip("mlx.core")
    for rank, said in enumerate(ranks(kind, "gathered", tmp_path)):
        assert re.match(CHANGED.format(0, rank), said), said


@pytest.mark.slow
@pytest.mark.whole
def test_a_stage_that_is_ahead_leaves_its_seals(tmp_path: Path) -> None:
    """Seals that nobody took yet arrive also where the hook is removed behind them."""
    assert ranks("ahead", "none", tmp_path) == ["computed None", "computed True"]


@pytest.mark.slow
def test_what_is_no_stage_is_refused() -> None:
    """One error that says what to pass."""
    pytest.importorskip("torch")
    with pytest.raises(Misused, match=r"watch a torch\.nn\.Module or a PipelineStage"):
        watch(object())
