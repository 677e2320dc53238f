"""Which keys count at a gate: not one that was given up, and no key twice."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.pull_requests import POLICY, Copy, Keys, Place, not_met, row

pytestmark = pytest.mark.slow  # together they take more than the inner loop has

Make = Callable[[], Copy]


def test_a_revoked_key(place: Place, copy: Make, gate_keys: Keys) -> None:
    """A key that the trusted branch gave up signs nothing any more."""
    copy().sign()
    place.trust(
        {
            ".rankproof/policy.yaml": POLICY.replace(
                "signers:\n", "signers:\n  revoked: revoked_signers\n"
            ),
            ".rankproof/revoked_signers": " ".join(
                gate_keys.path("ci").with_suffix(".pub").read_text().split()[:2]
            )
            + "\n",
        }
    )
    found = place.gate()
    assert "SIGNER REVOKED" in row(found, "verified").reason


def test_two_certificates_for_one_key_are_one_key(
    place: Place, copy: Make, gate_keys: Keys, tmp_path: Path
) -> None:
    """A key that holds two certificates does not make two keys."""
    ca = tmp_path / "ca"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ca)], check=True)
    public = " ".join(ca.with_suffix(".pub").read_text().split()[:2])
    place.trust(
        {
            ".rankproof/policy.yaml": POLICY.replace("ci: [ci, ci-two]", "ci: [ca]")
            + "signatures: {keys: 2}\n",
            ".rankproof/allowed_signers": "".join(
                gate_keys.line(name) for name in ("alice", "release")
            )
            + f'ca cert-authority,namespaces="report@rankproof" {public}\n',
        }
    )
    keys = Keys(tmp_path / "certified")
    keys.folder.mkdir()
    place.keys = keys
    for number, name in enumerate(("one", "two")):
        for suffix in ("", ".pub"):
            shutil.copy(gate_keys.path(f"ci{suffix}"), keys.folder / f"{name}{suffix}")
        subprocess.run(
            [
                "ssh-keygen",
                "-q",
                "-s",
                str(ca),
                "-I",
                name,
                "-n",
                "ca",
                "-z",
                str(number),
                str(keys.path(f"{name}.pub")),
            ],
            check=True,
        )
        shutil.copy(keys.path(f"{name}-cert.pub"), keys.path(f"{name}.pub"))
        copy().sign(name)
    found = place.gate()
    assert not_met(found) == {"keys": "REFUSED"}
    assert row(found, "keys").reason.startswith("the signatures of 1 key count")
