"""The key that signs a report, and where it was found.

In this order: the key named with `--key`; RANKPROOF_SIGNING_KEY; git's `user.signingKey` where
`gpg.format` is `ssh`; else a key made once for this machine. The first two are somebody's wish, so
a fault in them is an error. A key of git that cannot sign unattended is passed over, and the signer
says so.

A key is tried before it is handed out: a run of a minute must not end with a question for a
passphrase.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, Protocol

from filelock import FileLock

from harness.forms.git import git
from harness.forms.source import expanded
from harness.trust import sshsig
from harness.trust.sshsig import (
    NAMESPACE_REPORT,
    Fields,
    MalformedSignature,
    SigningFailed,
    fingerprint,
)

VARIABLE = "RANKPROOF_SIGNING_KEY"
LARGEST_KEY = 64 * 1024
_PROBE = "probe@rankproof"
_PRIVATE = b"-----BEGIN OPENSSH PRIVATE KEY-----"


class KeyProblem(Exception):
    """Key that cannot sign: what is wrong, where, and what to do.

    `named` says whether somebody named this key.
    """

    def __init__(self, message: str, *, named: bool = True) -> None:
        super().__init__(message)
        self.named = named


class Signer(Protocol):
    """Whatever signs: a key file, an agent, later a key service or a keyless identity."""

    def sign(self, data: bytes, namespace: str) -> bytes:
        """Armoured SSHSIG of `data`."""

    def identity(self) -> str:
        """Who signs: for a key, SHA256:… of its public half."""


@dataclass(frozen=True)
class SshSigner:
    """Signs with an OpenSSH private key file, or through the agent that holds the key."""

    key_file: Path | None
    """The private key, or None where only an agent has it."""
    public_key: str
    fingerprint: str
    origin: str
    environ: Mapping[str, str]
    made_now: bool = False
    """The key did not exist before; say so."""
    passed_over: tuple[str, ...] = ()
    """Keys that were found first and could not sign, each with the reason."""

    def identity(self) -> str:
        """SHA256:… of the public key."""
        return self.fingerprint

    def sign(self, data: bytes, namespace: str = NAMESPACE_REPORT) -> bytes:
        """Armoured SSHSIG of `data`.

        Raises:
            SshsigError: ssh-keygen is missing, refuses, or signed with another key than this one.
        """
        if self.key_file is not None:
            signature = sshsig.sign(data, self.key_file, namespace=namespace, environ=self.environ)
        else:
            with tempfile.TemporaryDirectory(prefix="rankproof-") as folder:
                public = Path(folder, "agent_key.pub")
                public.write_text(f"{self.public_key}\n")
                signature = sshsig.sign(data, public, namespace=namespace, environ=self.environ)
        if sshsig.parse(signature).fingerprint != self.fingerprint:
            raise SigningFailed(
                f"{self.origin}: ssh-keygen signed with a key other than {self.fingerprint}"
            )
        return signature


def find_signer(
    *, explicit: str | None = None, environ: Mapping[str, str] | None = None, make: bool = True
) -> SshSigner:
    """Signer for a run.

    Args:
        explicit: the value of `--key`: a path, or a public key that an agent holds
            (`key::ssh-ed25519 …`).
        environ: the environment to look into; by default this process's.
        make: make this machine's key where there is none.

    Raises:
        KeyProblem: no key can sign. With `named` false nobody named a key: the report ends
            UNSIGNED.
        NoSshKeygen: OpenSSH is not installed.
    """
    known = dict(os.environ if environ is None else environ)
    sshsig.program()
    if explicit:
        return _usable(explicit, "--key", known)
    if known.get(VARIABLE):
        return _usable(known[VARIABLE], VARIABLE, known)
    passed_over: tuple[str, ...] = ()
    wanted = _git_signing_key(known)
    if wanted:
        try:
            return _usable(wanted, "git's user.signingKey", known)
        except KeyProblem as problem:
            passed_over = (str(problem),)
    try:
        return replace(_machine_key(known, make=make), passed_over=passed_over)
    except KeyProblem as problem:
        raise KeyProblem("; ".join((*passed_over, str(problem))), named=False) from None


def is_ci(environ: Mapping[str, str]) -> bool:
    """Tell whether this is a job of a CI service: CI is set, and neither 0 nor false."""
    return environ.get("CI", "").lower() not in ("", "0", "false")


def own_keys(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Fingerprints of the keys with which this user's runs are signed unless `--key` names one.

    They are RANKPROOF_SIGNING_KEY, the signing key of git's global configuration, and this
    machine's key. A repository's own git configuration is not asked, and a key that is named by a
    relative path does not count: both may be a stranger's, whose folder we are in. Under CI there
    are none, because a job runs other people's code as the user who owns the keys (docs/adr/0161).

    Args:
        environ: the environment to look into; by default this process's.
    """
    known = dict(os.environ if environ is None else environ)
    if is_ci(known):
        return ()
    named = [known.get(VARIABLE), _git_signing_key(known, scope=("--global", "--includes"))]
    with suppress(KeyProblem):
        named.append(str(_machine_key_path(known)))
    found = []
    for value in filter(None, named):
        with suppress(KeyProblem):
            path, _, public = _public_half(value, "")
            if path is not None and not path.is_absolute():
                continue
            found.append(fingerprint(base64.b64decode(public.split()[1])))
    return tuple(dict.fromkeys(found))


