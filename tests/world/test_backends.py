"""Backends that refuse with their reason, and ranks without a group."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.backends import KINDS, nccl

Live = Callable[..., Any]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def with_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Put a driver's `nvidia-smi` on the path that lists some GPUs, and a torch with CUDA beside
    it.
    """
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.13.0+cu130")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def put(count: int) -> None:
        lines = "".join(
            f"echo 'GPU {index}: NVIDIA H200 (UUID: GPU-{index})'\n" for index in range(count)
        )
        (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n" + lines)
        (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        nccl.gpus.cache_clear()

    yield put
    nccl.gpus.cache_clear()


def test_every_backend_of_the_format_is_there() -> None:
    """Each name a scenario may give has its backend, under that name."""
    assert set(KINDS) == {"gloo", "mlx-ring", "nccl", "none"}
    inside = {"gloo": "torch", "nccl": "torch"}
    for name, backend in KINDS.items():
        assert backend.inside_file.name == f"{inside.get(name, name.replace('-', '_'))}_inside.py"
        assert backend.inside_file.is_file()


def test_looking_for_reasons_loads_no_library() -> None:
    """Asking every backend whether it can run imports neither torch nor MLX nor numpy."""
    code = (
        "import sys; from harness.backends import KINDS; [one.refusal(size=2) for one in"
        " KINDS.values()]; print([m for m in ('torch', 'mlx.core', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_nccl_names_how_many_gpus_are_missing(
    with_gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer GPUs than ranks is a refusal with both numbers; as many are enough.

    Hidden ones do not count.
    """
    with_gpus(0)
    assert (
        str(KINDS["nccl"].refusal(size=2))
        == "nccl needs one GPU per rank, so 2 for this world, but this machine has no NVIDIA GPUs"
    )
    with_gpus(1)
    assert (
        str(KINDS["nccl"].refusal(size=2))
        == "nccl needs one GPU per rank, so 2 for this world, but this machine has 1 NVIDIA GPU"
    )
    assert KINDS["nccl"].refusal(size=1) is None
    with_gpus(4)
    assert KINDS["nccl"].refusal(size=4) is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    nccl.gpus.cache_clear()
    assert (
        str(KINDS["nccl"].refusal(size=4))
        == "nccl needs one GPU per rank, so 4 for this world, but this machine has 2 NVIDIA GPUs"
    )


def test_nccl_needs_a_torch_with_cuda(
    with_gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs do not help a torch that was built without CUDA."""
    with_gpus(4)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.13.0+cpu")
    assert str(KINDS["nccl"].refusal(size=2)) == "torch 2.13.0+cpu is built without CUDA"


def test_a_ring_says_why_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of one, and a machine without MLX, are refused with the reason and the remedy."""
    assert "at least 2 ranks" in str(KINDS["mlx-ring"].refusal(size=1))
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "mlx" else found(name)
    )
    assert (
        str(KINDS["mlx-ring"].refusal(size=2))
        == "mlx is not installed; run pip install 'rankproof[mlx]'"
    )


@pytest.mark.slow
def test_ranks_without_a_group_are_told_who_they_are(live: Live) -> None:
    """Backend none starts whole worlds, of one rank too; nobody waits for anybody."""
    for size in (1, 3):
        lived = live("ring:told", size=size, backend="none")
        assert lived.passed
        told = [lived.said(rank, "told")[0].values for rank in range(size)]
        assert told == [{"rank": rank, "size": size} for rank in range(size)]


@pytest.mark.slow
@pytest.mark.parametrize("call", ["barrier", "all_gather"])
def test_ranks_without_a_group_cannot_meet(live: Live, call: str) -> None:
    """A subject that tries raises at once, with what to do: it never passes alone through a
    barrier.
    """
    lived = live("ring:together", size=2, backend="none", arguments={"call": call})
    for rank in (0, 1):
        assert lived.ended(rank) == 1
        assert lived.error(rank)["type"] == "NoGroup"
        assert lived.error(rank)["message"].startswith(
            f"{call}: the ranks of backend 'none' have no group; set another backend"
        )
