"""Names of the machine and its user, found as words and as folders."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from harness.world.control import names


@pytest.fixture
def quentin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user with a home of their own."""
    home = tmp_path / "quentin"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "quentin.q")
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.setenv("HOSTNAME", "planted-host.example.org")
    return home


def test_home_user_and_host_are_replaced_as_wholes(quentin: Path) -> None:
    """Whole words and folders are replaced.

    A longer name, and a name that is everybody's, are not.
    """
    text = (
        f"{quentin}/x {quentin} {quentin}-other quentin.q (quentin.q) quentin.qq root"
        " planted-host.example.org:1"
    )
    assert names.hide(text) == f"~/x ~ {quentin}-other <user> (<user>) quentin.qq root <host>:1"


def test_in_values_only_the_home_folder_is_replaced(quentin: Path) -> None:
    """Reported values are judged: a user called like a word of the prompt changes nothing, numbers
    stay numbers.
    """
    value = {
        "path": [f"{quentin}/models", {"deep": str(quentin)}],
        f"{quentin}/key": 1,
        "said": "quentin.q said",
        "n": 1.5,
    }
    assert names.hide_home_in(value) == {
        "path": ["~/models", {"deep": "~"}],
        "~/key": 1,
        "said": "quentin.q said",
        "n": 1.5,
    }


def test_a_home_at_the_root_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the home folder is `/`, as in some containers, paths stay as they are."""
    monkeypatch.setenv("HOME", "/")
    assert "/" not in names.homes()


def test_every_known_place_is_cut_off(tmp_path: Path) -> None:
    """Arm, project, standard library and unknown places: what stays is the file's name where it
    belongs.
    """
    arm = tmp_path / "arm é"
    arm.mkdir()
    escaped = str(arm).encode("ascii", "backslashreplace").decode()
    text = "".join(
        f'  File "{file}", line 1 in f\n'
        for file in (
            f"{arm}/deep/subject.py",
            f"{escaped}/subject.py",
            f"{names.ROOT}/harness/rank/lifecycle.py",
            threading.__file__,
            "/nowhere/known/secret.py",
            "<string>",
        )
    )
    files = [line.split('"')[1] for line in names.shorten(text, folder=arm).splitlines()]
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
    assert (
        names.shorten(f"no space left: {Path.home()}/nothing/known")
        == "no space left: ~/nothing/known"
    )
