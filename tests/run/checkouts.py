"""Git repositories with a package that is built by a backend of its own, so that no index is asked
for one.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

BACKEND = """
import base64
import hashlib
import pathlib
import zipfile


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    about = "NAME-VERSION.dist-info"
    files = {path.as_posix(): path.read_bytes() for path in pathlib.Path("NAME").rglob("*.py")}
    files[f"{about}/METADATA"] = b"Metadata-Version: 2.1\\nName: NAME\\nVersion: VERSION\\nREQUIRES"
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    alter(files)
    rows = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip('=')},{len(text)}\\n"
        for path, text in files.items()
    ]
    files[f"{about}/RECORD"] = ("".join(rows) + f"{about}/RECORD,,\\n").encode()
    with zipfile.ZipFile(pathlib.Path(wheel_directory, "NAME-VERSION-py3-none-any.whl"), "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)  # with the time of day: no two builds are the same bytes
    return "NAME-VERSION-py3-none-any.whl"


def alter(files):
    ALTER
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "NAME"
version = "VERSION"
"""


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, as nobody in particular."""
    own = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *own, "-C", str(folder), *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def write(
    folder: Path,
    name: str,
    version: str,
    text: str,
    *,
    requires: str = "",
    alter: str = "pass",
    tag: str = "",
) -> str:
    """Commit a package with one module; `alter` is what its build does to the files.

    Returns the commit's id.
    """
    (folder / name).mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    metadata = f"Requires-Dist: {requires}\\n" if requires else ""
    words = {"NAME": name, "VERSION": version, "REQUIRES": metadata, "ALTER": alter}
    for file, content in (("backend.py", BACKEND), ("pyproject.toml", PROJECT)):
        filled = re.sub("|".join(words), lambda found: words[found[0]], content)
        (folder / file).write_text(filled)
    (folder / name / "__init__.py").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", f"{name} {version}", "--allow-empty")
    if tag:
        git(folder, "tag", tag)
    return git(folder, "rev-parse", "HEAD")
