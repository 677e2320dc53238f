"""What lies beside the manifest (views, the statement, lists of signers, keys), at the edges of
what is read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.trust import folder as room
from harness.trust import footer, signers, sshsig
from harness.trust import key as keys_room
from harness.trust.folder import UnreadableFile
from harness.trust.key import KeyProblem, find_signer
from harness.trust.replay import CannotRender
from harness.trust.signers import SignerPolicy, SignersMalformed, read, read_signers
from harness.trust.sshsig import NAMESPACE_REPORT, SigningFailed
from harness.trust.verification import STEPS, OutOfOrder, VerificationStep, Verifier

if TYPE_CHECKING:
    from tests.kit.signed_runs import Run

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def views(**contents: bytes) -> dict[str, Any]:
    """Renderers of views by name, each of which gives the same text."""
    return {
        name.replace("_", "."): lambda _read, _manifest, text=text: text
        for name, text in contents.items()
    }


def outcome(run: Run, **more: Any) -> tuple[bool, str, str, str]:
    """Whether it is ok, the word, and what became of the views, in one word and in many."""
    found = run.verify(**more)
    step = next(step for step in found.steps if step.name == "views")
    return found.ok, found.word, step.outcome, step.message


def test_views_that_are_there_are_drawn_again(run: Run) -> None:
    """Each is the same bytes, or is named with the line that differs.

    What is not there is named too.
    """
    known = views(report_html=b"<p>\n", junit_xml=b"<x/>\n")
    ok, _, word, message = outcome(run, views=known)
    assert (ok, word) == (True, "absent")
    assert message == "the folder has no views; missing: junit.xml, report.html"
    (run.folder / "report.html").write_bytes(b"<p>\n")
    ok, _, word, message = outcome(run, views=known)
    assert (ok, word, message) == (
        True,
        "passed",
        "report.html: match the record; missing: junit.xml",
    )
    (run.folder / "junit.xml").write_bytes(b"<x/>\n")
    ok, _, word, message = outcome(run, views=known)
    assert (ok, word, message) == (
        True,
        "passed",
        "report.html, junit.xml: match the record",
    )
    (run.folder / "junit.xml").write_bytes(b"<y/>\n")
    ok, refusal, word, message = outcome(run, views=known)
    assert (ok, refusal, word) == (False, "VIEW EDITED", "refused")
    assert message.startswith("junit.xml, line 1: the view contains '<y/>'")


def test_a_view_that_cannot_be_drawn_again(run: Run) -> None:
    """It is refused in the weak word, which a caller may accept.

    A view that cannot be read is refused in its own.
    """

    def unable(*_: object) -> bytes:
        raise CannotRender("no renderer")

    (run.folder / "report.html").write_bytes(b"x")
    assert outcome(run, views={"report.html": unable})[:3] == (
        False,
        "VIEW NOT RENDERED",
        "refused",
    )
    (run.folder / "report.html").unlink()
    (run.folder / "report.html").symlink_to("/etc/passwd")
    assert outcome(run, views=views(report_html=b"x"))[:3] == (False, "VIEW UNREADABLE", "refused")


def test_a_statement_that_cannot_be_read_is_a_statement(run: Run) -> None:
    """A link in its place is the statement's fault, and an unlisted file where no statement is
    known.
    """
    place = run.folder / room.STATEMENT
    place.symlink_to("/etc/passwd")
    found = run.verify(makes_statements=True)
    assert (found.ok, found.word) == (False, "STATEMENT UNREADABLE")
    assert next(step.outcome for step in found.steps if step.name == "statement") == "refused"
    found = run.verify()
    assert (found.ok, found.word) == (False, "UNLISTED FILE")
    place.unlink()
    found = run.verify(makes_statements=True)
    assert (found.ok, next(step.outcome for step in found.steps if step.name == "statement")) == (
        True,
        "absent",
    )


def test_a_finished_verification_has_no_further_step(run: Run) -> None:
    """Whoever asks for one more is told that there is none."""
    policy = SignerPolicy(allowed=run.keys.line("ci").encode())
    made = Verifier(ssh=sshsig, policy=policy, now=NOW)
    with pytest.raises(OutOfOrder):
        made.check_views({}, lambda *_: b"")
    made._steps = [VerificationStep(name, "passed") for name in STEPS]
    with pytest.raises(OutOfOrder, match="but no step is left"):
        made.take_report(b"")


def test_lists_of_signers_have_a_largest_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of just that size is read, and a byte more is not."""
    monkeypatch.setattr(signers, "LARGEST_SIGNERS", 4)
    (tmp_path / "four").write_bytes(b"four")
    (tmp_path / "five").write_bytes(b"five!")
    assert read_signers(tmp_path / "four") == b"four"
    with pytest.raises(SignersMalformed, match="larger than 4 bytes"):
        read_signers(tmp_path / "five")


