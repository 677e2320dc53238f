"""Where the signing key comes from, and what is said about keys that cannot sign."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from harness.trust import sshsig
from harness.trust.key import VARIABLE, KeyProblem, find_signer, own_keys
from harness.trust.sshsig import NAMESPACE_REPORT, NoSshKeygen, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who never used git or ssh."""
    (tmp_path / "home").mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "GIT_CONFIG_NOSYSTEM": "1"}


def _make(path: Path, *options: str) -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-C", "test", "-f", path, *(options or ("-t", "ed25519", "-N", ""))],
        check=True,
    )
    return path


def _git(home: dict[str, str], **config: str) -> None:
    for name, value in config.items():
        subprocess.run(
            ["git", "config", "--global", name.replace("_", "."), value], env=home, check=True
        )


@pytest.fixture
def agent(tmp_path: Path, home: dict[str, str]) -> Iterator[Path]:
    """An agent that holds a key; its environment variable is in `home`."""
    key = _make(tmp_path / "agent_key", "-t", "ed25519", "-N", "words")
    socket = tmp_path / "agent.sock"
    shown = subprocess.run(
        ["ssh-agent", "-a", socket], capture_output=True, text=True, check=True
    ).stdout
    home["SSH_AUTH_SOCK"] = str(socket)
    pid = shown.split("SSH_AGENT_PID=")[1].split(";")[0]
    open_key = shutil.copy(key, tmp_path / "open_key")
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "words", "-N", "", "-f", open_key], check=True)
    subprocess.run(["ssh-add", "-q", open_key], env=home, check=True, stderr=subprocess.DEVNULL)
    os.unlink(open_key)  # noqa: PTH108 - shutil.copy gives a str
    yield key
    subprocess.run(
        ["ssh-agent", "-k"], env={**home, "SSH_AGENT_PID": pid}, check=True, capture_output=True
    )


def test_order(tmp_path: Path, home: dict[str, str]) -> None:
    """`--key` goes before the variable, the variable before git, and git before this machine's
    key.
    """
    keys = {name: _make(tmp_path / name) for name in ("explicit", "variable", "git")}
    found = {"machine": find_signer(environ=home)}
    _git(home, gpg_format="ssh", user_signingKey=f"{keys['git']}.pub")
    found["git"] = find_signer(environ=home)
    home[VARIABLE] = str(keys["variable"])
    found["variable"] = find_signer(environ=home)
    found["explicit"] = find_signer(explicit=str(keys["explicit"]), environ=home)
    for name, key in keys.items():
        assert found[name].public_key == " ".join(key.with_suffix(".pub").read_text().split()[:2])
    origins = [
        found[name].origin.split(" (")[0] for name in ("explicit", "variable", "git", "machine")
    ]
    assert origins == ["--key", VARIABLE, "git's user.signingKey", "this machine's key"]


def test_machine_key_is_made_once(home: dict[str, str]) -> None:
    """The first run makes a key that only its owner can read and says so.

    The second run uses it.
    """
    first, second = find_signer(environ=home), find_signer(environ=home)
    assert first.made_now
    assert not second.made_now
    assert first.fingerprint == second.fingerprint
    assert first.key_file is not None
    assert str(first.key_file) == f"{home['HOME']}/.local/share/rankproof/signing_key"
    assert first.key_file.stat().st_mode & 0o777 == 0o600


def test_machine_key_made_by_many_at_once(home: dict[str, str], tmp_path: Path) -> None:
    """Runs that start together on a new machine agree on one key."""
    home["XDG_DATA_HOME"] = str(tmp_path / "data")
    with ThreadPoolExecutor(8) as pool:
        signers = list(pool.map(lambda _: find_signer(environ=home), range(8)))
    assert len({signer.fingerprint for signer in signers}) == 1
    assert [signer.made_now for signer in signers].count(True) == 1
    assert sorted(p.name for p in (tmp_path / "data/rankproof").iterdir()) == [
        "signing_key",
        "signing_key.lock",
        "signing_key.pub",
    ]


def test_git_that_signs_with_gpg_is_left_alone(tmp_path: Path, home: dict[str, str]) -> None:
    """`user.signingKey` means an SSH key only where `gpg.format` is `ssh`."""
    _git(home, user_signingKey=str(_make(tmp_path / "key")))
    assert find_signer(environ=home).origin.startswith("this machine's key")


def test_git_key_that_cannot_sign_is_passed_over(tmp_path: Path, home: dict[str, str]) -> None:
    """A key of git that needs a passphrase is passed over, and the signer says so."""
    key = _make(tmp_path / "key", "-t", "ed25519", "-N", "words")
    _git(home, gpg_format="ssh", user_signingKey=str(key))
    signer = find_signer(environ=home)
    assert signer.made_now
    assert "needs a passphrase" in signer.passed_over[0]


def test_key_of_an_agent(agent: Path, home: dict[str, str]) -> None:
    """A literal key, the public file of a key, and a key with a passphrase all work where the agent
    holds the key.
    """
    public = " ".join(agent.with_suffix(".pub").read_text().split()[:2])
    for value in (f"key::{public} comment", public, f"{agent}.pub", str(agent)):
        signer = find_signer(explicit=value, environ=home)
        signature = signer.sign(b"data")
        assert sshsig.fits(b"data", signature, namespace=NAMESPACE_REPORT)
        assert parse(signature).fingerprint == signer.fingerprint


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-t", "ed25519", "-N", "words"), "needs a passphrase"),
        (("-t", "rsa", "-b", "2048", "-N", ""), "of type ssh-rsa"),
        (("-t", "rsa", "-b", "2048", "-N", "", "-m", "PEM"), "not an OpenSSH Ed25519 key"),
    ],
)
def test_key_that_cannot_sign(
    tmp_path: Path, home: dict[str, str], options: tuple[str, ...], said: str
) -> None:
    """A key somebody named and that cannot sign is an error that names it and says what to do,
    never a fallback.
    """
    home[VARIABLE] = str(_make(tmp_path / "key", *options))
    with pytest.raises(KeyProblem, match=said) as caught:
        find_signer(environ=home)
    assert caught.value.named
    assert home[VARIABLE] in str(caught.value)
    assert "To do:" in str(caught.value)


