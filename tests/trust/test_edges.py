"""The edges of what a verifier reads: envelopes, signatures, lists of signers, steps, and a
statement's rules.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from harness.reason import RefusalWord
from harness.trust import sshsig, statement
from harness.trust.folder import DEEPEST, Folder, UnreadableFile
from harness.trust.footer import SignatureRefusal, first_difference, split
from harness.trust.replay import CannotJudge, Replay
from harness.trust.signers import SignerPolicy, SignersMalformed, read
from harness.trust.sshsig import (
    BEGIN,
    END,
    NAMESPACE_ATTESTATION,
    MalformedSignature,
    SshSignature,
    armour,
    fingerprint,
)
from harness.trust.statement import MOST_SIGNATURES, MalformedEnvelope
from harness.trust.verification import OutOfOrder, Refused, Verifier

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.signed_runs import Run

ORDER = 2**252 + 27742317777372353535851937790883648493
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def wire(*parts: bytes) -> bytes:
    """Fields in SSH's wire format."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def blob(
    *, key: bytes = b"k" * 32, namespace: bytes = NAMESPACE_ATTESTATION.encode(), **change: Any
) -> bytes:
    """A signature of the right form, with one part changed; whether it fits is not asked here."""
    number = change.get("number", b"s" * 32 + b"\0" * 32)
    inner = wire(change.get("kind", b"ssh-ed25519"), number) + change.get("behind_number", b"")
    reserved, algorithm = change.get("reserved", b""), change.get("algorithm", b"sha512")
    fields = wire(wire(b"ssh-ed25519", key), namespace, reserved, algorithm, inner)
    return b"SSHSIG" + (1).to_bytes(4, "big") + fields + change.get("behind", b"")


def test_a_signature_of_the_right_form_is_read() -> None:
    """What the other tests change is all that is wrong there."""
    found = sshsig.parse(armour(blob()))
    assert (found.namespace, found.hash_algorithm) == (NAMESPACE_ATTESTATION, "sha512")
    assert (
        sshsig.parse(armour(blob(number=b"s" * 32 + (ORDER - 1).to_bytes(32, "little")))).certifier
        is None
    )


@pytest.mark.parametrize(
    "change",
    [
        {"behind": b"x"},
        {"behind_number": b"x"},
        {"reserved": b"x"},
        {"algorithm": b"md5"},
        {"number": b"s" * 32 + ORDER.to_bytes(32, "little")},
        {"number": b"s" * 32 + b"\xff" * 32},
        {"number": b"s" * 32},
        {"number": b"s" * 32 + b"\0" * 33},
        {"namespace": "é".encode()},
        {"namespace": b"a\nb"},
    ],
)
def test_a_signature_that_could_be_written_another_way(change: dict[str, bytes]) -> None:
    """A byte behind a field, a loose number, another algorithm or an odd name: none is what
    ssh-keygen writes.
    """
    with pytest.raises(MalformedSignature):
        sshsig.parse(armour(blob(**change)))


@pytest.mark.parametrize("lost", [BEGIN + b"\n", END + b"\n", b"\n"])
def test_a_block_without_an_end(lost: bytes) -> None:
    """The first line, the last line and its newline all belong to it."""
    whole = armour(blob())
    cut = whole.removeprefix(lost) if lost.startswith(BEGIN) else whole.removesuffix(lost)
    with pytest.raises(MalformedSignature, match="not complete"):
        sshsig.parse(cut)


def test_the_number_of_another_kind_of_key_is_ssh_keygens_to_judge() -> None:
    """Only Ed25519 has two ways to write one signature; the number of ECDSA has another form."""
    key = wire(b"ecdsa-sha2-nistp256", b"nistp256", b"p" * 65)
    fields = wire(key, b"x", b"", b"sha512", wire(b"ecdsa-sha2-nistp256", b"n" * 72))
    assert (
        sshsig.parse(armour(b"SSHSIG" + (1).to_bytes(4, "big") + fields)).key_type
        == "ecdsa-sha2-nistp256"
    )


