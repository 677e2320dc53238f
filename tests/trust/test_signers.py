"""Which line of an allowed_signers file accepts a key, at which time: no process is asked."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest

from harness.reason import RefusalWord
from harness.trust.footer import SignatureRefusal
from harness.trust.signers import AllowedLine, SignerPolicy, choose
from harness.trust.sshsig import NAMESPACE_REPORT, SshSignature, fingerprint

KEY, AUTHORITY, OTHER = b"key", b"authority", b"other"
WHEN = datetime(2026, 1, 3, 10, tzinfo=UTC)


def signature(*, certifier: bytes | None = None) -> SshSignature:
    """By a key, or by a certificate that an authority gave it."""
    return SshSignature("ssh-ed25519", KEY, NAMESPACE_REPORT, "sha512", certifier)


def line(key: bytes = KEY, *, options: str = "") -> bytes:
    told = f'namespaces="{NAMESPACE_REPORT}"' + (f",{options}" if options else "")
    return f"ci {told} ssh-ed25519 {base64.b64encode(key).decode()}\n".encode()


def word(
    allowed: bytes | None,
    given: SshSignature | None = None,
    *fingerprints: str,
    when: datetime = WHEN,
) -> RefusalWord | None:
    policy = SignerPolicy(allowed=allowed, fingerprints=fingerprints)
    found = choose(given or signature(), policy, when)
    assert isinstance(found, AllowedLine | SignatureRefusal)
    return found.word if isinstance(found, SignatureRefusal) else None


def test_a_listed_key_is_accepted() -> None:
    """And a key that is not listed is unknown."""
    assert word(line()) is None
    assert word(line(OTHER)) == RefusalWord.UNKNOWN_SIGNER
    assert word(None) == RefusalWord.UNKNOWN_SIGNER


def test_an_authority_does_not_sign_itself() -> None:
    """A cert-authority line is for certificates alone, and a plain line for the key alone."""
    assert word(line(options="cert-authority")) == RefusalWord.UNKNOWN_SIGNER
    certified = signature(certifier=AUTHORITY)
    assert word(line(AUTHORITY), certified) == RefusalWord.UNKNOWN_SIGNER
    assert word(line(AUTHORITY, options="cert-authority"), certified) is None


def test_list_and_fingerprint_have_both_to_accept() -> None:
    """A key that is listed and not the one that was asked for is refused, and the other way
    round.
    """
    mine, others = fingerprint(KEY), fingerprint(OTHER)
    assert word(line(), None, mine) is None
    assert word(line(), None, others) == RefusalWord.UNKNOWN_SIGNER
    assert word(line(OTHER), None, mine) == RefusalWord.UNKNOWN_SIGNER
    assert word(None, None, mine) is None


@pytest.mark.parametrize(
    ("options", "is_accepted"),
    [
        ('valid-after="20260103100000Z"', True),
        ('valid-after="20260103100001Z"', False),
        ('valid-before="20260103100000Z"', False),
        ('valid-before="20260103100001Z"', True),
        ('valid-after="20260103",valid-before="20260104"', True),
        ('valid-after="20260104",valid-before="20260105"', False),
        ('valid-after="20260101",valid-before="20260102"', False),
    ],
)
def test_a_key_is_accepted_from_a_time_until_before_another(
    options: str, *, is_accepted: bool
) -> None:
    """The first moment counts, the last one does not."""
    assert word(line(options=options)) == (None if is_accepted else RefusalWord.SIGNER_EXPIRED)
