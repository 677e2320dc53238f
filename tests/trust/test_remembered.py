"""A remembered verification is forgotten at any change of what it rests on."""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.trust import remembered
from harness.trust.remembered import (
    SETTLED_AFTER_NS,
    VerificationMemory,
    keeps_times,
    names_in,
    reader_digest,
    stamp_of,
    write_back,
    write_whole,
)
from harness.trust.signers import SignerPolicy

FOUND: dict[str, object] = {"verdict": "PASS"}
NOW = datetime(2026, 1, 3, tzinfo=UTC)


@pytest.fixture(autouse=True)
def any_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may have their folders on one that keeps no times."""
    monkeypatch.setattr(remembered, "keeps_times", lambda _: True)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder as a run has it."""
    folder = tmp_path / "results" / "run"
    (folder / "evidence" / "deep").mkdir(parents=True)
    for name in ("report.md", "evidence/a", "evidence/deep/b"):
        (folder / name).write_text("content")
    (folder / "evidence" / "empty").mkdir()
    return folder


def keep(run: Path, *, reader: str = "r", began_ns: int | None = None) -> bool:
    """Remember the run as it is; by default as if it had not changed for long."""
    memory = VerificationMemory(run.parent, reader=reader, cache=run.parents[1] / "cache")
    names = names_in(run)
    assert names is not None
    stamp = stamp_of(run, names)
    later = time.time_ns() + 2 * SETTLED_AFTER_NS
    kept = memory.remember(
        "run",
        run,
        names=names,
        before=stamp,
        after=stamp,
        began_ns=later if began_ns is None else began_ns,
        found=FOUND,
    )
    memory.save()
    return kept


def recalled(run: Path, *, reader: str = "r") -> object:
    memory = VerificationMemory(run.parent, reader=reader, cache=run.parents[1] / "cache")
    return memory.recall("run", run)


def test_what_did_not_change_is_recalled(run: Path) -> None:
    """By another process, and for this reader alone."""
    assert recalled(run) is None
    assert keep(run)
    assert recalled(run) == FOUND
    assert recalled(run, reader="another list of signers") is None


def edit_in_place(run: Path) -> None:
    """The same size and the old times: only the change of the status tells."""
    file = run / "evidence" / "a"
    before = file.stat()
    with file.open("r+") as opened:
        opened.write("CONTENT")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(run: Path) -> None:
    """Another file of the same name, size and times."""
    file = run / "evidence" / "a"
    before = file.stat()
    other = run / "evidence" / "other"
    other.write_text("CONTENT")
    other.replace(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def add(run: Path) -> None:
    """A file in the deepest folder, with the old times of the folder."""
    folder = run / "evidence" / "empty"
    before = folder.stat()
    (folder / "new").touch()
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def link(run: Path) -> None:
    (run / "evidence" / "a").unlink()
    (run / "evidence" / "a").symlink_to("deep/b")


CHANGES: list[Callable[[Path], object]] = [
    edit_in_place,
    replace,
    add,
    link,
    lambda run: (run / "report.md").unlink(),
    lambda run: (run / "report.md").rename(run / "Report.md"),
    lambda run: (run / "evidence" / "deep" / "b").chmod(0o600),
    lambda run: (run / "evidence" / "empty").rmdir(),
    lambda run: run.rename(run.with_name("elsewhere")),
    lambda run: (run / "report.md").write_text("longer content"),
]


def tick(run: Path) -> None:
    """Wait until the kernel's clock for files has ticked: before, no change can be told."""
    latest = max(path.lstat().st_ctime_ns for path in (run, *run.rglob("*")))
    probe = run.parents[1] / "probe"
    probe.touch()
    while probe.stat().st_ctime_ns <= latest:
        probe.touch()


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_the_run_is_noticed(run: Path, change: Callable[[Path], object]) -> None:
    """Also one that restores size and times."""
    assert keep(run)
    tick(run)
    change(run)
    assert recalled(run) is None


def test_what_changed_just_now_is_not_remembered(run: Path) -> None:
    """A second change within one tick of the file system's clock could not be told apart."""
    assert not keep(run, began_ns=time.time_ns())
    assert recalled(run) is None


def test_what_changed_while_it_was_verified_is_not_remembered(run: Path) -> None:
    """What was found may be of neither."""
    names = names_in(run)
    assert names is not None
    before = stamp_of(run, names)
    (run / "report.md").write_text("other")
    memory = VerificationMemory(run.parent, reader="r", cache=run.parents[1] / "cache")
    later = time.time_ns() + 2 * SETTLED_AFTER_NS
    kept = memory.remember(
        "run",
        run,
        names=names,
        before=before,
        after=stamp_of(run, names),
        began_ns=later,
        found=FOUND,
    )
    assert not kept


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"reader": "r"}',
        b'{"reader": "r", "runs": {"run": 1}}',
        b'{"reader": "r", "runs": {"run": {"names": "", "stamp": "0", "found": []}}}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_damaged_memory_is_no_memory(run: Path, content: bytes) -> None:
    """The runs can be verified again."""
    assert keep(run)
    (file,) = (run.parents[1] / "cache").iterdir()
    file.write_bytes(content)
    assert recalled(run) is None
    assert keep(run)
    assert recalled(run) == FOUND


