"""What a rank keeps lies as NumPy reads it, whichever library it came from.

What cannot be kept is said.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.rank.artefacts import CannotKeep, keep

SPECIAL = [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 2.0**-24]


def kept(folder: Path, data: Any) -> np.ndarray[Any, Any]:
    """What is read back; the digest that was told is that of the file."""
    told = keep(folder, "x", data)
    path = folder / str(told["file"])
    content = path.read_bytes()
    assert (told["artefact"], told["bytes"], told["sha256"]) == (
        "x",
        len(content),
        hashlib.sha256(content).hexdigest(),
    )
    return np.load(path, allow_pickle=False)


@pytest.mark.parametrize(
    "dtype",
    ["float16", "float32", "float64", "int8", "uint16", "int64", "uint64", "bool", ">f4", ">i8"],
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3), (1, 2, 3)])
def test_arrays_of_numpy(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    """Any dtype of numbers, any shape, an order of bytes of its own."""
    values = np.resize(np.array([1, 0, 3, 4, 5, 6]).astype(dtype), shape)
    found = kept(tmp_path, values)
    assert (found.dtype, found.shape) == (values.dtype, shape)
    assert np.array_equal(found, values)


def test_an_array_that_lies_otherwise_in_memory(tmp_path: Path) -> None:
    """A slice, a transpose and Fortran's order are kept as the array that they are."""
    values = np.arange(24.0).reshape(4, 6)
    for name, other in (
        ("sliced", values[::2, 1::2]),
        ("turned", values.T),
        ("fortran", np.asfortranarray(values)),
    ):
        assert np.array_equal(kept(tmp_path / name, other), other)


def bits(path: Path) -> list[int]:
    return np.load(path).view("uint16").tolist()  # type: ignore[no-any-return]


def test_tensors_of_torch(tmp_path: Path) -> None:
    """With a gradient, strided, a bfloat16 with its own bits."""
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0).reshape(2, 3)
    assert np.array_equal(
        kept(tmp_path / "turned", tensor.requires_grad_().T), tensor.detach().numpy().T
    )
    brain = torch.tensor([SPECIAL, SPECIAL]).bfloat16()
    told = keep(tmp_path, "brain", brain.T)
    assert told["file"] == "brain.bfloat16.npy"
    assert bits(tmp_path / "brain.bfloat16.npy") == brain.T.contiguous().view(torch.uint16).tolist()
    with pytest.raises(CannotKeep, match="'Zf'"):
        keep(tmp_path, "complex", torch.zeros(2, dtype=torch.complex64))


def test_arrays_of_mlx(tmp_path: Path) -> None:
    """Lazy ones are evaluated; a bfloat16 has its own bits."""
    mx = pytest.importorskip("mlx.core")
    lazy = mx.arange(6).reshape(2, 3).astype(mx.float32) + 1
    assert np.array_equal(kept(tmp_path / "lazy", lazy), np.arange(1.0, 7.0).reshape(2, 3))
    brain = mx.array(SPECIAL).astype(mx.bfloat16)
    assert keep(tmp_path, "brain", brain)["file"] == "brain.bfloat16.npy"
    assert bits(tmp_path / "brain.bfloat16.npy") == brain.view(mx.uint16).tolist()


def test_bytes_and_files(tmp_path: Path) -> None:
    """Bytes as they are; a file is copied, and an array's file stays one."""
    assert keep(tmp_path, "raw", b"\0\xff")["file"] == "raw.bin"
    assert (tmp_path / "raw.bin").read_bytes() == b"\0\xff"
    np.save(tmp_path / "mine.npy", np.ones(3))
    assert keep(tmp_path, "copied", tmp_path / "mine.npy")["file"] == "copied.npy"
    assert keep(tmp_path, "log", str(tmp_path / "raw.bin"))["file"] == "log.bin"


@pytest.mark.parametrize(
    "data", [None, 3, 1.5, [1.0, 2.0], {"a": 1}, np.array(["a"]), np.array([{}]), np.array([1j])]
)
def test_what_is_not_an_array_of_numbers_cannot_be_kept(tmp_path: Path, data: Any) -> None:
    """The error says what it is and what can be kept; nothing is left of it."""
    with pytest.raises(CannotKeep, match=r"cannot be kept.*(pass|use)"):
        keep(tmp_path / "kept", "x", data)
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    """A second array of one name would take the first one's place in the evidence."""
    keep(tmp_path, "x", b"1")
    with pytest.raises(CannotKeep, match=r"x\.1"):
        keep(tmp_path, "x", np.ones(1))
    for name in ("../x", "X", "", "a b", ".x"):
        with pytest.raises(CannotKeep, match="separated by dots"):
            keep(tmp_path, name, b"1")
    with pytest.raises(FileNotFoundError):
        keep(tmp_path, "y", tmp_path / "nowhere")
    assert [path.name for path in tmp_path.iterdir()] == ["x.bin"]


def test_it_needs_no_package(tmp_path: Path) -> None:
    """The file that an arm's environment runs imports neither NumPy nor anything else that it may
    lack.
    """
    code = (
        "import array, sys, pathlib; from harness.rank.artefacts import keep;"
        " keep(pathlib.Path(sys.argv[1]), 'x', array.array('d', [1.0, 2.0])); assert 'numpy' not in"
        " sys.modules"
    )
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-S", "-c", code, str(tmp_path)],
        cwd=root,
        env={"PYTHONPATH": str(root)},
        check=True,
    )
    assert np.load(tmp_path / "x.npy").tolist() == [1.0, 2.0]


def test_a_name_that_a_bfloat16_s_file_has_is_refused(tmp_path: Path) -> None:
    """It would be found under another name, as an array of another dtype."""
    with pytest.raises(CannotKeep, match="a different last word"):
        keep(tmp_path, "logits.bfloat16", np.ones(1, "float32"))
