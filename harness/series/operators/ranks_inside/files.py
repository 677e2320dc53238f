"""Arrays written and read again, or handed from one library to another: what went in has to come
out.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.series.operators.ranks_inside.told import integers, many, shape_of

Axes = Mapping[str, str]
NAME = "x"


def made(operator: str, axes: Axes) -> Any:
    """Return the array that goes in, of the library that the operator takes."""
    source = operator.partition(">")[0]
    dtype = axes["dtype"]
    shape = shape_of(axes["shape"])
    values = _values(dtype, shape)
    if source == "numpy":
        return _of_numpy(values, dtype, shape, axes["layout"])
    if source == "torch":
        import torch

        from harness.series.operators.ranks_inside.laid import laid

        real = torch.tensor(values, dtype=torch.complex128 if "complex" in dtype else None)
        return laid(real.reshape(shape).to(getattr(torch, dtype)), axes["layout"]).view
    import mlx.core as mx

    from harness.series.operators.ranks_inside.mlx import laid as laid_by_mlx

    array = mx.array(values).reshape(shape).astype(getattr(mx, NAMES_OF_MLX.get(dtype, dtype)))
    array = laid_by_mlx(array, axes["layout"])
    mx.eval(array)
    return array


NAMES_OF_MLX = {"bool": "bool_"}


def _values(dtype: str, shape: tuple[int, ...]) -> list[Any]:
    drawn = integers("file", many(shape), least=0, most=9)
    if dtype == "bool":
        return [value % 2 == 0 for value in drawn]
    if "complex" in dtype:
        return [complex(value, 9 - value) for value in drawn]
    return drawn


def _of_numpy(values: list[Any], dtype: str, shape: tuple[int, ...], layout: str) -> Any:
    import numpy as np

    array: Any = np.array(values).reshape(shape).astype(dtype)
    padded: Any
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "transposed":
        return np.ascontiguousarray(array.T).T
    if layout == "strided":
        padded = np.zeros((*shape[:-1], 2 * shape[-1]), dtype=array.dtype)
        padded[..., ::2] = array
        return padded[..., ::2]
    if layout == "columns":
        padded = np.zeros((*shape[:-1], shape[-1] + 3), dtype=array.dtype)
        padded[..., 1 : 1 + shape[-1]] = array
        return padded[..., 1 : 1 + shape[-1]]
    if layout == "reversed":
        return np.ascontiguousarray(array[::-1])[::-1]
    if layout == "expanded":
        return np.broadcast_to(array[:1], shape)
    if layout == "big-endian":
        return array.astype(array.dtype.newbyteorder(">"))
    if layout == "read-only":
        array.flags.writeable = False
    return array


# -- round trips -----------------------------------------------------------------------------------


def _numpy_file(x: Any, place: Path) -> Any:
    import numpy as np

    np.save(place / "x.npy", x)
    return np.load(place / "x.npy")


def _numpy_archive(x: Any, place: Path) -> Any:
    import numpy as np

    np.savez(place / "x.npz", **{NAME: x})
    return np.load(place / "x.npz")[NAME]


def _torch_file(x: Any, place: Path) -> Any:
    import torch

    torch.save({NAME: x}, place / "x.pt")
    return torch.load(place / "x.pt")[NAME]


def _torch_mapped(x: Any, place: Path) -> Any:
    import torch

    torch.save({NAME: x}, place / "x.pt")
    return torch.load(place / "x.pt", mmap=True)[NAME]


def _checkpoint(x: Any, place: Path) -> Any:
    import torch
    import torch.distributed.checkpoint

    # Not declared by the module, though documented.
    checkpoint: Any = torch.distributed.checkpoint
    checkpoint.save({NAME: x}, checkpoint_id=place / "checkpoint", no_dist=True)
    state = {NAME: torch.zeros(x.shape, dtype=x.dtype)}
    checkpoint.load(state, checkpoint_id=place / "checkpoint", no_dist=True)
    return state[NAME]


def _safetensors(library: str, *, file: bool) -> Callable[[Any, Path], Any]:
    def round_trip(x: Any, place: Path) -> Any:
        import importlib

        module = importlib.import_module(f"safetensors.{library}")
        if file:
            module.save_file({NAME: x}, str(place / "x.safetensors"))
            return module.load_file(str(place / "x.safetensors"))[NAME]
        return module.load(module.save({NAME: x}))[NAME]

    return round_trip


def _sliced(x: Any, place: Path) -> Any:
    """Write a file, and read it by its rows."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    save_file({NAME: x}, str(place / "x.safetensors"))
    with safe_open(str(place / "x.safetensors"), framework="pt") as opened:
        part = opened.get_slice(NAME)
        return torch.cat([part[at : at + 1] for at in range(x.shape[0])])


