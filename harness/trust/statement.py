"""The statement: what a run found, as an in-toto Statement v1 with the predicate test-result v0.1,
for machines.

It follows from the record and the report, byte for byte, so a verifier writes it again and
compares. Sources: in-toto Attestation Framework v1, test-result v0.1, its rules on extension fields
(names that will not collide, without `.` or `$`) and its monotonic principle.

It travels in a DSSE envelope, version 1.0.2, whose signatures are those of ssh-keygen. Source: the
DSSE protocol and envelope specifications. A signature is over the pre-authentication encoding (PAE)
of type and payload, so neither can be taken for the other. `keyid` is a hint that nobody vouches
for: here it decides nothing, and a key counts once however many names it is given.

INCONCLUSIVE has no word there, so it is FAILED, and the extension says which of the two. A skipped
cell is in neither list: ask whether the tests that you need are in `passedTests`, never whether
`failedTests` is empty.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.forms.manifest import NAME as MANIFEST
from harness.forms.strict_json import NotStrict, strict_json
from harness.reason import RefusalWord
from harness.record import sources
from harness.record.facts import SCENARIO_PATH
from harness.record.model import Record
from harness.stats.rates import lower_bound
from harness.stats.verdict import CellVerdict
from harness.trust.footer import SignatureRefusal
from harness.trust.sshsig import NAMESPACE_ATTESTATION, MalformedSignature, SshSignature
from harness.trust.sshsig import parse as parse_signature

if TYPE_CHECKING:
    from harness.trust.key import Signer

NAME = "attestation.dsse.json"
TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
EXTENSION = "rankproof_run_v1"
REPORT = "report.md"


def attest(payload: bytes, signer: Signer) -> bytes:
    """Signed envelope around a statement.

    Raises:
        SshsigError: the key does not sign.
    """
    signature = signer.sign(pae(PAYLOAD_TYPE, payload), NAMESPACE_ATTESTATION)
    return encode_envelope(
        payload, payload_type=PAYLOAD_TYPE, signatures=[(signer.identity(), signature)]
    )


def build(record: Record, *, report: str, manifest: str, source_files: str) -> bytes:
    """Bytes of the statement.

    Args:
        record: the record.
        report: sha256 of the whole `report.md`, with its signature, in hex.
        manifest: sha256 of `MANIFEST.sha256`.
        source_files: sha256 of `evidence/source-files.sha256`.
    """
    cells = record.judgement.cells
    subjects = (
        (REPORT, report),
        (MANIFEST, manifest),
        (sources.PATH.rpartition("/")[2], source_files),
    )
    statement = {
        "_type": TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "result": "PASSED" if record.judgement.verdict == "PASS" else "FAILED",
            "configuration": _configuration(record),
            "passedTests": [test_name(record, cell) for cell in cells if cell.verdict == "PASS"],
            "failedTests": [
                test_name(record, cell)
                for cell in cells
                if cell.verdict in ("FAIL", "INCONCLUSIVE")
            ],
            EXTENSION: _extension(record),
        },
    }
    return json.dumps(statement, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def test_name(record: Record, cell: CellVerdict) -> str:
    """How a cell is named as a test: `scenario[matrix cell]`."""
    return f"{record.scenario.id}[{cell.id}]"


def check(
    envelope: bytes, *, rebuilt: bytes, fingerprint: str, fits: Callable[[bytes, bytes], bool]
) -> SignatureRefusal | str:
    """Tell whether an envelope holds the statement of this report under the key of this report.

    Else the word against it.

    Args:
        envelope: the content of `attestation.dsse.json`.
        rebuilt: the statement that record and report make.
        fingerprint: the key whose signature on the report was accepted. Others may sign beside it,
            and count for nothing here.
        fits: whether an armoured signature is over bytes, in the namespace of statements.
    """
    try:
        signed = read_envelope(envelope)
    except MalformedEnvelope as problem:
        return SignatureRefusal(RefusalWord.STATEMENT_MALFORMED, str(problem))
    if signed.payload_type != PAYLOAD_TYPE:
        return SignatureRefusal(
            RefusalWord.STATEMENT_MALFORMED,
            f"its payloadType is {signed.payload_type!r}, not {PAYLOAD_TYPE!r}",
        )
    mine = [each for each in signed.signatures if each.said.fingerprint == fingerprint]
    if not mine:
        whose = ", ".join(sorted({each.said.fingerprint for each in signed.signatures}))
        return SignatureRefusal(
            RefusalWord.STATEMENT_BY_ANOTHER_KEY,
            f"it is signed by {whose}, but the report is signed by {fingerprint}",
        )
    for each in signed.signatures:
        if each.said.namespace != NAMESPACE_ATTESTATION:
            what = (
                f"a signature was made for {each.said.namespace!r}, but a statement needs"
                f" {NAMESPACE_ATTESTATION!r}"
            )
            return SignatureRefusal(RefusalWord.STATEMENT_WRONG_NAMESPACE, what)
    good = signing_keys(signed, namespace=NAMESPACE_ATTESTATION, fits=fits)
    if bad := sorted({each.said.fingerprint for each in signed.signatures} - good):
        return SignatureRefusal(
            RefusalWord.STATEMENT_BADLY_SIGNED,
            f"the signature by {bad[0]} does not cover this payload and type",
        )
    if differs := disagreement(signed.payload, rebuilt):
        return SignatureRefusal(*differs)
    others = sorted(good - {fingerprint})
    more = f"; also signed by {', '.join(others)}, which was not checked" if others else ""
    return f"the statement belongs to this report and has the same key{more}"


def disagreement(stated: bytes, rebuilt: bytes) -> tuple[RefusalWord, str] | None:
    """Return the word and the message for how a statement differs from the one that report and
    record make; None if not.
    """
    if stated == rebuilt:
        return None
    try:
        stated_document = strict_json(stated)
        rebuilt_document = strict_json(rebuilt)
    except NotStrict as problem:
        return RefusalWord.STATEMENT_MALFORMED, f"the payload is not strict JSON: {problem}"
    for word, place in (
        (RefusalWord.STATEMENT_MALFORMED, ("_type",)),
        (RefusalWord.STATEMENT_MALFORMED, ("predicateType",)),
        (RefusalWord.STATEMENT_OF_ANOTHER_REPORT, ("subject",)),
        (RefusalWord.STATEMENT_OF_ANOTHER_RESULT, ("predicate", "result")),
        (RefusalWord.STATEMENT_OF_ANOTHER_RESULT, ("predicate", "passedTests")),
        (RefusalWord.STATEMENT_OF_ANOTHER_RESULT, ("predicate", "failedTests")),
    ):
        stated_value = _at(stated_document, place)
        own_value = _at(rebuilt_document, place)
        if stated_value != own_value:
            return (
                word,
                (
                    f"its {'.'.join(place)} is {_shown(stated_value)}, but the report has"
                    f" {_shown(own_value)}"
                ),
            )
    stated_value = _commits(stated_document)
    own_value = _commits(rebuilt_document)
    if stated_value != own_value:
        return (
            RefusalWord.STATEMENT_OF_ANOTHER_COMMIT,
            f"it has {_shown(stated_value)}, but the report has {_shown(own_value)}",
        )
    return RefusalWord.STATEMENT_DIFFERS, (
        "it differs from the statement that follows from the record and the report"
    )


def _configuration(record: Record) -> list[dict[str, Any]]:
    """Return what the run was made with.

    Each descriptor holds a digest or an address, as the specification asks.
    """
    run = record.run
    source = record.run.source
    here = record.run.environment
    descriptors: list[dict[str, Any]] = []
    if source.commit:
        state = {"annotations": {"dirty": source.dirty, "repository": source.origin}}
        descriptors.append({"name": "commit", "digest": {"gitCommit": source.commit}, **state})
    if source.tree:
        descriptors.append({"name": "tree", "digest": {"gitTree": source.tree}})
    for name, revision in sorted(run.revisions.items()):
        more = {
            "annotations": {
                "rev": revision.rev,
                "repository": revision.repo,
                "patchSha256": revision.patch,
            }
        }
        descriptors.append(
            {"name": f"{name} commit", "digest": {"gitCommit": revision.commit}, **more}
        )
        descriptors.append({"name": f"{name} tree", "digest": {"gitTree": revision.tree}})
    descriptors.append({"name": SCENARIO_PATH, "digest": {"sha256": record.scenario.sha256}})
    if here.lock_sha256:
        descriptors.append(
            {"name": f"lock {here.lock or 'unnamed'}", "digest": {"sha256": here.lock_sha256}}
        )
    descriptors += [
        {"name": f"input {given.name}", "digest": {"sha256": given.digest}} for given in run.inputs
    ]
    return [*descriptors, {"name": "rankproof", "uri": f"pkg:generic/rankproof@{run.rankproof}"}]


def _extension(record: Record) -> dict[str, Any]:
    run = record.run
    scenario = record.scenario
    judgement = record.judgement
    return {
        "verdict": judgement.verdict,
        "reasons": judgement.reasons,
        "role": scenario.role,
        "expects": scenario.expects,
        "asExpected": judgement.as_expected,
        "run": run.id,
        "made": run.made,
        "format": run.format,
        "seed": scenario.seed,
        "challenge": run.challenge,
        "dirty": run.source.dirty,
        "nix": run.environment.nix.environment if run.environment.nix else None,
        "variant": run.environment.variant,
        "accept": {
            "failureRateBelow": scenario.accept_rate,
            "confidence": scenario.accept_confidence,
        },
        "control": scenario.must_fail,
        "cells": [_cell(record, cell) for cell in judgement.cells],
    }


def _cell(record: Record, cell: CellVerdict) -> dict[str, Any]:
    row: dict[str, Any] = {"name": test_name(record, cell), "verdict": cell.verdict}
    row["reasons"] = [str(reason) for reason in cell.reasons]
    row["codes"] = [reason.code for reason in cell.reasons]
    confidence = record.scenario.accept_confidence
    if (tally := cell.candidate) is not None:
        row["candidate"] = {
            "counted": tally.counted,
            "failed": tally.failed,
            "void": tally.voids,
            # Each end one-sided, Clopper-Pearson, at the confidence that `accept` names.
            "failureRateInterval": [
                lower_bound(tally.failed, tally.counted, confidence=confidence),
                tally.upper,
            ],
            "upperIfVoidFailed": tally.upper_with_voids,
        }
    if (tally := cell.control) is not None:
        row["control"] = {
            "counted": tally.counted,
            "asStated": tally.as_stated,
            "void": tally.voids,
            "fisherOneSided": tally.p_value,
        }
    return row


def _commits(statement: Any) -> Any:
    """Name and digest of every commit and tree that a statement names."""
    configuration = _at(statement, ("predicate", "configuration"))
    listed = configuration if isinstance(configuration, list) else []
    return [
        (each.get("name"), each["digest"])
        for each in listed
        if isinstance(each, dict)
        and isinstance(each.get("digest"), dict)
        and "sha256" not in each["digest"]
    ]


def _at(value: Any, place: tuple[str, ...]) -> Any:
    for step in place:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 200 else f"{text[:200]}..."


PAYLOAD_TYPE = "application/vnd.in-toto+json"
MOST_SIGNATURES = 16
_OTHER_ALPHABET = str.maketrans("-_", "+/")


class MalformedEnvelope(ValueError):
    """Not an envelope; the message says why."""


@dataclass(frozen=True)
class EnvelopeSignature:
    """Signature as it stands in the envelope, and what it says of itself."""

    armoured: bytes
    said: SshSignature


@dataclass(frozen=True)
class StatementEnvelope:
    """Envelope taken apart. Nothing in it is true until a signature fits."""

    payload: bytes
    payload_type: str
    signatures: tuple[EnvelopeSignature, ...]

    @property
    def signed(self) -> bytes:
        """Bytes that its signatures are over."""
        return pae(self.payload_type, self.payload)


def pae(payload_type: str, payload: bytes) -> bytes:
    """Pre-authentication encoding: lengths are in bytes, in decimal."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def encode_envelope(
    payload: bytes, *, payload_type: str, signatures: Iterable[tuple[str, bytes]]
) -> bytes:
    """Bytes of an envelope; `signatures` are pairs of fingerprint and armoured signature."""
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


