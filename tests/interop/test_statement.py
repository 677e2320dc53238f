"""What others make of our statement: the packages that in-toto and sigstore publish read it as we
meant it.

`nox -s interop` brings those packages; elsewhere these tests are skipped.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.record.facts import RevisionFacts
from harness.trust import sshsig, statement
from harness.trust.sshsig import NAMESPACE_ATTESTATION, NAMESPACE_REPORT
from tests.kit.records import cell, record

json_format = pytest.importorskip("google.protobuf.json_format", reason="run `nox -s interop`")
statement_pb2 = pytest.importorskip(
    "in_toto_attestation.v1.statement_pb2", reason="run `nox -s interop`"
)
in_toto = pytest.importorskip("in_toto_attestation.v1.statement", reason="run `nox -s interop`")
descriptor = pytest.importorskip(
    "in_toto_attestation.v1.resource_descriptor", reason="run `nox -s interop`"
)
test_result_pb2 = pytest.importorskip(
    "in_toto_attestation.predicates.test_result.v0.test_result_pb2", reason="run `nox -s interop`"
)
sigstore = pytest.importorskip("sigstore.dsse", reason="run `nox -s interop`")

INPUT = {
    "name": "words",
    "given": "words.txt",
    "digest": "56" * 32,
    "pinned": True,
    "revision": None,
    "files": {},
}
REVISION = RevisionFacts(
    repo=None, rev="main", commit="12" * 20, tree="34" * 20, patch=None, folder="src"
)


@pytest.fixture
def payload() -> bytes:
    """A statement that uses everything: cells that pass, fail and decide nothing, a lock, inputs,
    revisions.
    """
    full = record(
        cell("ranks=2"),
        cell("ranks=3", candidate=["fail", "pass", "pass"]),
        cell("ranks=4", candidate=["pass"], verdict="INCONCLUSIVE", reasons=["too \x1b\u202efew"]),
        run={
            "revisions": {"candidate": REVISION.model_dump()},
            "inputs": [
                {
                    "name": "words",
                    "given": "words.txt",
                    "digest": "56" * 32,
                    "pinned": True,
                    "revision": None,
                    "files": {},
                }
            ],
        },
        environment={"lock": "cpu.txt", "lock_sha256": "78" * 32, "variant": "cpu"},
        source={"dirty": None, "origin": "https://example.org/x"},
    )
    return statement.build(full, report="0" * 64, manifest="1" * 64, source_files="2" * 64)


def test_in_toto_reads_it(payload: bytes) -> None:
    """in-toto's own classes take the statement and each of its descriptors, and find in it what we
    wrote.
    """
    found = json_format.Parse(payload, statement_pb2.Statement())
    in_toto.Statement.copy_from_pb(found).validate()
    assert found.predicate_type == "https://in-toto.io/attestation/test-result/v0.1"
    assert [each.name for each in found.subject] == [
        "report.md",
        "MANIFEST.sha256",
        "source-files.sha256",
    ]
    predicate: dict[str, Any] = json.loads(payload)["predicate"]
    ours = predicate.pop("rankproof_run_v1")
    result = json_format.ParseDict(predicate, test_result_pb2.TestResult())
    assert (result.result, list(result.passed_tests)) == ("FAILED", ["meet[ranks=2]"])
    assert list(result.failed_tests) == ["meet[ranks=3]", "meet[ranks=4]"]
    assert len(result.configuration) == 8
    for each in result.configuration:
        descriptor.ResourceDescriptor.copy_from_pb(each).validate()
    assert ours["cells"][2]["reasons"] == ["too \x1b\u202efew"]


def test_sigstore_reads_it(payload: bytes) -> None:
    """sigstore's model, which wants a name and a sha256 of every subject, takes the statement."""
    found = sigstore.Statement(payload)
    assert [each.name for each in found._inner.subjects] == [
        "report.md",
        "MANIFEST.sha256",
        "source-files.sha256",
    ]
    assert found._inner.predicate["result"] == "FAILED"


def test_sigstore_reads_the_envelope(payload: bytes, tmp_path: Path) -> None:
    """sigstore reads our envelope, and its pre-authentication encoding is the bytes that our key
    signed.
    """
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    signed = statement.pae(statement.PAYLOAD_TYPE, payload)
    assert signed == sigstore._pae(statement.PAYLOAD_TYPE, payload)
    armoured = sshsig.sign(signed, key, namespace=NAMESPACE_ATTESTATION)
    envelope = statement.encode_envelope(
        payload, payload_type=statement.PAYLOAD_TYPE, signatures=[("SHA256:x", armoured)]
    )
    found = sigstore.Envelope._from_json(envelope)._inner
    assert (found.payload, found.payload_type) == (payload, statement.PAYLOAD_TYPE)
    assert found.signatures[0].sig == armoured
    assert sshsig.fits(signed, found.signatures[0].sig, namespace=NAMESPACE_ATTESTATION)
    assert not sshsig.fits(signed, found.signatures[0].sig, namespace=NAMESPACE_REPORT)