@pytest.mark.parametrize(
    "parts",
    [(b"ssh-ed25519", b"k" * 32), (b"ecdsa-sha2-nistp256", b"nistp256", b"p" * 65)],
    ids=["ed25519", "ecdsa"],
)
def test_the_key_in_a_certificate_is_the_key(parts: tuple[bytes, ...]) -> None:
    """Two certificates for a key have its fingerprint, so that they never count as two keys."""
    kind = parts[0] + b"-cert-v01@openssh.com"
    for nonce in (b"one", b"two"):
        certified = wire(kind, nonce, *parts[1:]) + b"the rest"
        found = SshSignature(kind.decode(), certified, "x", "sha512", b"authority")
        assert found.key_fingerprint == fingerprint(wire(*parts))
        assert found.fingerprint != found.key_fingerprint


def envelope(**change: Any) -> bytes:
    """An envelope with one signature, and something of it changed."""
    signature = {"keyid": "me", "sig": base64.b64encode(armour(blob())).decode()}
    document = {"payload": "e30=", "payloadType": "t", "signatures": [signature], **change}
    return json.dumps(document).encode()


SIGNATURE = json.loads(envelope())["signatures"][0]


@pytest.mark.parametrize("count", [1, MOST_SIGNATURES])
def test_as_many_signatures_as_an_envelope_may_have(count: int) -> None:
    """From one to sixteen; without `keyid` they are as good."""
    assert MOST_SIGNATURES == 16
    listed = [SIGNATURE] * count
    assert len(statement.read_envelope(envelope(signatures=listed)).signatures) == count
    assert (
        len(statement.read_envelope(envelope(signatures=[{"sig": SIGNATURE["sig"]}])).signatures)
        == 1
    )


@pytest.mark.parametrize(
    "change",
    [
        {"signatures": []},
        {"signatures": [SIGNATURE] * 17},
        {"signatures": SIGNATURE},
        {"signatures": "x"},
        {"signatures": [["sig"]]},
        {"signatures": [{**SIGNATURE, "more": "x"}]},
        {"signatures": [{"keyid": "me"}]},
        {"signatures": [{**SIGNATURE, "keyid": 1}]},
        {"payloadType": 1},
        {"payloadType": "a\nb"},
        {"payload": 1},
        {"payload": "-_+/"},
        {"payload": "e31="},
        {"more": "x"},
    ],
)
def test_an_envelope_with_one_thing_wrong(change: dict[str, Any]) -> None:
    """Everything else in it is as it should be, and it is refused."""
    assert statement.read_envelope(envelope()).payload == b"{}"
    with pytest.raises(MalformedEnvelope):
        statement.read_envelope(envelope(**change))


KEY = base64.b64encode(b"key").decode()


@pytest.mark.parametrize(
    ("line", "namespaces"),
    [
        (f"ci ssh-ed25519 {KEY}", None),
        (f"ci ssh-ed25519 {KEY} a comment", None),
        (f'ci namespaces="x" ssh-ed25519 {KEY}', "x"),
        (f"ci namespaces=x ssh-ed25519 {KEY}", "x"),
        (f'ci namespaces="x" ssh-ed25519 {KEY} a comment', "x"),
        (f"ci namespaces= ssh-ed25519 {KEY}", ""),
    ],
)
def test_a_line_of_signers_with_and_without_options(line: str, namespaces: str | None) -> None:
    """Options stand between name and type, quoted or plain, and a comment may stand behind."""
    (found,) = read(line.encode())
    assert (found.principals, found.namespaces, found.public_key) == ("ci", namespaces, b"key")


@pytest.mark.parametrize(
    "line", ["ci", "ci ssh-ed25519", 'ci namespaces="x" ssh-ed25519', f"ci namespaces=x {KEY}"]
)
def test_a_line_of_signers_that_lacks_something(line: str) -> None:
    """It is named as no line, and never an error of another kind."""
    with pytest.raises(
        SignersMalformed, match=("line 1 does not have the form `name options key-type key`")
    ):
        read(line.encode())


