"""Wheels that are evidence, in one form: the same files give the same bytes on every machine.

Standard library only.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping

from harness.forms.distribution import normal

# What zipfile raises for archives that are none, or that somebody made to be read in two ways.
READING = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error),
    *(OSError, EOFError, RuntimeError, ValueError),
)
MODULES = (".py", ".so", ".pyd")
ABOUT = ".dist-info"


class WheelError(ValueError):
    """It is not a wheel, or not in our form; the message says why."""


def pack(files: Mapping[str, bytes]) -> bytes:
    """Pack files, by their path in the wheel: sorted, without compression, without times of their
    own.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(files, key=str.encode):
            about = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            # What the machine that packs would write there of itself.
            about.create_system = 3
            about.external_attr = 0o100644 << 16
            archive.writestr(about, files[path])
    return packed.getvalue()


def unpack(wheel: bytes, *, most: int) -> dict[str, bytes]:
    """The files of any wheel, by their path in it, `most` bytes altogether.

    Raises:
        WheelError: it cannot be read, holds a name twice, or more than that.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            listed = [about for about in archive.infolist() if not about.is_dir()]
            held = sum(about.file_size for about in listed)
            files = (
                {about.filename: archive.read(about) for about in listed} if held <= most else {}
            )
    except READING as error:
        raise WheelError(f"it cannot be read: {error}") from None
    if held > most:
        raise WheelError("it holds more than evidence may")
    if len(files) < len(listed):
        raise WheelError("it holds a file of one name twice")
    return files


def evident(wheel: bytes) -> dict[str, bytes]:
    """The files of a wheel in our form.

    Raises:
        WheelError: it is not what `pack` writes, byte for byte.
    """
    files = unpack(wheel, most=len(wheel))
    if pack(files) != wheel:
        raise WheelError("it is not packed as a run packs it")
    return files


def identity(files: Mapping[str, bytes]) -> tuple[str, str]:
    """The name, in its normal form, and the version that a wheel's files tell.

    Raises:
        WheelError: they tell none, or two.
    """
    about = {path.partition("/")[0] for path in files if path.partition("/")[0].endswith(ABOUT)}
    if len(about) != 1:
        raise WheelError("it does not tell its name and version")
    name, _, version = next(iter(about)).removesuffix(ABOUT).rpartition("-")
    return normal(name), version
