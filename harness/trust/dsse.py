"""DSSE envelopes, version 1.0.2, whose signatures are those of ssh-keygen.

Source: the DSSE protocol and envelope specifications. A signature is over the pre-authentication
encoding (PAE) of type and payload, so neither can be taken for the other. `keyid` is a hint that
nobody vouches for: here it decides nothing, and a key counts once however many names it is given.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from harness.forms.strict_json import NotStrict, strict_json
from harness.trust import sshsig
from harness.trust.sshsig import MalformedSignature, SshSignature

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MOST_SIGNATURES = 16
_OTHER_ALPHABET = str.maketrans("-_", "+/")


class MalformedEnvelope(ValueError):
    """Not an envelope; the message says why."""


@dataclass(frozen=True)
class EnvelopeSignature:
    """A signature as it stands in the envelope, and what it says of itself."""

    armoured: bytes
    said: SshSignature


@dataclass(frozen=True)
class Envelope:
    """An envelope taken apart. Nothing in it is true until a signature fits."""

    payload: bytes
    payload_type: str
    signatures: tuple[EnvelopeSignature, ...]

    @property
    def signed(self) -> bytes:
        """The bytes that its signatures are over."""
        return pae(self.payload_type, self.payload)


def pae(payload_type: str, payload: bytes) -> bytes:
    """The pre-authentication encoding: lengths are in bytes, in decimal."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def encode(payload: bytes, *, payload_type: str, signatures: Iterable[tuple[str, bytes]]) -> bytes:
    """The bytes of an envelope; `signatures` are pairs of fingerprint and armoured signature."""
    listed = [
        {"keyid": keyid, "sig": base64.b64encode(armoured).decode()}
        for keyid, armoured in signatures
    ]
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": payload_type,
        "signatures": listed,
    }
    return json.dumps(envelope, ensure_ascii=True, indent=1).encode() + b"\n"


def read(data: bytes) -> Envelope:
    """Take an envelope apart. Either base64 alphabet is accepted.

    Keys that DSSE does not know are not.

    Raises:
        MalformedEnvelope: not strict JSON, not these keys, no signature or too many, or one that is
            no SSHSIG.
    """
    try:
        document = strict_json(data)
    except NotStrict as problem:
        raise MalformedEnvelope(str(problem)) from None
    _demand(
        isinstance(document, dict) and document.keys() == {"payload", "payloadType", "signatures"},
        "other keys",
    )
    listed, kind = document["signatures"], document["payloadType"]
    _demand(isinstance(kind, str) and kind.isprintable(), "a payloadType that is not text")
    _demand(
        isinstance(listed, list) and 0 < len(listed) <= MOST_SIGNATURES,
        f"not 1 to {MOST_SIGNATURES} signatures",
    )
    return Envelope(
        _base64(document["payload"], "payload"), kind, tuple(_signature(each) for each in listed)
    )


def keys(
    envelope: Envelope, *, namespace: str, fits: Callable[[bytes, bytes], bool]
) -> frozenset[str]:
    """Fingerprints of the distinct keys whose signature is over this payload, in this namespace."""
    return frozenset(
        each.said.fingerprint
        for each in envelope.signatures
        if each.said.namespace == namespace and fits(envelope.signed, each.armoured)
    )


def _signature(found: Any) -> EnvelopeSignature:
    _demand(
        isinstance(found, dict) and {"sig"} <= found.keys() <= {"keyid", "sig"},
        "a signature with other keys",
    )
    _demand(isinstance(found.get("keyid", ""), str), "a keyid that is not text")
    armoured = _base64(found["sig"], "sig")
    try:
        return EnvelopeSignature(armoured, sshsig.parse(armoured))
    except MalformedSignature as problem:
        raise MalformedEnvelope(f"a signature that ssh-keygen did not write: {problem}") from None


def _base64(text: Any, where: str) -> bytes:
    _demand(isinstance(text, str), f"a {where} that is not text")
    _demand(not (set("-_") & set(text) and set("+/") & set(text)), f"a {where} in two alphabets")
    plain = text.translate(_OTHER_ALPHABET)
    try:
        data = base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedEnvelope(f"not a DSSE envelope: a {where} that is not base64") from None
    # Unused bits would let the file be changed without its meaning becoming another.
    _demand(base64.b64encode(data).decode() == plain, f"a {where} whose base64 is loose")
    return data


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise MalformedEnvelope(f"not a DSSE envelope: {what}")
