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


MINE = (fingerprint(KEY),)


@pytest.mark.parametrize(
    ("policy", "is_mine"),
    [
        (SignerPolicy(own=MINE), True),
        (SignerPolicy(own=MINE, allowed=line(OTHER)), True),
        # A list that mentions the key says more than that it is mine.
        (SignerPolicy(own=MINE, allowed=line()), False),
        (SignerPolicy(own=MINE, fingerprints=MINE), False),
    ],
)
def test_a_key_of_mine_that_nobody_lists_is_accepted_as_that(
    policy: SignerPolicy, *, is_mine: bool
) -> None:
    """A list or a fingerprint that accepts it has the better name."""
    found = choose(signature(), policy, WHEN)
    assert isinstance(found, AllowedLine)
    assert found.is_own is is_mine


@pytest.mark.parametrize(
    ("policy", "refusal"),
    [
        (SignerPolicy(own=(fingerprint(OTHER),)), RefusalWord.UNKNOWN_SIGNER),
        (SignerPolicy(own=MINE, fingerprints=(fingerprint(OTHER),)), RefusalWord.UNKNOWN_SIGNER),
        (
            SignerPolicy(own=MINE, allowed=line(options='valid-before="20250101"')),
            RefusalWord.SIGNER_EXPIRED,
        ),
        (SignerPolicy(own=MINE, allowed=b"ci what\n"), RefusalWord.UNKNOWN_SIGNER),
        (
            SignerPolicy(own=MINE, fingerprints=MINE, allowed=line(OTHER)),
            RefusalWord.UNKNOWN_SIGNER,
        ),
        (
            SignerPolicy(own=MINE, allowed=line(options="cert-authority")),
            RefusalWord.UNKNOWN_SIGNER,
        ),
    ],
)
def test_a_list_or_a_fingerprint_that_refuses_is_not_overruled_by_mine(
    policy: SignerPolicy, refusal: RefusalWord
) -> None:
    """Also not where the list cannot be read: it might have refused."""
    found = choose(signature(), policy, WHEN)
    assert isinstance(found, SignatureRefusal)
    assert found.word == refusal


def test_a_certificate_of_my_key_is_not_my_key() -> None:
    """Its authority is somebody else, who may have named anybody in it."""
    found = choose(signature(certifier=AUTHORITY), SignerPolicy(own=MINE), WHEN)
    assert isinstance(found, SignatureRefusal)