def test_the_last_line_of_a_signature_twice() -> None:
    """Two END lines leave open where the signature ends, in the block or before it."""
    for text in (
        BEGIN + b"\n" + END + b"\n" + END + b"\n",
        END + b"\n" + BEGIN + b"\n" + END + b"\n",
    ):
        found = split(text)
        assert isinstance(found, SignatureRefusal)
        assert found.word == RefusalWord.MALFORMED_FOOTER


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (b"a\nb", "line 2: the report contains 'b', but the record renders to 'c'"),
        (b"a", "line 2: the report contains nothing, but the record renders to 'c'"),
        (b"a\nc\nd", "line 3: the report contains 'd', but the record renders to nothing"),
        (
            b"a\n" + b"x" * 60,
            f"line 2: the report contains '{'x' * 60}', but the record renders to 'c'",
        ),
    ],
)
def test_the_first_line_that_differs(stated: bytes, words: str) -> None:
    """Its number from 1 and both texts.

    A line that one of them lacks is nothing, not an empty one.
    """
    assert first_difference(stated, b"a\nc") == words


def test_a_long_line_is_shown_from_shortly_before_the_difference() -> None:
    """Forty characters before the place in it where the two begin to differ."""
    same = "a" * 100
    said = first_difference(f"{same}b".encode(), f"{same}c".encode())
    assert (
        said
        == f"line 1: the report contains '{'a' * 40}b', but the record renders to '{'a' * 40}c'"
    )


def test_a_file_of_just_the_size_that_is_read(tmp_path: Path) -> None:
    """A limit is the most that is read, and the most that is kept; a byte more is neither."""
    (tmp_path / "four").write_bytes(b"four")
    with Folder(tmp_path) as folder:
        assert folder.read("four", 4) == b"four"
        assert folder.digest("four", 4, keep=4)[1:] == (4, b"four")
        assert folder.digest("four", 4, keep=3)[1:] == (4, None)
        with pytest.raises(UnreadableFile) as caught:
            folder.read("four", 3)
    assert caught.value.kind == "large"


def test_folders_as_deep_as_a_manifest_may_name(tmp_path: Path) -> None:
    """The deepest is read, and one below it is refused."""
    deepest = tmp_path.joinpath(*["d"] * DEEPEST)
    deepest.mkdir(parents=True)
    (deepest / "f").touch()
    with Folder(tmp_path) as folder:
        assert folder.names() == ["/".join(["d"] * DEEPEST + ["f"])]
        (deepest / "d").mkdir()
        with pytest.raises(UnreadableFile):
            folder.names()


