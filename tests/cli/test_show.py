"""`rankproof show`: of a folder, a report, a bundle; as an issue.

And who signed, as the reader's own list has it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.run.replay import RecordReplay
from harness.trust.folder import verify_folder
from harness.trust.signers import SignerPolicy
from harness.trust.verification import Verification
from tests.kit import forge
from tests.kit.commands import SCENARIO, SUBJECT, Ran
from tests.kit.repositories import git

Run = Callable[..., Ran]
Write = Callable[..., Path]
WIDE = {"COLUMNS": "120"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A signed run, its bundle, and the key that signed it."""
    from tests.kit.commands import run_command

    place = tmp_path_factory.mktemp("shown")
    folder = place / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "subject.py").write_text(SUBJECT)
    key = place / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    ran = run_command(place, "run", str(folder), "--key", str(key))
    assert ran.code == 0, ran.err
    bundle = place / "it.rankproof.tar.xz"
    packed = run_command(place, "bundle", str(ran.folder), "--out", str(bundle))
    assert packed.code == 0, packed.err
    return ran.folder, bundle, key


def verify(folder: Path) -> Verification:
    named = forge.signer_of(folder / "report.md")
    return verify_folder(
        folder / "report.md", policy=SignerPolicy(fingerprints=(named,)), replay=RecordReplay()
    )


@pytest.mark.whole
def test_a_folder_a_report_and_a_bundle_are_shown_alike(
    made: tuple[Path, Path, Path], rankproof: Run
) -> None:
    """The first screen; with `--all` also the trials as signs, the tracebacks and the appendix.

    A bundle shows what its folder does.
    """
    folder, bundle, _ = made
    signer = ("--signer", forge.signer_of(folder / "report.md"))
    shown = [
        rankproof("show", str(given), *signer, env=WIDE)
        for given in (folder, folder / "report.md", bundle)
    ]
    assert [one.code for one in shown] == [0, 0, 0]
    bodies = [one.out.split("\nMade ")[0] for one in shown]
    assert len(set(bodies)) == 1
    failed = (
        "The control failed as required in 2 of 2 trials: AssertionError at assert thing on rank 1."
    )
    assert f"Control     {failed}" in bodies[0]
    assert "This run" not in bodies[0]
    every = [
        rankproof("show", str(given), "--all", *signer, env=WIDE).out for given in (folder, bundle)
    ]
    bodies = [one.split("\nMade ")[0] for one in every]
    assert len(set(bodies)) == 1
    for part in (
        f"Control     {failed}",
        "ranks=2,backend=none control: ⊠⊠",
        "    AssertionError",
        "Signed by   SHA256:",
        "Trials, rank by rank",
        "How the numbers are computed",
    ):
        assert part in bodies[0], part
    issues = [rankproof("show", str(given), "--issue", *signer) for given in (folder, bundle)]
    assert issues[0].out == issues[1].out
    assert "## **PASS** Ranks meet" in issues[0].out
    assert "assert thing" in issues[0].out
    assert str(folder) not in issues[0].out


@pytest.mark.slow
def test_the_readers_own_list_says_who_signed(
    made: tuple[Path, Path, Path], rankproof: Run, tmp_path: Path
) -> None:
    """Unknown without a list, named with one, BAD SIGNATURE where the text was changed, and
    unsigned is said.
    """
    folder, _, key = made
    place = tmp_path / "repository"
    place.mkdir()
    unknown = rankproof("show", str(folder), cwd=place)
    assert unknown.out.startswith("NOT VERIFIED: UNKNOWN SIGNER. ")
    assert "NOT VERIFIED: UNKNOWN SIGNER: signed by SHA256:" in unknown.out
    (place / ".rankproof").mkdir()
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    (place / ".rankproof" / "allowed_signers").write_text(
        f'release namespaces="report@rankproof" {public}\n'
    )
    known = rankproof("show", str(folder), cwd=place)
    assert "allowed_signers as release" in known.out
    assert (unknown.code, known.code) == (3, 0)
    changed = shutil.copytree(folder, tmp_path / "changed")
    report = changed / "report.md"
    report.write_bytes(report.read_bytes().replace(b"2 of 2", b"6 of 6", 1))
    assert "NOT VERIFIED: BAD SIGNATURE" in rankproof("show", str(changed), cwd=place).out