def _public_half(value: str, origin: str) -> tuple[Path | None, str, str]:
    """File of a key as it is named, its name in messages, and its public half."""
    literal = value.removeprefix("key::")
    if literal != value or literal.startswith(("ssh-", "ecdsa-", "sk-")):
        where = f"{origin} (an agent's key)"
        return None, where, _public_line(literal.encode(), where)
    path = expanded(value)
    where = f"{origin} ({value})"
    return path, where, _public_key(path, where)


def _usable(value: str, origin: str, environ: Mapping[str, str]) -> SshSigner:
    key_file, where, public = _public_half(value, origin)
    _refuse_type(public, where)
    blob = base64.b64decode(public.split()[1])
    signer = SshSigner(key_file, public, fingerprint(blob), where, environ)
    try:
        signer.sign(b"", namespace=_PROBE)
    except (SigningFailed, MalformedSignature) as problem:
        if key_file is not None and _has_passphrase(key_file):
            _refuse(where, "needs a passphrase, but no ssh-agent has the key", f"ssh-add {value}")
        if key_file is not None and value.endswith(".pub") and key_file.with_suffix("").exists():
            _public_key(key_file.with_suffix(""), where)  # says so if others can read it
        elif key_file is None or value.endswith(".pub"):
            _refuse(
                where,
                "is not in an ssh-agent, and its private key is not next to it",
                "ssh-add the private key",
            )
        _refuse(where, f"cannot sign: {problem}", "choose another key")
    return signer


def _public_key(path: Path, where: str) -> str:
    content = _content(path, where)
    if not content.startswith(_PRIVATE):
        if content.startswith(b"-----BEGIN "):
            _refuse(
                where, "is not an OpenSSH Ed25519 key", ("create a key with ssh-keygen -t ed25519")
            )
        return _public_line(content, where)
    mode = path.stat().st_mode
    if mode & 0o077:
        _refuse(
            where, f"is readable by others (mode {stat.S_IMODE(mode):04o})", f"chmod 600 {path}"
        )
    return _private_header(content, where)[1]


def _content(path: Path, where: str) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            _refuse(where, "is not a file", "pass the private key file")
        with path.open("rb") as file:
            content = file.read(LARGEST_KEY + 1)
    except FileNotFoundError:
        _refuse(
            where,
            "does not exist",
            "pass a key that exists, or create a key with ssh-keygen -t ed25519",
        )
    except OSError as problem:
        _refuse(where, f"cannot be read: {problem.strerror}", "pass a key that you can read")
    if len(content) > LARGEST_KEY:
        _refuse(where, "is too large to be a key", "pass the private key file")
    return content


