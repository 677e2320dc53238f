"""Tiny wheels with locks of their own, so that the flake can be built for real within seconds and
without a network.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import json
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.nix.store import CheckFailed, Host, Store

TORCH = "2.13.0+cpu"


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes],
    *,
    entry_points: str = "",
    needs: str = "",
) -> Path:
    """Write a wheel for every system.

    Args:
        folder: where it goes.
        name: as in its file name.
        version: of the release.
        files: path to content, from site-packages.
        entry_points: text of its entry_points.txt.
        needs: a requirement of it.
    """
    info = f"{name}-{version}.dist-info"
    required = f"Requires-Dist: {needs}\n" if needs else ""
    content: dict[str, str | bytes] = dict(files) | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: rankproof\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    if entry_points:
        content[f"{info}/entry_points.txt"] = entry_points
    record = io.StringIO()
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, given in content.items():
            data = given if isinstance(given, bytes) else given.encode()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.write(f"{place},sha256={digest},{len(data)}\n")
            archive.writestr(zipfile.ZipInfo(place), data)
        record.write(f"{info}/RECORD,,\n")
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), record.getvalue())
    return path


def sha256(path: Path) -> str:
    """Of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_locks(store: Store, wheels: Mapping[str, list[Path]]) -> None:
    """Write the flake's locks for these wheels alone: lock name to wheels.

    Both systems of Linux get the same files.
    """
    locks = store.flake / "locks"
    for name in ("cpu", "cuda", "metal", "dev"):
        lines = []
        for wheel in wheels.get(name, []):
            pin = "==".join(wheel.name.split("-")[:2])
            lines.append(f"{pin} \\\n    --hash=sha256:{sha256(wheel)}\n")
        (locks / f"{name}.txt").write_text("".join(lines))
    table = json.loads((locks / "wheels.json").read_text())
    table["python"] = f"{sys.version_info[0]}.{sys.version_info[1]}"
    table["locks"] = {name: sha256(locks / f"{name}.txt") for name in table["locks"]}
    for variants in table["systems"].values():
        for variant in variants:
            files = [*wheels.get(variant, []), *wheels.get("dev", [])]
            variants[variant] = {wheel.name: sha256(wheel) for wheel in files}
    (locks / "wheels.json").write_text(json.dumps(table))


def tiny_environment(store: Store) -> dict[str, list[Path]]:
    """Give the flake locks for a torch of a few bytes and for the nox that runs this, and the
    stand-in those wheels.

    Returns:
        The wheels, by the lock that names them.

    Raises:
        CheckFailed: this Python has no pip to install with.
    """
    folder = store.folder / "wheels"
    folder.mkdir(exist_ok=True)
    host = "\n".join(sorted({sysconfig.get_path(name) for name in ("purelib", "platlib")}))
    nox = write_wheel(
        folder,
        "tinynox",
        "1.0",
        {"tinynox.pth": host + "\n"},
        entry_points="[console_scripts]\nnox = nox.__main__:main\n",
    )
    torch = write_wheel(folder, "torch", TORCH, {"torch/__init__.py": "VERSION = 'tiny'\n"})
    found = {"cpu": [torch], "cuda": [torch], "metal": [torch], "dev": [nox]}
    write_locks(store, found)
    store.build_with(host_for(folder))
    return found


def host_for(wheels: Path) -> Host:
    """The interpreter that runs this, outside its environment, with a pip, and a folder of wheels.

    Raises:
        CheckFailed: no pip is there.
    """
    return Host(
        python=Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}",
        version=f"{sys.version_info[0]}.{sys.version_info[1]}",
        pip=find_pip(wheels),
        wheels=wheels,
    )


def find_pip(scratch: Path) -> Path:
    """The package pip: of this interpreter, else unpacked from the one that virtualenv, a part of
    nox, brings along.
    """
    if (spec := importlib.util.find_spec("pip")) is not None and spec.origin:
        return Path(spec.origin).parent
    if (spec := importlib.util.find_spec("virtualenv")) is not None and spec.origin:
        bundled = Path(spec.origin).parent / "seed" / "wheels" / "embed"
        for wheel in sorted(bundled.glob("pip-*.whl"), reverse=True):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(scratch / "pip")
            return scratch / "pip" / "pip"
    raise CheckFailed(
        "this Python has neither pip nor virtualenv; run `nox -s nix`, which has virtualenv"
    )
