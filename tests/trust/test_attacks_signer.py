"""Attacks with keys: unknown, for something else, expired, revoked, certified.

Each is refused with its own word.
"""

from __future__ import annotations

import base64
import os
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from harness.trust import sshsig
from harness.trust.folder import verify_folder
from harness.trust.signers import SignerPolicy, name_of, parse_at
from harness.trust.sshsig import BEGIN, END, NAMESPACE_REPORT, fingerprint, parse
from tests.kit.signed_runs import MADE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.signed_runs import Keys, Run

HERE = f'namespaces="{NAMESPACE_REPORT}"'


def _fingerprint(keys: Keys, name: str) -> str:
    shown = subprocess.run(
        ["ssh-keygen", "-lf", keys.path(name)], capture_output=True, text=True, check=True
    )
    return shown.stdout.split()[1]


def test_unknown_key(run: Run) -> None:
    """A good signature by a stranger is refused, with the stranger's fingerprint and how to allow
    it.
    """
    run.sign(key="stranger")
    found = run.verify()
    assert found.word == "UNKNOWN SIGNER"
    assert _fingerprint(run.keys, "stranger") in found.message
    assert run.keys.public("stranger") in found.message


def test_nothing_says_who_may_sign(run: Run) -> None:
    """Without any list of signers nobody is trusted."""
    found = verify_folder(run.report, policy=SignerPolicy())
    assert found.word == "UNKNOWN SIGNER"
    assert "--signer SHA256:" in found.message


def test_signature_for_another_namespace(run: Run) -> None:
    """A signature that the allowed key made over the same bytes for something else is not a
    signature of a report.
    """
    run.sign(namespace="git")
    assert (
        run.verify(run.keys.line("ci", 'namespaces="git,report@rankproof"')).word
        == "WRONG NAMESPACE"
    )


def test_key_allowed_for_something_else(run: Run) -> None:
    """A key that may sign commits may not sign reports."""
    found = run.verify(run.keys.line("ci", 'namespaces="git"'))
    assert found.word == "SIGNER NOT ALLOWED HERE"
    assert "only for git" in found.message


@pytest.mark.parametrize(
    "options", ["", 'valid-after="20200101"', 'namespaces="*"', 'namespaces="*@rankproof"']
)
def test_line_that_allows_everything(run: Run, options: str) -> None:
    """A line without namespaces, or with a pattern, would accept signatures made for anything: it
    accepts none.
    """
    assert run.verify(run.keys.line("ci", options)).word == "SIGNER NOT ALLOWED HERE"


def test_expired_key(run: Run) -> None:
    """A key is judged as of now, unless a time is asked for.

    The report's own time is called the signer's claim.
    """
    line = run.keys.line("ci", f'{HERE},valid-after="20250101",valid-before="20260201"')
    assert run.verify(line).word == "SIGNER EXPIRED"
    assert run.verify(line, at=datetime(2025, 6, 1, tzinfo=UTC)).ok
    assert run.verify(line, at=datetime(2024, 6, 1, tzinfo=UTC)).word == "SIGNER EXPIRED"
    found = run.verify(line, at="report")
    assert found.ok
    assert "the signer's own claim" in found.steps[2].message


def test_validity_ends_to_the_second(run: Run) -> None:
    """The times of a line are UTC, and the last second before the end still counts."""
    line = run.keys.line("ci", f'{HERE},valid-before="20260101120000"')
    assert run.verify(line, at=datetime(2026, 1, 1, 11, 59, 59, tzinfo=UTC)).ok
    assert run.verify(line, at=datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC)).word == "SIGNER EXPIRED"


def test_time_of_an_option() -> None:
    """A time without a zone is UTC; anything that is not a time is an error."""
    assert [parse_at("now"), parse_at("report")] == ["now", "report"]
    assert parse_at("2026-01-03") == datetime(2026, 1, 3, tzinfo=UTC)
    assert parse_at("2026-01-03T10:00:00+02:00") == datetime(2026, 1, 3, 8, tzinfo=UTC)
    with pytest.raises(ValueError, match="yesterday"):
        parse_at("yesterday")


