"""The statement for machines: what it says, and every way to make it say something else."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.record.model import Record
from harness.report.view import checked
from harness.run.replay import RecordReplay
from harness.trust import folder as folder_module
from harness.trust import footer, sshsig, statement
from harness.trust.replay import CannotRender
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import NAMESPACE_ATTESTATION, NAMESPACE_REPORT
from harness.trust.statement import PAYLOAD_TYPE
from tests.kit import forge
from tests.kit.commands import ROOT, Pair, Ran
from tests.run.signed import NAME, Signed, step

pytestmark = pytest.mark.slow

OTHER_COMMIT = {"name": "commit", "digest": {"gitCommit": "ab" * 20}}


@pytest.fixture
def signed(pair: Pair, tmp_path: Path) -> Signed:
    """The run that passed."""
    shutil.copytree(pair.good, tmp_path / "run")
    return Signed(tmp_path / "run", pair.key)


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    key = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return key


def test_a_run_writes_a_statement_that_verifies(signed: Signed) -> None:
    """A signed run has a statement that names report, manifest and tested files, and what was found
    in each cell.
    """
    found = signed.verify()
    assert found.ok, found
    assert step(found, "statement") == (
        "passed",
        "the statement belongs to this report and has the same key",
    )
    said = json.loads(signed.payload())
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    files = ("report.md", "MANIFEST.sha256", "evidence/source-files.sha256")
    assert {each["name"]: each["digest"] for each in said["subject"]} == {
        name.rpartition("/")[2]: {"sha256": hashlib.sha256(signed.read(name)).hexdigest()}
        for name in files
    }
    predicate = said["predicate"]
    assert (predicate["result"], predicate["passedTests"], predicate["failedTests"]) == (
        "PASSED",
        ["meet[ranks=2,backend=none]"],
        [],
    )
    ours = predicate["rankproof_run_v1"]
    assert (ours["verdict"], ours["seed"], ours["challenge"]) == ("PASS", "7", None)
    assert ours["cells"][0]["candidate"]["counted"] == ours["cells"][0]["control"]["asStated"] == 5
    assert ours["cells"][0]["candidate"]["failureRateInterval"][1] == pytest.approx(
        0.4507, abs=1e-4
    )
    assert all("digest" in each or "uri" in each for each in predicate["configuration"])


def test_the_tested_files_are_listed_for_sha256sum(signed: Signed) -> None:
    """`sha256sum -c` checks the list of tested files, and a list that leaves one out is JUDGED
    DIFFERENTLY.
    """
    command = ["sha256sum", "--quiet", "--strict", "-c", "evidence/source-files.sha256"]
    subprocess.run(command, cwd=signed.folder, check=True)
    names = [
        str(path.relative_to(signed.folder)) for path in signed.folder.rglob("*") if path.is_file()
    ]
    listed = [
        name for name in names if name not in ("report.md", "MANIFEST.sha256", NAME, *checked())
    ]
    short = b"".join(signed.read("evidence/source-files.sha256").splitlines(keepends=True)[1:])
    found = RecordReplay().judge(
        lambda name: short if name.endswith("source-files.sha256") else signed.read(name), listed
    )
    assert found == (
        "evidence/source-files.sha256 is missing or does not match the files in evidence/source"
    )


def test_a_failed_run_says_failed(pair: Pair) -> None:
    """FAIL is FAILED, with the cell in `failedTests`, and hostile words in it stay ASCII."""
    said = json.loads(statement.read_envelope((pair.bad / NAME).read_bytes()).payload)
    assert (said["predicate"]["result"], said["predicate"]["passedTests"]) == ("FAILED", [])
    assert said["predicate"]["failedTests"] == ["parting[ranks=2,backend=none]"]
    assert statement.read_envelope((pair.bad / NAME).read_bytes()).payload.isascii()


def test_inconclusive_is_failed_and_says_so(signed: Signed) -> None:
    """INCONCLUSIVE has no word of its own in a test result: it is FAILED, and the extension says
    which and why.
    """
    found = json.loads(signed.read("results.json"))
    found["judgement"].update(verdict="INCONCLUSIVE", reasons=["too few"])
    few = {"code": "verdict:too-few-trials", "text": "too few"}
    found["judgement"]["cells"][0].update(verdict="INCONCLUSIVE", reasons=[few])
    found["judgement"]["cells"].append(
        {**found["judgement"]["cells"][0], "id": "ranks=3", "verdict": "SKIPPED"}
    )
    record = Record.model_validate(found)
    said = json.loads(
        statement.build(record, report="0" * 64, manifest="1" * 64, source_files="2" * 64)
    )["predicate"]
    assert (said["result"], said["passedTests"]) == ("FAILED", [])
    assert said["failedTests"] == ["meet[ranks=2,backend=none]"], (
        "a skipped cell is in neither list"
    )
    assert (said["rankproof_run_v1"]["verdict"], said["rankproof_run_v1"]["reasons"]) == (
        "INCONCLUSIVE",
        ["too few"],
    )
    assert [cell["verdict"] for cell in said["rankproof_run_v1"]["cells"]] == [
        "INCONCLUSIVE",
        "SKIPPED",
    ]


def test_an_unsigned_run_has_none(
    rankproof: Callable[..., Ran], scenario: Callable[..., Path]
) -> None:
    """Nobody signs, so no statement is there; the views are there all the same."""
    ran = rankproof(
        "run",
        str(scenario()),
        "--unsigned",
        "--set",
        "trials.candidate=1",
        "--set",
        "trials.control=1",
    )
    assert not (ran.folder / NAME).exists()
    assert (ran.folder / "report.html").exists()
    assert (ran.folder / "junit.xml").exists()


def test_a_statement_is_not_needed(signed: Signed) -> None:
    """The report stands by itself: a missing statement is named and refuses nothing."""
    signed.envelope.unlink()
    found = signed.verify()
    assert found.ok
    assert step(found, "statement") == ("absent", "the folder has no statement for machines")


def _predicate(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda said: change(said["predicate"])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (_predicate(lambda it: it.update(result="WARNED")), "STATEMENT OF ANOTHER RESULT"),
        (
            _predicate(lambda it: it["passedTests"].append("meet[ranks=4]")),
            "STATEMENT OF ANOTHER RESULT",
        ),
        (_predicate(lambda it: it.pop("failedTests")), "STATEMENT OF ANOTHER RESULT"),
        (
            _predicate(
                lambda it: it["configuration"].insert(
                    0, {"name": "commit", "digest": {"gitCommit": "ab" * 20}}
                )
            ),
            "STATEMENT OF ANOTHER COMMIT",
        ),
        (
            _predicate(lambda it: it["rankproof_run_v1"].update(challenge="today")),
            "STATEMENT DIFFERS",
        ),
        (_predicate(lambda it: it["rankproof_run_v1"].update(seed="8")), "STATEMENT DIFFERS"),
        (_predicate(lambda it: it["configuration"].clear()), "STATEMENT DIFFERS"),
        (
            lambda said: said["subject"][0]["digest"].update(sha256="0" * 64),
            "STATEMENT OF ANOTHER REPORT",
        ),
        (
            lambda said: said["subject"].append({"name": "x", "digest": {"sha256": "0" * 64}}),
            "STATEMENT OF ANOTHER REPORT",
        ),
        (
            lambda said: said.update(_type="https://in-toto.io/Statement/v0.1"),
            "STATEMENT MALFORMED",
        ),
        (lambda said: said.update(predicateType="https://example.org/x"), "STATEMENT MALFORMED"),
        (lambda said: said.update(more=1), "STATEMENT DIFFERS"),
    ],
)
def test_changed_and_signed_again(
    signed: Signed, change: Callable[[dict[str, Any]], object], word: str
) -> None:
    """Whatever a statement says other than its report is refused under the good signature of the
    same key.
    """
    signed.forge(change)
    found = signed.verify()
    assert (found.ok, found.word) == (False, word), found


def test_payload_edited(signed: Signed) -> None:
    """An edited payload is not what was signed."""
    payload = signed.payload().replace(b'"PASSED"', b'"FAILED"')
    signatures = [
        ("x", each.armoured)
        for each in statement.read_envelope(signed.envelope.read_bytes()).signatures
    ]
    signed.write(payload, signatures)
    assert signed.verify().word == "STATEMENT BADLY SIGNED"


def test_statement_of_another_run(signed: Signed, pair: Pair) -> None:
    """The good statement of another run, by the same key, is refused."""
    shutil.copy(pair.bad / NAME, signed.envelope)
    assert signed.verify().word == "STATEMENT OF ANOTHER REPORT"


def test_report_signature_reused(signed: Signed) -> None:
    """The signature of the report cannot stand for one of the statement, nor one made for reports
    over its bytes.
    """
    report = footer.split(signed.read("report.md"))
    assert isinstance(report, footer.Footer)
    signed.write(signed.payload(), [("x", report.signature)])
    assert signed.verify().word == "STATEMENT WRONG NAMESPACE"
    over = sshsig.sign(
        statement.pae(PAYLOAD_TYPE, signed.payload()), signed.key, namespace=NAMESPACE_REPORT
    )
    signed.write(signed.payload(), [("x", over)])
    assert signed.verify().word == "STATEMENT WRONG NAMESPACE"


def test_signature_over_the_bare_payload(signed: Signed) -> None:
    """A signature over the payload without its type and lengths is refused."""
    signed.write(
        signed.payload(),
        [("x", sshsig.sign(signed.payload(), signed.key, namespace=NAMESPACE_ATTESTATION))],
    )
    assert signed.verify().word == "STATEMENT BADLY SIGNED"


def test_payload_type_changed(signed: Signed) -> None:
    """Another payloadType is refused, whether or not it was signed."""
    signed.edit(lambda it: it.update(payloadType="application/json"))
    assert signed.verify().word == "STATEMENT MALFORMED"
    signed.attest(
        statement.read_envelope(signed.envelope.read_bytes()).payload, kind="application/json"
    )
    assert signed.verify().word == "STATEMENT MALFORMED"


def test_another_key(signed: Signed, stranger: Path) -> None:
    """A statement signed by another key than the report's is refused, and says by whom."""
    signed.attest(signed.payload(), key=stranger)
    assert signed.verify().word == "STATEMENT BY ANOTHER KEY"