def test_key_file_that_is_none(tmp_path: Path, home: dict[str, str]) -> None:
    """A missing file, a folder, garbage, a half key and a key others can read are each named for
    what they are.
    """
    (tmp_path / "garbage").write_bytes(b"\x00garbage\xff")
    (tmp_path / "half").write_bytes(_make(tmp_path / "whole").read_bytes()[:120])
    (tmp_path / "half").chmod(0o600)
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    _make(tmp_path / "open").chmod(0o644)
    _make(tmp_path / "shown").chmod(0o640)
    _make(tmp_path / "alone")
    (tmp_path / "alone").unlink()
    said = {
        "missing": "does not exist",
        "folder": "is not a file",
        "pipe": "is not a file",
        "garbage": "is not an SSH key",
        "half": "is not a readable OpenSSH key",
        "large": "too large",
        "open": "mode 0644",
        "shown.pub": "mode 0640",
        "alone.pub": "is not in an ssh-agent",
    }
    for name, words in said.items():
        with pytest.raises(KeyProblem, match=words):
            find_signer(explicit=str(tmp_path / name), environ=home)


def test_security_key(home: dict[str, str]) -> None:
    """A key that wants a touch for every signature is refused before a run waits for one."""
    blob = "AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4fAAAABHNzaDo="
    with pytest.raises(KeyProblem, match="touch"):
        find_signer(explicit=f"sk-ssh-ed25519@openssh.com {blob}", environ=home)


def test_nowhere_to_keep_a_key(home: dict[str, str], tmp_path: Path) -> None:
    """Where nobody named a key and none can be made, the problem says so, and the report will be
    unsigned.
    """
    (tmp_path / "file").touch()
    for change in ({"HOME": str(tmp_path / "file")}, {"HOME": ""}):
        with pytest.raises(KeyProblem) as caught:
            find_signer(environ={**home, **change})
        assert not caught.value.named


def test_no_ssh_keygen(home: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without OpenSSH the error says what to install."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoSshKeygen, match="install OpenSSH"):
        find_signer(environ=home)


def test_own_keys_are_those_that_sign_without_being_named(
    tmp_path: Path, home: dict[str, str]
) -> None:
    """The variable's, that of git's global configuration and this machine's; none of them is made
    or tried for it.
    """
    assert own_keys(home) == ()
    assert not (tmp_path / "home" / ".local").exists()
    keys = {name: _make(tmp_path / name) for name in ("variable", "git")}
    wanted = [find_signer(environ=home).fingerprint]
    assert own_keys(home) == tuple(wanted)
    _git(home, gpg_format="ssh", user_signingKey=str(keys["git"]))
    wanted.insert(0, find_signer(environ=home).fingerprint)
    home[VARIABLE] = str(keys["variable"])
    wanted.insert(0, find_signer(environ=home).fingerprint)
    assert own_keys(home) == tuple(wanted)


def test_a_repository_cannot_name_a_key_as_mine(
    tmp_path: Path, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever unpacks a stranger's repository has its `.git/config` too."""
    theirs = _make(tmp_path / "theirs")
    subprocess.run(["git", "init", "-q", tmp_path / "repo"], env=home, check=True)
    monkeypatch.chdir(tmp_path / "repo")
    for name, value in (("gpg.format", "ssh"), ("user.signingKey", str(theirs))):
        subprocess.run(["git", "config", name, value], env=home, check=True)
    assert find_signer(environ=home).origin.startswith("git's")
    assert own_keys(home) == ()


@pytest.mark.parametrize(("value", "is_ci"), [("true", True), ("1", True), ("false", False)])
def test_no_key_is_mine_under_ci(home: dict[str, str], value: str, *, is_ci: bool) -> None:
    """A job runs other people's code as the user who owns the keys."""
    signer = find_signer(environ=home)
    assert own_keys({**home, "CI": value}) == (() if is_ci else (signer.fingerprint,))


def test_a_key_that_others_can_read_is_not_mine(tmp_path: Path, home: dict[str, str]) -> None:
    """Then anybody of this machine may have signed with it."""
    find_signer(environ=home)
    (tmp_path / "home/.local/share/rankproof/signing_key").chmod(0o644)
    assert own_keys(home) == ()


def test_a_key_that_lies_where_we_stand_is_not_mine(
    tmp_path: Path, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's folder may hold `keys/ci` too: a relative path names another key there."""
    (tmp_path / "theirs" / "keys").mkdir(parents=True)
    _make(tmp_path / "theirs" / "keys" / "ci")
    monkeypatch.chdir(tmp_path / "theirs")
    assert own_keys({**home, VARIABLE: "keys/ci"}) == ()
    _git(home, gpg_format="ssh", user_signingKey="keys/ci")
    assert own_keys(home) == ()
    named = str(tmp_path / "theirs" / "keys" / "ci")
    assert len(own_keys({**home, VARIABLE: named})) == 1