@pytest.mark.slow
@pytest.mark.parametrize("option", [(), ("--all",), ("--issue",)])
@pytest.mark.parametrize("altered", ["report.md", "results.json", "evidence", "signer"])
def test_what_does_not_verify_is_shown_as_not_verified(
    made: tuple[Path, Path, Path],
    rankproof: Run,
    tmp_path: Path,
    altered: str,
    option: tuple[str, ...],
) -> None:
    """The first line says so, the command fails as `verify` does, and no PASS stands alone; nobody
    is named as the signer of a text that the key did not sign.
    """
    folder = shutil.copytree(made[0], tmp_path / "changed")
    signer = forge.signer_of(folder / "report.md")
    if altered == "evidence":
        (path,) = folder.glob("evidence/*/control-00000/events.jsonl")
        path.write_bytes(path.read_bytes().replace(b'"rank":1', b'"rank":0', 1))
    elif altered == "signer":
        signer = f"SHA256:{'A' * 43}"
    else:
        path = folder / altered
        path.write_bytes(path.read_bytes().replace(b"Ranks meet", b"Ranks greet", 1))
    shown = rankproof("show", str(folder), *option, "--signer", signer, env=WIDE)
    assert shown.code == rankproof("verify", str(folder), "--signer", signer).code == 3
    first = shown.out.splitlines()[0].replace("*", "")
    words = {"report.md": "BAD SIGNATURE", "results.json": "EVIDENCE EDITED",
             "evidence": "EVIDENCE EDITED", "signer": "UNKNOWN SIGNER"}  # fmt: skip
    assert first.startswith(f"NOT VERIFIED: {words[altered]}. ")
    assert shown.out.count("PASS") == shown.out.count("unverified PASS") > 0
    if altered == "report.md":
        assert "Signed by" not in shown.out


@pytest.mark.slow
def test_nobody_signed(rankproof: Run, scenario: Write) -> None:
    """An unsigned run says so on the first screen of its report and at the end of what is shown."""
    ran = rankproof("run", str(scenario()), "--unsigned")
    assert ran.record.run.signer is None
    unsigned = (
        "**Signed by.** **no one**, so anyone with access to this file may have changed it.\n"
    )
    assert unsigned in (ran.folder / "report.md").read_text().split("\n## ")[0]
    assert "NOT VERIFIED: UNSIGNED" in rankproof("show", str(ran.folder), env=WIDE).out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            b"AssertionError at `assert thing` on rank 1",
            b"AssertionError at `assert other` on rank 1",
        ),
        (
            b"The control failed as required in 2 of 2 trials",
            b"The control failed as required in 50 of 50 trials",
        ),
        (b"**Not shown.** ", b"**Not shown.** Nothing. "),
        (b"**Signed by.** ", b"**Signed by.** release, "),
    ],
)
def test_a_first_screen_that_is_edited_is_refused(
    made: tuple[Path, Path, Path], tmp_path: Path, before: bytes, after: bytes
) -> None:
    """Under the very same key: the record renders to another text."""
    folder = shutil.copytree(made[0], tmp_path / "run")
    assert verify(folder).ok
    report = folder / "report.md"
    assert before in report.read_bytes()
    report.write_bytes(report.read_bytes().replace(before, after, 1))
    forge.resign(folder, made[2])
    assert verify(folder).word == "RENDERED DIFFERENTLY"


