"""The verifier as a state machine, and what must hold for any bytes."""

from __future__ import annotations

import random
import shutil
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.forms.manifest import ManifestMalformed, encode, parse
from harness.trust import sshsig
from harness.trust.footer import (
    Footer,
    attach,
    repaired,
    signed_part,
    split,
    stated_manifest,
    stated_time,
    unsigned_footer,
)
from harness.trust.replay import Replay
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import BEGIN, END, MalformedSignature, armour
from harness.trust.verification import OutOfOrder, Refused, Verifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.signed_runs import Run

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _verifier() -> Verifier:
    return Verifier(ssh=sshsig, policy=SignerPolicy(), now=NOW)


@pytest.mark.parametrize(
    "step",
    [
        lambda v: v.check_signature(b""),
        lambda v: v.check_signer(),
        lambda v: v.take_manifest(b""),
        lambda v: v.take_file("x", "0" * 64),
        lambda v: v.take_names([], frozenset()),
        lambda v: v.judge(Replay(), lambda _: b""),
        lambda v: v.render(Replay(), lambda _: b""),
    ],
)
def test_no_step_runs_out_of_order(step: Callable[[Verifier], object]) -> None:
    """A step that rests on others refuses to run before they have passed, and after a refusal."""
    with pytest.raises(OutOfOrder):
        step(_verifier())
    verifier = _verifier()
    with pytest.raises(Refused, match="UNSIGNED"):
        verifier.take_report(b"")
    with pytest.raises(OutOfOrder):
        step(verifier)
    assert not verifier.result().ok


def test_nothing_is_ok_before_the_end(run: Run) -> None:
    """A verification that stops early is not ok, and a listed file that nobody checked stops it."""
    policy = SignerPolicy(allowed=run.keys.line("ci").encode())
    verifier = Verifier(ssh=sshsig, policy=policy, now=NOW)
    report = run.report.read_bytes()
    verifier.take_report(report)
    verifier.check_signature(report)
    verifier.check_signer()
    digests = verifier.take_manifest((run.folder / "MANIFEST.sha256").read_bytes())
    first = next(iter(digests))
    verifier.take_file(first, digests[first])
    with pytest.raises(OutOfOrder, match="never checked: 4 listed files"):
        verifier.take_names(list(digests), frozenset())
    assert not verifier.result(allow_unjudged=True).ok


TEXT = (
    st.binary(max_size=300)
    .map(lambda b: b + b"\n")
    .filter(lambda b: BEGIN not in b and END not in b)
)


@given(body=TEXT, blob=st.binary(max_size=200))
def test_split_undoes_attach(body: bytes, blob: bytes) -> None:
    """What was attached is found again, byte for byte, whatever the body holds."""
    signature = armour(blob)
    assert split(attach(body, signature)) == Footer(body, signed_part(body), signature)


@given(
    data=st.binary(max_size=400)
    | st.lists(st.sampled_from([BEGIN, END, b"\n", b"```\n", b"x"])).map(b"".join)
)
def test_split_never_fails(data: bytes) -> None:
    """Any bytes are either taken apart without loss or refused with a word."""
    found = split(data)
    if isinstance(found, Footer):
        assert found.signed + found.signature + b"```\n" == data


@given(reason=st.text(max_size=200), body=TEXT)
def test_unsigned_is_unsigned(reason: str, body: bytes) -> None:
    """No reason for an unsigned report makes it look signed."""
    found = split(body + unsigned_footer(reason))
    assert not isinstance(found, Footer)
    assert found.word == "UNSIGNED"


@given(blob=st.binary(max_size=200))
def test_armour_is_read_strictly(blob: bytes) -> None:
    """Arbitrary bytes in a well-formed armour are refused, never an error of another kind."""
    with pytest.raises(MalformedSignature):
        sshsig.parse(armour(blob))


@given(data=st.binary(max_size=300))
def test_mends_never_fail(data: bytes) -> None:
    """Explaining never fails and never offers the file itself."""
    assert all(candidate != data for _, candidate in repaired(data))


@given(
    data=st.binary(max_size=200)
    | st.text(max_size=100).map(lambda t: f"{'0' * 64}  {t}\n".encode(errors="replace"))
)
def test_manifest_is_canonical(data: bytes) -> None:
    """A manifest that is accepted is exactly what would be written for its content."""
    try:
        digests = parse(data)
    except ManifestMalformed:
        return
    assert encode(digests) == data


def test_lines_of_the_body() -> None:
    """The two lines that bind a body are read back as they are written, and only where there is one
    of each.
    """
    digest, made = "ab" * 32, f"Made: `{NOW:%Y-%m-%dT%H:%M:%SZ}`\n".encode()
    line = f"Manifest: `MANIFEST.sha256` sha256 `{digest}`"
    assert stated_manifest(f"x\n{line}\n".encode()) == digest
    assert stated_manifest(f"{line}\n".encode() * 2) is None
    assert stated_manifest(f"{line} and more\n".encode()) is None
    assert stated_time(made) == NOW
    assert stated_time(b"Made: `yesterday`\n") is None


@pytest.mark.whole
def test_any_changed_byte_is_refused(run: Run) -> None:
    """A hundred random changes of one byte, anywhere in a good folder, are all refused."""
    dice = random.Random(20260103)
    files = [path for path in sorted(run.folder.rglob("*")) if path.is_file()]
    for _ in range(100):
        path = dice.choice(files)
        before = path.read_bytes()
        at = dice.randrange(len(before))
        path.write_bytes(
            before[:at] + bytes([before[at] ^ dice.randrange(1, 256)]) + before[at + 1 :]
        )
        found = run.verify()
        assert not found.ok, (path, at, found)
        path.write_bytes(before)
    assert run.verify().ok


def test_a_thousand_files_are_verified_fast(run: Run) -> None:
    """A folder with a thousand evidence files is verified in under half a second of this process's
    time.
    """
    shutil.rmtree(run.folder / "evidence")
    run.write({f"trial-{number}": "pass" for number in range(250)}, ranks=4)
    run.write_manifest()
    run.sign()
    start = time.process_time()
    assert run.verify(judge=lambda *_: None).ok
    assert time.process_time() - start < 0.5