def test_a_folder_between_two_of_one_name(tmp_path: Path) -> None:
    """Each file is found below its own folder, also after one with the same name below another."""
    for name in ("a/same", "b/same", "a/x/same"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    with Folder(tmp_path) as folder:
        for name in ("a/same", "b/same", "a/x/same", "a/same", "b/same"):
            assert folder.read(name, 100).decode() == name


def test_what_is_not_there_and_what_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, and one below a file, are missing; a name that is too long is not."""
    (tmp_path / "file").touch()
    with Folder(tmp_path) as folder:
        for name, kind in (("none", "missing"), ("file/below", "missing"), ("x" * 300, "denied")):
            with pytest.raises(UnreadableFile) as caught:
                folder.read(name, 1)
            assert caught.value.kind == kind


def verifier(run: Run, **policy: Any) -> Verifier:
    known = SignerPolicy(allowed=run.keys.line("ci").encode(), **policy)
    return Verifier(ssh=sshsig, policy=known, now=NOW)


def begun(run: Run) -> tuple[Verifier, dict[str, str]]:
    """A verification that has come to its files."""
    made = verifier(run)
    report = run.report.read_bytes()
    made.take_report(report)
    made.check_signature(report)
    made.check_signer()
    return made, made.take_manifest((run.folder / "MANIFEST.sha256").read_bytes())


def test_nothing_follows_a_refusal(run: Run) -> None:
    """After a file was refused no other is taken, no name is read, and no second refusal is
    made.
    """
    made, digests = begun(run)
    first, second, *_ = digests
    made.take_file(first, digests[first])
    with pytest.raises(Refused):
        made.take_file(second, "0" * 64)
    for step in (
        lambda: made.take_file(first, digests[first]),
        lambda: made.take_names(list(digests), frozenset()),
        lambda: made.refuse_file(RefusalWord.EVIDENCE_MISSING, "x"),
        lambda: made.judge(Replay(), lambda _: b""),
    ):
        with pytest.raises(OutOfOrder):
            step()
    found = made.result(allow_unjudged=True)
    assert (found.ok, found.word) == (False, "EVIDENCE EDITED")
    assert [step.outcome for step in found.steps].count("refused") == 1


def test_a_file_is_refused_after_others_were_taken_too(run: Run) -> None:
    """In the middle of the files a refusal is one of the files, not of the step after them."""
    made, digests = begun(run)
    first, *_ = digests
    made.take_file(first, digests[first])
    made.refuse_file(RefusalWord.EVIDENCE_MISSING, "x is not there")
    found = made.result()
    assert (found.ok, found.word, found.message) == (False, "EVIDENCE MISSING", "x is not there")


@pytest.mark.parametrize("count", [5, 6])
def test_five_files_beside_the_manifest_are_named(run: Run, count: int) -> None:
    """Five by name, and of more how many."""
    for number in range(count):
        (run.folder / f"extra-{number}").touch()
    found = run.verify()
    assert (found.ok, found.word) == (False, "UNLISTED FILE")
    assert ("and 1 more" in found.message) == (count == 6)
    assert "'extra-4'" in found.message


@pytest.mark.parametrize(
    ("named", "whose"), [(None, "no signer"), ("SHA256:other", "SHA256:other")]
)
def test_a_record_that_does_not_name_its_signer(run: Run, named: str | None, whose: str) -> None:
    """A record that says nobody signs it, or another key, is not the record of this signature."""
    found = run.verify(signer=lambda _read: named)
    assert (found.ok, found.word) == (False, "SIGNED BY ANOTHER KEY")
    assert f"the record names {whose} as its signer" in found.message


def test_what_a_good_verification_says(run: Run) -> None:
    """Who signed, and the key; an unfinished one says that some steps did not run."""
    found = run.verify()
    assert (found.ok, found.word) == (True, "OK")
    assert found.message == f"signed by ci@example.org ({found.fingerprint})"
    made, _ = begun(run)
    unfinished = made.result()
    assert (unfinished.ok, unfinished.word, unfinished.message) == (
        False,
        "NOT COMPLETE",
        "some steps did not run",
    )


def test_a_weak_refusal_does_not_hide_a_strong_one(run: Run) -> None:
    """What could not be judged may be accepted.

    What is wrong beside it is the word, and may not.
    """

    def unable(*_: object) -> Any:
        raise CannotJudge("no judge")

    weak = run.verify(judge=unable)
    assert (weak.ok, weak.word) == (False, "NOT JUDGED")
    assert run.verify(judge=unable).ok is False
    strong = run.verify(judge=unable, signer=lambda _read: None)
    assert (strong.ok, strong.word) == (False, "SIGNED BY ANOTHER KEY")


def test_the_step_after_a_refused_one_does_not_run(run: Run) -> None:
    """A signer who is unknown ends the verification: the manifest, which is next in order, is not
    taken.
    """
    made = Verifier(
        ssh=sshsig, policy=SignerPolicy(allowed=run.keys.line("other").encode()), now=NOW
    )
    report = run.report.read_bytes()
    made.take_report(report)
    made.check_signature(report)
    with pytest.raises(Refused):
        made.check_signer()
    with pytest.raises(OutOfOrder, match="but an earlier step was refused"):
        made.take_manifest((run.folder / "MANIFEST.sha256").read_bytes())
    assert made.result().word == "UNKNOWN SIGNER"