def test_rotated_key(run: Run) -> None:
    """An expired line does not hide a later line that allows the same key."""
    lines = (
        run.keys.line("ci", f'{HERE},valid-before="20200101"')
        + "# rotated\n\n"
        + run.keys.line("ci")
    )
    assert run.verify(lines).ok


def test_report_without_a_time(run: Run) -> None:
    """A report that states no time cannot be judged as of its time."""
    run.sign(run.body().replace(b"Made: ", b"Time: "))
    assert run.verify(at="report").word == "SIGNER EXPIRED"


def test_revoked_key(run: Run) -> None:
    """A key in the list of revoked keys is refused, and other keys are not."""
    assert run.verify(revoked=f"{run.keys.public('ci')}\n".encode()).word == "SIGNER REVOKED"
    assert run.verify(revoked=f"{run.keys.public('stranger')}\n".encode()).ok
    assert run.verify(revoked=b"").ok


def test_unreadable_revocation_list(run: Run) -> None:
    """A list of revoked keys that cannot be read refuses everybody."""
    assert run.verify(revoked=b"garbage\n").word == "SIGNER REVOKED"


def test_key_revocation_list(run: Run, tmp_path: Path) -> None:
    """OpenSSH's binary revocation lists work as well as lists of keys."""
    krl = tmp_path / "krl"
    subprocess.run(
        ["ssh-keygen", "-q", "-k", "-f", krl, run.keys.path("ci").with_suffix(".pub")], check=True
    )
    assert run.verify(revoked=krl.read_bytes()).word == "SIGNER REVOKED"


def test_signer_named_by_fingerprint(run: Run) -> None:
    """A fingerprint alone accepts that key and no other."""
    mine, other = _fingerprint(run.keys, "ci"), _fingerprint(run.keys, "stranger")

    def word(*prints: str, revoked: bytes | None = None) -> str:
        policy = SignerPolicy(fingerprints=prints, revoked=revoked)
        return verify_folder(run.report, policy=policy, allow_unjudged=True).word

    assert word(mine) == "NOT JUDGED"
    assert word(other, mine) == "NOT JUDGED"
    assert word(other) == "UNKNOWN SIGNER"
    assert word(mine.lower()) == "UNKNOWN SIGNER"
    assert word(mine, revoked=run.keys.public("ci").encode() + b"\n") == "SIGNER REVOKED"


def test_fingerprint_and_file_must_both_accept(run: Run) -> None:
    """Naming a key does not let it past the list of allowed signers, nor the other way round."""
    assert run.verify(fingerprints=(_fingerprint(run.keys, "ci"),)).ok
    assert run.verify(fingerprints=(_fingerprint(run.keys, "stranger"),)).word == "UNKNOWN SIGNER"
    assert (
        run.verify(run.keys.line("stranger"), fingerprints=(_fingerprint(run.keys, "ci"),)).word
        == "UNKNOWN SIGNER"
    )


@pytest.mark.parametrize(
    "line",
    [
        "nonsense\n",
        "a b c\n",
        'a namespaces="x ssh-ed25519 AAAA\n',
        "a no-such-option ssh-ed25519 AAAA\n",
        "\xff\n",
    ],
)
def test_garbled_list_of_signers(run: Run, line: str) -> None:
    """A list of signers with a line that cannot be read accepts nobody, and names the line."""
    found = run.verify(line + run.keys.line("ci"))
    assert found.word == "UNKNOWN SIGNER"
    assert "line 1" in found.message


def _certify(run: Run, validity: str, principal: str = "ci@example.org") -> None:
    key = run.keys.path("certified")
    authority = run.keys.path("authority")
    command = [
        "ssh-keygen",
        "-q",
        "-s",
        str(authority),
        "-I",
        "one run",
        "-n",
        principal,
        "-V",
        validity,
    ]
    subprocess.run(
        [*command, str(key.with_suffix(".pub"))], check=True, env={**os.environ, "TZ": "UTC"}
    )


def _sign_with_certificate(run: Run) -> None:
    name = "certified-cert.pub"
    run.sign(key=name)


