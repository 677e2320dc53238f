"""Artefacts, which a rank keeps next to its events: arrays and bytes, a file each.

The standard library writes NumPy's format.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from harness.events import is_name
from harness.forms.digest import sha256_of
from harness.forms.strict_json import JSON
from harness.rank.inside import alter_file

# Name of the folder of a rank in which a program puts its files, and functions have theirs put.
FOLDER = "kept"
ARRAY = ".npy"
BFLOAT16 = ".bfloat16.npy"
BYTES = ".bin"
CODES = {
    "?": "b1",
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("efd", "f"),
}


class CannotKeep(ValueError):
    """Raised where data cannot be kept; the message says why, and what can."""


def keep(folder: Path, name: str, data: Any) -> dict[str, JSON]:
    """Write an artefact.

    Args:
        folder: of this rank, for its artefacts.
        name: dotted lower-case words, each once per rank and trial.
        data: an array of torch, MLX or NumPy (whatever has Python's buffer protocol), bytes, or the
            path of a file.

    Returns:
        The values of the event that tells of it: artefact, file, bytes, sha256.

    Raises:
        CannotKeep: the name is not such words or was taken, or the data is not an array of numbers.
        OSError: it cannot be written, or the file that was named cannot be read.
    """
    if not is_name(name):
        raise CannotKeep(
            f"{name!r} is not a valid artefact name; use lower-case words separated by"
            " dots, such as 'logits.prefill'"
        )
    if name.endswith(".bfloat16"):
        raise CannotKeep(
            f"{name} is not a valid artefact name, because the names of bfloat16 files end this"
            " way; use a different last word"
        )
    folder.mkdir(exist_ok=True)
    if any((folder / (name + suffix)).exists() for suffix in (ARRAY, BFLOAT16, BYTES)):
        raise CannotKeep(
            f"an artefact named {name} was already saved; use a different name for each artefact,"
            f" such as {name}.1"
        )
    partial = folder / f".{name}"
    try:
        if isinstance(data, str | os.PathLike):
            suffix = next((end for end in (BFLOAT16, ARRAY) if str(data).endswith(end)), BYTES)
            shutil.copyfile(data, partial)
        else:
            suffix = _write(partial, data)
        alter_file(name, partial, suffix)
        digest = sha256_of(partial)
        size = partial.stat().st_size
        partial.rename(folder / (name + suffix))
    finally:
        partial.unlink(missing_ok=True)
    return {"artefact": name, "file": name + suffix, "bytes": size, "sha256": digest}


def _write(path: Path, data: Any) -> str:
    """Write bytes or an array; returns the suffix that tells which."""
    if isinstance(data, bytes | bytearray):
        path.write_bytes(data)
        return BYTES
    is_bfloat16 = str(getattr(data, "dtype", "")).endswith("bfloat16")
    view = _view(data, is_bfloat16=is_bfloat16)
    descr = "<u2" if is_bfloat16 else _descr(view)
    sizes = view.shape or ()
    shape = "".join(f"{size}, " for size in sizes).rstrip(" " if len(sizes) == 1 else ", ")
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}"
    # The array begins at a multiple of 64 bytes, so that it can be mapped into memory.
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    with path.open("wb") as file:
        file.write(
            b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode("ascii")
        )
        file.write(view if view.c_contiguous and view.nbytes else view.tobytes())
    return BFLOAT16 if is_bfloat16 else ARRAY


def _view(data: Any, *, is_bfloat16: bool) -> memoryview:
    """Return the array's memory, on the CPU."""
    if hasattr(data, "full_tensor"):
        raise CannotKeep(
            "it is a DTensor; keep x.to_local(), or keep x.full_tensor(), which every rank must"
            " call"
        )
    if hasattr(data, "detach") and hasattr(data, "cpu"):  # torch has no buffer protocol of its own
        data = data.detach().cpu().resolve_conj().resolve_neg()
        if is_bfloat16:
            data = data.contiguous().view(sys.modules["torch"].int16)
        data = data.numpy()
    try:
        return memoryview(data)  # an array of MLX is evaluated by this
    except (TypeError, ValueError, BufferError) as error:
        what = f"{type(data).__module__}.{type(data).__qualname__}"
        raise CannotKeep(
            f"{what} cannot be kept ({error}); pass a numeric array, a bytes object, or a file path"
        ) from None


def _descr(view: memoryview) -> str:
    """Return NumPy's name of the dtype of a view."""
    match = re.fullmatch(r"([<>=@|]?)([A-Za-z?])", view.format)
    kind = CODES.get(match[2]) if match else None
    if match is None or kind is None:
        raise CannotKeep(
            f"an array of format {view.format!r} cannot be kept; use integers, floats or booleans"
        )
    order = ">" if match[1] == ">" or (match[1] in "=@" and sys.byteorder == "big") else "<"
    return "|b1" if kind == "b1" else f"{order}{kind}{view.itemsize}"