@pytest.mark.slow
def test_a_report_signed_by_another_key_than_its_record_names(
    made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """Somebody else's good signature under an honest report: who says so is part of what it
    says.
    """
    folder = shutil.copytree(made[0], tmp_path / "run")
    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (folder / "attestation.dsse.json").unlink()
    forge.resign(folder, key)
    found = verify(folder)
    assert found.word == "SIGNED BY ANOTHER KEY", found
    assert "the record names SHA256:" in found.message


@pytest.mark.slow
def test_a_control_that_fails_elsewhere_is_said_on_the_first_screen(
    rankproof: Run, scenario: Write
) -> None:
    """The line follows from the evidence: another failing line, another sentence, another
    verdict.
    """
    elsewhere = SUBJECT.replace("    assert thing\n", "    assert thing is not None\n")
    ran = rankproof("run", str(scenario({"subject.py": elsewhere})))
    assert ran.code == 2
    said = (ran.folder / "report.md").read_text()
    assert (
        "**Control.** The control failed as required in 0 of 2 trials. Instead, in 2 trials: rank 1 did not fail at"
        in said
    )
    assert "assert thing is not None" in said.split("\n## ")[0]


@pytest.mark.slow
def test_a_stranger_cannot_make_an_issue_of_files_outside(
    made: tuple[Path, Path, Path], rankproof: Run, tmp_path: Path
) -> None:
    """A record that names a file outside its folder, or a link, is not read out."""
    folder = shutil.copytree(made[0], tmp_path / "run")
    secret = tmp_path / "secret.log"
    secret.write_text("hunter2\n")
    (target,) = folder.glob("evidence/*/control-00000/rank-1.log")
    target.unlink()
    target.symlink_to(secret)
    shown = rankproof("show", str(folder), "--issue")
    assert shown.code == 64
    assert "hunter2" not in shown.out + shown.err
    assert "is a link" in shown.err


@pytest.mark.slow
def test_the_repository_that_was_run_may_list_the_signer(
    rankproof: Run, scenario: Write, tmp_path: Path
) -> None:
    """Whom its own allowed_signers lists the key for is in the record, and on the first screen as
    what it is.
    """
    folder = scenario()
    git(folder, "init", "-q")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    (folder / ".rankproof").mkdir()
    (folder / ".rankproof" / "allowed_signers").write_text(
        f'release namespaces="report@rankproof" {public}\n'
    )
    ran = rankproof("run", str(folder), "--key", str(key))
    signer = ran.record.run.signer
    assert signer is not None
    assert signer.name == "release"
    said = (ran.folder / "report.md").read_text().split("\n## ")[0]
    assert f"`{signer.key}`, listed for release in the tested repository" in said


@pytest.mark.slow
def test_my_own_report_is_mine_to_look_at_and_to_verify_if_i_say_so(
    made: tuple[Path, Path, Path], rankproof: Run
) -> None:
    """`verify X && deploy` passes on nobody's word by accident; under CI no key is anybody's."""
    folder, _, key = made
    report = str(folder / "report.md")
    mine = {"RANKPROOF_SIGNING_KEY": str(key), "CI": ""}
    refused = rankproof("verify", report, env=mine)
    assert refused.code == 3
    assert refused.out.splitlines()[-1] == (
        f"It is signed by your own key. To accept it: rankproof verify --mine {report}"
    )
    accepted = rankproof("verify", "--mine", report, env=mine)
    assert accepted.code == 0
    assert "verified: MINE, signed by your own key SHA256:" in accepted.out
    assert "MINE" in rankproof("show", report, env=mine).out
    # Too few trials to tell, but not refused.
    assert rankproof("diff", str(folder), str(folder), env=mine).code == 2
    # Of somebody else's key nothing is said, and nothing is accepted.
    others = rankproof("verify", "--mine", report, env={"CI": ""})
    assert others.code in (3, 64)
    assert "your own key" not in others.out
    under_ci = rankproof("verify", "--mine", report, env={**mine, "CI": "true"})
    assert under_ci.code == 64
    assert "CI is set" in under_ci.err
    assert "your own" not in rankproof("verify", report, env={**mine, "CI": "true"}).out
    assert rankproof("diff", str(folder), str(folder), env={**mine, "CI": "true"}).code == 3
