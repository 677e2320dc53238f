"""`rankproof view`: which runs the page shows, which of them are verified, and where it is
written.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.cli import USAGE, main
from harness.cli import view as page
from harness.cli.view import DEEPEST, refresh, run_around, run_places
from harness.report.runs_page import ListedRun, render_runs
from harness.run.replay import RecordReplay
from harness.trust import folder as trust_folder
from harness.trust import remembered
from harness.trust.replay import Read, Replay
from harness.trust.signers import SignerPolicy
from harness.trust.sshsig import NoSshKeygen
from harness.trust.verification import Verification
from tests.kit.commands import SCENARIO, SUBJECT, Ran, run_command

Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A results folder with two runs of a scenario, and the environment of who made them."""
    place = tmp_path_factory.mktemp("viewed")
    folder = place / "scenario"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "subject.py").write_text(SUBJECT)
    key = place / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    mine = {"RANKPROOF_SIGNING_KEY": str(key), "CI": ""}
    for _ in range(2):
        ran = run_command(place, "run", str(folder), env=mine)
        assert ran.code == 0, ran.err
    return ran.folder.parents[1], mine


@pytest.fixture
def results(made: tuple[Path, dict[str, str]], tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    shutil.copytree(made[0], tmp_path / "results", symlinks=True)
    return tmp_path / "results"


@pytest.fixture
def view(
    made: tuple[Path, dict[str, str]], tmp_path: Path, rankproof: Run
) -> Callable[..., tuple[Ran, str]]:
    """Call the command; what it printed, and the page."""

    def call(*arguments: str, out: Path | None = None, **env: str) -> tuple[Ran, str]:
        known = {**made[1], "XDG_CACHE_HOME": str(tmp_path / "cache"), **env}
        done = rankproof("view", *arguments, env=known)
        written = out or tmp_path / "results" / "index.html"
        return done, written.read_text() if written.exists() else ""

    return call


def words(shown: str) -> list[str]:
    return re.findall(r'<strong class="w [a-z]+">([A-Z ]+)</strong>', shown)


@pytest.mark.whole
def test_every_run_is_shown_once_and_verified_once(
    results: Path, view: Callable[..., tuple[Ran, str]]
) -> None:
    """`latest` is a link to one of them."""
    done, shown = view(str(results))
    assert done.code == 0, done.err
    assert words(shown) == ["PASS", "PASS"]
    assert shown.count("<bdi>MINE</bdi>") == 2
    assert shown.count("<figure>") == 2
    for link in re.findall(r'href="\./([^"]+)"', shown):
        assert (results / link).is_file()


@pytest.mark.slow
def test_what_did_not_change_is_not_verified_again(
    results: Path,
    made: tuple[Path, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But what did is, and all of it where other signers are accepted."""
    verified: list[str] = []
    verify = page._verified

    def counted(place: Path, *, name: str, path: str, policy: SignerPolicy) -> ListedRun:
        verified.append(name)
        return verify(place, name=name, path=path, policy=policy)

    monkeypatch.setattr(page, "_verified", counted)
    # The copies were made just now, and nothing changes beside.
    monkeypatch.setattr(remembered, "SETTLED_AFTER_NS", -(10**9))
    monkeypatch.setattr(remembered, "keeps_times", lambda _: True)
    for name, value in {**made[1], "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    assert main(["view", str(results)]) == 0
    first = (results / "index.html").read_text()
    assert len(verified) == 2
    assert main(["view", str(results)]) == 0
    assert len(verified) == 2
    again = (results / "index.html").read_text()
    assert re.sub("made <time>[^<]*", "", again) == re.sub("made <time>[^<]*", "", first)
    changed = next((results / "meet").glob("*/evidence/scenario.yaml"))
    changed.write_bytes(changed.read_bytes() + b"#")
    assert main(["view", str(results)]) == 0
    assert len(verified) == 3
    assert sorted(words((results / "index.html").read_text())) == ["NOT VERIFIED", "PASS"]
    monkeypatch.setenv("CI", "true")
    assert main(["view", str(results)]) == 0
    assert len(verified) == 5


@pytest.mark.slow
def test_what_verification_refuses_is_not_verified(
    results: Path, view: Callable[..., tuple[Ran, str]]
) -> None:
    """Edited evidence, an added file, somebody else's key, no signature, a report that is none."""
    first, second = sorted(path for path in (results / "meet").iterdir() if not path.is_symlink())
    assert words(view(str(results))[1]) == ["PASS", "PASS"]
    evidence = next(first.glob("evidence/*/candidate-00000/events.jsonl"))
    evidence.write_bytes(evidence.read_bytes().replace(b'"rank"', b'"RANK"', 1))
    (second / "more").touch()
    unsigned = results / "meet" / "unsigned"
    shutil.copytree(second, unsigned)
    body = (second / "report.md").read_text().split("## Signature")[0]
    (unsigned / "report.md").write_text(body)
    (results / "odd").mkdir()
    (results / "odd" / "report.md").mkdir()
    os.mkfifo(results / "report.md.d")
    done, shown = view(str(results))
    assert done.code == 0, done.err
    assert set(words(shown)) == {"NOT VERIFIED"}
    assert len(words(shown)) == 4
    for word in ("EVIDENCE EDITED", "UNLISTED FILE", "UNSIGNED", "NO REPORT"):
        assert word in shown
    assert "4 not verified" in done.out
    # Its own page may say anything: the text of the report is all that is offered.
    assert "report.html" not in shown
    # Of a stranger's key nothing is verified either, and under CI no key is mine.
    assert "<bdi>MINE</bdi>" not in view(str(results), CI="true")[1]


@pytest.mark.slow
def test_bundles_are_shown_too(
    results: Path,
    made: tuple[Path, dict[str, str]],
    view: Callable[..., tuple[Ran, str]],
    rankproof: Run,
    tmp_path: Path,
) -> None:
    """A folder of files that others sent; a damaged one is not verified."""
    run = (results / "meet" / "latest").resolve()
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    packed = rankproof("bundle", str(run), "--out", str(inbox / "a.rankproof.tar.xz"), env=made[1])
    assert packed.code == 0, packed.err
    (inbox / "b.rankproof.tar.xz").write_bytes(b"not a bundle")
    done, shown = view(str(inbox), out=inbox / "index.html")
    assert done.code == 0, done.err
    assert sorted(words(shown)) == ["NOT VERIFIED", "PASS"]
    assert 'href="./a.rankproof.tar.xz"' in shown


@pytest.mark.slow
def test_a_page_is_never_written_into_a_run(
    results: Path, view: Callable[..., tuple[Ran, str]]
) -> None:
    """There it would be a file that the manifest does not list. Nor where there is no folder."""
    run = (results / "meet" / "latest").resolve()
    (results / "link").symlink_to(run / "evidence")
    places = (run / "index.html", run / "evidence" / "index.html", results / "link" / "x.html")
    for out in places:
        done, _ = view(str(results), "--out", str(out))
        assert done.code == 64
        assert "inside the run" in done.err
        assert not out.exists()
    done, _ = view(str(run))
    assert done.code == 64
    assert view(str(results), "--out", str(results / "no" / "page.html"))[0].code == 64
    assert view(str(results / "missing"))[0].code == 64
    assert run_around(results / "index.html") is None


@pytest.mark.whole
def test_two_writers_leave_a_whole_page(
    results: Path, made: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Side by side, several times: no draft is left, and no page is cut."""
    command = [sys.executable, "-m", "harness.cli", "view", str(results)]
    env = {**os.environ, **made[1], "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for _ in range(3):
        writers = [subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) for _ in range(3)]
        assert [writer.wait() for writer in writers] == [0, 0, 0]
        assert (results / "index.html").read_text().endswith("</html>\n")
    drafts = [path.name for path in results.iterdir() if path.name.startswith(".index.html")]
    assert drafts == []


@pytest.mark.whole
def test_a_run_writes_the_page_anew_where_there_is_one(
    results: Path, made: tuple[Path, dict[str, str]], rankproof: Run, tmp_path: Path
) -> None:
    """And ends as it would have, also where the page cannot be written."""
    scenario = made[0].parent / "scenario"
    env = {**made[1], "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = ("run", str(scenario), "--results", str(results))
    assert rankproof(*command, env=env).code == 0
    assert not (results / "index.html").exists()
    # Somebody's own page stays, and one that was made with options.
    (results / "index.html").write_text("my own")
    assert rankproof(*command, env=env).code == 0
    assert (results / "index.html").read_text() == "my own"
    assert rankproof("view", str(results), env=env).code == 64
    (results / "index.html").unlink()
    assert rankproof("view", str(results), "--at", "report", env=env).code == 0
    before = (results / "index.html").read_bytes()
    assert rankproof(*command, env=env).code == 0
    assert (results / "index.html").read_bytes() == before
    assert rankproof("view", str(results), env=env).code == 0
    assert rankproof(*command, env=env).code == 0
    assert len(words((results / "index.html").read_text())) == 6


def test_a_page_that_cannot_be_written_fails_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong is one line."""
    old = render_runs([], place="results", made="2026-01-03T11:00:00Z")
    (tmp_path / "index.html").write_bytes(old)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("harness.cli.view.write_whole", refuse)
    refresh(tmp_path)
    assert "No space left on device" in capsys.readouterr().err
    assert (tmp_path / "index.html").read_bytes() == old


def test_runs_are_found_without_following_links(tmp_path: Path) -> None:
    """Nor within runs, in hidden folders, or without end."""
    for name in ("a/1", "a/1/inner", "b", ".hidden/x", "deep/" + "d/" * DEEPEST + "x"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "report.md").touch()
    (tmp_path / "a" / "latest").symlink_to("1")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "x.rankproof.tar.xz").touch()
    (tmp_path / "y.rankproof.tar.xz").symlink_to("x.rankproof.tar.xz")
    (tmp_path / "a" / "1" / "results.json").touch()
    unread: list[str] = []
    found = [str(path.relative_to(tmp_path)) for path in run_places(tmp_path, unread=unread)]
    assert found == ["a/1", "b", "x.rankproof.tar.xz"]
    (deep,) = unread
    assert deep.endswith("nested more than 8 folders deep")


def test_a_report_that_somebody_left_among_runs_hides_none(tmp_path: Path) -> None:
    """It is no run, and is shown as one that is not verified."""
    (tmp_path / "a").mkdir()
    for folder in (tmp_path, tmp_path / "a"):
        (folder / "report.md").touch()
    (tmp_path / "a" / "MANIFEST.sha256").touch()
    assert list(run_places(tmp_path, unread=[])) == [tmp_path, tmp_path / "a"]


@pytest.mark.slow
def test_a_run_on_which_the_verifier_fails_leaves_the_page_of_the_others(
    results: Path,
    made: tuple[Path, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug of ours that one folder meets is named in its row."""
    first = min(path for path in (results / "meet").iterdir() if not path.is_symlink())
    judge = RecordReplay.judge

    def fails(self: RecordReplay, read: Read, names: Sequence[str]) -> str | None:
        if read("results.json").find(first.name.encode()) >= 0:
            raise ZeroDivisionError("a slip")
        return judge(self, read, names)

    monkeypatch.setattr(RecordReplay, "judge", fails)
    for name, value in {**made[1], "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    assert main(["view", str(results)]) == 0
    shown = (results / "index.html").read_text()
    assert sorted(words(shown)) == ["NOT VERIFIED", "PASS"]
    assert "ZeroDivisionError: a slip" in shown


@pytest.mark.slow
def test_a_failure_that_passes_is_not_remembered(
    results: Path,
    made: tuple[Path, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Open files ran out during the first page; the second is whole."""
    verify = trust_folder.verify_folder

    def fails(report: Path, *, policy: SignerPolicy, replay: Replay) -> Verification:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(trust_folder, "verify_folder", fails)
    monkeypatch.setattr(remembered, "SETTLED_AFTER_NS", -(10**9))
    monkeypatch.setattr(remembered, "keeps_times", lambda _: True)
    for name, value in {**made[1], "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    assert main(["view", str(results)]) == 0
    shown = (results / "index.html").read_text()
    assert words(shown) == ["NOT VERIFIED", "NOT VERIFIED"]
    assert "Too many open files" in shown
    monkeypatch.setattr(trust_folder, "verify_folder", verify)
    assert main(["view", str(results)]) == 0
    assert words((results / "index.html").read_text()) == ["PASS", "PASS"]


@pytest.mark.slow
def test_a_machine_without_ssh_keygen_makes_no_page(
    results: Path,
    made: tuple[Path, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is not called a bug that each run meets."""

    def fails(report: Path, *, policy: SignerPolicy, replay: Replay) -> Verification:
        raise NoSshKeygen("ssh-keygen is not installed")

    monkeypatch.setattr(trust_folder, "verify_folder", fails)
    for name, value in {**made[1], "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    assert main(["view", str(results)]) == USAGE
    assert "ssh-keygen is not installed" in capsys.readouterr().err
    assert not (results / "index.html").exists()
