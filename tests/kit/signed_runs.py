"""A stand-in for a run: a record, evidence, and a judge and a renderer that are real, only
small.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.forms.manifest import encode
from harness.trust import sshsig
from harness.trust.folder import verify_folder
from harness.trust.footer import attach, signed_part
from harness.trust.replay import Read, Replay
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import NAMESPACE_REPORT
from tests.kit.forge import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.trust.verification import Verification

MADE = datetime(2026, 1, 3, 10, 0, 0, tzinfo=UTC)


def judge(read: Read, names: Sequence[str]) -> str | None:
    """A trial passes if every rank's log says that its tokenizer is ready."""
    record = json.loads(read("results.json"))
    for name, outcome in record["trials"].items():
        logs = [read(path) for path in names if path.startswith(f"evidence/{name}/")]
        again = "pass" if logs and all(b"tokenizer ready" in log for log in logs) else "fail"
        if again != outcome:
            return f"{name} is {again} by its evidence, the record says {outcome}"
    return None


def render(read: Read, manifest_digest: str) -> bytes:
    """The body, from the record alone."""
    record = json.loads(read("results.json"))
    rows = "".join(f"| {name} | {outcome} |\n" for name, outcome in record["trials"].items())
    return (
        f"# {record['title']}\n\nMade: `{MADE:%Y-%m-%dT%H:%M:%SZ}`\n\n| trial | outcome"
        f" |\n|---|---|\n{rows}\nPrompt: héllo ✅ “quoted” 日本\n\nManifest: `MANIFEST.sha256`"
        f" sha256 `{manifest_digest}`\n"
    ).encode()


@dataclass
class Keys:
    """Key pairs by name, and the line of an allowed_signers file for each."""

    folder: Path

    def path(self, name: str) -> Path:
        key = self.folder / name
        if not key.exists():
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", key], check=True
            )
        return key

    def public(self, name: str) -> str:
        return " ".join(self.path(name).with_suffix(".pub").read_text().split()[:2])

    def line(self, name: str, options: str = f'namespaces="{NAMESPACE_REPORT}"') -> str:
        return f"{name}@example.org {options} {self.public(name)}\n".replace("  ", " ")


@dataclass
class Run:
    """A results folder that can be signed, changed and verified."""

    folder: Path
    keys: Keys
    signer: str | None = None
    """The key that its record names: the one that signed it last."""

    @property
    def report(self) -> Path:
        return self.folder / "report.md"

    def write(self, trials: dict[str, str], ranks: int = 2) -> None:
        for name in trials:
            for rank in range(ranks):
                path = self.folder / "evidence" / name / f"rank{rank}.log"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"rank {rank}: tokenizer ready\n")
        self.write_record(trials)

    def write_record(self, trials: dict[str, str]) -> None:
        (self.folder / "results.json").write_text(
            json.dumps({"title": "Every rank is ready", "trials": trials})
        )

    def write_manifest(self) -> str:
        own = {"report.md", "MANIFEST.sha256"}
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        names = {str(path.relative_to(self.folder)): path for path in paths}
        digests = {
            n: hashlib.sha256(p.read_bytes()).hexdigest() for n, p in names.items() if n not in own
        }
        return self.set_manifest(encode(digests))

    def set_manifest(self, data: bytes) -> str:
        (self.folder / "MANIFEST.sha256").write_bytes(data)
        return hashlib.sha256(data).hexdigest()

    def body(self) -> bytes:
        digest = hashlib.sha256((self.folder / "MANIFEST.sha256").read_bytes()).hexdigest()
        return render(lambda name: (self.folder / name).read_bytes(), digest)

    def sign(
        self, body: bytes | None = None, key: str = "ci", namespace: str = NAMESPACE_REPORT
    ) -> None:
        text = self.body() if body is None else body
        signature = sshsig.sign(signed_part(text), self.keys.path(key), namespace=namespace)
        self.report.write_bytes(attach(text, signature))
        with suppress(sshsig.MalformedSignature):
            self.signer = sshsig.parse(signature).key_fingerprint

    def edit(self, change: Callable[[bytes], bytes], name: str = "report.md") -> None:
        path = self.folder / name
        before = path.read_bytes()
        after = change(before)
        assert after != before
        path.write_bytes(after)

    def verify(self, allowed: str | None = None, **more: Any) -> Verification:
        options = {key: more.pop(key) for key in ("fingerprints", "revoked", "at") if key in more}
        text = self.keys.line("ci") if allowed is None else allowed
        policy = SignerPolicy(allowed=text.encode(), **options)
        parts = {"judge": judge, "render": render, "signer": lambda _read: self.signer, **more}
        replay = replaced(Replay(), parts)
        return verify_folder(self.report, policy=policy, replay=replay, **parts)