def test_a_memory_that_is_not_mine_is_not_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write it could make any run look verified; nor is a link followed."""
    assert keep(run)
    (file,) = (run.parents[1] / "cache").iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
        assert recalled(run) is None
    moved = file.rename(run.parents[1] / "moved")
    file.symlink_to(moved)
    assert recalled(run) is None
    assert file.is_symlink()
    assert moved.stat().st_mode & 0o777 == 0o600


def test_who_may_sign_and_when_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another list, key, time of validity, view or version: nothing of before counts."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVucmVhbHVucmVhbHVucmVhbHVucmVhbHVucmVh"
    listed = f'ci namespaces="report@rankproof",valid-before="20260201" {key}\n'.encode()

    def digest(now: datetime = NOW, environ: dict[str, str] | None = None, **policy: object) -> str:
        given: dict[str, object] = {"allowed": listed, **policy}
        return reader_digest(SignerPolicy(**given), now=now, environ=environ or {})  # type: ignore[arg-type]

    usual = digest()
    assert digest() == usual
    others = [
        digest(allowed=listed + b"# more\n"),
        digest(allowed=None),
        digest(own=("SHA256:x",)),
        digest(fingerprints=("SHA256:x",)),
        digest(revoked=b"list"),
        digest(at="report"),
        digest(now=datetime(2026, 2, 2, tzinfo=UTC)),
        digest(environ={"RANKPROOF_VIEWS": "mine.txt"}),
    ]
    for name, value in (("__version__", "0.2.0"), ("_code_stamp", lambda: 1)):
        with monkeypatch.context() as patched:
            patched.setattr(remembered, name, value)
            others.append(digest())
    assert len({usual, *others}) == len(others) + 1
    # The same day of the same list is the same.
    assert digest(now=datetime(2026, 1, 4, tzinfo=UTC)) == usual


def test_names_that_nobody_types_are_remembered_too(tmp_path: Path) -> None:
    """Bytes that are no text, new lines and quotes."""
    run = tmp_path / "results" / "run"
    run.mkdir(parents=True)
    for name in (b"\xff\xfe", b"a\nb", b'"quoted"', "é".encode()):
        Path(os.fsdecode(os.fsencode(run) + b"/" + name)).write_text("x")
    assert keep(run)
    assert recalled(run) == FOUND


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither half a file nor a draft beside it."""
    page = tmp_path / "index.html"
    write_whole(page, b"before", mode=0o644)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        with pytest.raises(OSError, match="No space"):
            write_whole(page, b"after")
    assert page.read_bytes() == b"before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["index.html"]
    assert page.stat().st_mode & 0o777 == 0o644


def test_a_folder_that_cannot_be_listed_has_no_names(tmp_path: Path) -> None:
    """Nor has one with more in it than a report may have."""
    assert names_in(tmp_path / "missing") is None
    (tmp_path / "one").touch()
    assert names_in(tmp_path) == ["", "one"]


def test_what_is_kept_is_json_that_a_person_can_read(run: Path) -> None:
    """With the names of the files."""
    keep(run)
    (file,) = (run.parents[1] / "cache").iterdir()
    assert json.loads(file.read_text())["runs"]["run"]["found"] == FOUND


def test_what_is_written_through_a_memory_map_is_noticed(run: Path) -> None:
    """A page of the map that was written before stays writable until it is written back."""
    if not keeps_times(run):
        pytest.skip("this file system does not keep the times of such writes")
    file = run / "evidence" / "a"
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as written:
        written[0] = ord("C")
        names = names_in(run)
        assert names is not None
        write_back(run, names)
        assert keep(run)
        assert recalled(run) == FOUND
        tick(run)
        written[0] = ord("X")
        assert recalled(run) is None


def test_nothing_is_remembered_where_changes_leave_no_time(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On tmpfs, and on what a server keeps."""
    monkeypatch.setattr(remembered, "keeps_times", keeps_times)
    monkeypatch.setattr(remembered, "LOCAL", frozenset())
    assert not keep(run)
    assert recalled(run) is None


def test_what_the_kernel_makes_up_keeps_no_times() -> None:
    """Nor does what cannot be found."""
    assert not keeps_times(Path("/proc/self"))
    assert not keeps_times(Path("/proc/self/nothing/there"))