def test_as_many_files_as_a_manifest_may_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report and what lies beside it are five more.

    Folders count too, and the folder itself is named by a dot.
    """
    monkeypatch.setattr(room, "MOST_FILES", 5)
    for number in range(10):
        (tmp_path / str(number)).touch()
    with room.Folder(tmp_path) as folder:
        assert len(folder.names()) == 10
        (tmp_path / "10").touch()
        with pytest.raises(UnreadableFile, match="more than 5 files"):
            folder.names()
    other = tmp_path / "folders"
    for number in range(10):
        (other / str(number)).mkdir(parents=True)
    with room.Folder(other) as folder:
        assert folder.names() == []
        (other / "10").mkdir()
        with pytest.raises(UnreadableFile, match="more than 5 files"):
            folder.names()


def test_files_are_kept_as_far_as_there_is_room(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What just fits is kept, so that it is not read a second time."""
    sizes = [
        path.stat().st_size
        for path in run.folder.rglob("*")
        if path.is_file() and path.name.startswith("rank")
    ]
    record = (run.folder / "results.json").stat().st_size
    monkeypatch.setattr(room, "LARGEST_KEPT", sum(sizes) + record)
    reads: list[str] = []
    plain = room.Folder.read

    def counted(self: room.Folder, name: str, limit: int) -> bytes:
        reads.append(name)
        return plain(self, name, limit)

    monkeypatch.setattr(room.Folder, "read", counted)
    assert run.verify().ok
    assert set(reads) <= {"report.md", "MANIFEST.sha256"}


def test_texts_of_just_the_size_are_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte more is not looked at."""
    monkeypatch.setattr(footer, "LARGEST_REPAIRED", 4)
    assert list(footer.repaired(b"a\r\nb")) != []
    assert list(footer.repaired(b"a\r\nbc")) == []


@pytest.mark.parametrize("line", ["ci ssh-ed25519 AAAA", 'ci namespaces="x" ssh-ed25519'])
def test_three_words_are_a_line_only_without_options(line: str) -> None:
    """Name, type and key; with options the key is the fourth."""
    if "namespaces" in line:
        with pytest.raises(SignersMalformed):
            read(line.encode())
    else:
        assert len(read(line.encode())) == 1


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Variables of a person who has no key."""
    (tmp_path / "home").mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "GIT_CONFIG_NOSYSTEM": "1"}


def make(path: Path, *, words: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", words, "-f", path], check=True)
    return path


def test_a_key_is_not_made_where_that_is_not_wanted(home: dict[str, str]) -> None:
    """Nothing is written; once the key is there it is used."""
    with pytest.raises(KeyProblem, match="does not exist yet"):
        find_signer(environ=home, make=False)
    assert list(Path(home["HOME"]).iterdir()) == []
    made = find_signer(environ=home)
    assert find_signer(environ=home, make=False).fingerprint == made.fingerprint


def test_the_public_half_of_a_key_with_a_passphrase(tmp_path: Path, home: dict[str, str]) -> None:
    """What is asked of is the private half beside it."""
    key = make(tmp_path / "key", words="words")
    with pytest.raises(KeyProblem, match="needs a passphrase"):
        find_signer(explicit=f"{key}.pub", environ=home)
    with pytest.raises(KeyProblem, match="needs a passphrase"):
        find_signer(explicit=str(key), environ=home)


def test_a_key_that_no_agent_holds(tmp_path: Path, home: dict[str, str]) -> None:
    """A literal key has no private half here, whatever lies in the folder."""
    public = make(tmp_path / "key").with_suffix(".pub").read_text()
    with pytest.raises(KeyProblem, match="is not in an ssh-agent"):
        find_signer(explicit=public, environ=home)


def test_a_file_of_just_the_size_may_be_a_key(
    tmp_path: Path, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a byte more is too large."""
    key = make(tmp_path / "key")
    monkeypatch.setattr(keys_room, "LARGEST_KEY", key.stat().st_size)
    assert find_signer(explicit=str(key), environ=home).key_file == key
    monkeypatch.setattr(keys_room, "LARGEST_KEY", key.stat().st_size - 1)
    with pytest.raises(KeyProblem, match="too large"):
        find_signer(explicit=str(key), environ=home)


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program called ssh-keygen first on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "ssh-keygen").write_text(f"#!{shutil.which('sh')}\n{script}\n")
    (folder / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 1", "created no signature and reported no reason"),
        ("exit 0", "created no signature and reported no reason"),
        ("echo no such key >&2; echo more >&2; exit 255", "no such key"),
        ("echo '-----BEGIN SSH SIGNATURE-----'; exit 1", "reported no reason"),
    ],
)
def test_a_program_that_does_not_sign(
    script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit code and its output both have to be those of a signature.

    Its first words are the reason.
    """
    program(tmp_path, monkeypatch, script)
    with pytest.raises(SigningFailed) as caught:
        sshsig.sign(b"data", tmp_path / "key", namespace=NAMESPACE_REPORT)
    assert words in str(caught.value)
    assert "more" not in str(caught.value)


@pytest.mark.parametrize(
    ("script", "name"),
    [("echo ci", "ci"), ("echo ci; exit 1", None), ("exit 0", None), ("echo ci; echo me", "ci")],
)
def test_whose_name_a_key_has(
    script: str, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first that ssh-keygen says, where it says it with success."""
    program(tmp_path, monkeypatch, f"cat >/dev/null; {script}")
    assert sshsig.find_principal(b"signature", allowed="x", when=NOW) == name
