"""SSHSIG signatures, made and checked by ssh-keygen, with a strict reader of what a signature says
about itself.

    SshsigError(Exception)
    ├── NoSshKeygen          OpenSSH is not installed
    ├── SigningFailed        ssh-keygen would not sign
    └── MalformedSignature   not the one way in which ssh-keygen writes a signature

ssh-keygen exits 255 for every refusal and words its reasons differently from version to version, so
nothing here reads its messages to decide anything.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

NAMESPACE_REPORT = "report@rankproof"
# Another one, so that the signature of a report never stands for that of a statement.
NAMESPACE_ATTESTATION = "attestation@rankproof"
BEGIN = b"-----BEGIN SSH SIGNATURE-----"
END = b"-----END SSH SIGNATURE-----"
TIMEOUT = 30.0
# Tried: 8.7 crashes at any file of allowed signers; 8.8 asks whether a certificate is valid now,
# not at the time given.
INSTALL = "install OpenSSH 8.9 or newer (package openssh-client)"

_CERTIFICATE = "-cert-v01@openssh.com"
KEY_TYPES = frozenset(
    {
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
        f"ssh-ed25519{_CERTIFICATE}",
        f"ecdsa-sha2-nistp256{_CERTIFICATE}",
        f"ecdsa-sha2-nistp384{_CERTIFICATE}",
        f"ecdsa-sha2-nistp521{_CERTIFICATE}",
    }
)
_ED25519_ORDER = 2**252 + 27742317777372353535851937790883648493


class SshsigError(Exception):
    """Signing or reading a signature did not work."""


class NoSshKeygen(SshsigError):
    """OpenSSH is not installed."""


class SigningFailed(SshsigError):
    """ssh-keygen would not sign with this key."""


class MalformedSignature(SshsigError):
    """The signature is not written the one way ssh-keygen writes it."""


@dataclass(frozen=True)
class SshSignature:
    """What a signature says about itself.

    None of it is true until `verify` has accepted the signature.
    """

    key_type: str
    public_key: bytes
    """The key, or the certificate, in SSH's wire format."""
    namespace: str
    hash_algorithm: str
    certifier: bytes | None
    """For a certificate: the public key of the authority that signed it."""

    @property
    def fingerprint(self) -> str:
        """SHA256:… of the key as ssh-keygen prints it.

        For a certificate, of the certificate itself.
        """
        return fingerprint(self.public_key)

    @property
    def key_fingerprint(self) -> str:
        """SHA256:… of the key alone: the same for a key, and for every certificate that was issued
        for it.
        """
        if self.certifier is None:
            return self.fingerprint
        fields = Fields(self.public_key)
        kind = fields.word().removesuffix(_CERTIFICATE)
        fields.string()  # nonce
        parts = [
            kind.encode(),
            *(fields.string() for _ in range(1 if kind == "ssh-ed25519" else 2)),
        ]
        return fingerprint(b"".join(len(part).to_bytes(4, "big") + part for part in parts))

    @property
    def public_line(self) -> str:
        """Key as one line of a .pub file, without a comment."""
        return f"{self.key_type} {base64.b64encode(self.public_key).decode()}"


class Ssh(Protocol):
    """Three questions to ssh-keygen that a verifier has. This module answers them."""

    def fits(self, data: bytes, signature: bytes, *, namespace: str) -> bool: ...

    def find_principal(self, signature: bytes, *, allowed: str, when: datetime) -> str | None: ...

    # The options of `ssh-keygen -Y verify`, by name.
    def verify(
        self,
        data: bytes,
        signature: bytes,
        *,
        allowed: str,
        principal: str,
        namespace: str,
        when: datetime,
        revoked: bytes | None = None,
    ) -> bool: ...


