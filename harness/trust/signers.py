"""Who may sign: git's allowed_signers file, keys named on the command line, and keys that were
given up.

The lines are read here only to choose one and to find the word for a refusal. ssh-keygen then reads
the chosen line itself and has the last word.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NoReturn

from harness.reason import RefusalWord
from harness.trust.footer import SignatureRefusal
from harness.trust.sshsig import NAMESPACE_ATTESTATION, NAMESPACE_REPORT, SshSignature, fingerprint

_FIELD = re.compile(r'(?:"[^"]*"|[^\s"])+')
_OPTION = re.compile(r'(?P<name>[A-Za-z-]+)(?:=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,"]*)))?(?:,|$)')
# No list, no pattern, no negation, nothing that quotes.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9@.:/+=_-]*")
_TIME = re.compile(r"(\d{8})(?:(\d{4})(\d{2})?)?Z?", re.ASCII)


LARGEST_SIGNERS = 4 * 2**20
ALLOWED_SIGNERS = Path(".rankproof/allowed_signers")
"""Where a repository lists who may sign, from its top."""


class SignersMalformed(ValueError):
    """Line of an allowed_signers file that cannot be read; the message names it."""


@dataclass(frozen=True)
class SignerPolicy:
    """Whose signature is accepted.

    Both `allowed` and `fingerprints` must accept it where both are given.
    """

    allowed: bytes | None = None
    """The content of an allowed_signers file."""
    allowed_from: str = "allowed_signers"
    """Where it came from, for messages."""
    fingerprints: tuple[str, ...] = ()
    """SHA256:… of keys that are accepted."""
    revoked: bytes | None = None
    """A list of public keys, or a key revocation list, none of which is accepted."""
    own: tuple[str, ...] = ()
    """SHA256:… of the reader's own keys: accepted, and called MINE, where no list mentions them."""
    at: datetime | Literal["now", "report"] = "now"
    """When the signer must have been allowed. `report` believes the time that the signer wrote."""


@dataclass(frozen=True)
class AllowedLine:
    """One line of an allowed_signers file."""

    number: int
    text: str
    principals: str
    certifies: bool
    namespaces: str | None
    after: datetime | None
    before: datetime | None
    public_key: bytes
    is_own: bool = False

    @property
    def name(self) -> str | None:
        """Who the line is for, if it is for one name; None for a list, a pattern, an authority:
        ssh-keygen knows.
        """
        return self.principals if not self.certifies and _NAME.fullmatch(self.principals) else None


def parse_at(text: str) -> datetime | Literal["now", "report"]:
    """Value of `--at`: `now`, `report`, or a time such as 2026-01-03 or 2026-01-03T10:00:00Z,
    in UTC by default.

    Raises:
        ValueError: none of these.
    """
    if text == "now":
        return "now"
    if text == "report":
        return "report"
    when = datetime.fromisoformat(text)
    return when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)


def read_signers(path: Path) -> bytes:
    """Content of an allowed_signers or revocation file of the verifier's own side, for a
    SignerPolicy.

    Raises:
        OSError: it cannot be read.
        SignersMalformed: it is larger than LARGEST_SIGNERS.
    """
    with path.open("rb") as file:
        content = file.read(LARGEST_SIGNERS + 1)
    if len(content) > LARGEST_SIGNERS:
        raise SignersMalformed(f"{str(path)!r} is larger than {LARGEST_SIGNERS} bytes")
    return content


def choose(
    signature: SshSignature, policy: SignerPolicy, when: datetime
) -> AllowedLine | SignatureRefusal:
    """Line that accepts the key of a signature at a time, or the nearest reason why there is
    none.
    """
    shown = signature.fingerprint
    if policy.fingerprints and shown not in policy.fingerprints:
        wanted = ", ".join(policy.fingerprints)
        return SignatureRefusal(
            RefusalWord.UNKNOWN_SIGNER,
            f"signed by {shown}, which is not the requested key ({wanted})",
        )
    if policy.allowed is None:
        if _is_own(signature, policy) and not policy.fingerprints:
            return replace(_line_of(signature), is_own=True)
        if not policy.fingerprints:
            return SignatureRefusal(
                RefusalWord.UNKNOWN_SIGNER,
                f"signed by {shown}, but there is no allowed_signers file. {_how(signature)}",
            )
        if signature.certifier is not None:
            message = (
                f"{shown} is a certificate; accept its authority with a cert-authority line in"
                " allowed_signers"
            )
            return SignatureRefusal(RefusalWord.UNKNOWN_SIGNER, message)
        return _line_of(signature)
    try:
        lines = read(policy.allowed)
    except SignersMalformed as problem:
        return SignatureRefusal(RefusalWord.UNKNOWN_SIGNER, f"{policy.allowed_from}: {problem}")
    return _nearest(signature, policy, when, lines)