def test_two_keys_in_one_envelope(signed: Signed, stranger: Path) -> None:
    """A second key may sign beside the first.

    The answer names it and says that nobody vouches for it.
    """
    payload = signed.payload()
    signed.write(payload, [signed.sign(payload, key=stranger), signed.sign(payload)])
    found = signed.verify()
    assert found.ok, found
    assert "which was not checked" in step(found, "statement")[1]
    bad = (b"x" + payload, stranger)
    signed.write(payload, [signed.sign(payload), signed.sign(bad[0], key=bad[1])])
    assert signed.verify().word == "STATEMENT BADLY SIGNED"


def test_one_key_under_two_names_counts_once(signed: Signed) -> None:
    """`keyid` decides nothing: one key under two of them is one key, and a wrong or missing one
    does no harm.
    """
    payload = signed.payload()
    signed.write(
        payload,
        [signed.sign(payload, keyid="SHA256:one"), signed.sign(payload, keyid="SHA256:two")],
    )
    found = statement.read_envelope(signed.envelope.read_bytes())
    good = statement.signing_keys(
        found,
        namespace=NAMESPACE_ATTESTATION,
        fits=lambda data, armoured: sshsig.fits(data, armoured, namespace=NAMESPACE_ATTESTATION),
    )
    assert len(found.signatures) == 2
    assert len(good) == 1
    assert signed.verify().ok
    signed.edit(lambda it: [each.pop("keyid") for each in it["signatures"]])
    assert signed.verify().ok