def test_certificate(run: Run) -> None:
    """A certificate is accepted by the line of its authority, while it is valid, for the names it
    holds.
    """
    _certify(run, "20260101000000:20260101010000")
    _sign_with_certificate(run)
    line = run.keys.line("authority", f"cert-authority,{HERE}").replace("authority@", "*@", 1)
    at = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    found = run.verify(line, at=at)
    assert found.ok, found
    assert run.verify(line).word == "SIGNER EXPIRED"
    assert run.verify(run.keys.line("authority"), at=at).word == "UNKNOWN SIGNER"
    assert (
        run.verify(line.replace(HERE, 'namespaces="git"'), at=at).word == "SIGNER NOT ALLOWED HERE"
    )
    assert run.verify(run.keys.line("certified"), at=at).word == "UNKNOWN SIGNER"


def test_authority_signs_itself(run: Run) -> None:
    """An authority's own key, listed to certify others, may not sign reports itself."""
    run.sign(key="authority")
    assert run.verify(run.keys.line("authority", f"cert-authority,{HERE}")).word == "UNKNOWN SIGNER"


def test_rsa_key(run: Run, keys: Keys) -> None:
    """A kind of key that this version does not accept is refused, whoever lists it."""
    key = keys.folder / "rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", key], check=True)
    run.sign(key="rsa")
    assert run.verify(keys.line("rsa")).word == "BAD SIGNATURE"


def test_fingerprint_is_the_one_ssh_prints(run: Run) -> None:
    """Fingerprints look as ssh-keygen prints them."""
    report = run.report.read_bytes()
    signature = parse(report[report.index(b"-----BEGIN") : -4])
    assert (
        _fingerprint(run.keys, "ci") == signature.fingerprint == fingerprint(signature.public_key)
    )


@pytest.mark.parametrize(
    ("principals", "asked"),
    [
        ("ci", False),
        ("ci@example.org", False),
        ('"ci@example.org"', False),
        ("ci,release", True),
        ("*@example.org", True),
    ],
)
def test_the_name_of_a_signer_is_the_one_that_ssh_keygen_finds(
    run: Run, principals: str, asked: bool
) -> None:
    """A line for one name is read without asking ssh-keygen who it is for, and comes to the
    same.
    """
    line = f"{principals} {HERE} {run.keys.public('ci')}"
    signature = run.report.read_bytes()
    signature = signature[signature.index(BEGIN) : signature.index(END)] + END + b"\n"
    known = sshsig.find_principal(signature, allowed=line, when=MADE)
    asking = Asking()
    found = run.verify(line, ssh=asking)
    assert (found.word, found.signer, asking.found) == ("OK", known, asked)


def test_the_name_that_a_line_gives_is_not_believed(run: Run) -> None:
    """Where ssh-keygen does not accept the line for that name, the report is refused."""

    class Denying(Asking):
        def verify(self, *given: Any, **more: Any) -> bool:
            return super().verify(*given, **more | {"principal": "somebody-else"})

    assert run.verify(ssh=Denying()).word == "UNKNOWN SIGNER"


class Asking:
    """ssh-keygen, and whether it was asked for the name of a signer."""

    found = False

    def fits(self, *given: Any, **more: Any) -> bool:
        return sshsig.fits(*given, **more)

    def find_principal(self, *given: Any, **more: Any) -> str | None:
        self.found = True
        return sshsig.find_principal(*given, **more)

    def verify(self, *given: Any, **more: Any) -> bool:
        return sshsig.verify(*given, **more)


def test_whom_a_list_names_a_key_for(keys: Keys) -> None:
    """One name of one line; nobody for a key that is not there, for several names, and for a list
    that is malformed.
    """
    other = fingerprint(base64.b64decode(keys.public("other").split()[1]))
    mine = fingerprint(base64.b64decode(keys.public("ci").split()[1]))
    listed = keys.line("ci").encode()
    assert name_of(listed, mine) == "ci@example.org"
    assert name_of(listed, other) is None
    assert name_of(f"ci,release {keys.public('ci')}\n".encode(), mine) is None
    assert name_of(b"ci\n" + listed, mine) is None