def _private_header(content: bytes, where: str) -> tuple[str, str]:
    """Cipher of an OpenSSH private key file and its public key, both of which lie open in
    it.
    """
    try:
        inner = content.split(_PRIVATE)[1].split(b"-----END")[0]
        fields = Fields(base64.b64decode(b"".join(inner.split()), validate=True))
        fields.expect(b"openssh-key-v1\0")
        cipher = fields.word()
        fields.string()  # how the passphrase becomes a key
        fields.string()  # options of that
        fields.number()
        blob = fields.string()
        return cipher, f"{Fields(blob).word()} {base64.b64encode(blob).decode()}"
    except (MalformedSignature, binascii.Error):
        _refuse(where, "is not a readable OpenSSH key", "create a key with ssh-keygen -t ed25519")


def _public_line(content: bytes, where: str) -> str:
    fields = content.split(None, 2)[:2]
    try:
        blob = base64.b64decode(fields[1], validate=True)
        if Fields(blob).string() == fields[0]:
            return f"{fields[0].decode()} {fields[1].decode()}"
    except (IndexError, binascii.Error, MalformedSignature):
        pass
    _refuse(
        where,
        "is not an SSH key",
        ("pass an OpenSSH key, or create a key with ssh-keygen -t ed25519"),
    )


def _refuse_type(public: str, where: str) -> None:
    kind = public.split(maxsplit=1)[0]
    if kind.startswith("sk-"):
        _refuse(
            where,
            "is on a security key, which needs a touch for each signature",
            "pass an Ed25519 key file",
        )
    if kind not in sshsig.KEY_TYPES:
        _refuse(
            where,
            f"is of type {kind}, which is not accepted",
            "create an Ed25519 key with ssh-keygen -t ed25519",
        )


def _has_passphrase(path: Path) -> bool:
    try:
        content = _content(path.with_suffix("") if path.suffix == ".pub" else path, "")
        return content.startswith(_PRIVATE) and _private_header(content, "")[0] != "none"
    except KeyProblem:
        return False


def _git_signing_key(environ: Mapping[str, str], *, scope: Sequence[str] = ()) -> str | None:
    if _git_config([*scope, "--get", "gpg.format"], environ) != "ssh":
        return None
    return _git_config([*scope, "--type=path", "--get", "user.signingKey"], environ)


def _git_config(arguments: list[str], environ: Mapping[str, str]) -> str | None:
    done = git("config", *arguments, environ=environ)
    return done.stdout.decode(errors="replace").removesuffix("\n") or None


def _machine_key(environ: Mapping[str, str], *, make: bool) -> SshSigner:
    where = "this machine's key"
    key = _machine_key_path(environ)
    if not make and not key.exists():
        _refuse(
            where, "does not exist yet", ("nothing (the first run creates the key and reports it)")
        )
    try:
        key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Two runs that start together on a new machine must agree on one key.
        with FileLock(key.with_name("signing_key.lock")):
            made_now = not key.exists()
            if made_now:
                _make(key, environ)
    except OSError as problem:
        _refuse(
            where,
            f"cannot be created in {key.parent}: {problem.strerror}",
            f"set {VARIABLE} or XDG_DATA_HOME",
        )
    return replace(_usable(str(key), where, environ), made_now=made_now)


def _machine_key_path(environ: Mapping[str, str]) -> Path:
    where = "this machine's key"
    base = environ.get("XDG_DATA_HOME", "")
    home = environ.get("HOME", "")
    if not base.startswith("/"):  # the XDG specification says to ignore a relative path
        if not home.startswith("/"):
            _refuse(where, "cannot be stored, because HOME is not set", f"set {VARIABLE} or HOME")
        base = f"{home}/.local/share"
    return Path(base, "rankproof", "signing_key")


def _make(key: Path, environ: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix=".making-", dir=key.parent) as folder:
        fresh = Path(folder, "signing_key")
        done = subprocess.run(
            [
                sshsig.program(),
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                "rankproof machine key",
                "-f",
                str(fresh),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=sshsig.clean_environment(environ),
            timeout=sshsig.TIMEOUT,
            check=False,
        )
        if done.returncode:
            _refuse(
                "this machine's key",
                f"could not be created: {sshsig.said(done)}",
                f"set {VARIABLE}",
            )
        fresh.with_suffix(".pub").replace(key.with_suffix(".pub"))
        # Last, so that a key that is there is whole.
        fresh.replace(key)


def _refuse(where: str, what: str, todo: str) -> NoReturn:
    raise KeyProblem(f"{where} {what}. To do: {todo}")