def read(content: bytes) -> list[AllowedLine]:
    """Lines of an allowed_signers file.

    Raises:
        SignersMalformed: a line that is neither empty, a comment, nor `principals [options] key
            type, key`.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise SignersMalformed("is not UTF-8") from None
    lines = enumerate(text.split("\n"), 1)
    return [
        _line(number, line.strip())
        for number, line in lines
        if line.strip() and not line.lstrip().startswith("#")
    ]


def name_of(content: bytes, key: str) -> str | None:
    """Whom an allowed_signers file lists a key for, by its fingerprint; None for nobody, or a list
    of people.
    """
    try:
        return next(
            (line.name for line in read(content) if fingerprint(line.public_key) == key), None
        )
    except SignersMalformed:
        return None


def _is_own(signature: SshSignature, policy: SignerPolicy) -> bool:
    # Of a certificate not: its authority may have named anybody in it.
    return signature.certifier is None and signature.fingerprint in policy.own


def _line_of(signature: SshSignature) -> AllowedLine:
    """Line that accepts a key by its fingerprint, for reports, at any time."""
    name = signature.fingerprint
    text = f'{name} namespaces="{NAMESPACE_REPORT}" {signature.public_line}'
    return AllowedLine(0, text, name, False, NAMESPACE_REPORT, None, None, signature.public_key)


def _nearest(
    signature: SshSignature, policy: SignerPolicy, when: datetime, lines: list[AllowedLine]
) -> AllowedLine | SignatureRefusal:
    shown = signature.fingerprint
    key = signature.public_key if signature.certifier is None else signature.certifier
    certified = signature.certifier is not None
    mine = [line for line in lines if line.public_key == key and line.certifies == certified]
    is_mentioned = any(line.public_key == signature.public_key for line in lines)
    if not mine and not is_mentioned and not policy.fingerprints and _is_own(signature, policy):
        return replace(_line_of(signature), is_own=True)
    if not mine:
        message = f"signed by {shown}, which {policy.allowed_from} does not list. {_how(signature)}"
        return SignatureRefusal(RefusalWord.UNKNOWN_SIGNER, message)
    here = [line for line in mine if NAMESPACE_REPORT in (line.namespaces or "").split(",")]
    if not here:
        where = f"{policy.allowed_from}, line {mine[0].number}"
        for_what = f"allows {shown} only for {mine[0].namespaces}"
        if mine[0].namespaces is None:
            for_what = f"has no namespaces, so it would allow {shown} to sign anything"
        message = f'{where} {for_what}: add namespaces="{NAMESPACE_REPORT}" if it may sign reports'
        return SignatureRefusal(RefusalWord.SIGNER_NOT_ALLOWED_HERE, message)
    for line in here:
        if (line.after is None or when >= line.after) and (
            line.before is None or when < line.before
        ):
            return line
    last = here[-1]
    since = f" from {last.after:%Y-%m-%d}" if last.after else ""
    until = f" until {last.before:%Y-%m-%d}" if last.before else ""
    message = (
        f"{policy.allowed_from}, line {last.number} allows {last.principals} only{since}{until},"
        f" not at {when:%Y-%m-%d %H:%M:%S} UTC"
    )
    return SignatureRefusal(RefusalWord.SIGNER_EXPIRED, message)


def _how(signature: SshSignature) -> str:
    if signature.certifier is not None:
        return (
            f"The key is a certificate by {fingerprint(signature.certifier)}; to accept it, list"
            " that authority."
        )
    line = f'NAME namespaces="{NAMESPACE_REPORT},{NAMESPACE_ATTESTATION}" {signature.public_line}'
    return (
        "If you know from another source whose key this is, add this line with the owner's name to"
        f" .rankproof/allowed_signers: {line}  (or pass --signer {signature.fingerprint})"
    )


def _line(number: int, text: str) -> AllowedLine:
    fields = _FIELD.findall(text)
    options = (
        fields[1] if len(fields) > 3 or (len(fields) == 3 and not _is_key_type(fields[1])) else ""
    )
    options = "" if len(fields) > 1 and _is_key_type(fields[1]) else options
    key_at = 2 if options else 1
    if len(fields) < key_at + 2:
        _refuse(number, "does not have the form `name options key-type key`")
    known = _options(number, options)
    try:
        key = base64.b64decode(fields[key_at + 1], validate=True)
    except (binascii.Error, ValueError):
        _refuse(number, "has a key that is not base64")
    return AllowedLine(
        number=number,
        text=text,
        principals=fields[0].strip('"'),
        certifies="cert-authority" in known,
        namespaces=known.get("namespaces"),
        after=_time(number, known["valid-after"]) if "valid-after" in known else None,
        before=_time(number, known["valid-before"]) if "valid-before" in known else None,
        public_key=key,
    )


def _is_key_type(field: str) -> bool:
    return field.startswith(("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"))


def _options(number: int, text: str) -> dict[str, str]:
    known: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _OPTION.match(text, position)
        if not match:
            _refuse(number, f"has options that cannot be read: {text!r}")
        name = match["name"].lower()
        if (
            name not in {"cert-authority", "namespaces", "valid-after", "valid-before"}
            or name in known
        ):
            _refuse(number, f"has an unknown or repeated option: {name!r}")
        known[name] = match["quoted"] if match["quoted"] is not None else match["plain"] or ""
        position = match.end()
    return known


def _time(number: int, text: str) -> datetime:
    match = _TIME.fullmatch(text)
    try:
        if match:
            digits = match[1] + (match[2] or "0000") + (match[3] or "00")
            return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        pass
    _refuse(
        number, (f"has a time that is not in the form YYYYMMDD or YYYYMMDDHHMM[SS] (UTC): {text!r}")
    )


def _refuse(number: int, what: str) -> NoReturn:
    raise SignersMalformed(f"line {number} {what}")
