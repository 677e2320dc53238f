"""The reader of envelopes, for any bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.trust import statement
from harness.trust.sshsig import armour
from harness.trust.statement import MalformedEnvelope

KEYS = ["payload", "payloadType", "signatures", "sig", "keyid", "x"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("QQ=="),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["payload", "payloadType", "signatures", "sig", "keyid", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def signature(namespace: bytes = b"x") -> bytes:
    """A signature of the right form; whether it fits is not asked here."""
    key = _string(b"ssh-ed25519") + _string(b"k" * 32)
    inner = _string(b"ssh-ed25519") + _string(b"s" * 32 + b"\0" * 32)
    parts = (key, namespace, b"", b"sha512", inner)
    return armour(b"SSHSIG" + (1).to_bytes(4, "big") + b"".join(map(_string, parts)))


@settings(deadline=None)
@given(
    payload=st.binary(max_size=200),
    kind=st.text(st.characters(codec="ascii", categories=["L", "P"]), max_size=20),
)
def test_what_is_written_is_read_back(payload: bytes, kind: str) -> None:
    """Any payload comes back byte for byte, and what is signed holds type and payload with their
    lengths.
    """
    found = statement.read_envelope(
        statement.encode_envelope(
            payload, payload_type=kind, signatures=[("me", signature()), ("you", signature())]
        )
    )
    assert (found.payload, found.payload_type, len(found.signatures)) == (payload, kind, 2)
    assert found.signed == f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload


@settings(deadline=None)
@given(st.binary(max_size=200) | JSON.map(lambda found: json.dumps(found).encode()))
def test_anything_else_is_malformed(data: bytes) -> None:
    """Whatever the bytes are, the reader ends with its one error."""
    with pytest.raises(MalformedEnvelope):
        statement.read_envelope(data)


def test_a_signature_that_only_looks_good_is_no_key() -> None:
    """A key counts only where its signature fits, in the namespace that was asked for."""
    envelope = statement.read_envelope(
        statement.encode_envelope(b"{}", payload_type="t", signatures=[("me", signature(b"here"))])
    )
    assert statement.signing_keys(envelope, namespace="here", fits=lambda *_: False) == frozenset()
    assert statement.signing_keys(envelope, namespace="there", fits=lambda *_: True) == frozenset()
    assert len(statement.signing_keys(envelope, namespace="here", fits=lambda *_: True)) == 1
