"""Wheels made for a test, in a folder that pip finds instead of an index."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path


def write(
    folder: Path, name: str, version: str, text: str, *, requires: Sequence[str] = (), tags: str = "py3-none-any"
) -> Path:
    """Write a wheel with one module, `name.py`; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {one}" for one in requires]
    files = {
        f"{name}.py": text,
        f"{about}/METADATA": "\n".join(metadata) + "\n",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tags}\n",
    }
    rows = [f"{path},sha256={digest(content)},{len(content.encode())}" for path, content in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*rows, f"{about}/RECORD,,"]) + "\n"
    wheel = folder / f"{name}-{version}-{tags}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), content)
    return wheel


def digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def settings(folder: Path, cache: Path) -> dict[str, str]:
    """Variables with which pip looks into `folder` only, and environments are kept in `cache`."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_CONFIG_FILE": "/dev/null",
        "RANKPROOF_ENVIRONMENTS": str(cache),
    }
