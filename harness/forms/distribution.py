"""Distributions: their names and digests, wheels as evidence, and the extras of our own.

Standard library only: ranks use it too, and its text is sent to machines that have nothing of ours.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import io
import re
from collections.abc import Mapping

# Where a RECORD lists scripts: not among the packages.
OUTSIDE = ("../", "/")
# Written by whoever installs, beside what the wheel brings.
INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")


def normal(name: str) -> str:
    """Normalise the name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wheel_digest(record: str) -> str:
    """Return the sha256 of `wheel_lines`, in hex.

    The same wheel in two virtual environments and in a Nix store has one digest.

    Args:
        record: the text of RECORD: path, digest and size of each file.
    """
    return hashlib.sha256(wheel_lines(record)).hexdigest()


def wheel_lines(record: str) -> bytes:
    """Return the lines of an installed RECORD that came with the wheel, sorted.

    Left out: compiled files, which have no digest; what the installer adds; and scripts, whose
    first line names the environment's folder.
    """
    # Ranks ask it of RECORDs with ten thousand lines, of which hardly one is quoted.
    lines = [
        line
        for line in (_plain(line) if '"' in line else line for line in record.splitlines())
        if "," in line
        and not line.endswith(",,")
        and not line.startswith(OUTSIDE)
        and not _is_installers(line)
    ]
    return "".join(f"{line}\n" for line in sorted(lines)).encode("utf-8", "surrogatepass")


def _plain(line: str) -> str:
    return ",".join(next(csv.reader([line])))


def _is_installers(line: str) -> bool:
    return (
        ".dist-info/" in line and line.partition(".dist-info/")[2].partition(",")[0] in INSTALLERS
    )


MODULE_SUFFIXES = (".py", ".so", ".pyd")
ABOUT = ".dist-info"


class WheelError(ValueError):
    """Refusal of bytes that are no wheel, or not in our form; the message says why."""


def pack_wheel(files: Mapping[str, bytes]) -> bytes:
    """Pack files as evidence: the same files give the same bytes on every machine.

    They are sorted by their path in the wheel, and neither compressed nor dated.
    """
    # Imported here, as below: a rank that asks for a digest has no use for archives.
    import zipfile

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(files, key=str.encode):
            about = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            # What the machine that packs would write there of itself.
            about.create_system = 3
            about.external_attr = 0o100644 << 16
            archive.writestr(about, files[path])
    return packed.getvalue()


def unpack_wheel(wheel: bytes, *, most: int) -> dict[str, bytes]:
    """Read the files of any wheel, by their path in it, `most` bytes altogether.

    Raises:
        WheelError: it cannot be read, holds a name twice, or more than that.
    """
    import struct
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            listed = [about for about in archive.infolist() if not about.is_dir()]
            held = sum(about.file_size for about in listed)
            # Nothing is unpacked of an archive that is refused for its size.
            wanted = listed if held <= most else []
            files = {about.filename: archive.read(about) for about in wanted}
    # What zipfile raises for archives that are none, or that somebody made to be read in two ways.
    except (
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
        zlib.error,
        struct.error,
        OSError,
        EOFError,
        RuntimeError,
        ValueError,
    ) as error:
        raise WheelError(f"it cannot be read: {error}") from None
    if held > most:
        raise WheelError(f"its files total {held:,} bytes, but at most {most:,} are allowed")
    if len(files) < len(listed):
        raise WheelError("it contains two files with the same name")
    return files


def evident_wheel(wheel: bytes) -> dict[str, bytes]:
    """Read the files of a wheel that `pack_wheel` wrote.

    Raises:
        WheelError: it is not what `pack_wheel` writes, byte for byte.
    """
    files = unpack_wheel(wheel, most=len(wheel))
    if pack_wheel(files) != wheel:
        raise WheelError(
            "it was not packed by Rankproof: packing its files again gives different bytes"
        )
    return files


def wheel_identity(files: Mapping[str, bytes]) -> tuple[str, str]:
    """Read name, in its normal form, and version from a wheel's files.

    Raises:
        WheelError: they tell none, or two.
    """
    about = {path.partition("/")[0] for path in files if path.partition("/")[0].endswith(ABOUT)}
    if len(about) != 1:
        raise WheelError("its name and version cannot be determined")
    name, _, version = next(iter(about)).removesuffix(ABOUT).rpartition("-")
    return normal(name), version


# Each library that is imported from an extra, with that extra: a test keeps them equal to
# pyproject.toml.
EXTRAS = {
    "httpx2": "serve",
    "huggingface_hub": "tokenizer",
    "jinja2": "tokenizer",
    "mlx": "mlx",
    "mlx_lm": "mlx",
    "numpy": "numeric",
    "sentencepiece": "tokenizer",
    "tokenizers": "tokenizer",
    "torch": "torch",
    "transformers": "tokenizer",
    "xxhash": "torch",
}


def absence(library: str) -> str:
    """Say that a library is not here, and which extra brings it: `torch is not installed here: pip
    install 'rankproof[torch]'`.
    """
    return f"{library} is not installed; run pip install 'rankproof[{EXTRAS[library]}]'"


def missing(*libraries: str) -> str | None:
    """Say which of these libraries is not here, the first of them, without importing any; None if
    all are.
    """
    for name in libraries:
        if importlib.util.find_spec(name) is None:
            return absence(name)
    return None
