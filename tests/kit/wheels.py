"""Wheels made for a test, in a folder that pip finds instead of an index."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def write(
    folder: Path,
    name: str,
    version: str,
    text: str | None,
    *,
    requires: Sequence[str] = (),
    extras: Mapping[str, str] | None = None,
    script: str = "",
    tags: str = "py3-none-any",
    more: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a wheel with one module, `name.py`; return its path.

    Args:
        folder: of wheels.
        name: of package and module.
        version: of the package.
        text: of the module; None for none.
        requires: packages that it needs.
        extras: extra to a package that it brings.
        script: a command that it installs.
        tags: of the file's name.
        more: further files, by path.
    """
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {one}" for one in requires]
    for extra, package in (extras or {}).items():
        metadata += [f"Provides-Extra: {extra}", f'Requires-Dist: {package}; extra == "{extra}"']
    files = {
        **({f"{name}.py": text.encode()} if text is not None else {}),
        **(more or {}),
        f"{about}/METADATA": ("\n".join(metadata) + "\n").encode(),
        f"{about}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tags}\n".encode()
        ),
    }
    if script:
        files[f"{about}/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n".encode()
    rows = [f"{path},sha256={digest(content)},{len(content)}" for path, content in files.items()]
    files[f"{about}/RECORD"] = ("\n".join([*rows, f"{about}/RECORD,,"]) + "\n").encode()
    wheel = folder / f"{name}-{version}-{tags}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), content)
    return wheel


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def settings(folder: Path, cache: Path) -> dict[str, str]:
    """Variables with which pip looks into `folder` only, and environments are kept in `cache`."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_CONFIG_FILE": "/dev/null",
        "RANKPROOF_ENVIRONMENTS": str(cache),
    }
