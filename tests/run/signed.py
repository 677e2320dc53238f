"""A signed run that a test may change, sign again and verify."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.run.replay import RecordReplay
from harness.trust import sshsig, statement
from harness.trust.folder import verify_folder
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import NAMESPACE_ATTESTATION, NAMESPACE_REPORT
from harness.trust.statement import PAYLOAD_TYPE
from harness.trust.verification import Verification
from tests.kit.forge import replaced

NAME = "attestation.dsse.json"


@dataclass
class Signed:
    """A copy of a signed run that can be changed, signed and verified."""

    folder: Path
    key: Path

    @property
    def envelope(self) -> Path:
        return self.folder / NAME

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def payload(self) -> bytes:
        return statement.read_envelope(self.envelope.read_bytes()).payload

    def sign(
        self,
        payload: bytes,
        *,
        kind: str = PAYLOAD_TYPE,
        key: Path | None = None,
        keyid: str = "me",
    ) -> Any:
        armoured = sshsig.sign(
            statement.pae(kind, payload), key or self.key, namespace=NAMESPACE_ATTESTATION
        )
        return keyid, armoured

    def attest(self, payload: bytes, *, kind: str = PAYLOAD_TYPE, key: Path | None = None) -> None:
        self.write(payload, [self.sign(payload, kind=kind, key=key)], kind=kind)

    def write(self, payload: bytes, signatures: Any, *, kind: str = PAYLOAD_TYPE) -> None:
        self.envelope.write_bytes(
            statement.encode_envelope(payload, payload_type=kind, signatures=signatures)
        )

    def forge(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the statement and sign it again with the key of the report."""
        found = json.loads(self.payload())
        change(found)
        self.attest(json.dumps(found, separators=(",", ":")).encode())

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the envelope around the statement."""
        found = json.loads(self.envelope.read_bytes())
        change(found)
        self.envelope.write_text(json.dumps(found))

    def verify(self, **more: Any) -> Verification:
        public = self.key.with_suffix(".pub").read_text().split()
        line = f'ci@example.org namespaces="{NAMESPACE_REPORT}" {public[0]} {public[1]}'
        policy = more.pop("policy", SignerPolicy(allowed=line.encode()))
        replay = replaced(RecordReplay(), more)
        return verify_folder(self.folder / "report.md", policy=policy, replay=replay, **more)


def step(found: Verification, name: str) -> tuple[str, str]:
    each = next(each for each in found.steps if each.name == name)
    return each.outcome, each.message
