"""Evidence names files, not this machine's folders."""

from __future__ import annotations

import threading
from pathlib import Path

from harness.world.paths import ROOT, shorten


def test_every_known_place_is_cut_off(tmp_path: Path) -> None:
    """Arm, project, standard library and unknown places: what stays is the file's name where it belongs."""
    arm = tmp_path / "arm é"
    arm.mkdir()
    escaped = str(arm).encode("ascii", "backslashreplace").decode()
    text = "".join(
        f'  File "{file}", line 1 in f\n'
        for file in (
            f"{arm}/deep/subject.py",
            f"{escaped}/subject.py",
            f"{ROOT}/harness/rank/lifecycle.py",
            threading.__file__,
            "/nowhere/known/secret.py",
            "<string>",
        )
    )
    files = [line.split('"')[1] for line in shorten(text, folder=arm).splitlines()]
    assert files == [
        "deep/subject.py",
        "subject.py",
        "harness/rank/lifecycle.py",
        "threading.py",
        "secret.py",
        "<string>",
    ]


def test_the_home_folder_is_never_named() -> None:
    """In running text the home folder is `~`."""
    assert shorten(f"no space left: {Path.home()}/nothing/known") == "no space left: ~/nothing/known"