def fingerprint(public_key: bytes) -> str:
    """SHA256:… fingerprint of a public key in SSH's wire format."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public_key).digest()).decode().rstrip("=")


def parse(armoured: bytes) -> SshSignature:
    """Read a signature from its BEGIN line to its END line, newline included.

    Only the exact bytes ssh-keygen would write are accepted: unused bits and other line lengths
    would let a file be changed without its signature becoming bad.

    Raises:
        MalformedSignature: any deviation, or a kind of key that is not accepted.
    """
    lines = armoured.split(b"\n")
    if len(lines) < 4 or lines[0] != BEGIN or lines[-2:] != [END, b""]:
        raise MalformedSignature("the signature block is not complete")
    try:
        blob = base64.b64decode(b"".join(lines[1:-2]), validate=True)
    except binascii.Error:
        raise MalformedSignature(
            "the signature block contains characters that are not base64"
        ) from None
    if armour(blob) != armoured:
        raise MalformedSignature(
            "the signature block does not have the form that ssh-keygen writes"
        )
    fields = Fields(blob)
    if fields.take(6) != b"SSHSIG" or fields.number() != 1:
        raise MalformedSignature(
            "the signature block does not contain an SSH signature of version 1"
        )
    public_key, namespace, reserved, algorithm, signature = (fields.string() for _ in range(5))
    fields.finish()
    if reserved or algorithm not in (b"sha256", b"sha512"):
        raise MalformedSignature("the signature uses a feature that this version does not support")
    key = Fields(public_key)
    key_type = key.word()
    if key_type not in KEY_TYPES:
        raise MalformedSignature(
            f"a key of type {key_type} is not accepted; use an Ed25519 or ECDSA key"
        )
    _refuse_loose_number(signature)
    certifier = _certifier(key, key_type) if key_type.endswith(_CERTIFICATE) else None
    return SshSignature(key_type, public_key, Fields.text(namespace), algorithm.decode(), certifier)


def armour(blob: bytes) -> bytes:
    """Signature as ssh-keygen writes it: 70 characters a line."""
    text = base64.b64encode(blob)
    return b"\n".join((BEGIN, *(text[i : i + 70] for i in range(0, len(text), 70)), END, b""))


class Fields:
    """SSH's wire format, read strictly from the front.

    Raises:
        MalformedSignature: a field is cut short, or something is left behind the last one.
    """

    def __init__(self, data: bytes) -> None:
        self._rest = data

    def take(self, size: int) -> bytes:
        if len(self._rest) < size:
            raise MalformedSignature("a field of the signature or key is truncated")
        taken = self._rest[:size]
        self._rest = self._rest[size:]
        return taken

    def expect(self, literal: bytes) -> None:
        if self.take(len(literal)) != literal:
            raise MalformedSignature("the data does not have the expected format")

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def string(self) -> bytes:
        return self.take(self.number())

    def word(self) -> str:
        return self.text(self.string())

    def finish(self) -> None:
        if self._rest:
            raise MalformedSignature("data follows the last field of the signature")

    @staticmethod
    def text(field: bytes) -> str:
        """Field as text: printable ASCII."""
        if not field.isascii() or not field.decode().isprintable():
            raise MalformedSignature(
                "a name in the signature or key contains unprintable characters"
            )
        return field.decode()


def _refuse_loose_number(signature: bytes) -> None:
    # OpenSSH's Ed25519 accepts S and S + L alike; only the smaller is a signature by RFC 8032.
    fields = Fields(signature)
    if fields.word() == "ssh-ed25519":
        value = fields.string()
        fields.finish()
        if len(value) != 64 or int.from_bytes(value[32:], "little") >= _ED25519_ORDER:
            raise MalformedSignature(
                "the Ed25519 signature is not 64 bytes long, or its number S is out of range"
            )


def _certifier(key: Fields, key_type: str) -> bytes:
    key.string()  # nonce
    for _ in range(1 if key_type.startswith("ssh-ed25519") else 2):  # the certified key itself
        key.string()
    key.take(8 + 4)  # serial, kind
    key.string()  # the certificate's name
    key.string()  # principals
    key.take(8 + 8)  # validity: ssh-keygen judges it
    for _ in range(3):  # critical options, extensions, reserved
        key.string()
    authority = key.string()
    key.string()  # the authority's signature
    key.finish()
    return authority


def sign(
    data: bytes, key_file: Path, *, namespace: str, environ: Mapping[str, str] | None = None
) -> bytes:
    """Armoured signature of `data` by a private key file, or by the agent that holds the key of
    a .pub file.

    Raises:
        NoSshKeygen: OpenSSH is not installed.
        SigningFailed: no signature was made; the message carries ssh-keygen's own words.
    """
    # From stdin to stdout: given a file, ssh-keygen keeps an older signature beside it and exits 0.
    done = _run(["sign", "-q", "-f", str(key_file), "-n", namespace], data, environ)
    if done.returncode or not done.stdout.startswith(BEGIN + b"\n"):
        raise SigningFailed(said(done) or "ssh-keygen created no signature and reported no reason")
    return done.stdout


def fits(data: bytes, signature: bytes, *, namespace: str) -> bool:
    """Tell whether the signature belongs to these bytes.

    It says nothing about who made it: use `verify` for that.
    """
    with _files(signature=signature) as paths:
        return not _run(
            ["check-novalidate", "-n", namespace, "-s", paths["signature"]], data
        ).returncode


def find_principal(signature: bytes, *, allowed: str, when: datetime) -> str | None:
    """Name under which the lines of `allowed` know the key of the signature at that time."""
    with _files(signature=signature, allowed=f"{allowed}\n".encode()) as paths:
        options = ["-O", _time(when), "-f", paths["allowed"], "-s", paths["signature"]]
        done = _run(["find-principals", *options], b"")
    names = done.stdout.decode(errors="replace").splitlines()
    return names[0] if done.returncode == 0 and names else None


# The options of `ssh-keygen -Y verify`, by name.
def verify(
    data: bytes,
    signature: bytes,
    *,
    allowed: str,
    principal: str,
    namespace: str,
    when: datetime,
    revoked: bytes | None = None,
) -> bool:
    """Tell whether ssh-keygen accepts the signature by `principal` under the lines of `allowed` at
    that time.
    """
    extra = {} if revoked is None else {"revoked": revoked}
    with _files(signature=signature, allowed=f"{allowed}\n".encode(), **extra) as paths:
        options = ["-O", _time(when), "-f", paths["allowed"], "-I", principal, "-n", namespace]
        options += ["-s", paths["signature"], *(["-r", paths["revoked"]] if extra else [])]
        return not _run(["verify", *options], data).returncode


def clean_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what ssh-keygen may see: no language, no local time zone, and nothing that could ask
    for a passphrase.
    """
    known = os.environ if environ is None else environ
    kept = {
        name: known[name] for name in ("PATH", "HOME", "TMPDIR", "SSH_AUTH_SOCK") if name in known
    }
    return {**kept, "LC_ALL": "C", "TZ": "UTC", "SSH_ASKPASS_REQUIRE": "never"}


def program() -> str:
    """Path of ssh-keygen.

    Raises:
        NoSshKeygen: it is not on the PATH.
    """
    path = shutil.which("ssh-keygen")
    if path is None:
        raise NoSshKeygen(f"ssh-keygen is not on the PATH: {INSTALL}")
    return path


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the first line of what a program said on stderr."""
    return next(iter(done.stderr.decode(errors="replace").strip().splitlines()), "")


def _run(
    arguments: list[str], data: bytes, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = [program(), "-Y", *arguments]
    try:
        return subprocess.run(
            command,
            input=data,
            capture_output=True,
            env=clean_environment(environ),
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SshsigError(
            f"ssh-keygen -Y {arguments[0]} did not finish within {TIMEOUT:.0f} s"
        ) from None


@contextmanager
def _files(**contents: bytes) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="rankproof-") as folder:
        paths = {name: str(Path(folder, name)) for name in contents}
        for name, content in contents.items():
            Path(paths[name]).write_bytes(content)
        yield paths


def _time(when: datetime) -> str:
    # Read as local time by ssh-keygen, which runs with TZ=UTC.
    return f"verify-time={when:%Y%m%d%H%M%S}"