def _model(x: Any, place: Path) -> Any:
    from huggingface_hub import save_torch_state_dict
    from safetensors.torch import load_file

    save_torch_state_dict({NAME: x}, place)
    return load_file(str(place / "model.safetensors"))[NAME]


def _mlx_file(ending: str) -> Callable[[Any, Path], Any]:
    def round_trip(x: Any, place: Path) -> Any:
        import mlx.core as mx

        path = str(place / f"x.{ending}")
        if ending == "npy":
            mx.save(path, x)
            return mx.load(path)
        if ending == "npz":
            mx.savez(path, **{NAME: x})
        elif ending == "gguf":
            mx.save_gguf(path, {NAME: x}, {})
        else:
            mx.save_safetensors(path, {NAME: x})
        loaded: Any = mx.load(path)
        return loaded[NAME]

    return round_trip


def _gguf(x: Any, place: Path) -> Any:
    import gguf

    writer = gguf.GGUFWriter(place / "x.gguf", "llama")
    writer.add_tensor(NAME, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tensor,) = gguf.GGUFReader(place / "x.gguf").tensors
    # The reader's documented shape is in gguf's order; its data is in numpy's.
    return tensor.data


def _numpy_of(x: Any, _: Path) -> Any:
    import numpy as np

    return np.array(x)


def _buffer_of(x: Any, _: Path) -> Any:
    import numpy as np

    return np.asarray(memoryview(x))


def _torch_of(x: Any, _: Path) -> Any:
    import torch

    return torch.from_numpy(x)


def _mlx_of(x: Any, _: Path) -> Any:
    import mlx.core as mx

    return mx.array(x)


def _dlpack(library: str) -> Callable[[Any, Path], Any]:
    def exchanged(x: Any, _: Path) -> Any:
        import importlib

        return importlib.import_module(library).from_dlpack(x)

    return exchanged


def _pickled(x: Any, _: Path) -> Any:
    # Our own bytes.
    return pickle.loads(pickle.dumps(x, protocol=5))  # noqa: S301


ROUND_TRIPS: Mapping[str, Callable[[Any, Path], Any]] = {
    "numpy>numpy.save": _numpy_file,
    "numpy>numpy.savez": _numpy_archive,
    "numpy>pickle": _pickled,
    "numpy>safetensors.numpy.save": _safetensors("numpy", file=False),
    "numpy>safetensors.numpy.save_file": _safetensors("numpy", file=True),
    "numpy>gguf.GGUFWriter": _gguf,
    "numpy>torch.from_numpy": _torch_of,
    "numpy>torch.from_dlpack": _dlpack("torch"),
    "numpy>mlx.array": _mlx_of,
    "torch>torch.save": _torch_file,
    "torch>torch.load(mmap=True)": _torch_mapped,
    "torch>torch.distributed.checkpoint": _checkpoint,
    "torch>pickle": _pickled,
    "torch>copy.deepcopy": lambda x, _: copy.deepcopy(x),
    "torch>safetensors.torch.save": _safetensors("torch", file=False),
    "torch>safetensors.torch.save_file": _safetensors("torch", file=True),
    "torch>safetensors.get_slice": _sliced,
    "torch>huggingface_hub.save_torch_state_dict": _model,
    "torch>numpy.array": _numpy_of,
    "torch>numpy.from_dlpack": _dlpack("numpy"),
    "torch>mlx.array": _mlx_of,
    "mlx>mlx.save": _mlx_file("npy"),
    "mlx>mlx.savez": _mlx_file("npz"),
    "mlx>mlx.save_safetensors": _mlx_file("safetensors"),
    "mlx>mlx.save_gguf": _mlx_file("gguf"),
    "mlx>safetensors.mlx.save": _safetensors("mlx", file=False),
    "mlx>safetensors.mlx.save_file": _safetensors("mlx", file=True),
    "mlx>numpy.array": _numpy_of,
    "mlx>memoryview": _buffer_of,
    "mlx>numpy.from_dlpack": _dlpack("numpy"),
    "mlx>torch.from_dlpack": _dlpack("torch"),
    "mlx>copy.deepcopy": lambda x, _: copy.deepcopy(x),
    "mlx>pickle": _pickled,
}


def called(operator: str, axes: Axes, place: Path) -> dict[str, Any]:
    """Make the round trip."""
    x = made(operator, axes)
    return {"result": ROUND_TRIPS[operator](x, place), "given": x}


def whole(operator: str, axes: Axes) -> dict[str, Any]:
    """Return what has to come out, made anew, and contiguous."""
    plain = made(operator, {**axes, "layout": "contiguous"})
    if axes["layout"] == "expanded":
        plain = made(operator, axes)
    return {"result": plain, "given": plain}