def test_either_base64_alphabet(signed: Signed) -> None:
    """The URL-safe alphabet is accepted as DSSE asks.

    Two alphabets in one text, or loose padding, are not.
    """
    # A key named so that both special characters occur.
    payload = signed.payload()
    signed.edit(lambda it: it.update(payload=it["payload"].replace("+", "-").replace("/", "_")))
    signed.edit(
        lambda it: it["signatures"][0].update(
            sig=it["signatures"][0]["sig"].replace("+", "-").replace("/", "_")
        )
    )
    assert signed.verify().ok
    for text in ("-+==", "+_aa", "QUI", "QUJ=", "QQ= =", "QQ\n==", 7, None):
        signed.edit(lambda it, text=text: it.update(payload=text))
        assert signed.verify().word == "STATEMENT MALFORMED"
    signed.attest(payload)
    assert signed.verify().ok


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b'{"payload": ""}',
        b"\xff\xfe",
        b'{"payload":"","payloadType":"","signatures":[]}',
        b'{"payload":"","payloadType":"","signatures":[{"sig":""}]}',
        b'{"payload":"","payloadType":1,"signatures":[{}]}',
        b'{"payload":"","payloadType":"","signatures":[{"sig":"QQ==","cert":""}]}',
        b'{"payload":"","payload":"","payloadType":"","signatures":[]}',
        b'{"payload":NaN,"payloadType":"","signatures":[]}',
        b"[" * 100_000,
    ],
)
def test_not_an_envelope(signed: Signed, content: bytes) -> None:
    """What is not an envelope is refused as such, duplicate keys and NaN included."""
    signed.envelope.write_bytes(content)
    assert signed.verify().word == "STATEMENT MALFORMED"