def read_envelope(data: bytes) -> StatementEnvelope:
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
    listed = document["signatures"]
    kind = document["payloadType"]
    _demand(
        isinstance(kind, str) and kind.isprintable(), "the payloadType is not a printable string"
    )
    _demand(
        isinstance(listed, list) and 0 < len(listed) <= MOST_SIGNATURES,
        f"it must have 1 to {MOST_SIGNATURES} signatures",
    )
    return StatementEnvelope(
        _base64(document["payload"], "payload"), kind, tuple(_signature(each) for each in listed)
    )


def signing_keys(
    envelope: StatementEnvelope, *, namespace: str, fits: Callable[[bytes, bytes], bool]
) -> frozenset[str]:
    """Fingerprints of the distinct keys whose signature is over this payload, in this namespace."""
    return frozenset(
        each.said.fingerprint
        for each in envelope.signatures
        if each.said.namespace == namespace and fits(envelope.signed, each.armoured)
    )


def _signature(entry: Any) -> EnvelopeSignature:
    _demand(
        isinstance(entry, dict) and {"sig"} <= entry.keys() <= {"keyid", "sig"},
        "a signature has unknown keys, or no sig",
    )
    _demand(isinstance(entry.get("keyid", ""), str), "the keyid is not a string")
    armoured = _base64(entry["sig"], "sig")
    try:
        return EnvelopeSignature(armoured, parse_signature(armoured))
    except MalformedSignature as problem:
        raise MalformedEnvelope(
            f"a signature is not in the format that ssh-keygen writes: {problem}"
        ) from None


def _base64(text: Any, where: str) -> bytes:
    _demand(isinstance(text, str), f"the {where} is not a string")
    _demand(
        not (set("-_") & set(text) and set("+/") & set(text)),
        f"the {where} mixes the two base64 alphabets",
    )
    plain = text.translate(_OTHER_ALPHABET)
    try:
        data = base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedEnvelope(f"not a DSSE envelope: the {where} is not base64") from None
    # Unused bits would let the file be changed without its meaning becoming another.
    _demand(base64.b64encode(data).decode() == plain, f"the {where} is not canonical base64")
    return data


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise MalformedEnvelope(f"not a DSSE envelope: {what}")