def test_duplicate_keys(signed: Signed) -> None:
    """A key that stands twice is refused in the envelope and, under a good signature, in the
    statement.
    """
    text = signed.envelope.read_bytes()
    signed.envelope.write_bytes(
        text.replace(b'"payloadType"', b'"payloadType": "x",\n "payloadType"', 1)
    )
    assert signed.verify().word == "STATEMENT MALFORMED"
    signed.envelope.write_bytes(text)
    signed.attest(
        signed.payload().replace(b'"result":"PASSED"', b'"result":"FAILED","result":"PASSED"')
    )
    assert signed.verify().word == "STATEMENT MALFORMED"


def test_too_many_signatures(signed: Signed) -> None:
    """An envelope does not make the verifier start a process for each of a million signatures."""
    payload = signed.payload()
    signed.write(payload, [signed.sign(payload)] * 17)
    assert signed.verify().word == "STATEMENT MALFORMED"


def test_oversized(signed: Signed) -> None:
    """A statement of a terabyte is refused without being read."""
    os.truncate(signed.envelope, 2**40)
    assert signed.verify().word == "STATEMENT UNREADABLE"


@pytest.mark.parametrize("name", [NAME, *checked()])
def test_a_link_or_a_pipe(signed: Signed, name: str) -> None:
    """A link or a pipe with the name of a statement or a view is refused, even a link to the right
    bytes.
    """
    word = "STATEMENT UNREADABLE" if name == NAME else "VIEW UNREADABLE"
    (signed.folder / name).rename(signed.folder.parent / "elsewhere")
    (signed.folder / name).symlink_to(signed.folder.parent / "elsewhere")
    assert signed.verify().word == word
    (signed.folder / name).unlink()
    os.mkfifo(signed.folder / name)
    assert signed.verify().word == word
    (signed.folder / name).unlink()
    (signed.folder / name).mkdir()
    assert signed.verify().word == word


@pytest.mark.parametrize(
    "name",
    [
        "Attestation.dsse.json",
        "attestation.sigstore.json",
        "report.htm",
        "evidence/report.html",
        "junit.XML",
    ],
)
def test_only_these_names(signed: Signed, name: str) -> None:
    """Only the exact names of statement and views may lie there without being listed."""
    shutil.copy(signed.envelope, signed.folder / name)
    assert signed.verify().word == "UNLISTED FILE"


def test_without_who_checks_it(signed: Signed) -> None:
    """A verifier that cannot check statements or views takes them for files that no signature
    covers.
    """
    assert signed.verify(makes_statements=False).word == "UNLISTED FILE"
    assert signed.verify(views={}).word == "UNLISTED FILE"


def test_a_format_of_the_future(signed: Signed) -> None:
    """A statement that this version cannot make again is refused in a word that a caller may accept
    by name.
    """

    def unknown(*_: object) -> bytes:
        message = "format 2"
        raise CannotRender(message)

    found = signed.verify(rebuild=unknown)
    assert (found.ok, found.word) == (False, "STATEMENT NOT REBUILT")
    assert signed.verify(
        rebuild=unknown, views={**RecordReplay().views, "junit.xml": unknown}, allow_unjudged=True
    ).ok
    assert (
        signed.verify(views={**RecordReplay().views, "junit.xml": unknown}).word
        == "VIEW NOT RENDERED"
    )


def test_certificate_signer(signed: Signed, tmp_path: Path) -> None:
    """A certificate signs report and statement; a statement by its bare key is by another key."""
    for name in ("authority", "certified"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True
        )
    certify = [
        "ssh-keygen",
        "-q",
        "-s",
        str(tmp_path / "authority"),
        "-I",
        "run",
        "-n",
        "ci@example.org",
    ]
    validity = ["-V", "20260101000000:20260101010000", str(tmp_path / "certified.pub")]
    subprocess.run([*certify, *validity], check=True, env={**os.environ, "TZ": "UTC"})
    certificate = tmp_path / "certified-cert.pub"
    forge.sign(signed.folder, tmp_path / "certified")  # so that the record names its key
    report = footer.split(signed.read("report.md"))
    assert isinstance(report, footer.Footer)
    signature = sshsig.sign(report.signed, certificate, namespace=NAMESPACE_REPORT)
    (signed.folder / "report.md").write_bytes(footer.attach(report.body, signature))
    digests = [
        hashlib.sha256(signed.read(name)).hexdigest() for name in ("report.md", "MANIFEST.sha256")
    ]
    payload = RecordReplay().rebuild(signed.read, *digests)
    signed.attest(payload, key=certificate)
    authority = (tmp_path / "authority.pub").read_text().split()
    line = (
        f'*@example.org cert-authority,namespaces="{NAMESPACE_REPORT}" {authority[0]}'
        f" {authority[1]}"
    )
    policy = SignerPolicy(allowed=line.encode(), at=datetime(2026, 1, 1, 0, 30, tzinfo=UTC))
    found = signed.verify(policy=policy)
    assert found.ok, found
    signed.attest(payload, key=tmp_path / "certified")
    assert signed.verify(policy=policy).word == "STATEMENT BY ANOTHER KEY"


def test_a_huge_limit_is_not_needed(signed: Signed) -> None:
    """Statement and views of a run lie far below what a verifier reads of them."""
    assert len(signed.envelope.read_bytes()) * 100 < folder_module.LARGEST_STATEMENT
    assert all(len(signed.read(name)) * 100 < folder_module.LARGEST_FILE for name in checked())


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq here to take the envelope apart")
def test_the_lines_of_the_page(signed: Signed) -> None:
    """The lines of docs/verify.md check a statement with jq and ssh-keygen alone, and refuse an
    edited one.
    """
    page = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
    block = page[page.index("```console\n") + len("```console\n") :].partition("\n```")[0]
    lines = block.replace("\n$ ", "\n").removeprefix("$ ")
    public = " ".join(signed.key.with_suffix(".pub").read_text().split()[:2])
    (signed.folder / "allowed_signers").write_text(
        f'ci@example.org namespaces="{NAMESPACE_ATTESTATION}" {public}\n'
    )

    def check() -> int:
        return subprocess.run(
            ["sh", "-ec", lines], cwd=signed.folder, capture_output=True, check=False
        ).returncode

    assert check() == 0
    text = signed.payload().replace(b"PASSED", b"FAILED")
    signed.edit(lambda it: it.update(payload=base64.b64encode(text).decode()))
    assert check() != 0


def test_signed_bytes_are_those_of_the_specification() -> None:
    """The pre-authentication encoding is the one of DSSE's own example, with lengths in bytes."""
    assert (
        statement.pae("http://example.com/HelloWorld", b"hello world")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert statement.pae("é", "é".encode()) == "DSSEv1 2 é 2 é".encode()
    text = base64.b64encode(b"\xfb\xff").decode()
    assert "+" in text
